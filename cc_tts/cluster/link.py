"""A server's connection to `cc-tts pool`: it reports this node, and receives workers, nodes and shares.

A pool that is lost changes nothing: the last of what it said stays in force, and the connection is tried again for ever.
Runs on: the event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import aiohttp
import msgspec

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.cluster import pool_client
from cc_tts.cluster.messages import (
    MAX_MESSAGE_BYTES,
    REPORT_INTERVAL_S,
    FromPool,
    Leases,
    Node,
    NodeReport,
    Nodes,
    TenantUse,
    Worker,
    Workers,
)
from cc_tts.config.schema import RemoteConfig
from cc_tts.errors import UNREADABLE, CcTtsError
from cc_tts.processes.backoff import Backoff
from cc_tts.processes.tasks import cancel_all

CONNECT_TIMEOUT_S: Final = 5.0  # unmeasured
HEARTBEAT_S: Final = 5.0
"""The interval of pings to the pool. The connection is lost if one is not answered within half of this (unmeasured)."""
SEND_TIMEOUT_S: Final = 5.0  # unmeasured
CLOSE_TIMEOUT_S: Final = 1.0  # unmeasured
LOOK_INTERVAL_S: Final = 0.25
"""The interval of checking whether this node has changed (unmeasured)."""
BACKOFF_MIN_S: Final = 0.5  # unmeasured
BACKOFF_MAX_S: Final = 10.0  # unmeasured

_TO_POOL: Final = msgspec.json.Encoder()
_FROM_POOL: Final = msgspec.json.Decoder(FromPool)

log = logs.get(__name__)


class PoolLink:
    """The connection and the last messages of the pool. ``node`` returns the state of this server. ``tenants`` returns the
    use of its tenants, called once a report. ``on_workers``, ``on_nodes`` and ``on_leases`` get the pool's messages. ``url``
    is the pool's, ``http`` or ``https``.
    """

    def __init__(
        self,
        url: str,
        *,
        remote: RemoteConfig,
        clock: Clock,
        node: Callable[[], Node],
        tenants: Callable[[], Mapping[str, TenantUse]] = dict,
        on_workers: Callable[[Sequence[Worker]], object] = lambda _workers: None,
        on_nodes: Callable[[Sequence[Node]], object] = lambda _nodes: None,
        on_leases: Callable[[Leases], object] = lambda _leases: None,
    ) -> None:
        self.url = url
        self._remote = remote
        self._clock = clock
        self._node = node
        self._tenants = tenants
        self._on_workers = on_workers
        self._on_nodes = on_nodes
        self._on_leases = on_leases
        self._task: asyncio.Task[None] | None = None
        self._lost_ns: int | None = None
        self.workers: tuple[Worker, ...] = ()
        self.nodes: tuple[Node, ...] = ()
        self.is_connected = False
        self.reason = "not connected yet"
        """Why there is no connection, or was none before."""

    @property
    def age_s(self) -> float | None:
        """Return the age of ``workers`` and ``nodes``, seconds: 0 while connected; ``None`` if the pool was
        never reached.
        """
        if self.is_connected:
            return 0.0
        return None if self._lost_ns is None else (self._clock.now_ns() - self._lost_ns) / NS_PER_S

    def start(self) -> None:
        self._task = asyncio.create_task(self._live(), name="link to the pool")

    async def stop(self) -> None:
        """Close the connection. Safe to call twice."""
        await cancel_all(self._task)
        self._task = None

    async def _live(self) -> None:
        backoff = Backoff(self._clock, min_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        while True:
            backoff.begin()
            try:
                reason = await self._use()
            except (aiohttp.ClientError, OSError, TimeoutError, CcTtsError) as error:
                reason = pool_client.why(error)
            except Exception as error:  # a server without it would never hear of the pool again
                log.exception("pool_link_failed")
                reason = type(error).__name__
            was_connected, self.is_connected = self.is_connected, False
            if was_connected:
                self._lost_ns = self._clock.now_ns()
            if was_connected or reason != self.reason:
                log.warning("pool_not_reached", was_connected=was_connected, reason=reason)
            self.reason = reason
            await asyncio.sleep(backoff.delay_s())

    async def _use(self) -> str:
        """Connect and stay connected; return why that has ended."""
        async with pool_client.opened(self.url, self._remote) as (client, pool):
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                socket = await client.ws_connect(
                    pool / "v1/watch",
                    max_msg_size=MAX_MESSAGE_BYTES,
                    heartbeat=HEARTBEAT_S,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
                )
            async with socket:
                tasks = [asyncio.create_task(self._report(socket)), asyncio.create_task(self._read(socket))]
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    return done.pop().result()
                finally:
                    await cancel_all(*tasks)

    async def _report(self, socket: aiohttp.ClientWebSocketResponse) -> str:
        """Report this node: periodically, and at once when more than its number of calls has changed."""
        said: Node | None = None
        due_ns = 0
        with contextlib.suppress(ConnectionError):
            while True:
                node, now_ns = self._node(), self._clock.now_ns()
                if said is None or now_ns >= due_ns or msgspec.structs.replace(node, calls=said.calls) != said:
                    report = NodeReport(node, dict(self._tenants()))
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        await socket.send_str(_TO_POOL.encode(report).decode())
                    said, due_ns = node, now_ns + round(REPORT_INTERVAL_S * NS_PER_S)
                await asyncio.sleep(LOOK_INTERVAL_S)
        return "the connection was lost"

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> str:
        async for frame in socket:
            if frame.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                return f"the connection was lost: {frame.type.name.lower()}"
            try:
                message = _FROM_POOL.decode(frame.data)
            except UNREADABLE:
                return "it sent a message that cannot be read: is it of another version?"
            if not self.is_connected:
                self.is_connected = True
                log.info("pool_connected")
            self._take(message)
        reason = f"{socket.close_code}" if socket.close_code is not None else "the connection was lost"
        return f"it closed the connection: {reason}"

    def _take(self, message: FromPool) -> None:
        match message:
            case Workers(workers):
                self.workers = workers
                self._on_workers(workers)
            case Nodes(nodes):
                self.nodes = nodes
                self._on_nodes(nodes)
            case Leases():
                self._on_leases(message)
