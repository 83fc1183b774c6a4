"""Whose RTP is heard: with the server build of pjsua2 one source a call, see docs/decisions/0013-rtp-latch.md."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest

from lab.ports import HOST
from lab.raw_rtp import PACKET_MS, Address, RtpPeer, missing
from lab.raw_sip import SDP, Answer, RawCaller
from lab.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("server_build")]

STRANGER = "127.0.0.2"
BEHIND_NAT = "127.0.0.3"
BEHIND_ANOTHER_NAT = "127.0.0.4"
TWO_SECONDS = 100
"""Packets."""


@contextlib.asynccontextmanager
async def call(server: Server, rtp_port: int) -> AsyncIterator[tuple[RawCaller, Address]]:
    """A call to the long announcement; where our RTP is to be sent."""
    async with RawCaller("long", server.sip_port) as caller:
        answer = await caller.establish(rtp_port=rtp_port)
        yield caller, media_address(answer)
        assert (await caller.bye()).status == 200


def media_address(answer: Answer) -> Address:
    match = re.search(r"^m=audio (\d+) ", answer.text, re.MULTILINE)
    assert match is not None, answer.text
    return HOST, int(match[1])


async def renegotiate(caller: RawCaller, method: str, rtp_port: int, *, version: int, formats: str = "0 101") -> None:
    caller.send(method, body=SDP.format(port=rtp_port, formats=formats).replace("raw 1 1", f"raw 1 {version}"))
    assert (await caller.final()).status == 200
    if method == "INVITE":
        caller.ack()


async def test_a_stranger_takes_neither_the_audio_nor_the_keys(server: Server) -> None:
    async with RtpPeer() as phone, RtpPeer(STRANGER) as stranger, server.events() as events:
        async with call(server, phone.port) as (_, address):
            await phone.say(address, 5)
            await phone.hears(5)
            received = await phone.num_heard()
            for _ in range(5):
                stranger.report(address)
            await stranger.say(address, TWO_SECONDS)
            await stranger.press(address, "5")
            await phone.hears(5)
            during = phone.heard[received:]
            assert stranger.heard == []
            assert len(during) >= TWO_SECONDS // 2
            assert missing(phone.heard) == 0
            assert not [event for event in events.events if event["type"] == "call.dtmf"]
            assert (await server.utterance(await server.only_call()))["state"] == "in_progress"

            await phone.press(address, "1")
            done = await events.wait("speak.complete")
            assert done["data"]["completion_cause"] == "barge_in"
            await server.until_call(lambda call: call["quality"]["packets_received"] == 5 + 7)
            phone.num_rtcp_heard = 0
        await phone.hears_rtcp()  # its BYE
        assert stranger.num_rtcp_heard == 0
        ended = await server.until_terminated()
    assert ended["quality"]["packets_received"] == 5 + 7


async def test_a_caller_behind_nat_is_followed_once(server: Server) -> None:
    async with RtpPeer() as named, RtpPeer(BEHIND_NAT) as phone, RtpPeer(STRANGER) as stranger:
        async with call(server, named.port) as (_, address):
            await named.hears(5)
            assert phone.heard == []
            await phone.say(address, 10)
            await phone.hears(5)
            before, named.num_rtcp_heard = await named.num_heard(), 0
            await stranger.say(address, 30)
            await phone.hears(5)
            assert await named.num_heard() == before
            assert stranger.heard == []
            assert missing(phone.heard) == 0
            phone.report(address)
        await phone.hears_rtcp()
        assert named.num_rtcp_heard == 0


@pytest.mark.parametrize("first_sequence", [450, 500, 30_000], ids=["a little lower", "the same", "far away"])
async def test_the_address_of_the_sdp_takes_the_call_back(server: Server, first_sequence: int) -> None:
    """Whatever the numbers of its packets are beside those of the source before."""
    async with (
        RtpPeer(first_sequence=first_sequence) as phone,
        RtpPeer(STRANGER, first_sequence=500) as stranger,
        server.events() as events,
    ):
        async with call(server, phone.port) as (_, address):
            await stranger.say(address, 10)
            await stranger.hears(5)
            await phone.press(address, "1")
            assert (await events.wait("call.dtmf"))["data"]["digit"] == "1"
            await phone.hears(5)
            before = await stranger.num_heard()
            await stranger.say(address, 10)
            await phone.hears(5)
            assert await stranger.num_heard() == before
            phone.num_rtcp_heard = stranger.num_rtcp_heard = 0
        await phone.hears_rtcp()
        assert stranger.num_rtcp_heard == 0


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
@pytest.mark.parametrize("late_ms", [0, 20, 60, 200, 1000])
async def test_media_moves_though_the_old_address_goes_on(server: Server, method: str, late_ms: int) -> None:
    async with RtpPeer() as phone, RtpPeer() as moved, server.events() as events:
        async with call(server, phone.port) as (caller, address):
            await phone.say(address, 10)
            phone.report(address)
            await phone.hears(5)
            going_on = asyncio.create_task(phone.say_on(address))
            await renegotiate(caller, method, moved.port, version=2)
            await moved.hears(1)
            before = await phone.num_heard()
            await asyncio.sleep(late_ms / 1000)
            going_on.cancel()
            await phone.say(address, late_ms // PACKET_MS)
            if late_ms:
                await phone.press(address, "9")
            phone.report(address)

            await moved.press(address, "1")
            await events.wait("call.dtmf")
            await moved.say(address, 10)
            await moved.hears(5)
            await phone.say(address, 10)
            await moved.hears(5)
            assert await phone.num_heard() == before
            assert [event["data"]["digit"] for event in events.events if event["type"] == "call.dtmf"] == ["1"]
            phone.num_rtcp_heard = moved.num_rtcp_heard = 0
        await moved.hears_rtcp()
        assert phone.num_rtcp_heard == 0


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_media_moves_between_callers_behind_nat(server: Server, method: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first, second, phone, another, stranger = [
            await stack.enter_async_context(RtpPeer(host))
            for host in (HOST, HOST, BEHIND_NAT, BEHIND_ANOTHER_NAT, STRANGER)
        ]
        events = await stack.enter_async_context(server.events())
        async with call(server, first.port) as (caller, address):
            await phone.say(address, 10)
            await phone.hears(5)
            going_on = asyncio.create_task(phone.say_on(address))
            await renegotiate(caller, method, second.port, version=2)
            await second.hears(5)
            before = await phone.num_heard()
            await another.say(address, 5)
            await another.hears(5)
            await phone.press(address, "9")
            await stranger.say(address, 10)
            await stranger.press(address, "9")
            await another.press(address, "2")
            await events.wait("call.dtmf")
            await another.hears(5)
            assert await phone.num_heard() == before
            assert stranger.heard == []

            await renegotiate(caller, method, first.port, version=3)
            await phone.hears(5)
            before = await another.num_heard()
            await another.say(address, 10)
            await phone.press(address, "1")
            await events.wait("call.dtmf", digit="1")
            assert await another.num_heard() == before
            going_on.cancel()
            digits = [event["data"]["digit"] for event in events.events if event["type"] == "call.dtmf"]
            assert digits == ["2", "1"]


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_a_caller_behind_nat_is_still_there_after_a_change_of_codec(server: Server, method: str) -> None:
    async with (
        RtpPeer() as named,
        RtpPeer(BEHIND_NAT) as phone,
        server.events() as events,
        call(server, named.port) as (caller, address),
    ):
        await phone.say(address, 10)
        await phone.hears(5)
        before = await named.num_heard()
        await renegotiate(caller, method, named.port, version=2, formats="8 101")
        await phone.hears_type(8)
        await phone.press(address, "1")
        assert (await events.wait("call.dtmf"))["data"]["digit"] == "1"
        await phone.hears(5)
        assert await named.num_heard() == before


async def test_a_re_invite_that_moves_the_media_opens_the_latch_again(server: Server) -> None:
    async with contextlib.AsyncExitStack() as stack:
        phone, moved, phone_behind_nat = [
            await stack.enter_async_context(RtpPeer(host)) for host in (HOST, HOST, BEHIND_NAT)
        ]
        async with call(server, phone.port) as (caller, address):
            await phone.say(address, 5)
            await phone_behind_nat.say(address, 10)
            assert phone_behind_nat.heard == []
            await phone.hears(5)

            await renegotiate(caller, "INVITE", moved.port, version=2)
            await moved.hears(5)
            before = await phone.num_heard()
            await phone_behind_nat.say(address, 10)
            await phone_behind_nat.hears(5)
            await phone.say(address, 10)
            await phone_behind_nat.hears(5)
            assert await phone.num_heard() == before
