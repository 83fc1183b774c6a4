"""``rtp.port_cooldown_s``: the ports of an ended call are not the next call's, and no call is refused for that."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cc_tts.ua.rtp.port_cooldown import SPARE_PAIRS
from lab.configured import server_with
from lab.ports import HOST, free_ports
from lab.raw_sip import RawCaller
from lab.server_under_test import Server
from lab.waiting import until

pytestmark = pytest.mark.e2e

PAIRS = 6
ROUNDS = 5
SOCKETS_REST_S = 1.0
"""Between rounds: the wheel answers 503 to more than 24 calls that end within 0.6 s, and its media thread waits in select,
where the kernel keeps a closed socket bound until the wait ends.
"""
SOCKETS_CLOSE_S = 0.2
"""PJMEDIA closes the sockets of a call some 10 ms after it, and in the next turn they are taken."""
LONGER_THAN_THE_TEST_S = 60


@contextlib.asynccontextmanager
async def server_of(folder: Path, *, pairs: int, port_cooldown_s: float) -> AsyncIterator[Server]:
    first = free_ports(2 * pairs)
    settings = {"port_min": first, "port_max": first + 2 * pairs - 1, "port_cooldown_s": port_cooldown_s}
    async with server_with(folder, **{f"rtp__{name}": str(value) for name, value in settings.items()}) as server:
        yield server


async def pick_up(caller: RawCaller) -> int:
    """Call; returns the server's RTP port."""
    answer = await caller.establish()
    match = re.search(r"^m=audio (\d+) ", answer.text, re.MULTILINE)
    assert match is not None, answer.text
    return int(match[1])


async def hang_up(caller: RawCaller) -> None:
    assert (await caller.bye()).status == 200


def is_bound(port: int) -> bool:
    """Whether packets to this port go anywhere: if not, the kernel says so at once on the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
        late.connect((HOST, port))
        late.send(b"late")
        try:
            late.send(b"later")
        except ConnectionRefusedError:
            return False
        return True


async def test_the_ports_of_the_last_calls_are_not_the_next_ones_and_late_packets_go_nowhere(tmp_path: Path) -> None:
    """A long call among short ones: pjsua alone, which goes round the range, gives its port away as soon as it ends."""
    released: list[int] = []
    async with server_of(tmp_path, pairs=PAIRS, port_cooldown_s=LONGER_THAN_THE_TEST_S) as server:
        async with RawCaller("silent", server.sip_port) as caller:
            port = await pick_up(caller)
            await hang_up(caller)
        await server.until_terminated()
        # taken as soon as PJMEDIA has closed them, one after the other
        await until(lambda: is_bound(port) and is_bound(port + 1))
        await asyncio.sleep(SOCKETS_REST_S)
        assert is_bound(port)
        assert is_bound(port + 1)
        await until(lambda: not is_bound(port + 2))

        for _ in range(ROUNDS):
            async with RawCaller("silent", server.sip_port) as long_one:
                long_port = await pick_up(long_one)
                for _ in range(PAIRS - 1):
                    async with RawCaller("silent", server.sip_port) as caller:
                        port = await pick_up(caller)
                        assert port not in released[-(PAIRS - 1 - SPARE_PAIRS) :]
                        await hang_up(caller)
                        released.append(port)
                        await asyncio.sleep(SOCKETS_CLOSE_S)
                await hang_up(long_one)
            released.append(long_port)
            await asyncio.sleep(SOCKETS_REST_S)
    assert len(released) == ROUNDS * PAIRS
    assert set(released) == set(range(min(released), min(released) + 2 * PAIRS, 2))


async def test_switched_off_the_ports_are_free_at_once(tmp_path: Path) -> None:
    async with server_of(tmp_path, pairs=PAIRS, port_cooldown_s=0) as server:
        async with RawCaller("silent", server.sip_port) as caller:
            port = await pick_up(caller)
            await hang_up(caller)
        await server.until_terminated()
        await until(lambda: not is_bound(port))


async def test_all_ports_can_be_in_use_at_once_right_after(tmp_path: Path) -> None:
    async with server_of(tmp_path, pairs=3, port_cooldown_s=LONGER_THAN_THE_TEST_S) as server:
        for _ in range(2):
            async with contextlib.AsyncExitStack() as stack:
                callers = [await stack.enter_async_context(RawCaller("silent", server.sip_port)) for _ in range(3)]
                ports = {await pick_up(caller) for caller in callers}
                assert len(ports) == 3
                async with RawCaller("silent", server.sip_port) as one_too_many:
                    one_too_many.invite()
                    answer = await one_too_many.final()
                    assert (answer.status, "\r\nRetry-After: " in answer.text) == (503, True), answer.text
                for caller in callers:
                    await hang_up(caller)
            await asyncio.sleep(SOCKETS_REST_S)
