"""Contact (RFC 3261 §8.1.1.8), to which the far side sends what comes after the INVITE: it has the configured address."""

import asyncio
import re
import ssl
from pathlib import Path

import pytest

from lab.certificates import Authority
from lab.configured import server_with
from lab.ports import HOST, free_ports
from lab.raw_sip import RawPeer, repeated
from lab.server_under_test import Server
from lab.tls_peer import ask, client_context, offer, server_context, tls_settings

pytestmark = pytest.mark.e2e

OWN = "127.0.0.21"
"""Not the address from which the machine would speak to HOST by itself."""
PUBLIC = "192.0.2.21"
ANSWER_TIMEOUT_S = 10.0
CASES = pytest.mark.parametrize(
    ("settings", "wanted"),
    [({"sip__host": OWN}, OWN), ({"sip__public_address": PUBLIC}, PUBLIC)],
    ids=["address", "public address"],
)


def contact_of(text: str) -> str:
    found = re.search(r"^Contact\s*:\s*<([^>]+)>", text, re.MULTILINE | re.IGNORECASE)
    assert found is not None, text
    return found[1]


async def invite_of(server: Server, parameters: str, context: ssl.SSLContext | None = None) -> str:
    """The INVITE of a call that the server places to a TCP or TLS listener of ours."""
    came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set_result((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.close()

    listener = await asyncio.start_server(listen, HOST, 0, ssl=context)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        await server.create("/v1/calls", {"to": f"sip:bot@{HOST}:{port}{parameters}"})
        return await asyncio.wait_for(came, ANSWER_TIMEOUT_S)


@pytest.mark.usefixtures("server_build")
@CASES
async def test_over_udp_tcp_and_tls(tmp_path: Path, settings: dict[str, str], wanted: str) -> None:
    authority, host, tls_port = Authority.create(tmp_path / "ca"), settings.get("sip__host", HOST), free_ports()
    pair = authority.issue("server", san=f"IP:{host}")
    more = {"sip__transports": '["udp", "tcp", "tls"]', **tls_settings(authority, pair, tls_port)}
    async with server_with(tmp_path, **settings, **more) as server:
        async with RawPeer() as peer:
            await server.create("/v1/calls", {"to": f"sip:bot@{HOST}:{peer.port}"})
            invite = await peer.expect("INVITE")
            peer.answer("486 Busy Here")
        assert contact_of(invite) == f"sip:cc-tts@{wanted}:{server.sip_port}"
        trusting, trusted = client_context(authority), server_context(authority.issue("bot"))
        for name, port, ours, theirs in (("tcp", server.sip_port, None, None), ("tls", tls_port, trusting, trusted)):
            own = f"sip:cc-tts@{wanted}:{port};transport={name.upper()}"
            answer = await ask(port, ours, host=host, method="INVITE", user="silent", body=offer("RTP/AVP"))
            assert contact_of(answer.text) == own
            assert contact_of(await invite_of(server, f";transport={name}", theirs)) == own


async def test_a_bye_over_a_connection_of_its_own(server: Server) -> None:
    """A connection that we opened is closed when nothing was sent for a while; the call goes on without it."""
    taken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        invite = (await reader.readuntil(b"\r\n\r\n")).decode()
        port = listener.sockets[0].getsockname()[1]
        sdp = offer("RTP/AVP")
        writer.write(
            f"SIP/2.0 200 OK\r\n{repeated(invite, tag='bot')}Contact: <sip:bot@{HOST}:{port};transport=tcp>\r\n"
            f"Content-Type: application/sdp\r\nContent-Length: {len(sdp)}\r\n\r\n{sdp}".encode()
        )
        await reader.readuntil(b"ACK ")
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        taken.set_result(invite)

    listener = await asyncio.start_server(take, HOST, 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        await server.create("/v1/calls", {"to": f"sip:bot@{HOST}:{port};transport=tcp"})
        invite = await asyncio.wait_for(taken, ANSWER_TIMEOUT_S)
        await server.until_call(lambda call: call["state"] == "established")
        own = contact_of(invite)
        host, _, own_port = own.removeprefix("sip:cc-tts@").partition(";")[0].partition(":")
        names = dict(re.findall(r"^(From|To|Call-ID): (.*?)\r$", invite, re.MULTILINE))
        reader, writer = await asyncio.open_connection(host, int(own_port))
        writer.write(
            f"BYE {own} SIP/2.0\r\nVia: SIP/2.0/TCP {HOST}:{port};branch=z9hG4bK-{port}-bye\r\n"
            f"From: {names['To']};tag=bot\r\nTo: {names['From']}\r\nCall-ID: {names['Call-ID']}\r\nCSeq: 1 BYE\r\n"
            "Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n".encode()
        )
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ANSWER_TIMEOUT_S)
        assert answer.startswith(b"SIP/2.0 200 ")
        writer.close()
        ended = await server.until_terminated()
        assert ended["ending"]["reason"] == "remote_hangup"
