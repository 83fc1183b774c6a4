"""What the hostile bench looks at: processes, memory, files, calls and lines, the log, and the calls in progress."""

import asyncio
import contextlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp

from bench.hostile.peer import Dialog, Peer, registration
from bench.hostile.traffic import KINDS, Traffic
from bench.report import machine
from lab.crowd import Crowd
from lab.load import Meter, counter, footprint, growth
from lab.server_under_test import Json, Server

SENTENCE: Final = "Your call is important to us and all of our agents are talking to other customers at the moment. "
ANNOUNCEMENT: Final = f"play=tts:{quote((SENTENCE * 9).strip())};repeat=forever"
"""About 50 seconds, said again until the call ends (RFC 4240)."""
MAX_EXAMPLES: Final = 40
EXAMPLE_CHARS: Final = 4000
GAP_LIMIT_MS: Final = 40
NOT_REGISTERED: Final = "not registered with the PBX"
"""The reason of ``/readyz`` that a hostile registrar leaves."""
READY_AGAIN_S: Final = 60.0
ASSERTION: Final = re.compile(r"Assert failed: [^\"\\]*|[\w.]+:\d+: .*Assertion .* failed")
MIN_WINDOW_S: Final = 2.0
"""Shorter ones, at the end of a run, say nothing."""


class LogTail:
    """The server's log: each kind of warning and error once, with an example."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        self.counts: Counter[str] = Counter()
        self.assertions: Counter[str] = Counter()
        """Failed ones of PJSIP: the server build steps over them with a line, the wheel ends with one."""
        self.last_assertion = ""
        self.examples: dict[str, str] = {}

    def read(self) -> None:
        """Take what was written since."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            more = file.read()
            self._at = file.tell()
        *lines, self._rest = (self._rest + more).split(b"\n")
        for raw in lines:
            self._take(raw.decode("utf-8", "replace"))

    def _take(self, line: str) -> None:
        kind, level = f"plain: {line[:60]}", "plain"
        if (failed := ASSERTION.search(line)) is not None:
            self.last_assertion = failed[0][:200]
            self.assertions[self.last_assertion] += 1
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                level = str(record.get("level", "?"))
                last = str(record.get("exception", "")).strip().rpartition("\n")[2][:120]
                kind = f"{level}: {record.get('event')} {record.get('report', '')} {last}".strip()
        if not line.strip() or level in ("debug", "info"):
            return
        self.counts[kind] += 1
        if kind not in self.examples and len(self.examples) < MAX_EXAMPLES:
            self.examples[kind] = line[:EXAMPLE_CHARS]

    def faults(self) -> list[str]:
        """Kinds that must not be: errors, critical ones, tracebacks and what no logger wrote."""
        return [
            kind for kind in self.counts if not kind.startswith("warning") or "Error" in kind or "exception" in kind
        ]


class CallsInProgress:
    """Calls that speak while all this goes on."""

    def __init__(self, crowd: Crowd, traffic: Traffic) -> None:
        self._crowd = crowd
        self._traffic = traffic
        self._round = 0
        self.dialogs: list[Dialog] = []
        self.windows: list[Json] = []

    async def place(self) -> None:
        self._round += 1
        self.dialogs = [
            await self._traffic.call_to_keep(f"kept{self._round}.{leg}", port, ANNOUNCEMENT)
            for leg, port in enumerate(self._crowd.ports)
        ]
        await asyncio.sleep(2)
        self._crowd.tell("start")

    async def window(self) -> Json:
        """What was heard since the last window."""
        heard = await self._crowd.ask("report")
        self._crowd.tell("start")
        if heard["window_s"] < MIN_WINDOW_S:
            return heard
        heard["calls_lost"] = sum(each.call_id not in self._traffic.peer.dialogs for each in self.dialogs)
        self.windows.append(heard)
        return heard

    def summary(self) -> Json:
        packets = max(1, sum(each["packets"] for each in self.windows))
        late = sum(each["gap_ms"][f"over_{GAP_LIMIT_MS}"] for each in self.windows)
        return {
            "calls": len(self.dialogs),
            "lost_calls": sum(each["calls_lost"] for each in self.windows[-1:]),
            "packets": packets,
            "packets_due": sum(each["packets_due"] for each in self.windows),
            "lost_packets": sum(each["lost"] for each in self.windows),
            "speech_share_lowest": min((each["speech_share"] for each in self.windows), default=0.0),
            f"gaps_over_{GAP_LIMIT_MS}_ms": late,
            f"gap_p99_at_most_{GAP_LIMIT_MS}_ms": late <= packets / 100,
            "gap_p99_ms_worst_window": max((each["gap_ms"]["p99"] for each in self.windows), default=0.0),
            "gap_p99_ms_median_window": sorted(each["gap_ms"]["p99"] for each in self.windows)[len(self.windows) // 2]
            if self.windows
            else 0.0,
            "gap_max_ms": max((each["gap_ms"]["max"] for each in self.windows), default=0.0),
        }

    async def hang_up(self) -> None:
        for dialog in self.dialogs:
            if dialog.call_id in self._traffic.peer.dialogs:
                await self._traffic.ask(self._traffic.peer.within(dialog, "BYE"))
        self.dialogs = []


class Watch:
    """Samples of the server's processes."""

    def __init__(self, server: Server, log: LogTail) -> None:
        self._server = server
        self.log = log
        self.pids = {"server": server.pid, "ua": server.ua_pid()}
        self.samples: list[Json] = []
        self.meter = Meter(**self.pids)
        self._begun_s = time.monotonic()

    def crash(self) -> str:
        """What has died since the last look, if anything."""
        if self._server.returncode is not None:
            return f"the server ended with {self._server.returncode}"
        try:
            ua_pid = self._server.ua_pid()
        except (RuntimeError, OSError):
            return "the UA process is gone"
        if ua_pid != self.pids["ua"]:
            return f"the UA process {self.pids['ua']} was replaced by {ua_pid}"
        return ""

    async def until_ready(self) -> None:
        """After a crash of the UA process: wait for the next one."""
        deadline = time.monotonic() + READY_AGAIN_S
        while time.monotonic() < deadline and self._server.returncode is None:
            with contextlib.suppress(aiohttp.ClientError, RuntimeError, OSError):
                async with self._server.http.get(f"{self._server.url}/readyz") as response:
                    answer = await response.json(content_type=None)
                    if response.status == 200 or answer.get("reason") == NOT_REGISTERED:
                        self.pids["ua"] = self._server.ua_pid()
                        self.meter = Meter(**self.pids)
                        return
            await asyncio.sleep(0.2)

    async def sample(self, **more: object) -> Json:
        """Footprints, calls and utterances now."""
        self.log.read()
        sample: Json = {"at_s": round(time.monotonic() - self._begun_s), **more}
        for name, pid in self.pids.items():
            with contextlib.suppress(OSError, KeyError):
                sample[name] = footprint(pid)
        sample["calls_active"] = await counter(self._server, "cctts_calls_active")
        sample["utterances_active"] = await counter(self._server, "cctts_utterances_active")
        sample["load_1min"] = round(os.getloadavg()[0], 2)
        self.samples.append(sample)
        return sample

    def growth(self, since: int) -> Json:
        """Difference of the last sample to the one of index ``since``."""
        return growth(self.samples[since], self.samples[-1]) if len(self.samples) > since else {}

    async def until_quiet(self, timeout_s: float) -> Json:
        """Wait until no call is left; the last sample."""
        deadline = time.monotonic() + timeout_s
        while True:
            sample = await self.sample(what="after")
            if not sample["calls_active"] or time.monotonic() > deadline:
                return sample
            await asyncio.sleep(2)


class Orphans:
    """Calls that only the server still believes in: a mutation made the caller lose them, and no clock of the server ends
    them, as when the caller said that it sends no RTP. They are hung up by the control API, and must then be gone.
    """

    def __init__(self, server: Server, traffic: Traffic) -> None:
        self._server = server
        self._ledger = traffic.peer.ledger
        self._hung_up: set[str] = set()
        self.count = 0
        self.stuck: list[Json] = []
        self.examples: list[Json] = []

    async def hang_up(self, kept: Sequence[Dialog], *, older_than_s: float) -> None:
        """Hang up all that are so old and not ``kept``; what was hung up before and is still there is stuck."""
        keep = {each.call_id for each in kept}
        for call in await live_calls(self._server):
            if call["sip_call_id"] in keep or time.time() - call["created_at"] < older_than_s:
                continue
            if call["id"] in self._hung_up:
                self.stuck.append(call)
                continue
            self._hung_up.add(call["id"])
            self.count += 1
            if len(self.examples) < MAX_EXAMPLES:
                self.examples.append({"call": call, "messages": self._history(call["sip_call_id"])})
            with contextlib.suppress(RuntimeError):
                await self._server.ask(f"/v1/calls/{call['id']}/hangup")

    def _history(self, sip_call_id: str) -> list[str]:
        sent = [each for each in self._ledger.sent if each["call"] == sip_call_id and each["via"] != "media"]
        return [f"{each['n']} {each['via']} {each['kind']} {each['data'][:1200]}" for each in sent]


async def live_calls(server: Server) -> Sequence[Json]:
    """Calls that have not ended, as the control API has them."""
    calls = (await server.read("/v1/calls"))["calls"]
    return [call for call in calls if call["state"] != "terminated"]


@dataclass(frozen=True)
class Stage:
    server: Server
    traffic: Traffic
    watch: Watch
    kept: CallsInProgress

    def described(self) -> Json:
        """On what it ran, and what the server has logged."""
        self.watch.log.read()
        return {
            "machine": {**machine(), "nice": os.nice(0)},
            "pjsua2": os.environ.get("CC_TTS_PJSUA2", "wheel").rpartition("/")[2],
            "log": dict(self.watch.log.counts.most_common()),
            "log_faults": {kind: self.watch.log.examples.get(kind, "") for kind in self.watch.log.faults()},
        }


@contextlib.asynccontextmanager
async def staged(
    peer: Peer, settings: Sequence[str], *, seed: int, num_kept: int, kinds: Sequence[str] = tuple(KINDS)
) -> AsyncIterator[Stage]:
    """A server that registers with ``peer``, and ears for the calls in progress, which are not placed yet."""
    async with (
        peer,
        await Server.with_settings(*settings, *registration(peer)) as server,
        Crowd.of(num_kept) as crowd,
    ):
        peer.server_port = server.sip_port
        traffic = Traffic(server, peer, seed, kinds)
        yield Stage(server, traffic, Watch(server, LogTail(server.log_path)), CallsInProgress(crowd, traffic))
