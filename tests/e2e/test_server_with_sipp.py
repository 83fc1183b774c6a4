"""The server against SIPp as the caller: the scenarios of sip/scenarios, and what the server made of them."""

import re
from pathlib import Path

import pytest

from cc_tts.ua.guard.request_filter import ALLOWED
from lab.configured import server_with
from lab.peers import Sipp
from lab.raw_sip import options
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
async def test_answer_and_bye(server: Server, tmp_path: Path, *, tcp: bool) -> None:
    caller = await Sipp.call(
        "answer_bye", folder=tmp_path, target_port=server.sip_port, service="greet", pause_ms=1500, tcp=tcp
    )
    await caller.passed()
    call = await server.until_terminated()
    assert call["direction"] == "inbound"
    assert call["codec"] == "PCMU"
    assert (call["ending"]["result"], call["ending"]["reason"]) == ("completed", "remote_hangup")
    assert call["sip_call_id"] in caller.messages


async def test_cancel_while_ringing(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call("cancel", folder=tmp_path, target_port=server.sip_port, service="ring", pause_ms=500)
    await caller.passed()
    call = await server.until_terminated()
    assert (call["ending"]["result"], call["ending"]["reason"]) == ("unanswered", "cancelled")
    assert call["answered_at"] is None


async def test_hold_and_resume(server: Server, tmp_path: Path) -> None:
    async with server.events() as log:
        caller = await Sipp.call("hold_resume", folder=tmp_path, target_port=server.sip_port, service="long")
        held = await log.wait("call.held")
        unheld = await log.wait("call.unheld")
        await caller.passed()
    assert held["seq"] < unheld["seq"]
    call = await server.until_terminated()
    assert call["ending"]["result"] == "completed"


async def test_no_line_free(tmp_path: Path, phone: SoftphoneProcess) -> None:
    async with server_with(tmp_path, sip__max_calls="1") as server:
        await phone.dial(server.uri("silent"))
        await phone.wait_event("answered", timeout_s=10)
        caller = await Sipp.call("busy", folder=tmp_path, target_port=server.sip_port, service="greet")
        await caller.passed()
        (refusal,) = {*caller.received("SIP/2.0 503"), *caller.received("SIP/2.0 486")}
        assert refusal.startswith("SIP/2.0 503")
        assert re.search(r"^Retry-After: *7\b", refusal, re.MULTILINE | re.IGNORECASE)
        report = await phone.hangup()
        assert report["ending"]["result"] == "completed"


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_200_without_ack_is_retransmitted_and_given_up(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call("no_ack", folder=tmp_path, target_port=server.sip_port, service="greet", limit_s=60)
    await caller.passed(timeout_s=70)
    answers = caller.received("SIP/2.0 200 OK")
    assert len(answers) >= 5, "T1, 2*T1 … up to T2 for 32 s (RFC 3261 §13.3.1.4)"
    call = await server.until_terminated()
    assert call["ending"]["result"] == "failed"


async def test_retransmitted_invite_makes_one_dialog(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call(
        "retransmitted_invite", folder=tmp_path, target_port=server.sip_port, abort_on_unexpected=False
    )
    await caller.passed()
    answers = caller.received("SIP/2.0 200 OK")
    tags = {match[1] for text in answers if (match := re.search(r"^To:.*;tag=(\S+)", text, re.MULTILINE))}
    assert len(tags) == 1
    branches = re.findall(r"^INVITE .*?;branch=(\S+)", caller.messages, re.MULTILINE | re.DOTALL)
    assert len(branches) == 2
    assert len(set(branches)) == 1
    await server.until_terminated()
    assert len(await server.calls()) == 1


async def test_invite_without_sdp_gets_the_offer_in_the_200(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call("no_sdp_offer", folder=tmp_path, target_port=server.sip_port, service="greet")
    await caller.passed()
    call = await server.until_terminated()
    assert call["ending"]["result"] == "completed"
    assert (await server.utterance(call))["played_ms"] > 0


async def test_no_common_codec_is_488(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call("wrong_codec", folder=tmp_path, target_port=server.sip_port, service="greet")
    await caller.passed()
    assert await server.calls("established") == []


async def test_bye_in_the_middle_of_the_greeting(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call(
        "bye_during_speak", folder=tmp_path, target_port=server.sip_port, service="long", pause_ms=4000
    )
    await caller.passed()
    call = await server.until_terminated()
    utterance = await server.utterance(call)
    assert (utterance["state"], utterance["completion_cause"]) == ("complete", "call_ended")
    assert 0 < utterance["played_ms"] < 15_000, "not to its end"


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
async def test_options(server: Server, tmp_path: Path, *, tcp: bool) -> None:
    caller = await Sipp.call("options", folder=tmp_path, target_port=server.sip_port, tcp=tcp)
    await caller.passed()
    assert await server.calls() == []


async def test_options_names_what_is_served(server: Server) -> None:
    answer = await options(server.sip_port)
    assert answer.status == 200
    assert (answer.header("Allow"), answer.header("Supported")) == (ALLOWED, "100rel, timer")
    assert ";tag=" in (answer.header("To") or "")


async def test_dtmf_by_info(server: Server, tmp_path: Path) -> None:
    async with server.events() as log:
        caller = await Sipp.call("info_dtmf", folder=tmp_path, target_port=server.sip_port, service="silent")
        event = await log.wait("call.dtmf", digit="5")
        await caller.passed()
    assert event["data"]["method"] == "sip_info"


async def test_a_transfer_that_the_caller_refuses_ends_with_the_reason(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call("transferee_refuses", folder=tmp_path, target_port=server.sip_port, service="silent")
    await caller.passed()
    (bye,) = caller.received("BYE ")
    wanted = ("X-TTS-Transfer-Result: not_supported", "Reason: SIP;cause=405", "X-TTS-Cause: transfer_failed")
    assert all(line in bye for line in wanted), bye
    await server.until_terminated()


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_a_transfer_of_which_nothing_is_told_is_given_up(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call("transferee", folder=tmp_path, target_port=server.sip_port, service="silent", limit_s=60)
    await caller.passed(timeout_s=70)
    (bye,) = caller.received("BYE ")
    assert "X-TTS-Transfer-Result: timeout" in bye
    await server.until_terminated()


async def test_notifies_in_an_odd_order_repeated_and_malformed(server: Server, tmp_path: Path) -> None:
    async with server.events() as log:
        caller = await Sipp.call("transferee_notifies", folder=tmp_path, target_port=server.sip_port, service="silent")
        await caller.passed()
        await log.wait("call.terminated")
    (bye,) = caller.received("BYE ")
    assert "X-TTS-Transfer-Result: succeeded" in bye
    told = [event["data"]["state"] for event in log.events if event["type"] == "call.transfer"]
    assert told == ["requested", "accepted", "ringing", "succeeded"]


async def test_a_caller_that_hangs_up_after_its_202(server: Server, tmp_path: Path) -> None:
    async with server.events() as log:
        caller = await Sipp.call("transferee_hangs_up", folder=tmp_path, target_port=server.sip_port, service="silent")
        await caller.passed()
        last = await log.wait("call.transfer", state="succeeded")
    assert (last["data"]["reason"], last["data"]["confirmed"]) == ("unknown", False)
    await server.until_terminated()
