"""What carries messages between the server and an engine worker: the bare channel over a socket pair or TCP, gRPC, or Ray.

    python -m bench.transports [--streams 64] [--opens 1000] [--rounds 3]

One connection lives for a whole round. ``--streams`` streams are under way in it, each with an item of 9.6 kB (200 ms of
24 kHz PCM) every 200 ms. Meanwhile further streams are opened, one every 10 ms, and cancelled after their first item.
``first item`` is from the request to that item, ``item`` from the sending of any item to its arrival. The worker is a
process of its own and does nothing else. The transports take turns, so that all of them meet the same load of the machine.
With Ray, if it is installed, the worker is an actor, and each stream a generator of it.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import logging
import multiprocessing
import os
import secrets
import socket
import statistics
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc

from bench.report import machine, percentiles, save, show
from cc_tts.engines.engine_core import StreamRequest
from cc_tts.engines.worker.messages import FROM_WORKER, TO_WORKER, CancelStream, StreamAudio
from cc_tts.processes.channel import COMMON_MESSAGES, Decoder, Message, ServerChannel, encode
from lab.ports import HOST, free_ports
from lab.server import Json

ITEM_BYTES: Final = 9600
ITEM_INTERVAL_S: Final = 0.2
OPEN_INTERVAL_S: Final = 0.010
SETTLE_S: Final = 1.0
METHOD: Final = "/bench.Transports/Link"
KINDS: Final = ("socket pair", "tcp", "grpc", *(("ray",) if importlib.util.find_spec("ray") else ()))
_STAMP: Final = struct.Struct("<q")

Send = Callable[[Message, bytes], None]
OnRecord = Callable[[Message, bytes], None]


class Worker:
    """Gives every open stream an item at once, then one at each interval."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._streams: dict[int, asyncio.TimerHandle] = {}

    def take(self, message: Message, _payload: bytes) -> None:
        if isinstance(message, StreamRequest):
            self._give(message.stream_id)
        elif isinstance(message, CancelStream) and (timer := self._streams.pop(message.stream_id, None)):
            timer.cancel()

    def _give(self, stream_id: int) -> None:
        item = _STAMP.pack(time.monotonic_ns()) + bytes(ITEM_BYTES - _STAMP.size)
        self._send(StreamAudio(stream_id, 0), item)
        loop = asyncio.get_running_loop()
        self._streams[stream_id] = loop.call_later(ITEM_INTERVAL_S, self._give, stream_id)


class Outbox:
    """Records that wait for gRPC: what is there goes as one message."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._news = asyncio.Event()

    def put(self, message: Message, payload: bytes = b"") -> None:
        self._records.append(encode(message, payload))
        self._news.set()

    async def messages(self) -> AsyncIterator[bytes]:
        while True:
            await self._news.wait()
            self._news.clear()
            records, self._records = self._records, []
            yield b"".join(records)


async def serve_grpc(port: int) -> None:
    async def link(requests: AsyncIterator[bytes], context: Any) -> None:
        outbox, decoder = Outbox(), Decoder((*COMMON_MESSAGES, *TO_WORKER))
        worker = Worker(outbox.put)

        async def write() -> None:
            async for data in outbox.messages():
                await context.write(data)

        writing = asyncio.create_task(write())
        try:
            async for data in requests:
                for message, payload in decoder.feed(data):
                    worker.take(message, payload)
        finally:
            writing.cancel()

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(link)
    service, _, method = METHOD[1:].partition("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    await server.wait_for_termination()


async def serve_channel(sock: socket.socket) -> None:
    over = asyncio.Event()

    def take(message: Message, payload: bytes) -> None:
        worker.take(message, payload)

    channel = ServerChannel(TO_WORKER, on_record=take, on_closed=lambda _reason: over.set())
    worker = Worker(channel.send)
    await channel.open(sock)
    await over.wait()


class RayWorker:
    """The actor: what :class:`Worker` does, a generator a stream."""

    def __init__(self) -> None:
        self._ended: dict[int, asyncio.Event] = {}

    async def stream(self, stream_id: int) -> AsyncIterator[bytes]:
        ended = self._ended[stream_id] = asyncio.Event()
        while not ended.is_set():
            yield _STAMP.pack(time.monotonic_ns()) + bytes(ITEM_BYTES - _STAMP.size)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), ITEM_INTERVAL_S)

    async def cancel(self, stream_id: int) -> None:
        if ended := self._ended.pop(stream_id, None):
            ended.set()


@contextlib.asynccontextmanager
async def connected_by_ray(on_record: OnRecord) -> AsyncIterator[Send]:
    import ray

    from bench.transports import RayWorker as Importable  # Ray pickles what is in __main__, and a Struct cannot be

    if not ray.is_initialized():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    actor: Any = ray.remote(Importable).options(max_concurrency=1000).remote()
    await actor.cancel.remote(-1)  # it has started
    tasks: set[asyncio.Task[None]] = set()

    async def follow(stream_id: int) -> None:
        async for item in actor.stream.options(num_returns="streaming").remote(stream_id):
            on_record(StreamAudio(stream_id, 0), await item)

    def send(message: Message, _payload: bytes) -> None:
        if isinstance(message, StreamRequest):
            task = asyncio.create_task(follow(message.stream_id))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        elif isinstance(message, CancelStream):
            actor.cancel.remote(message.stream_id)

    try:
        yield send
    finally:
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ray.kill(actor)


def run_worker(kind: str, port: int, sock: socket.socket | None) -> None:
    """The child process."""
    if kind == "grpc":
        asyncio.run(serve_grpc(port))
    elif sock is not None:
        asyncio.run(serve_channel(sock))
    else:
        with socket.create_server((HOST, port)) as listener:
            accepted, _ = listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asyncio.run(serve_channel(accepted))


@contextlib.asynccontextmanager
async def connected(kind: str, on_record: OnRecord) -> AsyncIterator[Send]:
    """A worker behind one kind of transport, and what sends to it."""
    if kind == "ray":
        async with connected_by_ray(on_record) as send:
            yield send
        return
    port, context = free_ports(1), multiprocessing.get_context("spawn")
    ours, theirs = socket.socketpair() if kind == "socket pair" else (None, None)
    child = context.Process(target=run_worker, args=(kind, port, theirs), daemon=True)
    child.start()
    try:
        if kind == "grpc":
            async with grpc.aio.insecure_channel(f"{HOST}:{port}") as link:
                await asyncio.wait_for(link.channel_ready(), 20)
                call, outbox = link.stream_stream(METHOD)(), Outbox()
                decoder = Decoder((*COMMON_MESSAGES, *FROM_WORKER))

                async def read() -> None:
                    async for data in call:
                        for record in decoder.feed(data):
                            on_record(*record)

                async def write() -> None:
                    async for data in outbox.messages():
                        await call.write(data)

                tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
                yield outbox.put
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            return
        channel = ServerChannel(FROM_WORKER, on_record=on_record, on_closed=lambda _reason: None)
        await channel.open(ours if ours is not None else await connect(port))
        yield channel.send
        channel.close()
    finally:
        child.kill()
        child.join()


async def connect(port: int) -> socket.socket:
    for _ in range(200):
        with contextlib.suppress(ConnectionRefusedError):
            sock = socket.create_connection((HOST, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        await asyncio.sleep(0.1)
    raise RuntimeError("the worker does not listen")


async def measure(kind: str, num_streams: int, num_opens: int) -> tuple[list[float], list[float]]:
    """Delays of first items and of all items, ms."""
    items: list[float] = []
    opened_ns: dict[int, int] = {}
    first: list[float] = []

    def take(message: Message, payload: bytes) -> None:
        assert isinstance(message, StreamAudio)
        now_ns = time.monotonic_ns()
        items.append((now_ns - _STAMP.unpack_from(payload)[0]) / 1e6)
        if (began_ns := opened_ns.pop(message.stream_id, None)) is not None:
            first.append((now_ns - began_ns) / 1e6)
            send(CancelStream(message.stream_id), b"")

    async with connected(kind, take) as send:
        for number in range(num_streams):
            send(StreamRequest(number, "voice"), b"")
            await asyncio.sleep(ITEM_INTERVAL_S / num_streams)
        await asyncio.sleep(SETTLE_S)
        items.clear()
        for number in range(num_streams, num_streams + num_opens):
            opened_ns[number] = time.monotonic_ns()
            send(StreamRequest(number, "voice"), b"")
            await asyncio.sleep(OPEN_INTERVAL_S)
        await asyncio.sleep(SETTLE_S)
    assert len(first) == num_opens
    return first, items


def report(num_streams: int, num_opens: int, rounds: int) -> Json:
    found: dict[str, tuple[list[list[float]], list[list[float]]]] = {kind: ([], []) for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            first, items = asyncio.run(measure(kind, num_streams, num_opens))
            found[kind][0].append(first)
            found[kind][1].append(items)
    table: Json = {}
    for kind, (firsts, all_items) in found.items():
        p99_ms = [percentiles(each)["p99"] for each in firsts]
        table[kind] = {
            "first_item_ms": percentiles([*itertools.chain(*firsts)]),
            "first_item_p99_ms_of_rounds": p99_ms,
            "first_item_p99_ms_median": statistics.median(p99_ms),
            "item_ms": percentiles([*itertools.chain(*all_items)]),
        }
        print(f"{kind}: first item p99 {statistics.median(p99_ms)} ms, the median of {p99_ms}")
    rows = [(f"{kind}, {what}", table[kind][f"{what}_ms"]) for kind in table for what in ("first_item", "item")]
    show(f"{num_streams} streams under way", rows)
    return {"machine": machine(), "streams": num_streams, "opens": num_opens, "rounds": rounds, "transports": table}


def main() -> None:
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--opens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="transports", help="of the file of results")
    options = parser.parse_args()
    save(options.name, report(options.streams, options.opens, options.rounds))


if __name__ == "__main__":
    main()
