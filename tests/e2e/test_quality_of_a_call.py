"""``quality`` is that of the whole call: a re-INVITE makes a new stream, whose counts begin at 0."""

import re

import pytest

from lab.ports import HOST
from lab.raw_rtp import RtpPeer
from lab.raw_sip import SDP, RawCaller
from lab.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

NUM_PACKETS = 25
"""Half a second between one re-INVITE and the next."""


async def test_packets_are_counted_over_holds_and_refreshes(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller, RtpPeer() as phone, server.events() as log:
        plain = SDP.format(port=phone.port, formats="0 101")
        caller.send("INVITE", body=plain)
        answer = await caller.final()
        caller.ack()
        await log.wait("call.established")
        to = (HOST, int(re.findall(r"^m=audio (\d+)", answer.text, re.MULTILINE)[0]))
        counts = []
        offers = ("", "a=sendonly\r\n", "", "a=inactive\r\n", "", "")  # the last one only repeats what there is
        for more in offers:
            caller.send("INVITE", body=plain + more)
            await caller.acknowledge(200)
            if not more:
                await phone.say(to, NUM_PACKETS)
            counts.append(int((await server.only_call())["quality"]["packets_sent"]))
        num_heard = await phone.num_heard()
        assert (await caller.bye()).status == 200
        ended = (await log.wait("call.terminated"))["data"]
    quality = (await server.until_terminated())["quality"]
    assert ended["quality"] == quality
    assert '"level": "error"' not in server.log, "a hold is none"
    assert counts == sorted(counts), "it never goes back"
    assert quality["packets_received"] == 4 * NUM_PACKETS
    assert quality["packets_lost"] == 0
    assert quality["jitter_ms"] is not None, "though the last stream had no time to measure any"
    may_follow = len(offers)  # a packet between the reading of a stream's figures and the end of the stream
    assert num_heard - may_follow <= quality["packets_sent"] <= num_heard + 10
