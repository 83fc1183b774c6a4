"""A server of its own on loopback as a child process, and a client of its REST interface and of its events."""

import asyncio
import contextlib
import http
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp

from lab.ports import HOST, free_ports

READY_TIMEOUT_S = 120.0
END_TIMEOUT_S = 20.0

Json = dict[str, Any]


class LabServer:
    """``cc-tts serve`` as a child process, and its REST interface."""

    def __init__(
        self, process: asyncio.subprocess.Process, http: aiohttp.ClientSession, sip_port: int, url: str
    ) -> None:
        self.process = process
        self.http = http
        self.sip_port = sip_port
        self.url = url

    @classmethod
    async def start(cls, *settings: str, log_path: Path | None = None, http_port: int = 0) -> Self:
        """Start it with ``--set`` for each of ``settings`` and wait until ``/readyz`` says 200. ``http_port`` 0: any."""
        sip_port, http_port, rtp_port = free_ports(1), http_port or free_ports(1), free_ports(40)
        argv = [sys.executable, "-m", "cc_tts.cli", "serve"]
        for setting in (
            f"sip.port={sip_port}",
            f"http.port={http_port}",
            f"rtp.port_min={rtp_port}",
            f"rtp.port_max={rtp_port + 39}",
            "calls.drain_timeout_s=2",
            "log.level=warning",
            "tts.engine=espeak",  # the same from run to run, and next to no time of a processor
            *settings,
        ):
            argv += ["--set", setting]
        with log_path.open("wb") if log_path is not None else contextlib.nullcontext() as log:
            process = await asyncio.create_subprocess_exec(*argv, stderr=log)
        url = f"http://{HOST}:{http_port}"
        http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15), connector=aiohttp.TCPConnector(limit=0))
        server = cls(process, http, sip_port, url)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{url}/readyz") as response:
                    if response.status == 200:
                        return server
            if process.returncode is not None or time.monotonic() > deadline:
                await server.end()
                raise RuntimeError("the server did not become ready; its log says why")
            await asyncio.sleep(0.05)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.end()

    async def end(self) -> int:
        """Drain it; returns its exit status."""
        await self.http.close()
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), END_TIMEOUT_S)
            except TimeoutError:
                self.process.kill()
        return await self.process.wait()

    def uri(self, user: str) -> str:
        """The SIP URI of a user of this server."""
        return f"sip:{user}@{HOST}:{self.sip_port}"

    async def get(self, path: str) -> Any:
        """GET, JSON."""
        async with self.http.get(f"{self.url}{path}") as response:
            return await response.json(content_type=None)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """POST JSON; anything but 2xx raises."""
        async with self.http.post(f"{self.url}{path}", json=body or {}) as response:
            answer: Json = await response.json(content_type=None)
            if response.status >= 300:
                raise RuntimeError(f"POST {path}: {response.status} {answer}")
            return answer

    async def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """PATCH JSON; anything but 2xx raises."""
        async with self.http.patch(f"{self.url}{path}", json=body) as response:
            if response.status >= 300:
                raise RuntimeError(f"PATCH {path}: {response.status} {await response.text()}")

    async def post_or_retry(self, path: str, body: Mapping[str, Any]) -> tuple[Json, float | None]:
        """POST JSON: the answer, and for a 503 after how many seconds to try again; anything else but 2xx raises."""
        async with self.http.post(f"{self.url}{path}", json=body) as response:
            answer: Json = await response.json(content_type=None)
            if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
                return answer, float(response.headers["Retry-After"])
            if response.status >= 300:
                raise RuntimeError(f"POST {path}: {response.status} {answer}")
            return answer, None

    async def call_id(self, sip_call_id: str) -> str:
        """Our id of the call with this SIP Call-ID."""
        for _ in range(100):
            for call in (await self.get("/v1/calls"))["calls"]:
                if call["sip_call_id"] == sip_call_id:
                    return str(call["id"])
            await asyncio.sleep(0.02)
        raise RuntimeError("the server does not know the call")

    @contextlib.asynccontextmanager
    async def events(self) -> AsyncIterator["EventLog"]:
        """Every event while the context lasts."""
        async with self.http.ws_connect(
            f"{self.url}/v1/events", timeout=aiohttp.ClientWSTimeout(ws_close=5)
        ) as socket_:
            log = EventLog()
            task = asyncio.create_task(log.follow(socket_))
            try:
                yield log
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def ua_pid(self) -> int:
        """Process id of the only UA process."""
        pids = self.pids_of("cc_tts.ua")
        if len(pids) != 1:
            raise RuntimeError(f"{len(pids)} UA processes")
        return pids[0]

    def pids_of(self, module: str) -> list[int]:
        """Process ids of its children that run this module."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [
            int(pid) for pid in children if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        ]


class EventLog:
    """Events as they came."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self._changed = asyncio.Condition()

    async def follow(self, socket_: aiohttp.ClientWebSocketResponse) -> None:
        """Read until closed."""
        async for message in socket_:
            async with self._changed:
                self.events.append({**json.loads(message.data), "seen_ns": time.monotonic_ns()})
                self._changed.notify_all()

    async def wait(self, type_: str, *, timeout_s: float = 30.0, **data: Any) -> Json:
        """The first event of this type whose data has these values."""

        def find() -> Json | None:
            for event in self.events:
                if event["type"] == type_ and all(event["data"].get(key) == value for key, value in data.items()):
                    return event
            return None

        async with self._changed, asyncio.timeout(timeout_s):
            while (found := find()) is None:
                await self._changed.wait()
        return found
