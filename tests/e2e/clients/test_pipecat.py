"""Pipecat's serializer for Twilio on a real call."""

import json
from pathlib import Path

import pytest

from lab.children import Child
from lab.raw_rtp import RtpPeer
from lab.server_under_test import Server
from tests.e2e.test_call_audio import noise, say, talking

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

APPLICATION = Path(__file__).with_name("pipecat_application.py")


async def test_pipecat_hears_and_speaks(server: Server, clients: Path, tmp_path: Path) -> None:
    async with RtpPeer() as phone, talking(server, phone) as (_, to, call):
        url = f"ws{server.url.removeprefix('http')}/v1/calls/{call['id']}/media?direction=talk&dialect=twilio"
        child = await Child.start([str(clients), str(APPLICATION), url], log_path=tmp_path / "pipecat.log")
        async with server.events() as events:
            first = await events.wait("speak.complete")
            assert 800 <= first["data"]["played_ms"] <= 1000, "the resampler of Pipecat holds some back"
            await say(phone, to, noise(100))
            await phone.press(to, "5")
            second = await events.wait("speak.complete", completion_cause="cancelled")
            assert second["data"]["interrupted_by"] == "clear"
            assert 500 <= second["data"]["played_ms"] < 9000
        assert (await server.delete(f"/v1/calls/{call['id']}"))[0] == 200
        assert await child.wait() == 0, child.log
    report = next(json.loads(line) for line in child.log.splitlines() if line.startswith('{"'))
    assert report["heard_ms"] > 2000
    assert report["loudest"] > 10_000
    assert (report["transport"], report["call_id"]) == ("twilio", call["id"])
    assert report["from"]
    assert report["keys"] == ["5"]
    assert report["marks"] == ["end of the tone", "never"]
    assert report["stopped"]
