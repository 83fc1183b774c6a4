"""A server of its own on loopback as a child process, for tests and benches, and a client of its REST and its events."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import aiohttp

from lab.audio_match import Samples, read_wav
from lab.children import Child
from lab.ports import HOST, free_ports
from lab.settings import in_environment, with_settings
from lab.waiting import PATIENCE_S, exactly, until

READY_TIMEOUT_S = 240.0
END_TIMEOUT_S = 20.0
REUSE_TIMEOUT_S = 4.0
"""How long the next test waits for the calls and processes of the one before; then it starts a server of its own."""
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


@dataclass(frozen=True)
class Ports:
    """The first of each kind that a server takes."""

    sip: int
    http: int
    rtp: int
    num_rtp: int
    ua: int

    @classmethod
    def free(cls, num_rtp: int = RTP_PORTS, *, http: int = 0) -> Self:
        """Ports that nobody has; ``http`` where that one is known already."""
        return cls(free_ports(2), http or free_ports(), free_ports(num_rtp), num_rtp, free_ports(UA_PORTS))


def server_config(ports: Ports, recordings: Path | str = "") -> str:
    """Configuration of the server for these tests. Routes: greet, long, silent, ring; every other user is unknown."""
    return f"""
[sip]
host = "{HOST}"
port = {ports.sip}
retry_after_s = 7

[ua]
first_port = {ports.ua}
orphan_grace_ms = 120000  # a busy machine may take longer than 10 s to start the next server

[rtp]
port_min = {ports.rtp}
port_max = {ports.rtp + ports.num_rtp - 1}

[http]
host = "{HOST}"
port = {ports.http}

[tts]
engine = "espeak"
voice = "en-us"

[calls]
drain_timeout_s = 2
ended_retention_s = 60  # tests ask for all calls again and again

[prompts]
allowed_hosts = ["127.0.0.0/8"]
fetch_timeout_s = 3

[transfer]
allowed = ["sip:*@{HOST}:*"]

[record]
dir = {json.dumps(str(recordings))}
min_free_bytes = 0

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


_said: dict[str, Samples] = {}


async def engine_pcm(text: str, folder: Path) -> Samples:
    """What the engine makes of a text at 8 kHz, by ``cc-tts say``, which is asked once for each text."""
    if text in _said:
        return _said[text]
    path = folder / "said.wav"
    argv = [sys.executable, "-m", "cc_tts.cli", "say", text, "-o", str(path), "--voice", "en-us", "--rate", "8000"]
    child = await Child.start(argv, log_path=folder / "say.log")
    assert await child.wait() == 0, child.log
    _said[text] = read_wav(path)[0]
    return _said[text]


def entries(log: str, event: str) -> list[Json]:
    """Entries of a log with this event; a last line that is still being written is left out."""
    lines = (line for line in log.splitlines(keepends=True) if event in line)
    found = (json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n"))
    return [entry for entry in found if entry.get("event") == event]


def pids_under(parent: int, module: str) -> list[int]:
    """Process ids of the children of a process that run this module."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def _body(method: str, path: str, status: int, body: Any) -> Any:
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        raise RuntimeError(f"{method} {path}: {status} {body}")
    return body


def _is_closing(call: Json) -> bool:
    """Whether the sockets of an ended call may still be kept."""
    return call["ended_at"] is not None and datetime.now(UTC).timestamp() - call["ended_at"] < SOCKETS_CLOSE_S


class Server:
    """One running server. It is a context manager: its end ends the server."""

    def __init__(
        self,
        child: Child,
        argv: Sequence[str],
        ports: Ports,
        environment: Mapping[str, str],
        *,
        is_temporary: bool = False,
    ) -> None:
        self._child = child
        self._argv = argv
        self._environment = environment
        self.ports = ports
        self.http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=PATIENCE_S), connector=aiohttp.TCPConnector(limit=0)
        )
        self.sip_port = ports.sip
        self.url = f"http://{HOST}:{ports.http}"
        self._log_begins = 0
        self._earlier_calls: set[str] = set()
        self._is_temporary = is_temporary

    @classmethod
    async def start(
        cls,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        in_file: Mapping[str, str] = MappingProxyType({}),
        prefix: Sequence[str] = (),
        ports: Ports | None = None,
    ) -> Self:
        """Start one with ``server_config`` and ``section__key: value`` besides, by a command before its own where that is
        wanted, and wait until ``GET /readyz`` says 200. What is ``in_file`` can be taken over anew.
        """
        ports = ports or Ports.free()
        config = folder / "server.toml"
        config.write_text(with_settings(server_config(ports, folder / "recordings"), in_file))
        argv = [sys.executable, "-m", "cc_tts.cli", "serve", "--config", str(config)]
        return await cls._launch(folder, argv, ports, in_environment(settings or {}), prefix=prefix)

    @classmethod
    async def with_settings(cls, *settings: str, http_port: int = 0) -> Self:
        """Start one without a configuration file but with ``--set`` for each of ``settings``, as :meth:`start` does. Its
        log is in a temporary folder of its own.
        """
        ports = Ports.free(http=http_port)
        argv = [sys.executable, "-m", "cc_tts.cli", "serve"]
        for setting in (
            f"sip.port={ports.sip}",
            f"http.port={ports.http}",
            f"rtp.port_min={ports.rtp}",
            f"rtp.port_max={ports.rtp + ports.num_rtp - 1}",
            "calls.drain_timeout_s=2",
            "log.level=warning",
            "tts.engine=espeak",  # the same from run to run, and next to no time of a processor
            *settings,
        ):
            argv += ["--set", setting]
        folder = Path(tempfile.mkdtemp(prefix="cc-tts-"))
        return await cls._launch(folder, argv, ports, {}, is_temporary=True)

    @classmethod
    async def _launch(
        cls,
        folder: Path,
        argv: Sequence[str],
        ports: Ports,
        settings: Mapping[str, str],
        *,
        prefix: Sequence[str] = (),
        is_temporary: bool = False,
    ) -> Self:
        child = await Child.start([*prefix, *argv], log_path=folder / "server.log", env=settings)
        inherited = {name: value for name, value in os.environ.items() if name.startswith("CC_TTS_")}
        server = cls(child, argv, ports, inherited | dict(settings), is_temporary=is_temporary)
        try:
            await server._until_ready()
        except BaseException:
            await server.__aexit__()
            raise
        return server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.end()
        if self._is_temporary:
            shutil.rmtree(self.log_path.parent, ignore_errors=True)

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
        is_shared = self._child.is_shared
        self._child = await self.start_beside(**settings)
        self._child.is_shared = is_shared

    async def start_beside(self, **settings: str) -> Child:
        """Start a second process with the same configuration but for ``settings``. The caller ends it."""
        environment = {**self._environment, **in_environment(settings)}
        return await Child.start(self._argv, log_path=self._child.log_path, env=environment)

    def share(self) -> None:
        """Several tests use it, one after another."""
        self._child.is_shared = True

    async def take_over(self, settings: Mapping[str, str]) -> None:
        """Have ``server_config`` with these settings in its file, of those that a running server takes over."""
        wanted = with_settings(server_config(self.ports, self.config.parent / "recordings"), settings)
        if wanted != self.config.read_text():
            self.config.write_text(wanted)
            await self.ask("/v1/admin/reload", {})

    async def begin(self) -> None:
        """A test begins: what other tests did is neither in its calls nor in its log, nor does it keep a call out."""
        self._earlier_calls = set()
        while len([call for call in await self.calls() if _is_closing(call)]) > MAX_CLOSING_CALLS:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.05)
        self._earlier_calls = {call["id"] for call in await self.calls()}
        self._log_begins = len(self._child.log)

    async def is_as_new(self) -> bool:
        """Whether another test can use it: it is ready, which it may be again, and no call is left."""
        try:
            async with asyncio.timeout(REUSE_TIMEOUT_S):
                await self.until_all_terminated()
                while (await self.get("/readyz"))[0] != HTTPStatus.OK:  # noqa: ASYNC110 - no event tells of it
                    await asyncio.sleep(0.05)
        except (aiohttp.ClientError, TimeoutError):
            return False
        return True

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
        return f"sip:{user}@{HOST}:{self.sip_port}"

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Exit status of the server process, once it has ended."""
        return self._child.returncode

    def pids_of(self, module: str) -> list[int]:
        """Process ids of its children that run this module."""
        return pids_under(self.pid, module)

    def ua_pid(self) -> int:
        """Process id of the only UA process."""
        pids = self.pids_of("cc_tts.ua")
        if len(pids) != 1:
            raise RuntimeError(f"{len(pids)} UA processes")
        return pids[0]

    @property
    def config(self) -> Path:
        """The file that :meth:`start` has written."""
        return self.log_path.parent / "server.toml"

    @property
    def log_path(self) -> Path:
        return self._child.log_path

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
        async with self.http.get(self.url + path) as answer:
            return answer.status, await answer.json(content_type=None)

    async def get_text(self, path: str) -> tuple[int, str]:
        async with self.http.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def until_metrics(self, line: str) -> None:
        """Wait until its metrics have this line."""

        async def has_it() -> bool:
            return line in (await self.get_text("/metrics"))[1]

        await until(has_it)

    async def get_bytes(self, path: str) -> tuple[int, bytes]:
        async with self.http.get(f"{self.url}{path}") as response:
            return response.status, await response.read()

    async def post(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Json]:
        async with self.http.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def create(self, path: str, body: Mapping[str, Any]) -> Json:
        status, made = await self.post(path, body)
        assert status == 201, made
        return made

    async def delete(self, path: str) -> tuple[int, Json]:
        async with self.http.delete(self.url + path) as answer:
            return answer.status, await answer.json(content_type=None)

    async def patch(self, path: str, body: Mapping[str, Any]) -> tuple[int, Json]:
        async with self.http.patch(self.url + path, json=body) as answer:
            return answer.status, await answer.json(content_type=None)

    async def read(self, path: str) -> Any:
        """Body of a GET that must succeed."""
        return _body("GET", path, *await self.get(path))

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """Body of the answer to a POST that must succeed."""
        answer: Json = _body("POST", path, *await self.post(path, body or {}))
        return answer

    async def call_id(self, sip_call_id: str) -> str:
        for _ in range(100):
            for call in (await self.read("/v1/calls"))["calls"]:
                if call["sip_call_id"] == sip_call_id:
                    return str(call["id"])
            await asyncio.sleep(0.02)
        raise RuntimeError("the server does not know the call")

    async def calls(self, state: str = "") -> list[Json]:
        """Calls of this test, live ones and ended ones still kept."""
        status, answer = await self.get("/v1/calls" + (f"?state={state}" if state else ""))
        assert status == 200, answer
        return [call for call in answer["calls"] if call["id"] not in self._earlier_calls]

    async def only_call(self) -> Json:
        """The one call of this test, once it has come."""
        await until(self.calls)
        (call,) = await self.calls()
        return call

    async def utterance(self, call: Json, index: int = 0) -> Json:
        status, answer = await self.get(f"/v1/utterances/{call['utterances'][index]}")
        assert status == 200, answer
        return answer

    async def until_call(self, wanted: Callable[[Json], bool], timeout_s: float = PATIENCE_S) -> Json:
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

    async def until_played(self, call: Json, wanted_ms: float, timeout_s: float = PATIENCE_S) -> None:
        """Wait until so much of an utterance was played."""
        async with asyncio.timeout(timeout_s):
            while (await self.utterance(call))["played_ms"] < wanted_ms:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.05)

    async def until_terminated(self, timeout_s: float = PATIENCE_S) -> Json:
        """Wait until the only call is over."""
        return await self.until_call(lambda call: call["state"] == "terminated", timeout_s)

    async def until_all_terminated(self, timeout_s: float = PATIENCE_S) -> list[Json]:
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
        async with self.http.ws_connect(self.url + "/v1/events" + since) as socket:
            log = EventLog()
            reader = asyncio.create_task(log.read(socket))
            try:
                yield log
            finally:
                reader.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reader

    def signal(self, number: signal.Signals, *, pid: int | None = None) -> None:
        os.kill(self.pid if pid is None else pid, number)

    async def ended(self, timeout_s: float) -> int:
        """Wait until it has ended by itself; returns the exit status."""
        return await self._child.wait(timeout_s)

    async def end(self) -> int:
        """SIGTERM; returns the exit status."""
        await self.http.close()
        return await self._child.end(END_TIMEOUT_S)


class EventLog:
    def __init__(self) -> None:
        self.events: list[Json] = []
        self.closed = asyncio.Event()
        self._changed = asyncio.Event()

    async def read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            self.events.append(json.loads(message.data))
            self._changed.set()
        self.closed.set()

    async def several(self, kind: str, count: int, timeout_s: float = PATIENCE_S) -> list[Json]:
        """Wait for this number of events of this type; there must not be more by then."""

        def found() -> list[Json]:
            return [event for event in self.events if event["type"] == kind]

        return await exactly(count, found, self._changed, what=kind, timeout_s=timeout_s)

    async def wait(self, kind: str, timeout_s: float = PATIENCE_S, *, call_id: str = "", **data: Any) -> Json:
        """The first event of this type, of a call if one is named, whose data holds these values."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    for event in self.events:
                        is_of_it = not call_id or event["call_id"] == call_id
                        if event["type"] == kind and is_of_it and data.items() <= event["data"].items():
                            return event
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            seen = [(event["type"], event["data"]) for event in self.events]
            raise TimeoutError(f"no {kind} {data} within {timeout_s} s; seen: {seen}") from None
