"""A far side that refers us to somebody else: its NOTIFYs, the call that it asks for, and what the application decides."""

import re
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from lab.configured import Lend
from lab.raw_sip import RawCaller, RawPeer, headers_of
from lab.server_under_test import EventLog, Json, Server

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]


class Referrer:
    """The far side of an established call, which refers us to ``target``."""

    def __init__(self, server: Server, caller: RawCaller, target: RawPeer, log: EventLog, call: Json) -> None:
        self.server, self.caller, self.target, self.log, self.call = server, caller, target, log, call

    @property
    def uri(self) -> str:
        return f"sip:agent@{self.target.own}"

    async def refer(self, to: str = "", *, more: bytes = b"") -> int:
        self.caller.send("REFER", headers=f"Refer-To: {to or f'<{self.uri}>'}\r\n".encode() + more)
        return (await self.caller.final()).status

    async def notified(self, status: str = "200 OK") -> tuple[str, str]:
        notify = await self.caller.request("NOTIFY", status=status)
        assert headers_of(notify, "Content-Type") == ["message/sipfrag;version=2.0"]
        (state,) = headers_of(notify, "Subscription-State")
        (event,) = headers_of(notify, "Event")
        assert re.fullmatch("refer(;id=[0-9]+)?", event)
        return notify.partition("\r\n\r\n")[2].strip(), state.partition(";")[0]

    async def asked(self) -> Json:
        data: Json = (await self.log.wait("call.refer_requested"))["data"]
        return data

    async def complete(self) -> tuple[Any, ...]:
        data = (await self.log.wait("call.refer_complete"))["data"]
        return data["result"], data["sip_code"], data.get("new_call_id")

    async def state(self, call_id: str) -> str:
        status, call = await self.server.get(f"/v1/calls/{call_id}")
        assert status == 200, call
        return str(call["state"])

    async def is_kept(self) -> None:
        assert await self.state(self.call["id"]) == "established"
        assert (await self.caller.bye()).status == 200


@pytest_asyncio.fixture(loop_scope="session")
async def referrer(request: pytest.FixtureRequest, lend: Lend) -> AsyncIterator[Referrer]:
    settings = {"routes__silent__refer": getattr(request, "param", "allow"), "transfer__refer_timeout_s": "1.0"}
    async with (
        lend(**settings) as server,
        server.events() as log,
        RawPeer() as target,
        RawCaller("silent", server.sip_port) as caller,
    ):
        caller.invite()
        answer = await caller.final()
        assert answer.status == 200
        assert (answer.header("Allow") or "").endswith(", REFER")
        caller.ack()
        await log.wait("call.established")
        yield Referrer(server, caller, target, log, await server.only_call())
        await server.until_all_terminated()


async def accepted(referrer: Referrer) -> None:
    """The REFER is accepted: by the route, or by the application."""
    asked = await referrer.asked()
    if asked["answer_within_ms"] is not None:
        path = f"/v1/calls/{referrer.call['id']}/refer/accept"
        status, placed = await referrer.server.post(path, {"refer_id": asked["refer_id"]})
        assert (status, placed["callee"], placed["direction"]) == (201, asked["to"], "outbound")


async def test_the_call_that_is_asked_for_is_placed_and_its_progress_told(referrer: Referrer) -> None:
    to = f'"Agent <1>" <{referrer.uri}?X-Ticket=a%26b&Route=%3Csip:evil%3E>'
    assert await referrer.refer(to, more=b"Referred-By: <sip:boss@pbx.example.com>;cid=1\r\n") == 202
    assert await referrer.notified() == ("SIP/2.0 100 Trying", "active")
    await accepted(referrer)
    invite = await referrer.target.expect("INVITE")
    assert "\r\nX-Ticket: a&b\r\n" in invite
    assert "\r\nReferred-By: <sip:boss@pbx.example.com>\r\n" in invite
    assert "evil" not in invite
    referrer.target.answer("180 Ringing")
    assert await referrer.notified() == ("SIP/2.0 180 Ringing", "active")
    referrer.target.answer("200 OK", formats="0 101")
    assert await referrer.notified() == ("SIP/2.0 200 OK", "terminated")
    result, sip_code, new_call_id = await referrer.complete()
    assert (result, sip_code) == ("succeeded", 200)
    outgoing = await referrer.log.wait("call.outgoing")
    assert outgoing["call_id"] == new_call_id
    assert outgoing["data"]["referral"]["call_id"] == referrer.call["id"]
    bye = await referrer.caller.request("BYE")
    assert "\r\nX-TTS-Cause: transferred\r\n" in bye
    assert await referrer.state(new_call_id) == "established"
    await referrer.target.request_inside("BYE", 9)


async def test_a_target_that_does_not_answer_leaves_the_call_as_it_was(referrer: Referrer) -> None:
    assert await referrer.refer() == 202
    assert await referrer.notified() == ("SIP/2.0 100 Trying", "active")
    await accepted(referrer)
    await referrer.target.expect("INVITE")
    referrer.target.answer("486 Busy Here")
    assert await referrer.notified() == ("SIP/2.0 486 Busy Here", "terminated")
    assert (await referrer.complete())[:2] == ("failed", 486)
    assert await referrer.refer("<sip:1@192.0.2.1>") == 403, "another one may follow"
    await referrer.is_kept()


async def test_a_referrer_that_hangs_up_at_once_does_not_keep_the_new_call_from_going_on(referrer: Referrer) -> None:
    assert await referrer.refer() == 202
    await accepted(referrer)
    assert (await referrer.caller.bye()).status == 200
    await referrer.target.expect("INVITE")
    referrer.target.answer("200 OK", formats="0 101")
    assert (await referrer.complete())[:2] == ("succeeded", 200)
    await referrer.target.request_inside("BYE", 9)


async def test_a_refer_that_comes_twice_is_one(referrer: Referrer) -> None:
    assert await referrer.refer() == 202
    referrer.caller.send("REFER", headers=f"Refer-To: <{referrer.uri}>\r\n".encode(), cseq=referrer.caller.cseq)
    assert (await referrer.caller.final()).status == 202
    assert await referrer.refer() == 491, "another one has to wait"
    await accepted(referrer)
    await referrer.target.expect("INVITE")
    referrer.target.answer("486 Busy Here")
    await referrer.complete()
    assert len([event for event in referrer.log.events if event["type"] == "call.refer_requested"]) == 1
    await referrer.is_kept()


async def test_a_referrer_that_knows_nothing_of_its_refer_keeps_its_call(referrer: Referrer) -> None:
    assert await referrer.refer() == 202
    await referrer.notified("481 Subscription does not exist")
    await accepted(referrer)
    await referrer.target.expect("INVITE")
    referrer.target.answer("486 Busy Here")
    assert (await referrer.complete())[0] == "failed"
    await referrer.is_kept()


async def test_what_is_not_allowed_or_cannot_be_read_is_refused_at_once(referrer: Referrer) -> None:
    for to, more, status in (
        ("<sip:1@192.0.2.1>", b"", 403),
        ("<sip:1@127.0.0.1;maddr=192.0.2.1>", b"", 403),
        ("<tel:+1900>", b"", 400),
        ("<sip:1@127.0.0.1>", b"Require: norefersub\r\n", 420),
    ):
        assert await referrer.refer(to, more=more) == status, to
    assert not [event for event in referrer.log.events if event["type"].startswith("call.refer")]
    await referrer.is_kept()


asking = pytest.mark.parametrize("referrer", ["ask"], indirect=True)


@asking
async def test_the_application_refuses(referrer: Referrer) -> None:
    assert await referrer.refer() == 202
    refer_id = (await referrer.asked())["refer_id"]
    path = f"/v1/calls/{referrer.call['id']}/refer"
    status, answer = await referrer.server.post(f"{path}/refuse", {"refer_id": "another"})
    assert (status, answer["code"], answer["errors"][0]["pointer"]) == (404, "refer_not_found", "/refer_id")
    assert (await referrer.server.post(f"{path}/refuse", {"refer_id": refer_id, "sip_code": 480}))[0] == 200
    assert await referrer.notified() == ("SIP/2.0 100 Trying", "active")
    assert await referrer.notified() == ("SIP/2.0 480 Temporarily Unavailable", "terminated")
    assert (await referrer.complete())[:2] == ("refused", 480)
    assert (await referrer.server.post(f"{path}/accept", {"refer_id": refer_id}))[0] == 404
    await referrer.is_kept()


@asking
async def test_nobody_decides_in_time(referrer: Referrer) -> None:
    assert await referrer.refer() == 202
    assert await referrer.notified() == ("SIP/2.0 100 Trying", "active")
    assert await referrer.notified() == ("SIP/2.0 603 Decline", "terminated")
    assert (await referrer.complete())[:2] == ("timeout", 603)
    await referrer.is_kept()


@asking
async def test_an_attended_transfer_replaces_the_dialog_that_the_referrer_names(referrer: Referrer) -> None:
    assert await referrer.refer(f"<{referrer.uri}?Replaces=a%40b%3Bto-tag%3D1%3Bfrom-tag%3D2>") == 202
    assert (await referrer.asked())["replaces"] is True
    await accepted(referrer)
    invite = await referrer.target.expect("INVITE")
    assert headers_of(invite, "Replaces") == ["a@b;to-tag=1;from-tag=2"]
    referrer.target.answer("486 Busy Here")
    await referrer.complete()
    await referrer.is_kept()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("policy", "outcome"), [("allow", "200 OK"), ("allow", "486 Busy Here"), ("ask", "")])
async def test_a_server_that_dies_and_the_next_one(lend: Lend, policy: str, outcome: str) -> None:
    async with (
        lend(routes__silent__refer=policy) as server,
        RawPeer() as target,
        RawCaller("silent", server.sip_port) as caller,
    ):
        await caller.establish()
        call = await server.until_call(lambda call: call["state"] == "established")
        async with server.events() as log:
            referrer = Referrer(server, caller, target, log, call)
            assert await referrer.refer() == 202
            assert await referrer.notified() == ("SIP/2.0 100 Trying", "active")
            await referrer.asked()
            if policy == "allow":
                await target.expect("INVITE")
                target.answer("180 Ringing")
                assert await referrer.notified() == ("SIP/2.0 180 Ringing", "active")
        server.signal(signal.SIGKILL)
        if policy == "ask":
            assert await referrer.notified() == ("SIP/2.0 503 Service Unavailable", "terminated")
            assert await referrer.refer() == 503, "nobody decides"
        elif outcome != "200 OK":
            target.answer(outcome)
            await target.expect("ACK")
        await server.replace(None)
        if policy == "ask":
            assert await referrer.refer() == 202
            assert await referrer.notified() == ("SIP/2.0 100 Trying", "active")
            assert (await caller.bye()).status == 200
        elif outcome != "200 OK":
            assert await referrer.notified() == (f"SIP/2.0 {outcome}", "terminated")
            assert (await caller.bye()).status == 200
        else:
            target.answer(outcome, formats="0 101")
            assert await referrer.notified() == ("SIP/2.0 200 OK", "terminated")
            bye = await caller.request("BYE")
            assert "X-TTS-Transfer-Result: succeeded" in bye
            await target.request_inside("BYE", 9)
        await server.until_all_terminated()
