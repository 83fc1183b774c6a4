"""Whose RTP is heard: with the server build of pjsua2 one source a call, see docs/decisions/0013-rtp-latch.md."""

import contextlib
import re
from collections.abc import AsyncIterator

import pytest

from tests.e2e.peers import HOST
from tests.e2e.raw_rtp import Address, RtpPeer, missing
from tests.e2e.raw_sip import SDP, Answer, RawCaller
from tests.e2e.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60), pytest.mark.usefixtures("server_build")]

STRANGER = "127.0.0.2"
BEHIND_NAT = "127.0.0.3"
TWO_SECONDS = 100
"""Packets."""


@contextlib.asynccontextmanager
async def call(server: Server, rtp_port: int) -> AsyncIterator[tuple[RawCaller, Address]]:
    """A call to the long announcement; where our RTP is to be sent."""
    async with RawCaller("long", server.sip_port) as caller:
        caller.invite(rtp_port=rtp_port)
        answer = await caller.final()
        assert answer.status == 200
        caller.ack()
        yield caller, media_address(answer)
        assert (await caller.bye()).status == 200


def media_address(answer: Answer) -> Address:
    """Where the answer wants RTP."""
    match = re.search(r"^m=audio (\d+) ", answer.text, re.MULTILINE)
    assert match is not None, answer.text
    return HOST, int(match[1])


async def test_a_stranger_takes_neither_the_audio_nor_the_keys(server: Server) -> None:
    async with RtpPeer() as phone, RtpPeer(STRANGER) as stranger, server.events() as events:
        async with call(server, phone.port) as (_, address):
            await phone.say(address, 5)
            await phone.hears(5)
            received = len(phone.heard)
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
            before, named.num_rtcp_heard = len(named.heard), 0
            await stranger.say(address, 30)
            await named.say(address, 30)
            await phone.hears(5)
            assert len(named.heard) == before
            assert stranger.heard == []
            assert missing(phone.heard) == 0
            phone.report(address)
        await phone.hears_rtcp()
        assert named.num_rtcp_heard == 0


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

            sdp = SDP.format(port=moved.port, formats="0 101").replace("raw 1 1", "raw 1 2")
            caller.send("INVITE", body=sdp)
            answer = await caller.final()
            assert answer.status == 200
            caller.ack()
            assert media_address(answer) == address
            await moved.hears(5)
            before = len(phone.heard)
            await phone_behind_nat.say(address, 10)
            await phone_behind_nat.hears(5)
            await phone.say(address, 10)
            await phone_behind_nat.hears(5)
            assert len(phone.heard) == before
