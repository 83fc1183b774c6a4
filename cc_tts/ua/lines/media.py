"""The media of one line: its prompts for Asterisk, and the caller's audio. Runs on: the thread of the loop, except where a
docstring says otherwise.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_MS
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.playout_events import PlayoutEvent, PlayoutUnderrun
from cc_tts.media.quality import Quality
from cc_tts.ua.lines.playout import CreditPlayout, PacedPlayout, QueueSink, Shape
from cc_tts.ua.process.call_media import CallMedia, PauseReason
from cc_tts.ua.quality.level_meter import LevelMeter, mean_amplitude
from cc_tts.ua.recording.tap import RecordingTap

MAX_WAITING_FRAMES: Final = 50
"""One second of the caller's audio waits until it is used; beyond that the oldest is dropped (unmeasured)."""
MAX_LAG_FRAMES: Final = 10
"""The most frames that may wait where each tick takes one; unmeasured. TCP delivers several at once after a loss."""
_LEFT_AFTER_LAG: Final = 2


class LineMedia(CallMedia):
    """The audio of a line, in both directions."""

    def __init__(
        self,
        call_id: str,
        audio_format: AudioFormat,
        *,
        max_buffered_ms: int,
        window_ms: int,
        send: Callable[[bytes], None],
        queue: QueueSink | None,
        report: Callable[[PlayoutEvent], object],
    ) -> None:
        super().__init__(call_id)
        self._format = audio_format
        self._silence = bytes(audio_format.frame_bytes)
        self._report = report
        self._lock = threading.Lock()
        fresh: deque[PlayoutEvent] = deque()
        self.buffer = PlayoutBuffer(
            audio_format,
            max_buffered_ms=max_buffered_ms,
            events=self._note if queue is None else fresh.append,
            is_open=False,
        )
        self.credit: CreditPlayout | None = None
        if queue is not None:
            self.credit = CreditPlayout(
                self.buffer, queue, audio_format=audio_format, window_ms=window_ms, fresh=fresh, emit=self._note
            )
        self._playout: PacedPlayout | CreditPlayout = self.credit or PacedPlayout(self.buffer, send)
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING_FRAMES)
        self._arrived: list[bytes] = []
        self._part = b""
        self._num_sent = self._num_received = self._num_underruns = 0
        self.num_late = 0
        self.meter = LevelMeter()

    # --- what the server says; either thread -----------------------------------------------------------------------------

    def cut(self, utterance_id: str | None) -> None:
        with self._lock:
            self._playout.cut(utterance_id)

    def set_paused(self, reason: PauseReason, *, paused: bool, restart: tuple[str, float] | None = None) -> None:
        with self._lock:
            (self._pause_reasons.add if paused else self._pause_reasons.discard)(reason)
            self._playout.set_paused(paused=bool(self._pause_reasons), restart=restart)

    # --- the far side ------------------------------------------------------------------------------------------------------

    def open(self, now_ns: int) -> None:
        """The call is answered: prompts are heard from now on."""
        self._is_open = True
        self.buffer.open(now_ns + self.lead_in_ms * NS_PER_MS)

    def confirm(self, mark: int, now_ns: int) -> None:
        """Asterisk has played all that was sent before this mark."""
        if self.credit is not None:
            with self._lock:
                self.credit.confirm(mark, now_ns)

    def receive(self, pcm: bytes) -> None:
        data = self._part + pcm
        size = self._format.frame_bytes
        whole = len(data) - len(data) % size
        self._part = data[whole:]
        for start in range(0, whole, size):
            self._arrived.append(data[start : start + size])
        del self._arrived[:-MAX_WAITING_FRAMES]

    def tick(self, now_ns: int) -> None:
        """Handle a frame of each direction. Nothing is sent before the answer, so that Asterisk's caller hears it ring."""
        frame = self._silence
        with self._lock:
            if self._is_open:
                frame = self._playout.tick(now_ns)
                self._num_sent += 1
            else:
                self._playout.wait(now_ns)
        arrived, self._arrived = self._arrived, []
        self._num_received += len(arrived)
        if (tap := self._tap) is not None:
            if not tap.changes_sound:
                tap.sent(now_ns, frame)
            if arrived:
                tap.received(b"".join(arrived))
        if self.meter.is_on and not self.meter.is_over(now_ns):
            self.meter.note(received=mean_amplitude(b"".join(arrived)), sent=mean_amplitude(frame))
        self._waiting.extend(arrived)
        self._listen(now_ns, frame)

    def _listen(self, now_ns: int, frame: bytes) -> None:
        if (sent := self._listened.get("out")) is not None:
            sent.add(now_ns, frame)
        if (received := self._listened.get("in")) is None:
            while len(self._waiting) > MAX_LAG_FRAMES:
                self._waiting.popleft()
            return
        if len(self._waiting) > MAX_LAG_FRAMES:
            while len(self._waiting) > _LEFT_AFTER_LAG:
                self._waiting.popleft()
        received.add(now_ns, self._waiting.popleft() if self._waiting else self._silence)

    def _note(self, event: PlayoutEvent) -> None:
        self._num_underruns += isinstance(event, PlayoutUnderrun)
        self._report(event)

    # --- what the server hears ---------------------------------------------------------------------------------------------

    def record(self, tap: RecordingTap | None) -> None:
        with self._lock:
            self._tap = tap
            shape: Shape | None = tap.sent if tap is not None and tap.changes_sound else None
            self._playout.set_shape(shape)

    @property
    def positions(self) -> tuple[tuple[str, float], ...]:
        with self._lock:
            return tuple(self._playout.positions())

    @property
    def quality(self) -> Quality:
        return Quality(
            packets_sent=self._num_sent,
            packets_received=self._num_received,
            underruns=self._num_underruns,
            late_frames=self.num_late,
        )
