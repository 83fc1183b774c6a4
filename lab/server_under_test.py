"""The server as a child process. Only ``server_config`` knows its configuration keys, only ``Server`` its REST."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from lab.arrivals import exactly
from lab.audio_match import Samples, read_wav
from lab.children import Child
from lab.ports import HOST, free_ports

READY_TIMEOUT_S = 90.0
REQUEST_TIMEOUT_S = 10.0
END_TIMEOUT_S = 20.0
REUSE_TIMEOUT_S = 2.0
"""How long the next test waits for the calls of the one before; then it starts a server of its own."""
UA_PORTS = 4
"""For tests with more than one UA process."""
RTP_PORTS = 40
MAX_CLOSING_CALLS = 10
"""A test begins with no more calls whose sockets PJLIB still keeps. With 20 of them the PyPI wheel refuses the next call."""
SOCKETS_CLOSE_S = 0.7
SMALL_MAX_CALLS = 3
"""Of a server whose lines are to be taken up."""

GREETING = "Good morning. Your call is answered by a machine that can speak."
LONG_GREETING = (
    "This announcement is long on purpose, so that there is time to interrupt it. It goes on and on about nothing in "
    "particular. The weather is fine today. The queue is short today. All our agents are free today. Please do not "
    "hang up, unless you want to. Thank you for listening to every word of this announcement until its very end."
)

Json = dict[str, Any]


def server_config(*, sip_port: int, http_port: int, rtp_port: int, first_ua_port: int) -> str:
    """Configuration of the server for these tests. Routes: greet, long, silent, ring; every other user is unknown."""
    return f"""
[sip]
host = "{HOST}"
port = {sip_port}
retry_after_s = 7

[ua]
first_port = {first_ua_port}

[rtp]
port_min = {rtp_port}
port_max = {rtp_port + RTP_PORTS - 1}

[http]
host = "{HOST}"
port = {http_port}

[tts]
engine = "espeak"
voice = "en-us"

[calls]
drain_timeout_s = 2

[routes.greet]
greeting = {json.dumps(GREETING)}

[routes.long]
greeting = {json.dumps(LONG_GREETING)}

[routes.silent]
greeting = ""

[routes.ring]
answer = "ring"
ring_ms = 20000
"""


async def engine_pcm(text: str, folder: Path) -> Samples:
    """What the engine makes of a text at 8 kHz, by ``cc-tts say``."""
    path = folder / "said.wav"
    argv = [sys.executable, "-m", "cc_tts.cli", "say", text, "-o", str(path), "--voice", "en-us", "--rate", "8000"]
    child = await Child.start(argv, log_path=folder / "say.log")
    assert await child.wait(60) == 0, child.log
    return read_wav(path)[0]


def entries(log: str, event: str) -> list[Json]:
    """Entries of a log with this event; a last line that is still being written is left out."""
    found = (json.loads(line) for line in log.splitlines(keepends=True) if line.startswith("{") and line.endswith("\n"))
    return [entry for entry in found if entry.get("event") == event]


def _is_closing(call: Json) -> bool:
    """Whether the sockets of an ended call may still be kept."""
    return call["ended_at"] is not None and datetime.now(UTC).timestamp() - call["ended_at"] < SOCKETS_CLOSE_S


class Server:
    """One running server."""

    def __init__(
        self, child: Child, session: aiohttp.ClientSession, *, config: Path, sip_port: int, http_port: int
    ) -> None:
        self._child = child
        self._environment = {name: value for name, value in os.environ.items() if name.startswith("CC_TTS_")}
        self._session = session
        self.config = config
        self.sip_port = sip_port
        self.url = f"http://{HOST}:{http_port}"
        self._log_begins = 0
        self._earlier_calls: set[str] = set()

    @classmethod
    async def start(cls, folder: Path, *, prefix: Sequence[str] = ()) -> "Server":
        """Start it, by a command before its own where that is wanted, and wait until ``GET /readyz`` says 200."""
        sip_port, http_port, rtp_port = free_ports(2), free_ports(), free_ports(RTP_PORTS)
        config = folder / "server.toml"
        first_ua_port = free_ports(UA_PORTS)
        config.write_text(
            server_config(sip_port=sip_port, http_port=http_port, rtp_port=rtp_port, first_ua_port=first_ua_port)
        )
        argv = [*prefix, sys.executable, "-m", "cc_tts.cli", "serve", "--config", str(config)]
        child = await Child.start(argv, log_path=folder / "server.log")
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S))
        server = cls(child, session, config=config, sip_port=sip_port, http_port=http_port)
        try:
            await server._until_ready()
        except BaseException:
            await server.end()
            raise
        return server

    async def replace(self, number: signal.Signals | None, **settings: str) -> int:
        """End the server process by this signal and start another with the same configuration but for ``settings``, as in
        ``CC_TTS_SECTION__KEY``; ``None``: it has ended. Returns the exit status of the first.
        """
        if number is not None:
            self.signal(number)
        status = await self._child.wait(END_TIMEOUT_S)
        num_serving = len(entries(self.whole_log, "serving"))
        await self.start_another(**settings)
        async with asyncio.timeout(READY_TIMEOUT_S):
            while len(entries(self.whole_log, "serving")) == num_serving:  # not by readyz: all lines may be busy
                if self._child.returncode is not None:
                    raise RuntimeError(f"the server ended with {self._child.returncode}:\n{self.log[-4000:]}")
                await asyncio.sleep(0.05)
        return status

    async def start_another(self, **settings: str) -> None:
        """Start the process again, without waiting for it to be ready."""
        given = {f"CC_TTS_{name.upper()}": value for name, value in settings.items()}
        argv = [sys.executable, "-m", "cc_tts.cli", "serve", "--config", str(self.config)]
        self._child = await Child.start(argv, log_path=self._child.log_path, env=self._environment | given)

    def share(self) -> None:
        """Several tests use it, one after another."""
        self._child.is_shared = True

    async def begin(self) -> None:
        """A test begins: what other tests did is neither in its calls nor in its log, nor does it keep a call out."""
        self._earlier_calls = set()
        while len([call for call in await self.calls() if _is_closing(call)]) > MAX_CLOSING_CALLS:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.05)
        self._earlier_calls = {call["id"] for call in await self.calls()}
        self._log_begins = len(self._child.log)

    async def is_as_new(self) -> bool:
        """Whether another test can use it: it is ready, no call is left, and it is still its first user agent."""
        try:
            await self.until_all_terminated(REUSE_TIMEOUT_S)
            status, _ = await self.get("/readyz")
        except (aiohttp.ClientError, TimeoutError):
            return False
        ready = [entry["child"] for entry in entries(self.whole_log, "child_ready")]
        return status == 200 and len(ready) == len(set(ready))

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while True:
                    if self._child.returncode is not None:
                        raise RuntimeError(f"the server ended with {self._child.returncode}:\n{self.log[-4000:]}")
                    with contextlib.suppress(aiohttp.ClientConnectionError):
                        status, _ = await self.get("/readyz")
                        if status == 200:
                            return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"the server was not ready within {READY_TIMEOUT_S} s:\n{self.log[-4000:]}") from None

    def uri(self, user: str) -> str:
        """SIP URI of a route."""
        return f"sip:{user}@{HOST}:{self.sip_port}"

    @property
    def pid(self) -> int:
        """Process id of the server process."""
        return self._child.pid

    @property
    def whole_log(self) -> str:
        """What it has logged since it was started."""
        return self._child.log

    @property
    def log(self) -> str:
        """What it has logged since the test began."""
        return self._child.log[self._log_begins :]

    def has_logged(self, digits: str) -> bool:
        """Whether they stand in the log since the test began, but for times and ids, in which any digits may stand."""
        return re.search(rf"(?<![0-9A-Za-z.]){digits}(?![0-9A-Za-z])", self.log) is not None

    async def get(self, path: str) -> tuple[int, Json]:
        """Status and body of a GET."""
        async with self._session.get(self.url + path) as answer:
            return answer.status, await answer.json(content_type=None)

    async def get_text(self, path: str) -> tuple[int, str]:
        """Status and text of a GET."""
        async with self._session.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def post(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Json]:
        """Status and body of a POST."""
        async with self._session.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def delete(self, path: str) -> tuple[int, Json]:
        """Status and body of a DELETE."""
        async with self._session.delete(self.url + path) as answer:
            return answer.status, await answer.json(content_type=None)

    async def patch(self, path: str, body: Mapping[str, Any]) -> tuple[int, Json]:
        """Status and body of a PATCH."""
        async with self._session.patch(self.url + path, json=body) as answer:
            return answer.status, await answer.json(content_type=None)

    async def calls(self, state: str = "") -> list[Json]:
        """Calls of this test, live ones and ended ones still kept."""
        status, answer = await self.get("/v1/calls" + (f"?state={state}" if state else ""))
        assert status == 200, answer
        return [call for call in answer["calls"] if call["id"] not in self._earlier_calls]

    async def only_call(self) -> Json:
        """The call, when there has been one only."""
        (call,) = await self.calls()
        return call

    async def utterance(self, call: Json, index: int = 0) -> Json:
        """An utterance of a call."""
        status, answer = await self.get(f"/v1/utterances/{call['utterances'][index]}")
        assert status == 200, answer
        return answer

    async def until_call(self, wanted: Callable[[Json], bool], timeout_s: float = 10.0) -> Json:
        """Wait until the only call looks as wanted."""
        call: Json = {}
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    calls = await self.calls()
                    if calls:
                        call = calls[-1]
                        if wanted(call):
                            return call
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"the call did not become as wanted; it is {call}") from None

    async def until_played_stands_still(self, call: Json) -> float:
        """Wait until an utterance goes on no more; returns what of it was played, ms."""
        seen_ms = -1.0
        while (now_ms := float((await self.utterance(call))["played_ms"])) != seen_ms:
            seen_ms = now_ms
            await asyncio.sleep(0.5)  # longer than reports of progress are apart
        return seen_ms

    async def until_played(self, call: Json, wanted_ms: float, timeout_s: float = 20.0) -> None:
        """Wait until so much of an utterance was played."""
        async with asyncio.timeout(timeout_s):
            while (await self.utterance(call))["played_ms"] < wanted_ms:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.05)

    async def until_terminated(self, timeout_s: float = 10.0) -> Json:
        """Wait until the only call is over."""
        return await self.until_call(lambda call: call["state"] == "terminated", timeout_s)

    async def until_all_terminated(self, timeout_s: float = 20.0) -> list[Json]:
        """Wait until no call is left, which the far side may know earlier than the server; returns the ended ones."""
        async with asyncio.timeout(timeout_s):
            while True:
                calls = await self.calls()
                if all(call["state"] == "terminated" for call in calls):
                    return calls
                await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def events(self, *, after: "EventLog | None" = None) -> AsyncIterator["EventLog"]:
        """Everything that happens meanwhile, from ``GET /v1/events``, and what followed the last event of another log."""
        since = "" if after is None else f"?since={after.events[-1]['id']}"
        async with self._session.ws_connect(self.url + "/v1/events" + since) as socket:
            log = EventLog()
            reader = asyncio.create_task(log.read(socket))
            try:
                yield log
            finally:
                reader.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reader

    def signal(self, number: signal.Signals, *, pid: int | None = None) -> None:
        """Send a signal to the server, or to a process of it."""
        os.kill(self.pid if pid is None else pid, number)

    async def ended(self, timeout_s: float) -> int:
        """Wait until it has ended by itself; returns the exit status."""
        return await self._child.wait(timeout_s)

    async def end(self) -> int:
        """SIGTERM; returns the exit status."""
        await self._session.close()
        return await self._child.end(END_TIMEOUT_S)


class EventLog:
    """Events of the server in order of arrival."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.closed = asyncio.Event()
        self._changed = asyncio.Event()

    async def read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            self.events.append(json.loads(message.data))
            self._changed.set()
        self.closed.set()

    async def several(self, kind: str, count: int, timeout_s: float = 10.0) -> list[Json]:
        """Wait for this number of events of this type; there must not be more by then."""

        def found() -> list[Json]:
            return [event for event in self.events if event["type"] == kind]

        return await exactly(count, found, self._changed, what=kind, timeout_s=timeout_s)

    async def wait(self, kind: str, timeout_s: float = 10.0, **data: Any) -> Json:
        """The first event of this type whose data holds these values."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    for event in self.events:
                        if event["type"] == kind and data.items() <= event["data"].items():
                            return event
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            seen = [(event["type"], event["data"]) for event in self.events]
            raise TimeoutError(f"no {kind} {data} within {timeout_s} s; seen: {seen}") from None
