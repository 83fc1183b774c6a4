"""The server against SIPp as the caller: the scenarios of sip/scenarios, and what the server made of them."""

import re
from pathlib import Path

import pytest

from lab.peers import Sipp
from lab.raw_sip import RawCaller
from lab.server_under_test import Server

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


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_200_without_ack_is_retransmitted_and_given_up(server: Server, tmp_path: Path) -> None:
    caller = await Sipp.call("no_ack", folder=tmp_path, target_port=server.sip_port, service="greet", limit_s=60)
    await caller.passed(timeout_s=70)
    answers = caller.received("SIP/2.0 200 OK")
    assert len(answers) >= 5, "T1, 2*T1 … up to T2 for 32 s (RFC 3261 §13.3.1.4)"
    call = await server.until_terminated()
    assert call["ending"]["result"] == "failed"


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_call_that_is_never_acknowledged_is_over_with_the_bye_that_nobody_answers(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, server.events() as log:
        caller.invite()
        await caller.left_unanswered("BYE", timeout_s=60)
        ending = (await log.wait("call.terminated"))["data"]["ending"]
        assert ending == {"result": "failed", "reason": "no_ack", "sip_code": 408}


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


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
async def test_options(server: Server, tmp_path: Path, *, tcp: bool) -> None:
    caller = await Sipp.call("options", folder=tmp_path, target_port=server.sip_port, tcp=tcp)
    await caller.passed()
    assert await server.calls() == []


async def test_a_caller_that_hangs_up_after_its_202(server: Server, tmp_path: Path) -> None:
    async with server.events() as log:
        caller = await Sipp.call("transferee_hangs_up", folder=tmp_path, target_port=server.sip_port, service="silent")
        await caller.passed()
        last = await log.wait("call.transfer", state="succeeded")
    assert (last["data"]["reason"], last["data"]["confirmed"]) == ("unknown", False)
    await server.until_terminated()
