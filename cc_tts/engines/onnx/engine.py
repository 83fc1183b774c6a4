"""Many streams on a few threads: the chunk whose listener runs dry first is synthesised first.

::

    push ─▸ chunks of a stream ─▸ thread: the stream with the earliest deadline ─▸ PCM of a sentence ─▸ step()

One chunk of a stream is synthesised at a time. A stream is given no more than ``MAX_AHEAD_MS`` beyond what its
listener took.

Runs on: the worker's main thread, except ``_work``, which runs on the synthesis threads. ``_changed`` guards all state.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_MS, Clock, ms_between
from cc_tts.engines.engine_core import EngineLoad, SpeechOut, StepOut, StreamDone, StreamRequest
from cc_tts.engines.onnx.samples import sample_of
from cc_tts.engines.onnx.voices import FoundVoice, Samples, Sentence, Synthesiser, find_voices
from cc_tts.engines.worker.messages import WorkerSettings
from cc_tts.errors import CcTtsError, ConfigError, EngineFailed, EngineOverloaded, UnknownVoice
from cc_tts.media.levels import active_level_dbfs
from cc_tts.media.silence_trimmer import SilenceTrimmer, split_pause_after
from cc_tts.voices.voice import Voice

MAX_AHEAD_MS: Final = 4000.0
"""Audio beyond what the listener's side has taken; a chunk that has begun is finished."""
LEAST_MEASURED_MS: Final = 1000.0
"""A voice that says less of its sample has not said all of it, and is reckoned as if it had; unmeasured."""
_ALPHA: Final = 0.2
"""Weight of an observation in the mean cost; unmeasured."""
_MAX_RISE: Final = 4.0
"""Of an observation beside the mean that it is to change; unmeasured."""
_ALPHA_OF_RISE: Final = 0.005
"""Weight of an observation in the cost on a quiet machine, where it is higher; unmeasured."""
_BUSY_HALF_LIFE_S: Final = 0.5
"""What other processes took from the threads is half forgotten after so long: bursts of prompts last about a second."""
_LEAST_COST: Final = 1e-4
_MAX_STREAMS: Final = 256  # if the setting names none; the threads are the limit long before
_LEAST_FREE: Final = 0.1
"""Share of the threads that is left for first chunks, at least."""
_TYPICAL_FIRST_CHARACTERS: Final = 60
"""Of a new stream, whose text has not come yet: ``tts.first_chunk_max_chars``."""
_MAX_FREE_CAPACITY: Final = 64

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a voice takes of a thread."""

    of_audio: float
    """Time for a second of audio, s."""
    of_character_ms: float

    def moved_to(self, other: "_Cost", *, fall: float, rise: float) -> "_Cost":
        """Nearer to ``other`` by the share ``fall`` where that is less, by ``rise`` where it is more."""

        def moved(old: float, new: float) -> float:
            return max(_LEAST_COST, old + (rise if new > old else fall) * (min(new, _MAX_RISE * old) - old))

        return _Cost(moved(self.of_audio, other.of_audio), moved(self.of_character_ms, other.of_character_ms))


class _Costs:
    """What a voice costs, learned from wall time: of a thread that shares its core, a chunk takes twice as long. That says
    how it is in this moment only, so it is forgotten with time, and not only with the next chunks: while prompts are
    refused there are none.
    """

    def __init__(self, first: _Cost, clock: Clock) -> None:
        self._clock = clock
        self._quiet = self._mean = first
        self._observed_ns = clock.now_ns()

    @property
    def now(self) -> _Cost:
        """What the next chunk will cost."""
        age_s = (self._clock.now_ns() - self._observed_ns) / 1e9
        forgotten = 1.0 - 0.5 ** (age_s / _BUSY_HALF_LIFE_S)
        return self._mean.moved_to(self._quiet, fall=forgotten, rise=forgotten)

    def observe(self, cost: _Cost) -> None:
        """A chunk has cost this."""
        self._mean = self.now.moved_to(cost, fall=_ALPHA, rise=_ALPHA)
        self._quiet = self._quiet.moved_to(cost, fall=_ALPHA, rise=_ALPHA_OF_RISE)
        self._observed_ns = self._clock.now_ns()


@dataclass(slots=True)
class _Stream:
    stream_id: int
    voice: str
    speed: float
    opened_ns: int
    chunks: deque[tuple[str, int]] = field(default_factory=deque)
    first_characters: int = _TYPICAL_FIRST_CHARACTERS
    is_text_whole: bool = False
    is_running: bool = False
    started_ns: int = 0
    """Of the chunk that is being synthesised."""
    carried_pause_ms: float = 0.0
    """Silence that comes before the next sentence."""
    given_ms: float = 0.0
    taken_ms: float = 0.0
    dry_ns: int = 0
    """When the listener will have heard what was given, as far as is known."""


class OnnxEngine:
    """See :class:`cc_tts.engines.engine_core.EngineCore`; loads itself. ``wake`` is called from a synthesis thread when
    :meth:`step` has something to give out.
    """

    languages: tuple[str, ...] = ()

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        clock: Clock,
        wake: Callable[[], None],
        find_voices: Callable[[Path | None], Sequence[FoundVoice]] = find_voices,
    ) -> None:
        self._tts = settings.tts
        self._max_streams = settings.tts.max_streams or _MAX_STREAMS
        self._purpose = settings.purpose
        self._find_voices = find_voices
        self._clock = clock
        self._wake = wake
        self._changed = threading.Condition()
        self._streams: dict[int, _Stream] = {}
        self._outs: deque[StepOut] = deque()
        self._synthesisers: dict[str, Synthesiser] = {}
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._costs: dict[str, _Costs] = {}
        self._num_underruns = 0
        self.voices: tuple[Voice, ...] = ()

    def load(self, on_progress: Callable[[str], None]) -> "OnnxEngine | None":
        """Find the voices, load and warm each. One that cannot be loaded or does not speak is left out with an error in the
        log; raises ``ConfigError`` if none is left.
        """
        found = self._find_voices(Path(self._tts.voices_dir) if self._tts.voices_dir else None)
        if not found:
            raise ConfigError("there is no voice: put Piper voices (*.onnx with *.onnx.json) into tts.voices_dir")
        self.voices = tuple(each.voice for each in found)
        if self._purpose == "check":
            return None
        levelled, faults = [], []
        for number, each in enumerate(found, 1):
            on_progress(f"loading {each.voice.id}, {number}/{len(found)}")
            try:
                levelled.append(self._loaded(each))
            except Exception as error:  # noqa: BLE001 - whatever a damaged model raises, the other voices speak
                faults.append(error.detail if isinstance(error, CcTtsError) else f"{each.voice.id}: {error}")
                log.error("voice_left_out", voice=each.voice.id, detail=faults[-1])
        if not levelled:
            raise ConfigError("; ".join(faults))
        self.voices = tuple(levelled)
        for number in range(self._tts.num_threads):
            thread = threading.Thread(target=self._work, name=f"synthesis {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def _loaded(self, found: FoundVoice) -> Voice:
        """Load and warm a voice; it knows its level then."""
        synthesiser = found.load()
        cost, level_dbfs = self._measured(synthesiser, found.voice.language)
        self._synthesisers[found.voice.id] = synthesiser
        self._costs[found.voice.id] = _Costs(cost, self._clock)
        return replace(found.voice, level_dbfs=level_dbfs)

    def _measured(self, synthesiser: Synthesiser, language: str) -> tuple[_Cost, float | None]:
        """Warm a voice up; returns what it costs and its level, dBFS. The first synthesis of a session takes ten times as
        long as the next; the second one is measured.
        """
        for text in sample_of(language):
            started_ns = self._clock.now_ns()
            pcm = b"".join(pcm_of(sentence.samples) for sentence in synthesiser.speak(text, speed=1.0))
            elapsed_ms = ms_between(started_ns, self._clock.now_ns())
        audio_ms = max(AudioFormat(synthesiser.rate_hz).ms_for_bytes(len(pcm)), LEAST_MEASURED_MS)
        level_dbfs = active_level_dbfs(pcm, synthesiser.rate_hz)
        cost = _Cost(max(elapsed_ms / audio_ms, _LEAST_COST), max(elapsed_ms / len(text), _LEAST_COST))
        return cost, None if level_dbfs is None else round(level_dbfs, 1)

    def open(self, request: StreamRequest) -> None:
        """Begin a stream; see the contract."""
        if request.voice not in self._synthesisers:
            raise UnknownVoice(f"no voice is called {request.voice[:80]!r}")
        with self._changed:
            if refusal := self._refusal([self._costs[request.voice].now]):
                raise EngineOverloaded(refusal, retry_after_s=1)
            stream = _Stream(request.stream_id, request.voice, request.speed, self._clock.now_ns())
            self._streams[request.stream_id] = stream

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        """Append a text chunk."""
        with self._changed:
            if (stream := self._streams.get(stream_id)) is not None:
                if not stream.given_ms and not stream.is_running and not stream.chunks:
                    stream.first_characters = len(text)
                stream.chunks.append((text, text_chunk_index))
                self._changed.notify()

    def end(self, stream_id: int) -> None:
        """No more text will come."""
        with self._changed:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.is_text_whole = True
                self._finish_if_done(stream)

    def cancel(self, stream_id: int) -> None:
        """Forget the stream; a chunk that is being synthesised is dropped after its sentence."""
        with self._changed:
            self._streams.pop(stream_id, None)
            self._outs = deque(out for out in self._outs if out.stream_id != stream_id)

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        """The listener's side has taken so much, and ``ahead_ms`` of it is not played yet."""
        with self._changed:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.taken_ms = taken_ms
                if ahead_ms is not None:
                    buffered_ms = ahead_ms + max(0.0, stream.given_ms - taken_ms)
                    stream.dry_ns = self._clock.now_ns() + round(buffered_ms * NS_PER_MS)
                self._changed.notify()

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` has something to give out."""
        return bool(self._outs)

    def step(self) -> Sequence[StepOut]:
        """Give out what the threads made."""
        with self._changed:
            outs, self._outs = self._outs, deque()
        return outs

    def load_report(self) -> EngineLoad:
        """How busy it is."""
        with self._changed:
            return EngineLoad(
                num_streams=len(self._streams),
                first_audio_ms=self._first_audio_ms([self._typical_cost]),
                utilisation=self._utilisation([]),
                room=self._free_capacity(),
                refusal=self._refusal([self._typical_cost]),
                slots_used=len(self._streams),
                slots_total=self._max_streams,
                num_underruns=self._num_underruns,
            )

    def close(self) -> None:
        """End the threads."""
        with self._changed:
            self._is_closed = True
            self._streams.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # --- admission; under the lock ---

    @property
    def _typical_cost(self) -> _Cost:
        """Of a new request whose voice is not known: that of the newest stream's voice, else of the first voice."""
        newest = next(reversed(self._streams.values()), None)
        costs = self._costs[newest.voice] if newest else next(iter(self._costs.values()), None)
        return costs.now if costs is not None else _Cost(_LEAST_COST, _LEAST_COST)

    def _utilisation(self, new: Sequence[_Cost]) -> float:
        costs = [self._costs[stream.voice].now for stream in self._streams.values()]
        return sum(cost.of_audio for cost in (*costs, *new)) / self._tts.num_threads

    def _first_audio_ms(self, new: Sequence[_Cost]) -> float:
        """When the last of the new streams would speak: after the first chunks of all that have not spoken yet, while
        those that speak take their share of the threads.
        """
        waiting_ms, speaking, now_ns = 0.0, 0.0, self._clock.now_ns()
        for stream in self._streams.values():
            cost = self._costs[stream.voice].now
            if stream.given_ms:
                speaking += cost.of_audio
            else:
                done_ms = ms_between(stream.started_ns, now_ns) if stream.is_running else 0.0
                waiting_ms += max(0.0, cost.of_character_ms * stream.first_characters - done_ms)
        new_ms = [cost.of_character_ms * _TYPICAL_FIRST_CHARACTERS for cost in new]
        free = max(1.0 - speaking / self._tts.num_threads, _LEAST_FREE)
        return max((waiting_ms + sum(new_ms)) / self._tts.num_threads, *new_ms) / free

    def _refusal(self, new: Sequence[_Cost]) -> str:
        """Why the last of the new streams, given by their costs, would be refused; empty if it would be taken."""
        num_streams = len(self._streams) + len(new)
        if num_streams > self._max_streams:
            return f"{num_streams - 1} streams are open: tts.max_streams"
        if self._purpose == "say" or num_streams == 1:
            return ""
        if (share := self._utilisation(new)) > self._tts.max_utilisation:
            limit = f"at most {100 * self._tts.max_utilisation:.0f} % may be"
            return f"{100 * share:.0f} % of the threads would be needed where {limit}"
        target_ms = self._tts.first_audio_target_ms
        if (first_ms := self._first_audio_ms(new)) > target_ms:
            return f"first audio would come after {first_ms:.0f} ms instead of at most {target_ms:.0f} ms"
        return ""

    def _free_capacity(self) -> int:
        cost = self._typical_cost
        refused = (number for number in range(1, _MAX_FREE_CAPACITY + 1) if self._refusal([cost] * number))
        return next(refused, _MAX_FREE_CAPACITY + 1) - 1

    # --- synthesis threads ---

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            stream, text, index = job
            try:
                self._speak(stream, text, index)
            except Exception as error:
                log.exception("synthesis_failed", stream_id=stream.stream_id, voice=stream.voice)
                failure = EngineFailed(f"the voice {stream.voice} broke off: {type(error).__name__}")
                with self._changed:
                    self._finish(stream, failure)
                self._wake()

    def _next_job(self) -> tuple[_Stream, str, int] | None:
        target_ns = round(self._tts.first_audio_target_ms * NS_PER_MS)
        with self._changed:
            while not self._is_closed:
                ready = [
                    each
                    for each in self._streams.values()
                    if each.chunks and not each.is_running and each.given_ms - each.taken_ms < MAX_AHEAD_MS
                ]
                if ready:
                    stream = min(ready, key=lambda each: each.dry_ns if each.given_ms else each.opened_ns + target_ns)
                    stream.is_running, stream.started_ns = True, self._clock.now_ns()
                    return (stream, *stream.chunks.popleft())
                self._changed.wait()
        return None

    def _speak(self, stream: _Stream, text: str, index: int) -> None:
        synthesiser = self._synthesisers[stream.voice]
        audio_format = AudioFormat(synthesiser.rate_hz)
        spent_ms, spoken_ms = 0.0, 0.0
        started_ns = self._clock.now_ns()
        for sentence in synthesiser.speak(text, speed=stream.speed):
            pcm = _trimmed(stream, sentence, audio_format)
            now_ns = self._clock.now_ns()
            audio_ms = audio_format.ms_for_bytes(len(pcm))
            spent_ms, spoken_ms = spent_ms + ms_between(started_ns, now_ns), spoken_ms + audio_ms
            with self._changed:
                if stream.stream_id not in self._streams:
                    return
                if stream.given_ms and stream.dry_ns < now_ns:
                    self._num_underruns += 1
                stream.dry_ns = max(stream.dry_ns, now_ns) + round(audio_ms * NS_PER_MS)
                stream.given_ms += audio_ms
                self._outs.append(SpeechOut(stream.stream_id, pcm, index))
            self._wake()
            started_ns = self._clock.now_ns()
        with self._changed:
            if spoken_ms:
                observed = _Cost(spent_ms / spoken_ms, spent_ms / len(text))
                self._costs[stream.voice].observe(observed)
            stream.is_running = False
            self._finish_if_done(stream)
            self._changed.notify()
        self._wake()

    def _finish_if_done(self, stream: _Stream) -> None:
        if stream.is_text_whole and not stream.chunks and not stream.is_running:
            self._finish(stream)

    def _finish(self, stream: _Stream, error: EngineFailed | None = None) -> None:
        """Unless it was cancelled."""
        if self._streams.pop(stream.stream_id, None) is not None:
            self._outs.append(StreamDone(stream.stream_id, error))


def _trimmed(stream: _Stream, sentence: Sentence, audio_format: AudioFormat) -> bytes:
    """PCM of a sentence without the silence that the voice puts around it, and with the pause that its mark asks for."""
    trimmer = SilenceTrimmer(audio_format)
    speech = trimmer.process(pcm_of(sentence.samples))
    if not speech:
        return b""
    lead = bytes(audio_format.bytes_for_ms(stream.carried_pause_ms))
    tail_ms, stream.carried_pause_ms = split_pause_after(sentence.mark, stream.speed)
    return lead + speech + trimmer.finish(tail_ms)


def pcm_of(samples: Samples) -> bytes:
    """Samples from -1 to 1 as signed 16-bit little-endian PCM; what is beyond is clipped."""
    return (np.clip(samples, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
