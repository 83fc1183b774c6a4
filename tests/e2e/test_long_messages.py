"""SIP messages that are longer than PJSIP's buffer get 513, never silence, and are never taken for shorter ones."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from cc_tts.ua import pjsua2_build
from lab.configured import logged, until
from lab.ports import HOST
from lab.raw_sip import SDP, RawCaller, options, tcp_options
from lab.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(60)]

ANSWER_TIMEOUT_S = 5.0


def max_bytes() -> int:
    return pjsua2_build.chosen().max_message_bytes


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
    await until(lambda: logged(server, "requests_refused"), ANSWER_TIMEOUT_S)
    (line,) = logged(server, "requests_refused")
    assert (line["cause"], line["count"], line["some_sources"]) == ("too_long", 1, [HOST])
    assert await server.calls() == []
    assert (await options(server.sip_port)).status == 200


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
