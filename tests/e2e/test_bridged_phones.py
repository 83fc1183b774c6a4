"""Bridged calls of phones that are not ours to script: baresip, and the softphone."""

import asyncio
from pathlib import Path

import pytest

from lab import audio_match
from lab.baresip import Baresip
from lab.ports import HOST
from lab.server_under_test import GREETING, Server, engine_pcm
from lab.softphone import SoftphoneProcess

pytestmark = pytest.mark.e2e


async def test_a_phone_hears_baresip_by_a_bridge_and_they_end_together(
    fresh_server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    said = await engine_pcm(GREETING, tmp_path)
    record = tmp_path / "heard.wav"
    agent = await Baresip.start(tmp_path / "baresip", user="agent", audio=said, answers=True)
    try:
        async with fresh_server.events() as log:
            dialled = await phone.dial(fresh_server.uri("silent"), codec="pcma", record=record)
            caller_id = await fresh_server.call_id(dialled["sip_call_id"])
            await log.wait("call.established", call_id=caller_id)
            wanted = {"to": f"sip:agent@{HOST}:{agent.sip_port}", "bridge": {"call_id": caller_id}}
            call = await fresh_server.ask("/v1/calls", wanted)
            await log.wait("call.bridged", call_id=call["id"])
            await asyncio.sleep(len(said) / 8000 + 0.5)  # all of it
            await phone.dtmf("5")
            await log.wait("call.dtmf", digit="5", call_id=caller_id)
            await fresh_server.ask(f"/v1/calls/{call['id']}/hangup")
            ended = await log.wait("call.terminated", call_id=caller_id)
        assert ended["data"]["ending"]["reason"] == "bridge_ended"
        await phone.report(timeout_s=10)
    finally:
        await agent.end()
    heard, _ = audio_match.read_wav(record)
    assert audio_match.share_heard(said, heard) > 0.9
