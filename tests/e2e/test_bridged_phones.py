"""Bridged calls of phones that are not ours to script: baresip, and the softphone."""

from pathlib import Path

import numpy as np
import pytest

from lab import audio_match
from lab.baresip import Baresip
from lab.ports import HOST
from lab.server_under_test import GREETING, Server, engine_pcm
from lab.softphone import SoftphoneProcess
from tests.e2e.quiet import until_quiet

pytestmark = pytest.mark.e2e

LEAD = np.zeros(4 * 8000, np.int16)
SLIP_MS = 500.0
"""Stalls of baresip and the mixer on a busy machine move what follows."""


async def test_a_phone_hears_baresip_by_a_bridge_and_they_end_together(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    said = await engine_pcm(GREETING, tmp_path)
    heard_file = tmp_path / "heard.wav"
    audio = np.concatenate((LEAD, said))  # baresip speaks from its answer on, before the bridge is made
    agent = await Baresip.start(tmp_path / "baresip", user="agent", audio=audio, answers=True)
    try:
        async with server.events() as log:
            dialled = await phone.dial(server.uri("silent"), codec="pcma", record=heard_file)
            caller_id = await server.call_id(dialled["sip_call_id"])
            await log.wait("call.established", call_id=caller_id)
            wanted = {"to": f"sip:agent@{HOST}:{agent.sip_port}", "bridge": {"call_id": caller_id}}
            call = await server.ask("/v1/calls", wanted)
            await log.wait("call.bridged", call_id=call["id"])
            await phone.wait_event("speech_start")
            await until_quiet(phone)
            await phone.dtmf("5")
            await log.wait("call.dtmf", digit="5", call_id=caller_id)
            await server.ask(f"/v1/calls/{call['id']}/hangup")
            ended = await log.wait("call.terminated", call_id=caller_id)
        assert ended["data"]["ending"]["reason"] == "bridge_ended"
        await phone.report()
    finally:
        await agent.end()
    heard, _ = audio_match.read_wav(heard_file)
    assert audio_match.share_heard(said, heard, slip_ms=SLIP_MS) > 0.8
