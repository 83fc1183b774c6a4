"""The torture messages of RFC 4475: each gets an answer that is allowed, and after each the server works as before."""

import asyncio
import re

import pytest

from lab.configured import ua_pid
from lab.ports import HOST
from lab.raw_sip import SDP, Answer, RawCaller, invite_once, options
from lab.server_under_test import SMALL_MAX_CALLS, Server
from lab.udp import UdpEndpoint
from lab.waiting import until
from tests.data.torture import messages

pytestmark = pytest.mark.e2e

SILENCE_S = 0.25
"""How long a message that may go unanswered is waited for."""
ANSWER_S = 5.0


class Sender(UdpEndpoint):
    """Sends one message, and ends whatever call comes of it. Use it as a context manager."""

    def __init__(self, port: int) -> None:
        super().__init__(peer_port=port)
        self._server_port = port
        self._received: asyncio.Queue[str] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._received.put_nowait(data.decode(errors="replace"))

    async def send(self, data: bytes, timeout_s: float) -> Answer | None:
        """Send; the final answer if there is one. A call that was answered is acknowledged and ended."""
        self.transmit(data)
        answer = await self._final(timeout_s)
        if answer is None or not data.startswith(b"INVITE"):
            return answer
        self.transmit(self._within(answer, "ACK", 0))
        if answer.status < 300:
            self.transmit(self._within(answer, "BYE", 1))
            ended = await self._final(ANSWER_S)
            assert ended is not None
            assert ended.status == 200, ended.text
        return answer

    async def _final(self, timeout_s: float) -> Answer | None:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    text = await self._received.get()
                    if text.startswith("SIP/2.0 ") and not text.startswith("SIP/2.0 1"):
                        return Answer(text)
        except TimeoutError:
            return None

    def _within(self, answer: Answer, method: str, step: int) -> bytes:
        number = int((answer.header("CSeq") or "0 ").split()[0])
        via = (
            answer.header("Via")
            if answer.status >= 300
            else f"SIP/2.0/UDP {self.own};rport;branch=z9hG4bK{method}{answer.header('Call-ID')}"
        )
        contact = re.search(r"<(sip:[^>]*)>", answer.header("Contact") or "")
        uri = contact[1] if contact else f"sip:{HOST}:{self._server_port}"
        kept = "".join(f"{name}: {answer.header(name)}\r\n" for name in ("From", "To", "Call-ID"))
        return (
            f"{method} {uri} SIP/2.0\r\nVia: {via}\r\n{kept}CSeq: {number + step} {method}\r\n"
            "Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
        ).encode()


def test_every_case_of_the_rfc_is_there() -> None:
    sections = {"3.1.1": 13, "3.1.2": 19, "3.2": 1, "3.3": 15, "3.4": 1}
    counted = {key: sum(case.section.startswith(key + ".") for case in messages.ALL) for key in sections}
    assert counted == sections
    assert len({case.name for case in messages.ALL}) == 49


async def test_torture_messages(small_server: Server) -> None:
    seen: dict[str, int | None] = {}

    async def takes_calls() -> bool:
        """The PyPI wheel takes none while too many of those that have ended keep their sockets, half a second each."""
        port = small_server.sip_port
        return (await options(port)).status == 200 and (await invite_once("silent", port)).status == 200

    for case in messages.ALL:
        async with Sender(small_server.sip_port) as sender:
            data = case.render(server=f"{HOST}:{small_server.sip_port}", own=sender.own)
            may_be_silent = None in case.allowed and not (200 in case.allowed and data.startswith(b"INVITE"))
            answer = await sender.send(data, SILENCE_S if may_be_silent else ANSWER_S)
        seen[case.name] = answer.status if answer else None
        await until(takes_calls)
    wrong = {case.name: seen[case.name] for case in messages.ALL if seen[case.name] not in case.allowed}
    assert not wrong

    await small_server.until_all_terminated()
    assert not [line for line in small_server.log.splitlines() if '"level": "error"' in line]
    callers = [RawCaller("silent", small_server.sip_port) for _ in range(SMALL_MAX_CALLS)]
    for caller in callers:  # every line is free
        await caller.__aenter__()
        await caller.establish()
    for caller in callers:
        assert (await caller.bye()).status == 200
        await caller.__aexit__()


async def test_the_message_behind_a_message_makes_no_call(small_server: Server) -> None:
    (case,) = [case for case in messages.VALID if case.name == "dblreq"]
    async with Sender(small_server.sip_port) as sender:
        data = case.render(server=f"{HOST}:{small_server.sip_port}", own=sender.own)
        answer = await sender.send(data, ANSWER_S)
    assert answer is not None
    assert answer.status == 200
    assert await small_server.calls() == []


async def test_an_offer_asked_for_after_more_media_lines_than_pjsip_holds(small_server: Server) -> None:
    pid = ua_pid(small_server)
    async with RawCaller("silent", small_server.sip_port) as caller:
        caller.send("INVITE", body=SDP.format(port=9, formats="0 101") + "m=audio 0 RTP/AVP 0\r\n" * 20)
        await caller.acknowledge(200)
        caller.send("INVITE")  # pjproject 2.17 added a line of its own behind its 16, and fell (SIGSEGV)
        assert (await caller.final()).status in (200, 488, 500)
        caller.ack()
        assert (await caller.bye()).status == 200
    assert (await options(small_server.sip_port)).status == 200
    assert ua_pid(small_server) == pid
