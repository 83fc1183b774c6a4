"""Session descriptions of old gateways: what does not matter to the call does not cost it."""

import asyncio
import re

import pytest

from cc_tts.ua import pjsua2_build
from lab.raw_sip import SDP, Answer, RawCaller, RawPeer, RtpEar
from lab.server_under_test import Server
from lab.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e

PLAIN = SDP.format(port=9, formats="0 101")
ODD = {
    "an empty subject": PLAIN.replace("s=-", "s="),
    "no subject": PLAIN.replace("s=-\r\n", ""),
    "a name with blanks": PLAIN.replace("o=raw 1 1", "o=Some Gateway 42 1"),
    "no numbers": PLAIN.replace("o=raw 1 1", "o=raw x y"),
    "no origin": PLAIN.replace("o=raw 1 1 IN IP4 127.0.0.1\r\n", ""),
    "101 without rtpmap": PLAIN.replace("a=rtpmap:101 telephone-event/8000\r\n", ""),
    "a dynamic format without rtpmap": PLAIN.replace("0 101", "97 0 101"),
}


@pytest.mark.both_builds
@pytest.mark.parametrize("sdp", ODD.values(), ids=ODD)
async def test_an_odd_offer_is_answered(server: Server, sdp: str) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE", body=sdp)
        answer = await caller.final()
        assert (answer.status, answer.formats[:1]) == (200, [0]), answer.text
        caller.ack()
        caller.send("INVITE", body=sdp)
        assert (await caller.final()).status == 200, "inside the call"
        caller.ack()
        assert (await caller.bye()).status == 200


@pytest.mark.both_builds
@pytest.mark.parametrize("sdp", ODD.values(), ids=ODD)
async def test_an_odd_answer_is_taken(server: Server, sdp: str) -> None:
    async with RawPeer() as peer, server.events() as log:
        assert (await server.post("/v1/calls", {"to": f"sip:b@{peer.own}"}))[0] == 201
        await peer.expect("INVITE")
        peer.answer("200 OK", body=sdp.replace("97 0", "0 97"))
        await peer.expect("ACK")
        call = await log.wait("call.established")
        await server.delete(f"/v1/calls/{call['call_id']}")
        await peer.take_bye()


@pytest.mark.both_builds
@pytest.mark.parametrize(
    ("times", "payload_bytes"),
    [
        ("a=maxptime:10", 80),
        ("a=ptime:60\r\na=maxptime:40", 320),
        ("a=ptime:30", 240),
        ("a=maxptime:150", 160),
        ("a=ptime:180", 1440),
    ],
)
async def test_packets_are_as_long_as_the_offer_allows(server: Server, times: str, payload_bytes: int) -> None:
    async with RtpEar() as ear, RawCaller("long", server.sip_port) as caller:
        caller.send("INVITE", body=SDP.format(port=ear.port, formats="0 101").replace("a=ptime:20", times))
        await caller.acknowledge(200)
        await until(lambda: len(ear.packets) >= 20)
        assert (await caller.bye()).status == 200
    assert {len(payload) for payload in ear.payloads} == {payload_bytes}


@pytest.mark.both_builds
async def test_a_prack_that_acknowledges_nothing_gets_481_with_the_server_build(server: Server) -> None:
    refused = 200 if pjsua2_build.chosen().folder is None else 481
    async with RawCaller("ring", server.sip_port) as caller:
        caller.send("INVITE", headers=b"Require: 100rel\r\n", body=PLAIN)
        async with asyncio.timeout(PATIENCE_S):
            while not (text := await caller.received.get()).startswith("SIP/2.0 180"):
                pass
        ringing = Answer(text)
        caller.to = ringing.header("To") or ""
        number = int(re.findall(r"\d+", ringing.header("RSeq") or "")[0])
        for acknowledged, status in ((number + 7, refused), (number, 200), (number, refused)):
            caller.send("PRACK", headers=f"RAck: {acknowledged} 1 INVITE\r\n".encode())
            assert (await caller.final()).status == status
        assert (await caller.bye()).status == 200
