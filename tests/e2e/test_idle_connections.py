"""Connections that say nothing: closed after ``PJSIP_TRANSPORT_SERVER_IDLE_TIME_FIRST`` (config_site.h), in nobody's way."""

import asyncio
from pathlib import Path

import pytest

from lab.certificates import Authority
from lab.configured import server_with, ua_pid
from lab.ports import HOST, free_ports
from lab.raw_sip import RawCaller, tcp_options
from lab.tls_peer import client_context, tls_settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90), pytest.mark.usefixtures("server_build")]

NUM_TCP = 500
NUM_TLS = 20
CLOSE_TIMEOUT_S = 40.0
"""Well above the 10 s of the server build, well below PJSIP's 10 minutes."""


async def until_closed(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionError:
        return


async def test_silent_connections_are_closed_and_calls_go_on(tmp_path: Path) -> None:
    authority, port = Authority.create(tmp_path / "ca"), free_ports()
    settings = {"sip__transports": '["udp", "tcp", "tls"]', **tls_settings(authority, authority.issue("server"), port)}
    context = client_context(authority)
    async with server_with(tmp_path, **settings) as server:
        first_pid = ua_pid(server)
        speaking_reader, speaking = await asyncio.open_connection(HOST, server.sip_port)  # the oldest
        silent = await asyncio.gather(*(asyncio.open_connection(HOST, server.sip_port) for _ in range(NUM_TCP)))
        silent += [await asyncio.open_connection(HOST, port, ssl=context, server_hostname=HOST) for _ in range(NUM_TLS)]
        speaking.write(tcp_options(server.sip_port))
        assert (await speaking_reader.readline()).startswith(b"SIP/2.0 200 ")
        await speaking_reader.readuntil(b"\r\n\r\n")
        async with RawCaller("silent", server.sip_port) as caller:
            await caller.establish()
            assert (await caller.bye()).status == 200
        assert not any(reader.at_eof() for reader, _ in silent), "not at once"
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await asyncio.gather(*(until_closed(reader) for reader, _ in silent))
        speaking.write(tcp_options(server.sip_port))
        assert (await speaking_reader.readline()).startswith(b"SIP/2.0 200 "), "one that has spoken stays"
        for _, writer in (*silent, (speaking_reader, speaking)):
            writer.transport.abort()
        assert ua_pid(server) == first_pid
