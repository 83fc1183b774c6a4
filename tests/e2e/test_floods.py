"""Floods of INVITE and REGISTER: the call in progress is spoken to without a gap, and afterwards every line is free.

None of this depends on how busy the machine is: what is said is with the user agent before the flood begins, nobody is
refused because the media clock is late, and how long the flood's answers take is not measured.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from lab.configured import Lend, ua_pid
from lab.ports import HOST
from lab.raw_sip import SDP, Answer, RawCaller, RtpEar, invite_once, options
from lab.server_under_test import Server
from lab.udp import UdpEndpoint

pytestmark = pytest.mark.e2e

FLOOD_S = 3.0
SETTINGS = {"sip__max_calls": "3", "sip__max_media_lateness_ms": "0", "playout__window_ms": "10000"}
AGAIN_TIMEOUT_S = 60.0
"""The flood may still be answered when its last request is sent, and the wheel takes no calls while the sockets of too many
that were refused still rest.
"""
TURN_S = 0.01
REQUESTS_A_TURN = 4
TEXT = "This%20announcement%20goes%20on%20while%20many%20others%20call.%20It%20must%20be%20heard%20to%20its%20end."


class Flood(UdpEndpoint):
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


@pytest.mark.usefixtures("nothing_is_left_running")
@pytest.mark.parametrize(("method", "answers"), [("INVITE", {"100", "404", "503"}), ("REGISTER", {"405"})])
async def test_a_call_goes_on_through_a_flood(lend: Lend, method: str, answers: set[str]) -> None:
    async with lend(**SETTINGS) as server:
        await check_flood(server, method, answers)


async def check_flood(server: Server, method: str, answers: set[str]) -> None:
    pid = ua_pid(server)
    flood = Flood(method, server.sip_port)
    async with server.events() as log, RtpEar() as ear, RawCaller("silent", server.sip_port) as caller:
        await caller.establish(headers=f"X-TTS-Text: {TEXT}\r\n".encode(), rtp_port=ear.port)
        await log.wait("speak.started")
        await flood.run()
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        assert complete["data"]["underruns"] == 0
        assert (await caller.bye()).status == 200
    assert set(flood.answers) <= answers
    assert len(flood.answers) > (method == "INVITE"), flood.answers

    seqs = [int.from_bytes(packet[2:4], "big") for packet in ear.packets if packet[1] & 0x7F in (0, 101)]
    steps = {(after - before) & 0xFFFF for before, after in pairwise(seqs)}
    assert steps == {1}, "each packet came, in order"
    assert len(seqs) * 20 >= complete["data"]["played_ms"]

    assert ua_pid(server) == pid
    assert (await until_not_refused(lambda: options(server.sip_port))).status == 200
    for _ in range(int(SETTINGS["sip__max_calls"]) + 1):  # one more than there are lines
        assert (await until_not_refused(lambda: invite_once("silent", server.sip_port))).status == 200
    await server.until_all_terminated(AGAIN_TIMEOUT_S)


async def until_not_refused(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The first answer that is not 503."""
    async with asyncio.timeout(AGAIN_TIMEOUT_S):
        while (answer := await ask()).status == 503:  # noqa: ASYNC110 - it is the far side that has to be waited for
            await asyncio.sleep(0.2)
    return answer
