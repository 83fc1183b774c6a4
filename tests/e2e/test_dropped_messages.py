"""Requests that PJSIP drops get an answer, never silence: those that are longer than its buffer 513, and they are never
taken for shorter ones; those that its parser cannot read 400.
"""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from cc_tts.ua import pjsua2_build
from lab.configured import logged, ua_pid
from lab.ports import HOST
from lab.raw_sip import SDP, RawCaller, options, tcp_options
from lab.server_under_test import Server
from lab.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

ANSWER_TIMEOUT_S = 5.0


def max_bytes() -> int:
    return pjsua2_build.chosen().max_message_bytes


async def refused(server: Server) -> float:
    """How many requests were refused as malformed."""
    _, metrics = await server.get_text("/metrics")
    return sum(
        float(each) for each in re.findall(r'^cctts_sip_refused_total{cause="malformed"} (\S+)', metrics, re.MULTILINE)
    )


class Connection:
    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._port = server.sip_port
        self.reader, self.writer = reader, writer

    def request(self, method: str = "INVITE", *, text: str = "", padding: int = 0, body: str = "") -> bytes:
        name = secrets.token_hex(8)
        sdp = body or (SDP.format(port=9, formats="0 101") if method == "INVITE" else "")
        lines = [
            f"{method} sip:silent@{HOST}:{self._port} SIP/2.0",
            f"Via: SIP/2.0/TCP {HOST}:9;branch=z9hG4bK{name}",
            f"From: <sip:raw@{HOST}>;tag={name}",
            f"To: <sip:silent@{HOST}>",
            f"Call-ID: long-{name}",
            f"CSeq: 1 {method}",
            f"Contact: <sip:raw@{HOST}:9;transport=tcp>",
            "Max-Forwards: 70",
            *([f"X-TTS-Text: {text}"] if text else []),
            *([f"X-Padding: {'a' * padding}"] if padding else []),
            *(["Content-Type: application/sdp"] if sdp else []),
            f"Content-Length: {len(sdp)}",
        ]
        return ("\r\n".join(lines) + f"\r\n\r\n{sdp}").encode()

    async def answer(self) -> str:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while True:
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length:")[2].split()[0])
                await self.reader.readexactly(length)
                if not head.startswith("SIP/2.0 1"):
                    return head


@contextlib.asynccontextmanager
async def connection(server: Server) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(HOST, server.sip_port)
    try:
        yield Connection(server, reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("excess", [1, 20_000, 200_000])
async def test_a_request_over_tcp_that_does_not_fit_gets_513(server: Server, is_first: bool, excess: int) -> None:
    async with connection(server) as tcp:
        if not is_first:
            tcp.writer.write(tcp_options(server.sip_port))
            assert (await tcp.answer()).startswith("SIP/2.0 200")
        short = len(tcp.request(padding=1))
        request = tcp.request(padding=max_bytes() - short + 1 + excess)
        tcp.writer.write(request)
        answer = await tcp.answer()
        assert answer.startswith("SIP/2.0 513 Message Too Large\r\n")
        (call_id,) = [line for line in request.decode().split("\r\n") if line.startswith("Call-ID")]
        assert call_id in answer
        assert ";tag=" in answer.partition("\r\nTo:")[2].partition("\r\n")[0]
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            with contextlib.suppress(ConnectionResetError):
                assert await tcp.reader.read() == b"", "the connection ends"
    await until(lambda: logged(server, "requests_refused"))
    (line,) = logged(server, "requests_refused")
    assert (line["cause"], line["count"], line["some_sources"]) == ("too_long", 1, [HOST])
    assert await server.calls() == []
    assert (await options(server.sip_port)).status == 200


@pytest.mark.parametrize("length", [1_000_000_000, 2**64 - 1, 70_000])
async def test_a_body_that_is_said_to_be_longer_than_the_buffer_ends_no_call(server: Server, length: int) -> None:
    pid = ua_pid(server)
    async with RawCaller("silent", server.sip_port) as caller, connection(server) as tcp:
        await caller.establish()
        request = tcp.request().replace(b"Content-Length: ", b"Content-Length: %d\r\nX-Was: " % length)
        tcp.writer.write(request + b"a" * max_bytes())
        assert (await tcp.answer()).split(" ", 2)[1] in ("513", "400")
        assert (await caller.bye()).status == 200
    assert ua_pid(server) == pid


@pytest.mark.parametrize(
    "line",
    [
        b"Max-Forwards: many",
        b"Garbage",
        b"Expires: x",
        b"Authorization: Basic YTpi",
        b'Contact: "a <sip:a@b>',
    ],
)
async def test_a_request_that_cannot_be_read_gets_400_and_is_counted(server: Server, line: bytes) -> None:
    before = await refused(server)
    async with RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE", headers=line + b"\r\n", body=SDP.format(port=9, formats="0"))
        answer = await caller.acknowledge(400)
        assert answer.text.startswith("SIP/2.0 400 A header cannot be read\r\n")
        assert answer.header("Call-ID") == caller.call_id
    async with connection(server) as tcp:
        tcp.writer.write(tcp.request("OPTIONS").replace(b"Max-Forwards: 70", line))
        assert (await tcp.answer()).startswith("SIP/2.0 400 A header cannot be read\r\n")
        tcp.writer.write(tcp_options(server.sip_port))  # the connection goes on
        assert (await tcp.answer()).startswith("SIP/2.0 200")
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while await refused(server) < before + 2:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("length", ["-1", "abc", "+5", ""])
async def test_a_request_whose_end_nobody_knows_gets_400_and_ends_its_connection(server: Server, length: str) -> None:
    async with connection(server) as tcp:
        tcp.writer.write(tcp.request("OPTIONS").replace(b"Content-Length: 0", b"Content-Length: " + length.encode()))
        assert (await tcp.answer()).startswith("SIP/2.0 400 Content-Length is no number\r\n")
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            with contextlib.suppress(ConnectionResetError):
                assert await tcp.reader.read() == b""


async def test_another_version_of_sip_gets_505(server: Server) -> None:
    async with connection(server) as tcp:
        tcp.writer.write(tcp.request("OPTIONS").replace(b" SIP/2.0\r\n", b" SIP/3.0\r\n", 1))
        assert (await tcp.answer()).startswith("SIP/2.0 505 ")


@pytest.mark.parametrize("data", [b"jaK", b"\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"a" * 99])
async def test_what_is_no_sip_gets_no_answer(server: Server, data: bytes) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        caller.transmit(data)
        caller.send("OPTIONS")
        assert (await caller.final()).status == 200


async def test_what_follows_in_that_connection_is_no_request(server: Server) -> None:
    async with connection(server) as tcp:
        tcp.writer.write(tcp.request(padding=max_bytes()) + tcp_options(server.sip_port))
        assert (await tcp.answer()).startswith("SIP/2.0 513 ")
        tcp.writer.write(tcp_options(server.sip_port))
        with contextlib.suppress(ConnectionResetError):
            assert await tcp.reader.read() == b""


async def test_a_request_that_just_fits_is_taken(server: Server) -> None:
    async with connection(server) as tcp:
        short = len(tcp.request("OPTIONS", padding=1))
        tcp.writer.write(tcp.request("OPTIONS", padding=max_bytes() - short - 10))
        assert (await tcp.answer()).startswith("SIP/2.0 200")


@pytest.mark.parametrize("where", ["header", "body"])
async def test_a_datagram_that_is_cut_gets_513(server: Server, where: str) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        body = SDP.format(port=9, formats="0 101")
        if where == "header":
            caller.send("INVITE", headers=b"X-TTS-Text: " + b"%E4%BD%A0" * (max_bytes() // 9) + b"\r\n", body=body)
        else:
            caller.send(
                "INVITE", body=body + "a=x:" + "y" * 900 + "\r\n" + ("a=z:" + "y" * 900 + "\r\n") * (max_bytes() // 906)
            )
        await caller.acknowledge(513)
        assert await server.calls() == []


async def test_the_longest_text_fits_into_an_invite_with_the_server_build(server: Server) -> None:
    text = "üüüüü " * 833
    async with connection(server) as tcp:
        tcp.writer.write(tcp.request(text=quote(text)))
        answer = await tcp.answer()
        if max_bytes() < 30_000:
            assert answer.startswith("SIP/2.0 513 ")
            return
        assert answer.startswith("SIP/2.0 200 ")
        call = await server.until_call(lambda call: call["utterances"])
        spoken = await server.utterance(call)
        assert spoken["text_chars"] in (len(text), len(text.strip()))
        assert await server.delete(f"/v1/calls/{call['id']}")
