"""The playout buffer of a leg: a queue of utterances of line-rate PCM, from which the clock takes one frame a tick.

::

    writer threads  begin ▸ write … await_more … finish    cut       pause / resume
                      │        │              │            │             │
                    ┌─▼────────▼──────────────▼────────────▼─┐           │
                    │ utterance │ utterance │ utterance …    │           │
                    └─┬──────────────────────────────────────┘           │
                      ▼ 20 ms                                            ▼
    clock thread    read_frame ▸ frame or silence, with a ramp wherever sound is broken off or taken up again

Nothing is played before the buffer is open. Then an utterance waits until its start threshold is reached or it is finished,
plays, and may starve (an underrun): silence until half the threshold is there again. One whose text is still arriving may
have said all that is there: then it waits for its threshold again, and that is no underrun. Nothing is played twice, nothing
is skipped, and as silence of an underrun is never owed to the line, a backlog cannot become lasting latency.

The clock's side takes no lock: every field has either the clock or the writers to write it, and what crosses over is
an append to a deque, an integer or a flag, each atomic in CPython. The order of writes matters where a comment says so.
The writers (the reader thread of the channel, the SIP thread) share a lock among themselves.

REAL-TIME: :meth:`PlayoutBuffer.read_frame`. Runs on: the media clock's thread; everything else on any other.
"""

import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from cc_tts.audio import BYTES_PER_SAMPLE, AudioFormat
from cc_tts.media.levels import is_audible
from cc_tts.media.playout_events import (
    PlayoutCause,
    PlayoutEvent,
    PlayoutFinished,
    PlayoutOverflow,
    PlayoutProgress,
    PlayoutSpeech,
    PlayoutStarted,
    PlayoutUnderrun,
)

FADE_MS: Final = 5.0
"""Length of a ramp, ms (unmeasured)."""
PROGRESS_MS: Final = 100  # unmeasured
MAX_STEP_BACK_MS: Final = 800
"""The most audio that can be played again, ms (unmeasured)."""
MAX_QUEUED_UTTERANCES: Final = 64  # unmeasured
_REMEMBERED_CUTS: Final = 64


class _State(Enum):
    WAITING = auto()
    PLAYING = auto()
    STARVED = auto()


@dataclass(slots=True, eq=False)
class _Queued:
    """One utterance in the buffer."""

    utterance_id: str
    start_bytes: int
    resume_bytes: int
    chunks: deque[bytes] = field(default_factory=deque)  # writer appends, clock pops
    # writers'
    num_written: int = 0
    finished: bool = False
    awaits_more: bool = False
    cut: bool = False
    # clock's
    num_read: int = 0
    state: _State = _State.WAITING
    fade_in: bool = False
    missing_bytes: int = 0
    underruns: int = 0
    next_progress: int = 0
    num_told: int = -1
    first_speech_ns: int | None = None

    @property
    def available(self) -> int:
        return self.num_written - self.num_read


class PlayoutBuffer:
    """The playout buffer of one leg. ``events`` is called on the clock's thread and may only store (``deque.append``). Until
    :meth:`open` the buffer fills and plays nothing, unless ``is_open``.
    """

    def __init__(
        self,
        audio_format: AudioFormat,
        *,
        max_buffered_ms: int,
        events: Callable[[PlayoutEvent], object],
        fade_ms: float = FADE_MS,
        is_open: bool = True,
    ) -> None:
        self._format = audio_format
        self._max_bytes = max(audio_format.bytes_for_ms(max_buffered_ms), audio_format.frame_bytes)
        self._events = events
        self._frame_bytes = audio_format.frame_bytes
        self._fade_bytes = min(audio_format.bytes_for_ms(fade_ms), self._frame_bytes)
        self._progress_bytes = audio_format.bytes_for_ms(PROGRESS_MS)
        self._silence = bytes(self._frame_bytes)
        self._queue: deque[_Queued] = deque()  # writer appends, clock removes
        # writers'
        self._writers = threading.Lock()
        self._open: dict[str, _Queued] = {}  # begun, neither finished nor cut
        self._live: list[_Queued] = []  # perhaps still holding audio
        self._cut_ids: deque[str] = deque(maxlen=_REMEMBERED_CUTS)
        self._wants_pause = False
        self._opens_ns = 0 if is_open else sys.maxsize  # set by the writer, read by the clock
        self._attention = False  # set by the writer after a cut or pause flag, cleared by the clock before it looks
        self._restart: tuple[str, int] | None = None  # set by the writer before it resumes, cleared by the clock
        # clock's
        self._chunk = b""  # of the queue's head, read up to _offset
        self._offset = 0
        self._played: deque[bytes] = deque()  # chunks of the head before that one, as far as they may be played again
        self._played_bytes = 0
        self._step_back_bytes = audio_format.bytes_for_ms(MAX_STEP_BACK_MS)
        self._paused = False
        self._last_frame = self._silence

    # The writers' side

    def _buffered(self) -> int:
        """Return the bytes of all utterances that were written, and neither played nor cut."""
        self._live = [each for each in self._live if not each.cut and (each.available or not each.finished)]
        return sum(queued.available for queued in self._live)

    def open(self, at_ns: int = 0) -> None:
        """Play the present and the future contents, in no frame before ``at_ns``."""
        self._opens_ns = at_ns

    def begin(self, utterance_id: str, start_threshold_ms: int) -> None:
        """Queue a new utterance. It starts with ``start_threshold_ms`` of audio, or when finished. Raises ``ValueError`` if
        it is already being written, ``PlayoutOverflow`` if too many are queued.
        """
        start = min(max(self._format.bytes_for_ms(start_threshold_ms), self._frame_bytes), self._max_bytes)
        queued = _Queued(utterance_id, start, max(start // 2, self._frame_bytes))
        with self._writers:
            if utterance_id in self._open:
                raise ValueError(f"utterance {utterance_id} was already begun")
            if len(self._queue) >= MAX_QUEUED_UTTERANCES:
                raise PlayoutOverflow(f"{MAX_QUEUED_UTTERANCES} utterances are queued")
            self._open[utterance_id] = queued
            self._live.append(queued)
            self._queue.append(queued)

    def write(self, utterance_id: str, pcm: bytes) -> None:
        """Append audio. Late audio of an utterance that was cut is dropped. Raises ``PlayoutOverflow``, with nothing taken,
        if it would exceed ``max_buffered_ms``, and ``ValueError`` for half a sample or an utterance that was not begun or is
        finished.
        """
        if len(pcm) % BYTES_PER_SAMPLE:
            raise ValueError(f"PCM must be whole 16-bit samples, got {len(pcm)} bytes")
        with self._writers:
            queued = self._open_or_cut(utterance_id)
            if queued is None or not pcm:
                return
            if (buffered := self._buffered()) + len(pcm) > self._max_bytes:
                raise PlayoutOverflow(
                    f"{self._format.ms_for_bytes(buffered):.0f} ms are buffered;"
                    f" {self._format.ms_for_bytes(len(pcm)):.0f} ms more exceed"
                    f" {self._format.ms_for_bytes(self._max_bytes):.0f} ms"
                )
            queued.chunks.append(bytes(pcm))
            queued.num_written += len(pcm)  # after the append: the clock reads no more than this
            queued.awaits_more = False  # after it too: what is new must not look like an underrun

    def await_more(self, utterance_id: str) -> None:
        """Declare that no more audio comes for now: what was written is played however short, and running dry is no underrun
        until the next :meth:`write`. Raises ``ValueError`` if the utterance was not begun or is finished.
        """
        with self._writers:
            queued = self._open_or_cut(utterance_id)
            if queued is not None:
                queued.awaits_more = True  # after the last num_written

    def finish(self, utterance_id: str) -> None:
        """End the audio of the utterance; raises ``ValueError`` if it was not begun or is finished."""
        with self._writers:
            queued = self._open_or_cut(utterance_id)
            if queued is not None:
                del self._open[utterance_id]
                queued.finished = True  # after the last num_written

    def finish_all(self) -> None:
        """End the audio of every utterance."""
        with self._writers:
            for queued in self._open.values():
                queued.finished = True
            self._open.clear()

    def positions(self) -> list[tuple[str, float]]:
        """Return the unfinished utterances in order, and how much of each was played, ms. An utterance is reported as over
        before it leaves this list.
        """
        return [(each.utterance_id, self._format.ms_for_bytes(each.num_read)) for each in tuple(self._queue)]

    def cut(self, utterance_id: str | None) -> None:
        """Fade out within the next frame and drop the rest of this utterance, or of all for ``None``."""
        with self._writers:
            for queued in self._live:
                if utterance_id is None or queued.utterance_id == utterance_id:
                    queued.cut = True
                    if self._open.pop(queued.utterance_id, None) is not None:
                        self._cut_ids.append(queued.utterance_id)
            self._live = [queued for queued in self._live if not queued.cut]
            self._attention = True  # after the flags

    def pause(self) -> None:
        """Silence from the next frame on, after a fade; what is buffered waits. Safe to call twice."""
        self._wants_pause = True
        self._attention = True

    def resume(self, *, restart: tuple[str, float] | None = None) -> None:
        """Continue where :meth:`pause` stopped, with a fade. Safe to call twice. ``restart``: an utterance and the place in
        its audio, ms, to play from: at most :data:`MAX_STEP_BACK_MS` back, and not if another one is being played.
        """
        if restart is not None:
            self._restart = restart[0], self._format.bytes_for_ms(restart[1])
        self._wants_pause = False  # after it
        self._attention = True

    def _open_or_cut(self, utterance_id: str) -> _Queued | None:
        """Return the utterance being written; ``None`` if it was cut."""
        queued = self._open.get(utterance_id)
        if queued is None and utterance_id not in self._cut_ids:
            raise ValueError(f"utterance {utterance_id} is not being written")
        return queued

    # The clock's side

    def read_frame(self, now_ns: int) -> bytes:
        """REAL-TIME. Exactly one frame: audio, or zeros where there is nothing to play. A plain frame costs one slice."""
        if not self._attention and not self._paused:
            if not self._queue:
                return self._silence
            head = self._queue[0]
            end = self._offset + self._frame_bytes
            # strictly less: something is left, so this frame neither ends nor starves the utterance
            if head.state is _State.PLAYING and not head.fade_in and end < len(self._chunk):
                frame = self._chunk[self._offset : end]
                self._offset = end
                head.num_read += self._frame_bytes
                self._last_frame = frame
                self._report(head, frame, now_ns)
                return frame
        frame = self._compose(now_ns)
        self._last_frame = frame
        return frame

    @property
    def head(self) -> tuple[str, float] | None:
        """The utterance that is played or is next, and how much of it was read, ms. Runs on: the clock's thread."""
        if not self._queue:
            return None
        return self._queue[0].utterance_id, self._format.ms_for_bytes(self._queue[0].num_read)

    def has_frame(self) -> bool:
        """Whether a frame can be read before it is due without an underrun: its audio is there, or no more will come. Runs
        on: the clock's thread.
        """
        if not self._queue or self._paused:
            return self._attention
        head = self._queue[0]
        if head.finished or head.awaits_more:
            return True
        wanted = {
            _State.PLAYING: self._frame_bytes,
            _State.STARVED: head.resume_bytes,
            _State.WAITING: head.start_bytes,
        }
        return head.available >= wanted[head.state]

    def is_idle(self, frame: bytes) -> bool:
        """Whether the last frame was silence because there is nothing to play."""
        return frame is self._silence

    def end_cut(self, now_ns: int) -> None:
        """Finish the utterances that were cut, without reading a frame. Runs on: the clock's thread."""
        for queued in tuple(self._queue):
            if queued.cut:
                self._drop(queued, now_ns)

    def _compose(self, now_ns: int) -> bytes:
        """Build one frame: the slow path of :meth:`read_frame`."""
        frame = self._execute(now_ns) if self._attention else b""
        while not self._paused and self._queue and len(frame) < self._frame_bytes:
            head = self._queue[0]
            room = self._frame_bytes - len(frame)
            if head.state is not _State.PLAYING and not self._start(head, room, now_ns):
                break
            # read before `available`: if one of these is set, nothing more will be added
            finished, awaits_more = head.finished, head.awaits_more
            if head.available < room and not finished:  # it runs dry within this frame
                frame += self._rest(head, room, now_ns) if awaits_more else self._starve(head, room)
                break
            part = self._take(head, min(room, head.available))
            if part:
                frame += part
                self._report(head, part, now_ns)
            if finished and not head.available:
                self._end(head, "drained", now_ns)
        return frame + bytes(self._frame_bytes - len(frame)) if frame else self._silence

    def _execute(self, now_ns: int) -> bytes:
        """Carry out cuts, pause and resume; return the fade of what was interrupted, if any."""
        self._attention = False  # before the flags are read: one set meanwhile is seen at the next tick
        fade = b""
        for queued in tuple(self._queue):  # a copy, made in one step: a writer may append meanwhile
            if queued.cut:
                fade = self._drop(queued, now_ns) or fade
        was_paused, self._paused = self._paused, self._wants_pause
        if self._paused == was_paused or not self._queue or self._queue[0].state is not _State.PLAYING:
            return fade
        head = self._queue[0]
        if was_paused:
            self._step_back(head, now_ns)
            head.fade_in = True
            return fade
        fade = self._fade_out(head, self._fade_bytes)
        self._report(head, fade, now_ns)
        return fade

    def _step_back(self, head: _Queued, now_ns: int) -> None:
        """Play from the place that :meth:`resume` named, if the audio is still kept."""
        restart, self._restart = self._restart, None
        if restart is None or restart[0] != head.utterance_id:
            return
        num_bytes = min(head.num_read - restart[1], self._step_back_bytes, self._offset + self._played_bytes)
        if num_bytes <= 0:
            return
        while self._offset < num_bytes:
            before = self._played.pop()
            self._played_bytes -= len(before)
            self._chunk = before + self._chunk
            self._offset += len(before)
        self._offset -= num_bytes
        head.num_read -= num_bytes
        head.next_progress = head.num_read - head.num_read % self._progress_bytes + self._progress_bytes
        self._tell_position(head, now_ns)

    def _drop(self, queued: _Queued, now_ns: int) -> bytes:
        """Finish an utterance that was cut; return its fade if it was playing."""
        fade = b""
        if queued.state is _State.PLAYING and not self._paused:
            fade = self._fade_out(queued, self._fade_bytes)
        if queued.state is _State.STARVED:
            self._note_underrun(queued, now_ns)
        self._end(queued, "cut", now_ns)
        return fade

    def _start(self, head: _Queued, room: int, now_ns: int) -> bool:
        """Start a waiting or starved utterance if possible; return ``False`` if it must still wait."""
        is_starved = head.state is _State.STARVED
        if now_ns < self._opens_ns:
            return False
        finished, awaits_more = head.finished, head.awaits_more  # before available
        if awaits_more and not finished and not head.available:  # it has not run dry: there was nothing more to play
            head.state, head.missing_bytes = _State.WAITING, 0
            return False
        needed = 0 if finished or awaits_more else head.resume_bytes if is_starved else head.start_bytes
        if head.available < needed:
            head.missing_bytes += room if is_starved else 0
            return False
        if head.available and is_starved:
            self._note_underrun(head, now_ns)
            head.fade_in = True
        elif head.available and not head.num_read:
            self._events(PlayoutStarted(head.utterance_id, now_ns))
        head.state = _State.PLAYING
        return True

    def _starve(self, head: _Queued, room: int) -> bytes:
        """Play the rest, faded out: an underrun begins."""
        head.state, head.missing_bytes = _State.STARVED, room - head.available
        return self._fade_out(head, room)

    def _rest(self, head: _Queued, room: int, now_ns: int) -> bytes:
        """Play the rest, faded out, report the position, and wait for more."""
        head.state = _State.WAITING
        part = self._fade_out(head, room)
        self._report(head, part, now_ns)
        self._tell_position(head, now_ns)
        return part

    def _note_underrun(self, queued: _Queued, now_ns: int) -> None:
        queued.underruns += 1
        self._events(PlayoutUnderrun(queued.utterance_id, now_ns, self._format.ms_for_bytes(queued.missing_bytes)))
        queued.missing_bytes = 0

    def _end(self, queued: _Queued, cause: PlayoutCause, now_ns: int) -> None:
        if queued is self._queue[0]:
            self._chunk, self._offset = b"", 0
            self._played.clear()
            self._played_bytes = 0
        played_ms = self._format.ms_for_bytes(queued.num_read)
        self._events(PlayoutFinished(queued.utterance_id, now_ns, cause, played_ms, queued.underruns))
        self._queue.remove(queued)  # after the event, for positions()

    def _take(self, head: _Queued, num_bytes: int) -> bytes:
        parts = []
        missing = num_bytes
        while missing:
            if self._offset == len(self._chunk):
                self._keep(self._chunk)
                self._chunk, self._offset = head.chunks.popleft(), 0
            part = self._chunk[self._offset : self._offset + missing]
            self._offset += len(part)
            missing -= len(part)
            parts.append(part)
        head.num_read += num_bytes
        taken = parts[0] if len(parts) == 1 else b"".join(parts)
        if head.fade_in and taken:
            head.fade_in = False
            taken = ramped(taken, self._fade_bytes, falls=False)
        return taken

    def _keep(self, chunk: bytes) -> None:
        """Note a chunk that was played; forget the oldest ones that are not needed for stepping back."""
        self._played.append(chunk)
        self._played_bytes += len(chunk)
        while self._played_bytes - len(self._played[0]) >= self._step_back_bytes:
            self._played_bytes -= len(self._played.popleft())

    def _fade_out(self, head: _Queued, num_bytes: int) -> bytes:
        """Take up to ``num_bytes`` of the utterance and fade them to silence. If less than a ramp is left, the ramp
        continues over the last value, since earlier sound has already left.
        """
        part = self._take(head, min(num_bytes, head.available))
        last = part[-BYTES_PER_SAMPLE:] or self._last_frame[-BYTES_PER_SAMPLE:]
        num_held = (min(self._fade_bytes, num_bytes) - len(part)) // BYTES_PER_SAMPLE
        return ramped(part + last * max(0, num_held), self._fade_bytes, falls=True)

    def _report(self, head: _Queued, part: bytes, now_ns: int) -> None:
        """Report the events after ``part`` was read."""
        if head.first_speech_ns is None and is_audible(part):
            head.first_speech_ns = now_ns
            self._events(PlayoutSpeech(head.utterance_id, now_ns))
        if head.num_read >= head.next_progress:
            if head.next_progress:
                self._tell_position(head, now_ns)
            head.next_progress = head.num_read - head.num_read % self._progress_bytes + self._progress_bytes

    def _tell_position(self, head: _Queued, now_ns: int) -> None:
        """Report how much was played, unless that is what was reported last."""
        if head.num_read != head.num_told:
            head.num_told = head.num_read
            self._events(PlayoutProgress(head.utterance_id, now_ns, self._format.ms_for_bytes(head.num_read)))


def ramped(pcm: bytes, num_bytes: int, *, falls: bool) -> bytes:
    """``pcm`` with its first ``num_bytes`` rising from silence, or its last falling to it."""
    samples = array("h", pcm)
    num = min(num_bytes // BYTES_PER_SAMPLE, len(samples))
    for index in range(num):
        place = -1 - index if falls else index
        samples[place] = samples[place] * index // num
    return samples.tobytes()
