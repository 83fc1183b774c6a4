"""Collecting keys on real calls: by REST, and by a dialplan that knows no REST."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from lab.configured import Lend, of_kind
from lab.raw_rtp import RtpPeer
from lab.raw_sip import RawCaller
from lab.server_under_test import Json, Server
from lab.softphone import SoftphoneProcess
from tests.e2e.test_dialplan_results import header
from tests.e2e.test_key_lengths import call, event_packets

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

ASK = {"text": "Please enter your account number, followed by the pound key, after this rather long sentence."}


@pytest_asyncio.fixture(loop_scope="session")
async def collector(lend: Lend) -> AsyncIterator[Server]:
    """A server whose callers are trusted and whose route hangs up."""
    async with lend(routes__ask__greeting="Press a key.", routes__ask__then="hangup") as server:
        yield server


async def gather(server: Server, call_id: str, **wanted: Any) -> Json:
    body = await server.create(f"/v1/calls/{call_id}/gather", wanted)
    assert body["state"] == "in_progress"
    return body


async def test_keys_interrupt_the_prompt_and_are_the_digits(server: Server, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        await gather(server, call_id, gather_id="account", prompt=ASK)
        await log.wait("speak.started")
        await phone.dtmf("4711#")
        complete = await log.wait("call.gather_complete")
        assert complete["call_id"] == call_id
        data = complete["data"]
        assert (data["gather_id"], data["result"], data["digits"]) == ("account", "finish_key", "4711")
        assert (data["valid"], data["terminator"], data["tries"]) == (True, "#", 1)
        assert (await log.wait("speak.complete"))["data"]["completion_cause"] == "barge_in"
        keys = [event["data"] for event in of_kind(log.events, "call.dtmf")]
        assert [(key["digit"], key["gather_id"]) for key in keys] == [(digit, "account") for digit in "4711#"]
        status, problem = await server.get(f"/v1/calls/{call_id}/gather")
        assert (status, problem["code"]) == (404, "gather_not_found")
        await phone.hangup()


async def test_a_wrong_entry_is_asked_for_again(server: Server, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        await gather(
            server,
            call_id,
            prompt={"tone": "beep", "duration_ms": 200},
            invalid_prompt={"text": "That was not right."},
            min_digits=4,
            max_digits=4,
            max_tries=2,
            sensitive=True,
        )
        await log.wait("speak.complete")
        await phone.dtmf("12#")
        await log.several("speak.complete", 2)
        assert (await server.get(f"/v1/calls/{call_id}/gather"))[1]["tries"] == 2
        await phone.dtmf("4711")
        data = (await log.wait("call.gather_complete"))["data"]
        assert (data["result"], data["digits"], data["tries"]) == ("max_digits", "4711", 2)
        assert {event["data"]["digit"] for event in of_kind(log.events, "call.dtmf")} == {"x"}
        await phone.hangup()
    assert not server.has_logged("4711")


async def test_a_long_press_is_one_key_and_no_silence(server: Server) -> None:
    async with RtpPeer() as peer, server.events() as log, call(server, peer) as address:
        call_id = (await log.wait("call.established"))["call_id"]
        await gather(server, call_id, initial_timeout_ms=1500, inter_digit_timeout_ms=1500, max_digits=2)
        await peer.send(address, event_packets("7", 4000))
        await peer.send(address, event_packets("7", 100))
        data = (await log.wait("call.gather_complete"))["data"]
    assert (data["result"], data["digits"]) == ("max_digits", "77")


@pytest.mark.parametrize(("keys", "cause", "digits"), [("12#", "finish_key", "12"), ("9876", "max_digits", "9876")])
async def test_a_dialplan_asks_for_keys_and_has_them_in_the_bye(
    collector: Server, keys: str, cause: str, digits: str
) -> None:
    async with RawCaller("ask", collector.sip_port) as caller, collector.events() as log:
        await caller.establish(headers=b"X-TTS-Gather: max=4;finish=#;sensitive=yes\r\n")
        await log.wait("speak.started")
        for key in keys:
            caller.send("INFO", body=f"Signal={key}\r\nDuration=160\r\n", content_type="application/dtmf-relay")
            assert (await caller.final()).status == 200
        bye = await caller.request("BYE")
        complete = await log.wait("call.terminated")
    assert (header(bye, "X-TTS-Cause"), header(bye, "X-TTS-Digits")) == (cause, digits)
    assert complete["data"]["ending"]["reason"] == "gather_complete"
    if len(digits) > 2:  # a shorter one stands in some time of day
        assert not collector.has_logged(digits)


async def test_a_dialplan_whose_caller_presses_nothing(collector: Server) -> None:
    async with RawCaller("ask", collector.sip_port) as caller:
        await caller.establish(headers=b"X-TTS-Gather: max=4;initial=200;tries=2\r\n")
        bye = await caller.request("BYE")
        assert header(bye, "X-TTS-Cause") == "timeout"
        assert "X-TTS-Digits" not in bye
    assert len((await collector.only_call())["utterances"]) == 2
