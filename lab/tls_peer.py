"""SIP over TLS or TCP by hand, with Python's own TLS, and offers of SRTP: for what no well-behaved peer would do."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from lab.certificates import Authority, Pair
from lab.configured import server_with
from lab.ports import HOST, free_ports
from lab.raw_sip import Answer
from lab.server_under_test import Server
from lab.waiting import PATIENCE_S

KEY: Final = base64.b64encode(bytes(range(1, 31))).decode()
"""Master key and salt of AES_CM_128 in an offer."""
CRYPTO: Final = f"1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}"


def tls_settings(authority: Authority, pair: Pair, port: int) -> dict[str, str]:
    """What ``server_with`` wants for SIP over TLS besides ``sip__transports``."""
    return {
        "sip__tls_port": str(port),
        "tls__certificate_file": str(pair.certificate),
        "tls__private_key_file": str(pair.key),
        "tls__ca_file": str(authority.certificate),
    }


@contextlib.asynccontextmanager
async def tls_server(
    folder: Path, authority: Authority, *, pair: Pair | None = None, **settings: str
) -> AsyncIterator[tuple[Server, int]]:
    """A server that takes SIP over TLS only, with SRTP or none of it; its TLS port besides."""
    pair = pair or authority.issue("server")
    port = free_ports()
    wanted = {"sip__transports": '["tls"]', "rtp__srtp": "required", **tls_settings(authority, pair, port)}
    async with server_with(folder, **(wanted | settings)) as server:
        yield server, port


def client_context(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    """For a client that believes this authority, and is known by ``pair``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.certificate)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


def server_context(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def ask(
    port: int,
    context: ssl.SSLContext | None,
    *,
    host: str = HOST,
    method: str = "OPTIONS",
    user: str = "ping",
    body: str = "",
) -> Answer:
    """Send one request over a connection of its own, by TCP without a ``context``; returns the final answer.

    Raises:
        ConnectionError, ssl.SSLError: the server closed the connection without an answer.
    """
    name, transport = (None, "TCP") if context is None else (host, "TLS")
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        local = writer.get_extra_info("sockname")[1]
        kind = "Content-Type: application/sdp\r\n" if body else ""
        writer.write(
            f"{method} sip:{user}@{host}:{port};transport={transport} SIP/2.0\r\n"
            f"Via: SIP/2.0/{transport} {HOST}:{local};branch=z9hG4bK-{local}-{method}\r\n"
            f"From: <sip:raw@{HOST}>;tag=t{local}\r\nTo: <sip:{user}@{host}>\r\nCall-ID: {transport}-{local}\r\n"
            f"CSeq: 1 {method}\r\nContact: <sip:raw@{HOST}:{local};transport={transport}>\r\nMax-Forwards: 70\r\n"
            f"{kind}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        async with asyncio.timeout(PATIENCE_S):
            await writer.drain()
            while True:
                try:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                except asyncio.IncompleteReadError:
                    raise ConnectionResetError("closed without an answer") from None
                answer = Answer(head)
                answer.text += (await reader.readexactly(int(answer.header("Content-Length") or 0))).decode()
                if answer.status >= 200:
                    return answer
    finally:
        writer.transport.abort()


async def is_turned_away(port: int, context: ssl.SSLContext) -> bool:
    """Whether there is no answer to OPTIONS because the server closed the connection."""
    try:
        await ask(port, context)
    except (ConnectionError, ssl.SSLError):
        return True
    return False


def offer(profile: str, *crypto: str, rtp_port: int = 9) -> str:
    """An SDP offer of PCMU with telephone events and these ``a=crypto``."""
    lines = [
        "v=0",
        f"o=raw 1 1 IN IP4 {HOST}",
        "s=-",
        f"c=IN IP4 {HOST}",
        "t=0 0",
        f"m=audio {rtp_port} {profile} 0 101",
        "a=rtpmap:101 telephone-event/8000",
        *(f"a=crypto:{each}" for each in crypto),
    ]
    return "".join(f"{line}\r\n" for line in lines)


UNUSABLE = {
    "DTLS-SRTP": offer("UDP/TLS/RTP/SAVP"),
    "DTLS-SRTP with feedback": offer("UDP/TLS/RTP/SAVPF"),
    "no key": offer("RTP/SAVP"),
    "a suite we lack": offer("RTP/SAVP", f"1 F8_128_HMAC_SHA1_80 inline:{KEY}"),
    "a short key": offer("RTP/SAVP", "1 AES_CM_128_HMAC_SHA1_80 inline:AAAA"),
    "a master key index": offer("RTP/SAVP", f"{CRYPTO}|2^20|1:4"),
    "no encryption": offer("RTP/SAVP", f"{CRYPTO} UNENCRYPTED_SRTP"),
    "68 keys": offer("RTP/SAVP", *(f"{1_000_000 + number} X inline:AA" for number in range(68))),
}
"""Offers and answers of SRTP that nothing can be made of, whether it is optional or required."""
