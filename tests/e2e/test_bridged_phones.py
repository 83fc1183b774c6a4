"""Bridged calls of phones that are not ours to script: baresip, and the softphone."""

import asyncio
from pathlib import Path

import pytest

from lab import audio_match
from lab.audio_match import Samples
from lab.baresip import Baresip
from lab.ports import HOST
from lab.server_under_test import GREETING, Server, engine_pcm
from lab.softphone import SoftphoneProcess
from tests.e2e.test_call_audio import MAX_TRIES

pytestmark = pytest.mark.e2e


async def test_a_phone_hears_baresip_by_a_bridge_and_they_end_together(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    said = await engine_pcm(GREETING, tmp_path)
    shares: list[float] = []
    for number in range(MAX_TRIES):  # baresip speaks from its answer on: on a busy machine before the bridge is made
        folder = tmp_path / str(number)
        folder.mkdir()
        shares.append(await share_heard_by_a_bridge(server, phone, said, folder))
        if shares[-1] > 0.9:
            return
    pytest.fail(f"so much was heard in each of {MAX_TRIES} calls: {shares}")


async def share_heard_by_a_bridge(server: Server, phone: SoftphoneProcess, said: Samples, folder: Path) -> float:
    """How much the softphone hears of what baresip says; ends both calls."""
    heard_file = folder / "heard.wav"
    agent = await Baresip.start(folder / "baresip", user="agent", audio=said, answers=True)
    try:
        async with server.events() as log:
            dialled = await phone.dial(server.uri("silent"), call=folder.name, codec="pcma", record=heard_file)
            caller_id = await server.call_id(dialled["sip_call_id"])
            await log.wait("call.established", call_id=caller_id)
            wanted = {"to": f"sip:agent@{HOST}:{agent.sip_port}", "bridge": {"call_id": caller_id}}
            call = await server.ask("/v1/calls", wanted)
            await log.wait("call.bridged", call_id=call["id"])
            await asyncio.sleep(len(said) / 8000 + 0.5)  # all of it
            await phone.dtmf("5", call=folder.name)
            await log.wait("call.dtmf", digit="5", call_id=caller_id)
            await server.ask(f"/v1/calls/{call['id']}/hangup")
            ended = await log.wait("call.terminated", call_id=caller_id)
        assert ended["data"]["ending"]["reason"] == "bridge_ended"
        await phone.report(call=folder.name, timeout_s=10)
    finally:
        await agent.end()
    heard, _ = audio_match.read_wav(heard_file)
    return audio_match.share_heard(said, heard)
