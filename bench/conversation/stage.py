"""The calls that are measured, the other legs that speak meanwhile, and what the server says of them."""

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from bench.report import percentiles
from cc_tts.clock import NS_PER_MS
from cc_tts.processes.tasks import cancel_all
from lab.crowd import Crowd
from lab.lines import LineProcess
from lab.load import Meter, Sipp, counter, loaded_server
from lab.server_under_test import Json, Server

MAX_LEVEL_S: Final = 60.0
OTHERS_STAY_S: Final = 95.0
NUM_SENTENCES: Final = 18
"""About 100 seconds: what the others hear is longer than a level lasts."""
CALLERS_STAY_S: Final = 80.0
RATE: Final = 50.0
SETTLE_S: Final = 2.0
UP_TIMEOUT_S: Final = 20.0
DOWN_TIMEOUT_S: Final = 15.0
EVENT_TIMEOUT_S: Final = 10.0
EVENTS: Final = (
    "call.gather_complete",
    "call.speech_started",
    "call.speech_stopped",
    "speak.started",
    "speak.complete",
)
PROCESSES: Final = {
    "ua": "cc_tts.ua",
    "vad": "cc_tts.vad",
    "text": "cc_tts.text.process",
    "worker": "cc_tts.engines.worker",
}


def server_of(max_calls: int) -> contextlib.AbstractAsyncContextManager[tuple[Server, float, Json]]:
    """A server with a route for each kind of call: ``load`` speaks, ``caller`` is silent, ``listened`` may be interrupted by
    speech. English is espeak-ng's unless ``hibari-heart`` is asked for.
    """
    return loaded_server(
        max_calls,
        "tts.engine=auto",
        "tts.voice=en-us",
        "cache.max_prompt_s=300",
        "http.max_connections_per_source=1000",
        "routes.caller.greeting=",
        "routes.listened.barge_in_speech=true",
        num_sentences=NUM_SENTENCES,
    )


class Callers(LineProcess):
    """The process :mod:`bench.conversation.callers`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self.ports: Sequence[int] = ()
        self._waiting: dict[tuple[str, int | None], asyncio.Future[Json]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, num_calls: int) -> AsyncIterator[Self]:
        """Start it with a telephone for each call; ended with the context."""
        callers = await cls.start("bench.conversation.callers", str(num_calls))
        try:
            callers.ports = (await callers.read())["ports"]
            reading = asyncio.create_task(callers.follow())
            try:
                yield callers
            finally:
                await cancel_all(reading)
        finally:
            await callers.kill()

    async def press(self, call: int, digit: str) -> Json:
        """Press a key; ``first_ns`` of its first packet and ``end_ns`` of the first one with the end bit."""
        return await self._answered("pressed", call, {"do": "press", "call": call, "digit": digit})

    async def say(self, call: int, file: Path) -> int:
        """Send μ-law; the instant of its first packet, ns."""
        said = await self._answered("said", call, {"do": "say", "call": call, "file": str(file)})
        return int(said["first_ns"])

    async def report(self) -> Json:
        return await self._answered("report", None, {"do": "report"})

    def echo(self, db: float | None) -> None:
        """Send back what comes, so much softer, while nothing is said."""
        self.tell(json.dumps({"do": "echo", "db": db}))

    async def _answered(self, event: str, call: int | None, command: Json) -> Json:
        answer = self._waiting[event, call] = asyncio.get_running_loop().create_future()
        self.tell(json.dumps(command))
        async with asyncio.timeout(EVENT_TIMEOUT_S):
            found: Json = await answer
            return found

    async def follow(self) -> None:
        """Give each answer to who waits for it."""
        async for event in self.lines():
            waiting = self._waiting.pop((event["event"], event.get("call")), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(event)


class Events:
    """The server's events by type, and by utterance, or by call where they are of none; ``seen_ns`` is when each came."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], asyncio.Queue[Json]] = defaultdict(asyncio.Queue)

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, server: Server) -> AsyncIterator[Self]:
        url = f"{server.url}/v1/events?types={','.join(EVENTS)}"
        events = cls()
        async with server.http.ws_connect(url, timeout=aiohttp.ClientWSTimeout(ws_close=5)) as socket:
            reading = asyncio.create_task(events._read(socket))
            try:
                yield events
            finally:
                await cancel_all(reading)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            seen_ns = time.monotonic_ns()
            event = json.loads(message.data)
            data = event["data"]
            key = data["utterance_id"] if event["type"].startswith("speak.") else event["call_id"]
            self._queues[event["type"], key].put_nowait({**data, "seen_ns": seen_ns})

    async def wait(self, type_: str, key: str, *, timeout_s: float = EVENT_TIMEOUT_S) -> Json:
        """The oldest that was not taken yet.

        Raises:
            TimeoutError: none came.
        """
        async with asyncio.timeout(timeout_s):
            return await self._queues[type_, key].get()

    def take(self, type_: str, key: str) -> list[Json]:
        queue = self._queues[type_, key]
        return [queue.get_nowait() for _ in range(queue.qsize())]


@dataclass(slots=True)
class Found:
    """What a part has measured: times in ms by name, and what was counted."""

    times_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)

    def took(self, name: str, start_ns: int, end_ns: int) -> None:
        self.times_ms[name].append((end_ns - start_ns) / NS_PER_MS)

    def add(self, other: "Found") -> None:
        for name, times_ms in other.times_ms.items():
            self.times_ms[name] += times_ms
        for name, count in other.counts.items():
            self.counts[name] += count

    def result(self) -> Json:
        return {**{name: percentiles(each) for name, each in self.times_ms.items()}, "counts": dict(self.counts)}


@dataclass(frozen=True, slots=True)
class Level:
    """Calls that are up; ``until_s`` of ``time.monotonic`` is when measuring ends."""

    server: Server
    callers: Callers
    events: Events
    call_ids: Sequence[str]
    until_s: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until_s


@contextlib.asynccontextmanager
async def others_speak(server: Server, count: int) -> AsyncIterator[Crowd | None]:
    """So many legs speak one prompt from the cache."""
    if not count:
        yield None
        return
    async with Crowd.of(count) as crowd, placed(server, crowd.ports, "load", OTHERS_STAY_S):
        deadline_s = time.monotonic() + UP_TIMEOUT_S + count / RATE
        while await counter(server, "cctts_calls_active") < count:
            if time.monotonic() > deadline_s:
                raise RuntimeError("the other legs are not up")
            await asyncio.sleep(0.2)
        await asyncio.sleep(SETTLE_S)
        yield crowd


@contextlib.asynccontextmanager
async def calls_up(server: Server, count: int, user: str, *, seconds: float) -> AsyncIterator[Level]:
    """So many calls to ``user``, to be measured for so long."""
    async with (
        Callers.of(count) as callers,
        Events.of(server) as events,
        placed(server, callers.ports, user, CALLERS_STAY_S),
    ):
        call_ids = await _ids(server, callers.ports)
        await asyncio.sleep(SETTLE_S)
        yield Level(server, callers, events, call_ids, time.monotonic() + seconds)
        await _end_calls(server, call_ids)


async def _ids(server: Server, ports: Sequence[int]) -> list[str]:
    deadline_s = time.monotonic() + UP_TIMEOUT_S + len(ports) / RATE
    while True:
        calls = (await server.read("/v1/calls?state=established"))["calls"]
        found = {call["headers"]["X-Rtp-Port"]: str(call["id"]) for call in calls}
        if all(str(port) in found for port in ports):
            return [found[str(port)] for port in ports]
        if time.monotonic() > deadline_s:
            raise RuntimeError("the calls are not up")
        await asyncio.sleep(0.1)


async def _end_calls(server: Server, call_ids: Sequence[str]) -> None:
    async def end(call_id: str) -> None:
        async with server.http.delete(f"{server.url}/v1/calls/{call_id}") as response:
            await response.read()

    await asyncio.gather(*map(end, call_ids))


@contextlib.asynccontextmanager
async def placed(server: Server, ports: Sequence[int], user: str, stay_s: float) -> AsyncIterator[None]:
    """SIPp places a call for each port. Those that are up at the end of the context are hung up by the server."""
    with tempfile.TemporaryDirectory() as folder:
        sipp = await Sipp.start(server, ports, Path(folder), rate=RATE, stay_s=stay_s, user=user)
        try:
            yield
            wanted = set(map(str, ports))
            calls = (await server.read("/v1/calls?state=established"))["calls"]
            await _end_calls(server, [call["id"] for call in calls if call["headers"]["X-Rtp-Port"] in wanted])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(sipp.process.wait(), DOWN_TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                sipp.process.kill()
            await sipp.process.wait()


def pids_of(server: Server) -> dict[str, Sequence[int]]:
    return {"server": [server.pid], **{name: server.pids_of(module) for name, module in PROCESSES.items()}}


class Conditions:
    """What else there was to say of a level: CPU, late frames, load."""

    def __init__(self, server: Server, late_frames: float, crowd: Crowd | None) -> None:
        self._server = server
        self._late_frames = late_frames
        self._crowd = crowd
        crowd_pids = [] if crowd is None else [crowd.pid]
        self._meter = Meter(**pids_of(server), bench=os.getpid(), others=crowd_pids)

    @classmethod
    async def begin(cls, server: Server, crowd: Crowd | None) -> Self:
        if crowd is not None:
            crowd.tell("start")
        return cls(server, await counter(server, "cctts_ua_late_frames_total"), crowd)

    async def end(self) -> Json:
        cores = self._meter.cores()
        late_frames = await counter(self._server, "cctts_ua_late_frames_total") - self._late_frames
        result: Json = {
            "cores": cores,
            "late_frames": int(late_frames),
            "load_1min": round(os.getloadavg()[0], 2),
        }
        if self._crowd is not None:
            result["others_heard"] = await self._crowd.ask("report")
        return result


async def each_call(level: Level, work: Any) -> None:
    """``work(number, call_id)`` on every call at once."""
    async with asyncio.TaskGroup() as group:
        for number, call_id in enumerate(level.call_ids):
            group.create_task(work(number, call_id))
