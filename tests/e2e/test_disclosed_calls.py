"""The disclosure of real calls: that come in, and that are placed."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from lab.configured import Lend, of_kind, server_with
from lab.server_under_test import EventLog, Json, Server
from lab.softphone import SoftphoneProcess
from tests.e2e.test_recording import saved

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

LABEL = "You are talking to a machine."


@pytest_asyncio.fixture(loop_scope="session")
async def labelled(lend: Lend) -> AsyncIterator[Server]:
    async with lend(routes__robot__greeting="Good morning.", calls__disclosure=LABEL) as server:
        yield server


def spoken(log: EventLog, call_id: str) -> list[str]:
    said: list[Json] = of_kind(log.events, "speak.complete", lambda event: event["call_id"] == call_id)
    return [event["data"]["spoken_text"] for event in said]


async def test_a_caller_hears_it_whole_and_once_whatever_is_pressed(labelled: Server, phone: SoftphoneProcess) -> None:
    async with labelled.events() as log:
        await phone.dial(labelled.uri("robot"))
        call_id = str((await log.wait("speak.started"))["call_id"])
        status, recording = await labelled.post(f"/v1/calls/{call_id}/record", {"channels": "dual"})
        assert status == 201
        await phone.dtmf("7")
        await log.wait("call.dtmf")
        disclosed = await log.wait("call.disclosed")
        await log.several("speak.complete", 2)
        await labelled.post(f"/v1/calls/{call_id}/gather", {"max_digits": 1, "prompt": {"text": "Press a key."}})
        await log.wait("call.gather_complete", digits="7")
        await phone.hangup()
        await saved(log, recording["recording_id"])
    assert spoken(log, call_id)[:2] == [LABEL, "Good morning."]
    assert spoken(log, call_id).count(LABEL) == 1
    _, call = await labelled.get(f"/v1/calls/{call_id}")
    _, kept = await labelled.get(f"/v1/recordings/{recording['recording_id']}")
    assert kept["disclosed_at"] == call["disclosed_at"] == pytest.approx(disclosed["time"], abs=0.01)


async def test_a_call_that_is_placed_has_its_own(labelled: Server) -> None:
    body = {"to": labelled.uri("silent"), "disclosure": "This is a robot.", "speak": {"text": "Bye.", "then": "hangup"}}
    async with labelled.events() as log:
        status, call = await labelled.post("/v1/calls", body)
        assert status == 201, call
        await log.wait("call.disclosed")
        await log.several("call.terminated", 2)
    assert spoken(log, call["id"]) == ["This is a robot.", "Bye."]


async def test_tokens_of_a_stream_follow_it(labelled: Server, phone: SoftphoneProcess) -> None:
    async with labelled.events() as log, aiohttp.ClientSession(labelled.url) as http:
        await phone.dial(labelled.uri("silent"))
        call_id = str((await log.wait("call.established"))["call_id"])
        async with http.ws_connect(f"/v1/calls/{call_id}/stream") as stream:
            await stream.send_json({"type": "tokens", "text": "How can I help you?"})
            await stream.send_json({"type": "end"})
            await log.several("speak.complete", 2)
        await phone.hangup()
    assert spoken(log, call_id) == [LABEL, "How can I help you?"]


async def test_if_the_engine_fails_the_caller_hears_nothing(tmp_path: Path, phone: SoftphoneProcess) -> None:
    settings = {"calls__disclosure": LABEL, "tts__stall_timeout_ms": "500", "tts__fallback_engine": ""}
    async with server_with(tmp_path, **settings) as server, server.events() as log:
        for pid in server.pids_of("cc_tts.engines.worker"):
            server.signal(signal.SIGSTOP, pid=pid)
        await phone.dial(server.uri("greet"))
        failed = await log.wait("call.disclosure_failed")
        greeting = (await log.several("speak.complete", 2))[1]
        report = await phone.hangup()
    assert failed["data"]["error"] in ("engine_failed", "engine_overloaded")
    assert (greeting["data"]["error"], greeting["data"]["played_ms"]) == ("disclosure_failed", 0.0)
    assert report["talkspurts"] == []
    assert not of_kind(log.events, "call.disclosed")
