"""Floods of INVITE and REGISTER: the call in progress is spoken to without a gap, and afterwards every line is free."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from tests.e2e.configured import ua_pid
from tests.e2e.peers import HOST
from tests.e2e.raw_sip import SDP, RawCaller, RtpEar, invite_once, options
from tests.e2e.server_under_test import SMALL_MAX_CALLS, Server
from tests.e2e.udp import UdpEndpoint

pytestmark = pytest.mark.e2e

FLOOD_S = 3.0
REST_TIMEOUT_S = 10.0
"""The wheel takes no calls while the sockets of too many that were refused still rest."""
TURN_S = 0.01
REQUESTS_A_TURN = 4
TEXT = "This%20announcement%20goes%20on%20while%20many%20others%20call.%20It%20must%20be%20heard%20to%20its%20end."


class Flood(UdpEndpoint):
    """Requests that have nothing to do with each other, from one socket."""

    def __init__(self, method: str, port: int) -> None:
        super().__init__(peer_port=port)
        self._method = method
        self._server_port = port
        self.answers: Counter[str] = Counter()
        self.num_sent = 0

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.answers[data[8:11].decode(errors="replace")] += 1

    async def run(self) -> None:
        """Send for ``FLOOD_S``, in turns."""
        async with self:
            for _ in range(round(FLOOD_S / TURN_S)):
                for _ in range(REQUESTS_A_TURN):
                    self.num_sent += 1
                    self.transmit(self._request())
                await asyncio.sleep(TURN_S)

    def _request(self) -> bytes:
        name, body = f"flood{self.num_sent}", SDP.format(port=9, formats="0") if self._method == "INVITE" else ""
        return (
            f"{self._method} sip:nobody@{HOST}:{self._server_port} SIP/2.0\r\n"
            f"Via: SIP/2.0/UDP {self.own};rport;branch=z9hG4bK{name}\r\nFrom: <sip:flood@{self.own}>;tag={name}\r\n"
            f"To: <sip:nobody@{HOST}>\r\nCall-ID: {name}@{self.own}\r\nCSeq: 1 {self._method}\r\nMax-Forwards: 70\r\n"
            f"Contact: <sip:flood@{self.own}>\r\n"
            + ("Content-Type: application/sdp\r\n" if body else "")
            + f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()


@pytest.mark.parametrize(("method", "answers"), [("INVITE", {"100", "404", "503"}), ("REGISTER", {"405"})])
async def test_a_call_goes_on_through_a_flood(small_server: Server, method: str, answers: set[str]) -> None:
    pid = ua_pid(small_server)
    flood = Flood(method, small_server.sip_port)
    async with small_server.events() as log, RtpEar() as ear, RawCaller("silent", small_server.sip_port) as caller:
        caller.invite(headers=f"X-TTS-Text: {TEXT}\r\n".encode(), rtp_port=ear.port)
        assert (await caller.final()).status == 200
        caller.ack()
        await log.wait("speak.started")
        await flood.run()
        complete = await log.wait("speak.complete", timeout_s=20)
        assert complete["data"]["completion_cause"] == "normal"
        assert complete["data"]["underruns"] == 0
        assert (await caller.bye()).status == 200
    assert set(flood.answers) <= answers
    assert len(flood.answers) > (method == "INVITE"), flood.answers

    seqs = [int.from_bytes(packet[2:4], "big") for packet in ear.packets if packet[1] & 0x7F in (0, 101)]
    steps = {(after - before) & 0xFFFF for before, after in pairwise(seqs)}
    assert steps == {1}, "each packet came, in order"
    assert len(seqs) * 20 >= complete["data"]["played_ms"]

    assert ua_pid(small_server) == pid
    assert (await options(small_server.sip_port)).status == 200
    for _ in range(SMALL_MAX_CALLS + 1):  # one more than there are lines
        async with asyncio.timeout(REST_TIMEOUT_S):
            while (answer := await invite_once("silent", small_server.sip_port)).status == 503:  # noqa: ASYNC110 - of the far side
                await asyncio.sleep(0.2)
        assert answer.status == 200
    await small_server.until_all_terminated(REST_TIMEOUT_S)
