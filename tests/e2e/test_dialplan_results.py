"""What a dialplan gets back: a refusal that says why, ringing, and a BYE that tells how the call went."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lab.configured import Lend
from lab.raw_sip import Answer, RawCaller, RawPeer, invite_once
from lab.server_under_test import Server
from tests.e2e.test_registration import place

pytestmark = pytest.mark.e2e

AWAY = "Nobody is here."


@pytest_asyncio.fixture(loop_scope="session")
async def node(lend: Lend) -> AsyncIterator[Server]:
    """A server with the routes of dialplans/README, whose application is given a second to answer."""
    settings = {
        "routes__say__then": "hangup",
        "routes__desk__answer": "manual",
        "routes__office__answer": "manual",
        "routes__office__unanswered_greeting": AWAY,
        "calls__manual_answer_timeout_s": "1",
    }
    async with lend(**settings) as server:
        yield server


def header(message: str, name: str) -> str:
    values = re.findall(rf"^{name}: (.*?)\r$", message, re.MULTILINE)
    assert len(values) == 1, (name, message)
    return str(values[0])


async def test_a_call_that_has_nothing_to_say_before_its_hangup_is_refused_and_told_why(node: Server) -> None:
    for user, headers in (
        ("say", ""),
        ("say", "X-TTS-Text:\r\n"),
        ("say", "X-TTS-Text: %20\r\n"),
        ("silent", "X-TTS-Text: \r\nX-TTS-Then: hangup\r\n"),
        ("silent", "X-TTS-Then: hangup\r\n"),
        ("annc", ""),
    ):
        answer = await invite_once(user, node.sip_port, headers=headers.encode())
        assert answer.status == 400, (user, headers, answer.text)
        warning = answer.header("Warning")
        assert warning is not None, answer.text
        assert re.fullmatch(r'399 cc-tts "[^"]+"', warning), warning
    assert all(call["ending"]["sip_code"] == 400 for call in await node.until_all_terminated())


async def test_the_then_of_a_route_ends_a_call_after_the_prompt_of_its_invite(node: Server) -> None:
    async with RawCaller("say", node.sip_port) as caller:
        await caller.establish(headers=b"X-TTS-Text: Hello.\r\n")
        bye = await caller.request("BYE")
    assert header(bye, "X-TTS-Cause") == "normal"
    call = await node.until_terminated()
    played_ms = (await node.utterance(call))["played_ms"]
    assert played_ms > 100
    assert abs(int(header(bye, "X-TTS-Played-Ms")) - played_ms) < 1
    assert header(bye, "Reason") == 'Q.850;cause=16;text="Normal call clearing"'


async def test_a_bye_after_a_key_says_that_the_prompt_was_interrupted(node: Server) -> None:
    async with RawCaller("long", node.sip_port) as caller, node.events() as log:
        await caller.establish(headers=b"X-TTS-Then: hangup\r\n")
        await log.wait("speak.started")
        caller.send("INFO", body="Signal=5\r\nDuration=160\r\n", content_type="application/dtmf-relay")
        bye = await caller.request("BYE")
    assert header(bye, "X-TTS-Cause") == "barge_in"
    assert int(header(bye, "X-TTS-Played-Ms")) < 15_000, "not the whole greeting"


@pytest.mark.parametrize("body", [{"sip_code": 486, "reason": 'all "busy"'}, {}])
async def test_a_hangup_of_an_answered_call_reports_the_bye_that_was_sent(
    node: Server, body: dict[str, object]
) -> None:
    async with RawCaller("silent", node.sip_port) as caller, node.events() as log:
        await caller.establish()
        call_id = (await log.wait("call.established"))["call_id"]
        assert (await node.post(f"/v1/calls/{call_id}/hangup", body))[0] == 200
        bye = await caller.request("BYE")
        ending = (await log.wait("call.terminated"))["data"]["ending"]
    assert ending == {"result": "completed", "reason": "local_hangup", "sip_code": 200}
    assert header(bye, "X-TTS-Cause") == "local_hangup"
    assert header(bye, "X-TTS-Played-Ms") == "0"
    given = 'SIP;cause=486;text="all \\"busy\\""' if body else 'Q.850;cause=16;text="Normal call clearing"'
    assert header(bye, "Reason") == given


async def test_a_hangup_of_a_call_that_nobody_has_answered_yet_is_a_cancel_whatever_was_asked(node: Server) -> None:
    async with RawPeer() as peer, node.events() as log:
        call = await place(node, peer)
        await peer.expect("INVITE")
        peer.answer("180 Ringing")
        await log.wait("call.early")
        assert (await node.post(f"/v1/calls/{call['id']}/hangup", {"sip_code": 486}))[0] == 200
        await peer.expect("CANCEL")
        peer.answer("200 OK")
        ending = (await log.wait("call.terminated"))["data"]["ending"]
    assert ending == {"result": "unanswered", "reason": "local_hangup", "sip_code": 487}


async def next_of(caller: RawCaller, status: int) -> Answer:
    while True:
        text = await caller.received.get()
        if text.startswith(f"SIP/2.0 {status} "):
            return Answer(text)


async def test_a_call_that_waits_for_its_application_rings(node: Server) -> None:
    async with RawCaller("desk", node.sip_port) as caller, node.events() as log:
        caller.invite()
        await next_of(caller, 180)
        call_id = (await log.wait("call.early", sip_code=180))["call_id"]
        assert (await node.post(f"/v1/calls/{call_id}/answer", {}))[0] == 200
        await caller.acknowledge(200)
        await log.wait("call.established")
        assert (await caller.bye()).status == 200


async def test_a_call_that_nobody_answers_is_refused_or_hears_what_the_route_says_for_that(node: Server) -> None:
    assert (await invite_once("desk", node.sip_port)).status == 480
    async with RawCaller("office", node.sip_port) as caller, node.events() as log:
        caller.invite()
        await next_of(caller, 180)
        await caller.acknowledge(200)
        complete = await log.wait("speak.complete")
        bye = await caller.request("BYE")
    assert complete["data"]["spoken_text"] == AWAY
    assert header(bye, "X-TTS-Cause") == "normal"
