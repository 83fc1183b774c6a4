"""How the audio of a line reaches Asterisk. Both kinds are called once in 20 ms, and return the frame that is heard then.

:class:`PacedPlayout` sends a frame each time, for AudioSocket, which plays what comes. :class:`CreditPlayout` is for the
WebSocket channel, which has a queue and plays it by its own clock::

    playout buffer ─read─▸ │ not sent │ in Asterisk's queue │ ─▸ heard: events are reported, as of now
                           └──────────┴─────────────────────┘
                             at most playout.window_ms         MEDIA_MARK_PROCESSED says how far that is

So frames are read before they are heard, and what the buffer reports with a frame is kept until then. Between two marks our
own clock counts the frames; it does not run ahead of a mark that is not confirmed by more than :data:`SLACK_FRAMES`.
A cut, a pause or a step back takes what is not heard yet out of Asterisk's queue (FLUSH_MEDIA), and what remains is sent
again.
Runs on: the thread of the loop, except where a docstring says otherwise; the line holds a lock.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from cc_tts.audio import PTIME_MS, AudioFormat
from cc_tts.media.playout_buffer import FADE_MS, MAX_STEP_BACK_MS, PlayoutBuffer, ramped
from cc_tts.media.playout_events import PlayoutEvent, PlayoutFinished, PlayoutProgress, PlayoutStarted

MARK_FRAMES: Final = 5
"""The number of frames between two marks; unmeasured."""
SLACK_FRAMES: Final = 3
"""The most frames that count as heard after an unconfirmed mark, since its confirmation takes time; unmeasured."""
LOW_FRAMES: Final = 2
"""The least number of frames in the queue, silence if there is nothing else, so that it does not run dry between two of our
ticks; unmeasured.
"""

Shape = Callable[[int, bytes], bytes]
"""Changes a frame before it is sent: mixes in the far side of a bridge, or the tone of a recording."""
Emit = Callable[[PlayoutEvent], object]


class QueueSink(Protocol):
    """Accepts frames at the rate of the line into a queue that it plays."""

    def send(self, pcm: bytes) -> None:
        """Send whole frames to it."""

    def mark(self, number: int) -> None:
        """Ask for a report when all frames so far have been played."""

    def flush(self) -> None:
        """Empty the queue, including its marks."""


class PacedPlayout:
    """Sends a frame at each call. :class:`CreditPlayout` has the same methods."""

    def __init__(self, buffer: PlayoutBuffer, send: Callable[[bytes], None]) -> None:
        self._buffer = buffer
        self._send = send
        self._shape: Shape | None = None

    def tick(self, now_ns: int) -> bytes:
        """Send what is due, and return the frame that is heard now."""
        frame = self._buffer.read_frame(now_ns)
        if self._shape is not None:
            frame = self._shape(now_ns, frame)
        self._send(frame)
        return frame

    def wait(self, now_ns: int) -> None:
        """Carry out cuts in place of :meth:`tick`, while nobody listens."""
        self._buffer.read_frame(now_ns)

    def cut(self, utterance_id: str | None) -> None:
        """Cut an utterance, or all. Runs on: the reader thread."""
        self._buffer.cut(utterance_id)

    def set_paused(self, *, paused: bool, restart: tuple[str, float] | None) -> None:
        """Pause or resume. Runs on: either thread."""
        if paused:
            self._buffer.pause()
        else:
            self._buffer.resume(restart=restart)

    def set_shape(self, shape: Shape | None) -> None:
        """Change each frame from now on."""
        self._shape = shape

    def positions(self) -> list[tuple[str, float]]:
        """The unfinished utterances, and how much of each was heard, ms."""
        return self._buffer.positions()


@dataclass(slots=True)
class _Frame:
    """A frame that was read and is not heard yet. ``played_ms``: the position in its utterance after it."""

    pcm: bytes
    utterance_id: str = ""
    played_ms: float = 0.0
    events: list[PlayoutEvent] = field(default_factory=list)


class CreditPlayout:
    """Keeps the queue of the far side filled. The buffer's events arrive in ``fresh``."""

    def __init__(
        self,
        buffer: PlayoutBuffer,
        sink: QueueSink,
        *,
        audio_format: AudioFormat,
        window_ms: int,
        fresh: deque[PlayoutEvent],
        emit: Emit,
    ) -> None:
        self._buffer = buffer
        self._sink = sink
        self._silence = bytes(audio_format.frame_bytes)
        self._fade_bytes = audio_format.bytes_for_ms(FADE_MS)
        self._window = max(LOW_FRAMES, window_ms // PTIME_MS)
        self._fresh = fresh
        self._emit = emit
        self._ahead: deque[_Frame] = deque()
        self._num_queued = 0
        """The number of these that are in the far side's queue."""
        self._num_heard = self._num_confirmed = 0
        self._marks: deque[tuple[int, int]] = deque()
        """The unconfirmed marks: the number of each, and how many frames are heard with it."""
        self._last_mark = self._since_mark = 0
        self._past: deque[_Frame] = deque(maxlen=MAX_STEP_BACK_MS // PTIME_MS)
        self._at = ("", 0.0)
        """The utterance that is being heard, and how much of it was."""
        self._cuts: set[str] = set()
        self._wants_pause = self._is_paused = False
        self._restart: tuple[str, float] | None = None
        self._shape: Shape | None = None
        self.is_full = False
        """Whether the far side accepts no more (MEDIA_XOFF)."""

    def tick(self, now_ns: int) -> bytes:
        """Carry out commands, count a frame as heard, and fill the queue."""
        self._execute(now_ns)
        frame = self._silence
        if self._num_queued and not self._is_unconfirmed:
            frame = self._hear(now_ns)
        if not self._is_paused or self._shape is not None:
            self._fill(now_ns)
        return frame

    def wait(self, now_ns: int) -> None:
        self._execute(now_ns)

    def confirm(self, number: int, now_ns: int) -> None:
        """The far side has played everything before this mark."""
        while self._marks and self._marks[0][0] <= number:
            _, self._num_confirmed = self._marks.popleft()
            while self._num_heard < self._num_confirmed and self._num_queued:
                self._hear(now_ns)

    def cut(self, utterance_id: str | None) -> None:
        known = {each.utterance_id for each in self._ahead} | {each for each, _ in self._buffer.positions()}
        known |= {event.utterance_id for each in self._ahead for event in each.events}
        self._cuts |= known - {""} if utterance_id is None else {utterance_id}
        self._buffer.cut(utterance_id)

    def set_paused(self, *, paused: bool, restart: tuple[str, float] | None) -> None:
        self._wants_pause = paused
        self._restart = restart

    def set_shape(self, shape: Shape | None) -> None:
        """A frame that live audio may change is sent only just before it is due."""
        self._shape = shape
        if shape is not None:
            self._take_back()

    def positions(self) -> list[tuple[str, float]]:
        ids = [each.utterance_id for each in self._ahead] + [each for each, _ in self._buffer.positions()]
        return [(each, self._heard_ms(each)) for each in dict.fromkeys(ids) if each]

    @property
    def _is_unconfirmed(self) -> bool:
        return bool(self._marks) and self._num_heard - self._marks[0][1] >= SLACK_FRAMES

    @property
    def _has_credit(self) -> bool:
        """Whether the unconfirmed audio is less than the window, which is the most that may be in the queue."""
        return not self.is_full and self._num_heard + self._num_queued - self._num_confirmed < self._window

    def _heard_ms(self, utterance_id: str) -> float:
        return self._at[1] if self._at[0] == utterance_id else 0.0

    # --- what is heard -------------------------------------------------------------------------------------------------

    def _hear(self, now_ns: int) -> bytes:
        frame = self._ahead.popleft()
        self._num_queued -= 1
        self._num_heard += 1
        if not self._is_paused:
            self._past.append(frame)
        if frame.utterance_id:
            self._at = frame.utterance_id, frame.played_ms
        self._report(frame.events, now_ns)
        frame.events = []
        return frame.pcm

    def _report(self, events: list[PlayoutEvent], now_ns: int) -> None:
        for event in events:
            self._emit(msgspec.structs.replace(event, at_ns=now_ns))

    # --- what is sent --------------------------------------------------------------------------------------------------

    def _fill(self, now_ns: int) -> None:
        piece = bytearray()
        limit = self._window if self._shape is None else LOW_FRAMES
        while self._num_queued < limit and self._has_credit:
            if self._is_paused:  # go on with what changes each frame, such as a recording and its beep
                self._ahead.insert(self._num_queued, _Frame(self._silence))
            elif self._num_queued == len(self._ahead) and not self._read(now_ns):
                break
            frame = self._ahead[self._num_queued]
            if self._shape is not None:
                frame.pcm = self._shape(now_ns, frame.pcm)
            piece += frame.pcm
            self._num_queued += 1
            self._since_mark += 1
            if self._since_mark == MARK_FRAMES:
                self._send(piece)
                piece.clear()
                self._mark()
        self._send(piece)

    def _send(self, piece: bytearray) -> None:
        if piece:
            self._sink.send(bytes(piece))

    def _mark(self) -> None:
        self._since_mark = 0
        self._last_mark += 1
        self._marks.append((self._last_mark, self._num_heard + self._num_queued))
        self._sink.mark(self._last_mark)

    def _read(self, now_ns: int) -> bool:
        """Read a frame of the buffer; ``False`` if none can be read early and none is needed yet."""
        is_low = self._num_queued < LOW_FRAMES
        if not (is_low or self._buffer.has_frame()):
            return False
        before = self._buffer.head
        pcm = self._buffer.read_frame(now_ns)
        events = list(self._fresh)
        self._fresh.clear()
        is_idle = self._buffer.is_idle(pcm)
        if is_idle and not (is_low or events):
            return False
        frame = _Frame(pcm, events=events)
        if not is_idle and before is not None:
            frame.utterance_id, frame.played_ms = self._place(before[0], events)
        self._ahead.append(frame)
        return True

    def _place(self, before: str, events: list[PlayoutEvent]) -> tuple[str, float]:
        """Return the utterance of a frame: the one that continues after it, else the one that ended in it."""
        after = self._buffer.head
        begun = {event.utterance_id for event in events if isinstance(event, PlayoutStarted)}
        if after is not None and (after[0] == before or after[0] in begun):
            return after
        ended = [event for event in events if isinstance(event, PlayoutFinished)]
        return (ended[-1].utterance_id, ended[-1].played_ms) if ended else (before, 0.0)

    # --- cuts and pauses -----------------------------------------------------------------------------------------------

    def _execute(self, now_ns: int) -> None:
        if self._cuts:
            cuts, self._cuts = self._cuts, set()
            self._drop(cuts, now_ns)
        if self._wants_pause != self._is_paused:
            self._take_back()
            self._is_paused = self._wants_pause
            if not self._is_paused:
                self._step_back(now_ns)

    def _take_back(self) -> None:
        """Empty the queue of the far side. Unheard audio will be sent again, except the silence of a pause."""
        if self._num_queued:
            self._sink.flush()
        for _ in range(self._num_queued if self._is_paused else 0):
            self._ahead.popleft()
        self._num_queued = self._since_mark = 0
        self._num_confirmed = self._num_heard
        self._marks.clear()

    def _drop(self, cuts: set[str], now_ns: int) -> None:
        """Drop the unheard audio of these utterances, with a ramp at the cut."""
        first = self._ahead[0] if self._ahead and self._num_queued else None
        if any(each.utterance_id in cuts for each in list(self._ahead)[: self._num_queued]):
            self._take_back()
        kept: deque[_Frame] = deque()
        for frame in self._ahead:
            is_cut = frame.utterance_id in cuts
            for event in frame.events:
                if isinstance(event, PlayoutFinished) and event.utterance_id in cuts:
                    self._finish_cut(event, now_ns)
                elif is_cut and event.utterance_id not in cuts:
                    self._emit(msgspec.structs.replace(event, at_ns=now_ns))
            frame.events = [event for event in frame.events if event.utterance_id not in cuts]
            if not is_cut:
                kept.append(frame)
        if first is not None and first.utterance_id in cuts:
            fade = ramped(first.pcm[: self._fade_bytes], self._fade_bytes, falls=True)
            kept.appendleft(_Frame(fade.ljust(len(first.pcm), b"\0")))
        self._ahead = kept
        self._buffer.end_cut(now_ns)
        fresh = list(self._fresh)
        self._fresh.clear()
        for event in fresh:
            if isinstance(event, PlayoutFinished):
                self._finish_cut(event, now_ns)

    def _finish_cut(self, event: PlayoutFinished, now_ns: int) -> None:
        played_ms = min(event.played_ms, self._heard_ms(event.utterance_id))
        self._emit(msgspec.structs.replace(event, at_ns=now_ns, cause="cut", played_ms=played_ms))

    def _step_back(self, now_ns: int) -> None:
        """Continue after a pause, from the requested place if it was heard a moment ago."""
        restart, self._restart = self._restart, None
        if restart is None or restart[0] != self._at[0]:
            return
        while self._past and self._past[-1].utterance_id == restart[0] and self._past[-1].played_ms > restart[1]:
            self._ahead.appendleft(self._past.pop())
        if self._ahead and self._ahead[0].utterance_id == restart[0]:
            played_ms = max(0.0, self._ahead[0].played_ms - PTIME_MS)
            self._at = restart[0], played_ms
            self._emit(PlayoutProgress(restart[0], now_ns, played_ms))
