"""Transfers by REFER on the wire, to peers that answer and notify as they like."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from lab.ports import HOST
from lab.raw_sip import SDP, RawCaller
from lab.server_under_test import EventLog, Json, Server

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

TARGET = f"sip:1001@{HOST}:9"
ACTIVE = b"Event: refer\r\nSubscription-State: active;expires=60\r\n"
TERMINATED = b"Event: refer\r\nSubscription-State: terminated;reason=noresource\r\n"


class Transferee:
    """The far side of an established call, which is asked to call somebody else."""

    def __init__(self, server: Server, caller: RawCaller, log: EventLog, call: Json) -> None:
        self.server, self.caller, self.log, self.call = server, caller, log, call

    async def transfer(self, **body: Any) -> None:
        status, answer = await self.server.post(f"/v1/calls/{self.call['id']}/transfer", {"to": TARGET} | body)
        assert (status, answer["state"]) == (202, "requested"), answer

    async def is_held(self, *, hold: bool = True) -> None:
        offer = await self.caller.request("INVITE", body=SDP.format(port=9, formats="0 101"))
        assert ("a=sendonly" in offer or "a=inactive" in offer) is hold

    async def referred(self, status: str, **body: Any) -> str:
        """Be held, and answer the REFER; returns that."""
        await self.transfer(**body)
        await self.is_held()
        return await self.caller.request("REFER", status=status)

    async def notify(self, text: str, headers: bytes = ACTIVE, *, kind: str = "message/sipfrag;version=2.0") -> int:
        self.caller.send("NOTIFY", headers=headers, body=text, content_type=kind)
        return (await self.caller.final()).status

    @property
    def told(self) -> list[tuple[Any, ...]]:
        events = [event["data"] for event in self.log.events if event["type"] == "call.transfer"]
        return [(each["state"], each["sip_code"], each["reason"]) for each in events]

    async def failed(self) -> Json:
        event = await self.log.wait("call.transfer", state="failed")
        data: Json = event["data"]
        return data

    async def is_kept(self) -> None:
        await self.is_held(hold=False)
        call = await self.server.until_call(lambda call: not call["held"])
        assert call["state"] == "established"
        assert (await self.caller.bye()).status == 200


@pytest_asyncio.fixture(loop_scope="session")
async def transferee(server: Server) -> AsyncIterator[Transferee]:
    async with server.events() as log, RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        await log.wait("call.established")
        yield Transferee(server, caller, log, await server.only_call())


async def test_the_call_ends_when_its_far_side_has_reached_the_target(transferee: Transferee) -> None:
    refer = await transferee.referred("202 Accepted", headers={"X-Ticket": "a&b"}, transfer_id="t1", client_state="s")
    assert f"\r\nRefer-To: <{TARGET}?X-Ticket=a%26b>\r\n" in refer
    assert "\r\nReferred-By: <sip:silent@127.0.0.1" in refer
    for text, headers in (
        ("SIP/2.0 100 Trying", ACTIVE),
        ("SIP/2.0 180 Ringing\r\n", ACTIVE),
        ("SIP/2.0 200 OK\r\n", TERMINATED),
    ):
        assert await transferee.notify(text, headers) == 200
    begun = asyncio.get_running_loop().time()
    bye = await transferee.caller.request("BYE")
    assert 0.3 < asyncio.get_running_loop().time() - begun < 2
    assert "X-TTS-Cause: transferred" in bye
    event = await transferee.log.wait("call.terminated")
    assert transferee.told == [
        ("requested", None, None),
        ("accepted", 202, None),
        ("trying", 100, None),
        ("ringing", 180, None),
        ("succeeded", 200, None),
    ]
    assert event["data"]["ending"]["reason"] == "transferred"
    last = await transferee.log.wait("call.transfer", state="succeeded")
    assert (last["data"]["transfer_id"], last["data"]["client_state"], last["data"]["confirmed"]) == ("t1", "s", True)


async def test_a_refer_that_is_refused_leaves_the_call_as_it_was(transferee: Transferee) -> None:
    await transferee.referred("405 Method Not Allowed", timeout_ms=2000)
    assert (await transferee.failed())["reason"] == "not_supported"
    await transferee.is_kept()


async def test_a_target_that_does_not_take_the_call_leaves_it_as_it_was(transferee: Transferee) -> None:
    await transferee.referred("202 Accepted")
    assert await transferee.notify("SIP/2.0 486 Busy Here\r\n", TERMINATED) == 200
    assert (await transferee.failed())["reason"] == "busy"
    await transferee.is_kept()


async def test_notifications_may_come_before_the_202(transferee: Transferee) -> None:
    await transferee.transfer()
    await transferee.is_held()
    await transferee.caller.left_unanswered("REFER")
    assert await transferee.notify("SIP/2.0 180 Ringing\r\n") == 200
    assert await transferee.notify("SIP/2.0 200 OK\r\n", TERMINATED) == 200
    await transferee.log.wait("call.transfer", state="succeeded")
    await transferee.caller.request("REFER", status="202 Accepted")  # which is repeated meanwhile
    await transferee.caller.request("BYE")
    assert [state for state, _, _ in transferee.told] == ["requested", "ringing", "succeeded"]


async def test_notifications_without_sense_have_no_effect(transferee: Transferee) -> None:
    await transferee.referred("202 Accepted")
    assert await transferee.notify("", ACTIVE) == 200
    assert await transferee.notify("\x00\x01 garbage" * 20, ACTIVE) == 200
    assert await transferee.notify("SIP/2.0 200 OK", ACTIVE, kind="text/plain") == 200
    assert await transferee.notify("SIP/2.0 999999 OK", ACTIVE) == 200
    assert await transferee.notify("SIP/2.0 200 OK", b"Event: presence\r\n") == 489
    assert await transferee.notify("SIP/2.0 200 OK", b"Event: refer;id=1\r\nSubscription-State: active\r\n") == 481
    assert await transferee.notify("", TERMINATED) == 200
    assert (await transferee.failed())["reason"] == "unknown"
    assert [state for state, _, _ in transferee.told] == ["requested", "accepted", "failed"]
    await transferee.is_kept()


async def test_a_notify_that_nobody_asked_for_is_refused(transferee: Transferee) -> None:
    assert await transferee.notify("SIP/2.0 200 OK", TERMINATED) == 481
    await transferee.caller.bye()
    assert transferee.told == []


async def test_a_header_of_the_invite_transfers_after_its_text(server: Server) -> None:
    async with server.events() as log, RawCaller("silent", server.sip_port) as caller:
        await caller.establish(headers=f"X-TTS-Text: One%20moment.\r\nX-TTS-Transfer: {TARGET}\r\n".encode())
        transferee = Transferee(server, caller, log, await server.until_call(lambda call: True))
        await transferee.is_held()
        said = await log.wait("speak.complete")
        assert said["data"]["spoken_text"] == "One moment."
        refer = await caller.request("REFER", status="202 Accepted")
        assert f"\r\nRefer-To: <{TARGET}>\r\n" in refer
        assert await transferee.notify("SIP/2.0 486 Busy Here\r\n", TERMINATED) == 200
        bye = await caller.request("BYE")
        wanted = ("X-TTS-Cause: transfer_failed", "X-TTS-Transfer-Result: busy", "Reason: SIP;cause=486")
        assert all(f"\r\n{line}\r\n" in bye for line in wanted), bye
        ended = await log.wait("call.terminated")
        assert ended["data"]["ending"]["reason"] == "transfer_failed"


async def test_an_attended_transfer_names_the_dialog_of_the_consulted_call(transferee: Transferee) -> None:
    server = transferee.server
    async with RawCaller("silent", server.sip_port) as agent:
        agent.invite()
        answer = await agent.final()
        agent.ack()
        is_ours = {"sip_call_id": agent.call_id, "state": "established"}
        consult = await server.until_call(lambda call: is_ours.items() <= call.items())
        refer = await transferee.referred("202 Accepted", mode="attended", to=None, consult_call_id=consult["id"])
        ours, theirs = ((answer.header(name) or "").partition(";tag=")[2] for name in ("To", "From"))
        replaces = quote(f"{agent.call_id};to-tag={theirs};from-tag={ours}", safe="")
        assert re.search(rf"^Refer-To: <sip:raw@127\.0\.0\.1\?Replaces={replaces}>\r$", refer, re.MULTILINE)
        assert await transferee.notify("SIP/2.0 200 OK\r\n", TERMINATED) == 200
        await asyncio.gather(transferee.caller.request("BYE"), agent.request("BYE"))
    await server.until_all_terminated()
