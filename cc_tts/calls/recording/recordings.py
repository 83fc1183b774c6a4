"""All recordings: those of live calls, and those on the disk that are not finished. Runs on: the event loop; threads wait
for the disk.

The user agent reports the end of a recording. Where that or its recorder died, or another server had the call, it is read
off the disk.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.events import types
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.recording.recording import Recording, RecordRequest
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config.schema import Config
from cc_tts.errors import DuplicateId, RecordingOff, RecordingStorageFull
from cc_tts.metrics import Metrics
from cc_tts.processes.channel import Message
from cc_tts.processes.tasks import TaskSet
from cc_tts.recorder.info import Consent, RecordingInfo, RecordingPlan
from cc_tts.recorder.store import RecordingStore
from cc_tts.ua import messages

LOOK_S: Final = 0.5
"""The interval of looking at the disk for recordings whose end nobody reports (unmeasured)."""
TELL_NS: Final = 2 * NS_PER_S
"""The time that the user agent has to report the end of a recording after its call (unmeasured)."""
GONE_NS: Final = 10 * NS_PER_S
"""A recording that is not on the disk after this time never began (unmeasured)."""
EXPIRE_S: Final = 3600.0
"""The interval of looking for recordings that are too old (unmeasured)."""
STOP_TIMEOUT_S: Final = 3.0
"""The time that the last recordings may take when the server stops (unmeasured)."""
_SECONDS_A_DAY: Final = 86_400

log = logs.get(__name__)

Deliver = Callable[[RecordingInfo, Path], Awaitable[types.CallRecordingDelivered | None]]
"""Delivers a complete recording; returns the outcome, or ``None`` if nobody wants it."""
Publish = Callable[[types.EventData], object]


class RecordingOwner(Protocol):
    """The recorder of a call, as the owner of a recording."""

    def started(self) -> None:
        """The file has been created."""

    def over(self, info: RecordingInfo) -> RecordingInfo:
        """The recording has ended; return the final information about it."""

    def publish(self, data: types.EventData) -> None:
        """Publish an event of the call."""


class Recordings:
    """The recordings of a server. ``deliver`` is set by the composition root."""

    def __init__(self, config: Config, *, events: EventBus, metrics: Metrics, clock: Clock, nodes: LineNodes) -> None:
        self._config = config
        self._record = config.record
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._nodes = nodes
        self._store = RecordingStore(Path(config.record.dir).expanduser()) if config.record.dir else None
        self._live: dict[str, tuple[RecordingOwner, Recording]] = {}
        self._looked_for: dict[str, int] = {}
        """Recordings that have ended, as far as is known, and since when."""
        self._finished: dict[str, RecordingInfo] = {}
        """The final information about recordings that were told of, until it is on the disk."""
        self._tasks = TaskSet()
        self._wake = asyncio.Event()
        self._must_look = False
        self.deliver: Deliver | None = None

    @property
    def store(self) -> RecordingStore:
        """The folder of the recordings.

        Raises:
            RecordingOff: nothing is recorded here.
        """
        if self._store is None:
            raise RecordingOff("nothing is recorded here: set record.dir of the configuration to a folder")
        return self._store

    def live(self, recording_id: str) -> Recording | None:
        found = self._live.get(recording_id)
        return None if found is None else found[1]

    def latest(self, info: RecordingInfo) -> RecordingInfo:
        """Return what is known of a recording of which ``info`` is on the disk. Its last event may be a moment ahead."""
        return self._finished.get(info.recording_id, info)

    def new_id(self) -> str:
        return self._nodes.new_id("rec")

    async def free_id(self, tenant: str, wanted: str | None) -> str:
        """Check that a recording can be written; return ``wanted``, or a new id.

        Raises:
            RecordingOff, RecordingStorageFull, DuplicateId: it cannot.
        """
        recording_id = wanted or self.new_id()
        self._check_free(recording_id)
        await asyncio.to_thread(self._prepare, self.store, recording_id, tenant)
        self._check_free(recording_id)  # another call may have taken it meanwhile
        return recording_id

    def _check_free(self, recording_id: str) -> None:
        if recording_id in self._live:
            raise DuplicateId(f"there is a recording {recording_id!r} already")

    def plan(self, recording_id: str, call_id: str, tenant: str, request: RecordRequest) -> RecordingPlan:
        """Make the plan of a recording, which the user agent carries out. The disk is not checked: if it refuses the file,
        the recording fails.

        Raises:
            RecordingOff: nothing is recorded here.
        """
        record = self._record
        max_duration_ms = round(record.max_duration_s * 1000)
        consent: Consent = request.consent or ("required" if record.consent_required else "not_asked")
        return RecordingPlan(
            info=RecordingInfo(
                recording_id=recording_id,
                call_id=call_id,
                tenant=tenant,
                client_state=request.client_state,
                channels=request.channels,
                tracks=request.tracks,
                encoding=request.encoding or record.format,
                rate_hz=self._config.rtp.clock_rate_hz,
                consent=consent,
                created_at_s=self._clock.wall_s(),
                upload_url=request.upload_url,
            ),
            folder=str(self.store.folder(tenant).absolute()),
            max_duration_ms=min(request.max_duration_ms or max_duration_ms, max_duration_ms),
            silence_timeout_ms=request.silence_timeout_ms,
            trim_silence=request.trim_silence,
            beep=request.beep,
            min_free_bytes=record.min_free_bytes,
        )

    def _prepare(self, store: RecordingStore, recording_id: str, tenant: str) -> None:
        try:
            if store.has(recording_id):
                raise DuplicateId(f"there is a recording {recording_id!r} already")
            store.prepare(tenant)
            free = store.free_bytes()
        except OSError as error:
            log.error("recordings_not_stored", detail=str(error))
            raise RecordingStorageFull("the folder of record.dir cannot be written") from None
        if free < self._record.min_free_bytes:
            raise RecordingStorageFull("less than record.min_free_bytes is free in record.dir")

    def add(self, owner: RecordingOwner, recording: Recording) -> None:
        self._live[recording.id] = owner, recording
        self._metrics.recordings_active.set(len(self._live))

    # --- what the user agent says ----------------------------------------------------------------------------------------

    def on_report(self, message: Message) -> None:
        """Handle a user agent's report about a recording."""
        match message:
            case messages.RecordingStarted(recording_id=recording_id):
                if (found := self._live.get(recording_id)) is not None:
                    found[0].started()
            case messages.RecordingOver(info=info):
                if info.recording_id in self._live:
                    self.finish(info)
                else:
                    self._look_soon()
            case messages.RecorderLost(recording_ids=ids):
                self._metrics.process_restarts.labels(process="recorder").inc()
                log.error("recorder_lost", recordings=len(ids))
                for recording_id in self._live.keys() & ids:  # no process writes them: their files tell the state
                    self._looked_for[recording_id] = self._clock.now_ns() - GONE_NS
                self._look_soon()

    def look_for(self, recording_id: str) -> None:
        """A recording has ended. If nobody reports how, look at the disk."""
        if recording_id in self._live:
            self._looked_for.setdefault(recording_id, self._clock.now_ns())
            self._wake.set()

    def _look_soon(self) -> None:
        self._must_look = True
        self._wake.set()

    def finish(self, info: RecordingInfo) -> None:
        """Publish once that a recording is over, and deliver it."""
        if info.recording_id in self._finished:
            return
        self._looked_for.pop(info.recording_id, None)
        # of a call that this server does not know
        publish: Publish = partial(self._events.publish, call_id=info.call_id, tenant=info.tenant)
        if (found := self._live.pop(info.recording_id, None)) is not None:
            owner, _ = found
            info, publish = owner.over(info), owner.publish
        self._finished[info.recording_id] = info
        self._metrics.recordings_active.set(len(self._live))
        if not info.is_told:
            self._tell(info, publish)
        self._tasks.begin(self._follow_up(info, publish))

    def _tell(self, info: RecordingInfo, publish: Publish) -> None:
        assert info.state != "recording"
        self._metrics.recordings_total.labels(result=info.state, reason=info.reason or "").inc()
        log_line = log.info if info.state == "saved" else log.error
        log_line(
            "recording", call_id=info.call_id, recording_id=info.recording_id, state=info.state, reason=info.reason
        )
        publish(
            types.CallRecording(
                recording_id=info.recording_id,
                state=info.state,
                reason=info.reason,
                client_state=UNSET if info.client_state is None else info.client_state,
                consent=info.consent,
                duration_ms=info.duration_ms,
                bytes=info.num_bytes,
                lost_ms=info.lost_ms,
                gaps=info.gaps,
            )
        )

    async def _follow_up(self, info: RecordingInfo, publish: Publish) -> None:
        """Deliver a recording, and note that it is done. A failure is tried again after the next start."""
        if self._store is None:
            return
        try:
            await asyncio.to_thread(self._store.mark_told, info)
            if self.deliver is not None and info.state == "saved":
                delivery = await self.deliver(info, self._store.wav(info))
                if delivery is not None:
                    publish(delivery)
            await asyncio.to_thread(self._store.note, info)
        except OSError as error:
            log.error("recording_not_noted", recording_id=info.recording_id, detail=str(error))
        else:
            self._finished.pop(info.recording_id, None)

    # --- the disk --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to complete recordings that were left on the disk; the calls of an earlier server have been adopted."""
        if self._store is not None:
            self._look_soon()
            self._tasks.begin(self._watch(self._store))

    async def stop(self) -> None:
        """Wait for the last reports; the user agents have ended."""
        if self._store is not None:
            for recording_id in tuple(self._live):
                self._looked_for[recording_id] = 0
            with contextlib.suppress(OSError):  # a TimeoutError is one
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    while self._live:
                        await self._look(self._store)
                        await asyncio.sleep(LOOK_S / 5)
        await self._tasks.stop()

    async def _watch(self, store: RecordingStore) -> None:
        """Look at the disk when there is a reason, and delete what is too old."""
        expires_ns = self._clock.now_ns()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_S if self._looked_for else EXPIRE_S)
            self._wake.clear()
            now_ns = self._clock.now_ns()
            try:
                if self._must_look or any(now_ns - since_ns >= TELL_NS for since_ns in self._looked_for.values()):
                    self._must_look = False
                    await self._look(store)
                if now_ns >= expires_ns:
                    expires_ns = now_ns + round(EXPIRE_S * NS_PER_S)
                    await self._expire(store)
            except OSError as error:
                log.error("recordings_not_read", detail=str(error))
                self._must_look = True

    async def _look(self, store: RecordingStore) -> None:
        for info in await asyncio.to_thread(store.settle):
            self.finish(info)
        now_ns = self._clock.now_ns()
        for recording_id, since_ns in tuple(self._looked_for.items()):
            found = self._live.get(recording_id)
            if found is None:
                del self._looked_for[recording_id]
            elif now_ns - since_ns >= GONE_NS and not await asyncio.to_thread(store.has, recording_id):
                self.finish(_lost(found[1].plan.info))

    async def _expire(self, store: RecordingStore) -> None:
        if days := self._record.retention_days:
            num = await asyncio.to_thread(store.expire, self._clock.wall_s() - days * _SECONDS_A_DAY)
            if num:
                log.info("recordings_expired", count=num)


def _lost(info: RecordingInfo) -> RecordingInfo:
    return msgspec.structs.replace(info, state="failed", reason="storage_error")
