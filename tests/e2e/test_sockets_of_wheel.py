"""TCP connections, and calls that fail at once, by the hundred: PJLIB in the PyPI wheel has 64 places for sockets, and an
assertion that one is free ends the process, and so every call.
"""

import asyncio
import contextlib
import socket

import pytest

from cc_tts.ua import pjsua2_build
from lab.configured import Lend, ua_pid
from lab.ports import HOST, free_ports
from lab.raw_sip import SDP, RawCaller, RawPeer, invite_once, tcp_options
from lab.server_under_test import Server
from tests.e2e.test_inbound_auth import num_refused
from tests.e2e.test_registration import place

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(90),
    pytest.mark.skipif(not pjsua2_build.has_wheel(), reason="this Python has no wheel of pjsua2"),
]

STRANGER = "127.0.0.2"
NUM_PLACED = 400
CLOSED_AGAIN_S = 0.7
"""PJLIB keeps the place of a closed socket for less."""
NUM_CALLS = 4
"""The calls that the wheel takes at a time."""
SILENT_S = 20.0
"""Well above the 10 s after which a silent connection is closed, and the 4 s for which a last request keeps a call's place;
well below PJSIP's ten minutes, and the 32 s of a transaction.
"""


def open_and_close(port: int, number: int) -> None:
    for _ in range(number):
        with socket.socket() as connection:
            connection.settimeout(5)
            with contextlib.suppress(ConnectionError, TimeoutError):
                connection.connect((HOST, port))


async def answer_to_options(port: int, source: str = HOST) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
    writer.write(tcp_options(port))
    try:
        async with asyncio.timeout(2):
            return await reader.readline()
    except (ConnectionError, TimeoutError):
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    "number", [150, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(300)])], ids=["some", "many"]
)
async def test_calls_outlive_connections_that_are_opened_and_closed(lend: Lend, number: int) -> None:
    async with (  # the caller sends no RTP, and 800 connections may take half a minute
        lend(rtp__inactivity_timeout_s="0") as server,
        RawCaller("silent", server.sip_port) as caller,
    ):
        await caller.establish()
        first_pid, before = ua_pid(server), await num_refused(server, "connections")
        await asyncio.gather(*(asyncio.to_thread(open_and_close, server.sip_port, number) for _ in range(2)))
        await asyncio.sleep(CLOSED_AGAIN_S)
        assert (await answer_to_options(server.sip_port)).startswith(b"SIP/2.0 200 "), "others get in again"
        caller.send("OPTIONS")
        assert (await caller.final()).status == 200
        assert (await caller.bye()).status == 200
        assert ua_pid(server) == first_pid
        assert await num_refused(server, "connections") > before


async def test_silent_connections_that_take_every_place_are_closed(server: Server) -> None:
    first_pid = ua_pid(server)
    silent = []
    for _ in range(4):
        silent += await asyncio.gather(*(asyncio.open_connection(HOST, server.sip_port) for _ in range(20)))
        await asyncio.sleep(CLOSED_AGAIN_S)
    assert await answer_to_options(server.sip_port) == b"", "no place is left"
    async with asyncio.timeout(SILENT_S):
        while True:
            if (await answer_to_options(server.sip_port)).startswith(b"SIP/2.0 200 "):
                break
            await asyncio.sleep(CLOSED_AGAIN_S)
    for _, writer in silent:
        writer.transport.abort()
    assert ua_pid(server) == first_pid


async def test_connections_of_one_source_with_a_message_each_keep_nobody_else_out(server: Server) -> None:
    kept = []
    for _ in range(2):
        kept += await asyncio.gather(
            *(asyncio.open_connection(HOST, server.sip_port, local_addr=(STRANGER, 0)) for _ in range(20))
        )
        await asyncio.sleep(CLOSED_AGAIN_S)
    for _, writer in kept:
        writer.write(tcp_options(server.sip_port))
    assert await answer_to_options(server.sip_port, STRANGER) == b""
    assert (await answer_to_options(server.sip_port)).startswith(b"SIP/2.0 200 ")
    for _, writer in kept:
        writer.transport.abort()
    await asyncio.sleep(CLOSED_AGAIN_S)


async def test_a_call_outlives_hundreds_of_placed_calls_that_fail_at_once(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        first_pid = ua_pid(server)
        nobody = f"sip:bob@{HOST}:{free_ports()};transport=tcp"

        async def place_some() -> None:
            for _ in range(NUM_PLACED // 4):
                assert (await server.post("/v1/calls", {"to": nobody}))[0] in (201, 503)

        await asyncio.gather(*(place_some() for _ in range(4)))
        assert (await caller.bye()).status == 200
        assert ua_pid(server) == first_pid


@pytest.mark.parametrize("unanswered", ["INVITE", "BYE"])
async def test_calls_that_are_over_keep_nobody_out_while_pjsip_repeats_their_last_request(
    server: Server, unanswered: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(NUM_CALLS):
            if unanswered == "INVITE":
                peer = await stack.enter_async_context(RawPeer())
                await place(server, peer, timeout_s=60)
                await peer.expect("INVITE")
            else:
                await (await stack.enter_async_context(RawCaller("silent", server.sip_port))).establish()
        for call in await server.calls():
            assert (await server.post(f"/v1/calls/{call['id']}/hangup", {}))[0] == 200
        assert (await invite_once("silent", server.sip_port)).status == 503, "PJSIP still repeats them"
        async with asyncio.timeout(SILENT_S):
            while (await invite_once("silent", server.sip_port)).status != 200:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.2)
        assert (await invite_once("silent", server.sip_port)).status == 200


async def test_a_bye_that_is_answered_late_leaves_the_call_alone_that_has_the_place_now(fresh_server: Server) -> None:
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(RawPeer()) for _ in range(NUM_CALLS)]
        for peer in peers:
            await place(fresh_server, peer, timeout_s=60)
            await peer.expect("INVITE")
            peer.answer("200 OK", body=SDP.format(port=9, formats=0))
            await peer.expect("ACK")
        for call in await fresh_server.calls():
            assert (await fresh_server.post(f"/v1/calls/{call['id']}/hangup", {}))[0] == 200
        for peer in peers:
            await peer.expect("BYE")
        callers: list[RawCaller] = []
        while len(callers) < NUM_CALLS:
            caller = await stack.enter_async_context(RawCaller("silent", fresh_server.sip_port))
            caller.invite()
            answer = await caller.final()
            caller.ack()
            if answer.status == 200:
                callers.append(caller)
            else:
                await asyncio.sleep(0.2)
        for peer in peers:
            peer.answer("200 OK")
        for caller in callers:
            assert (await caller.establish()).status == 200, "a re-INVITE"
            assert (await caller.bye()).status == 200
