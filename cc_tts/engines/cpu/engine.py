"""Many streams on a few threads: the stream whose listener runs dry first is synthesised first.

::

    push ─▸ chunks of a stream ─▸ thread: the next part of the stream with the earliest deadline ─▸ PCM ─▸ step()

One part of a stream is synthesised at a time: a window or a sentence of a chunk, as the voice makes them. No chunk is begun
while its listener has ``MAX_AHEAD_MS`` beyond what it took.

Runs on: the worker's main thread, except ``_work``, which runs on the synthesis threads. ``_changed`` guards all state.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_MS, Clock, ms_between
from cc_tts.engines.cpu.contract import Found, FoundModel, Synthesiser
from cc_tts.engines.cpu.costs import LEAST_COST, Cost, VoiceCosts
from cc_tts.engines.cpu.sample_texts import sample_of
from cc_tts.engines.cpu.speech import ChunkSpeech
from cc_tts.engines.engine_core import EngineDescription, EngineLoad, StepOut, StreamDone, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.messages import WorkerSettings
from cc_tts.errors import CcTtsError, ConfigError, EngineFailed, EngineOverloaded, UnknownVoice
from cc_tts.media.levels import active_level_dbfs
from cc_tts.media.listener_clock import ListenerClock
from cc_tts.voices.catalog import VoiceIndex
from cc_tts.voices.inline_sounds import without_sounds
from cc_tts.voices.voice import Voice

MAX_AHEAD_MS: Final = 4000.0
"""Audio is computed at most this far beyond what the reader has taken; a chunk that has begun is completed (unmeasured)."""
LEAST_MEASURED_MS: Final = 1000.0
"""A voice that says less of its sample than this is treated as if it had said all of it; unmeasured."""
_MAX_STREAMS: Final = 256  # if the setting names none; the threads are the limit long before; unmeasured
_LEAST_FREE: Final = 0.1
"""The least share of the threads that is kept for first chunks (unmeasured)."""
_TYPICAL_FIRST_CHARACTERS: Final = 60
"""The assumed length of a stream's first text chunk until it arrives: ``tts.first_chunk_max_chars`` (unmeasured)."""
_MAX_FREE_CAPACITY: Final = 64  # unmeasured
_PATIENCE: Final = 2.0
"""A voice that misses the first-audio target even when alone may take this many times as long beside others; else it could
never speak two texts at a time (unmeasured).
"""

log = logs.get(__name__)


@dataclass(slots=True)
class _Stream:
    stream_id: int
    voice: str
    """The id of the voice, with or without a variant."""
    synthesiser: Synthesiser
    speed: float
    clock: ListenerClock
    chunks: deque[tuple[str, int]] = field(default_factory=deque)
    first_characters: int = _TYPICAL_FIRST_CHARACTERS
    is_text_whole: bool = False
    saying: ChunkSpeech | None = None
    """The chunk that is being spoken."""
    is_running: bool = False
    """Whether a thread computes its next part; since ``started_ns``."""
    started_ns: int = 0
    carried_pause_ms: float = 0.0
    """The silence before the next sentence."""
    taken_ms: float = 0.0


class CpuEngine:
    """See :class:`cc_tts.engines.engine_core.EngineCore`; loads itself. ``wake`` is called from a synthesis thread when
    :meth:`step` has something to give out.

    Admission measures what neural voices cost. espeak-ng is limited by the number of its streams alone: it speaks a thousand
    times faster than anybody listens, and who asks for it has no plainer voice to go to.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        clock: Clock,
        wake: Callable[[], None],
        find_models: Callable[[Path | None], Sequence[Found]],
        spent_ns: Callable[[], int] | None = None,
    ) -> None:
        self._tts = settings.tts
        self._max_streams = settings.tts.max_streams or _MAX_STREAMS
        self._purpose = settings.purpose
        self._find_models = find_models
        self._is_measured = settings.tts.engine != "espeak"
        self._clock = clock
        self._spent_ns = spent_ns or clock.now_ns
        """The core time that this thread has used. By wall time, a voice that is measured on a busy machine seems slow."""
        self._wake = wake
        self._changed = threading.Condition()
        self._streams: dict[int, _Stream] = {}
        self._outs: deque[StepOut] = deque()
        self._synthesisers: dict[str, Synthesiser] = {}
        self._known: dict[str, Voice] = {}
        """The voices that were loaded, with their levels; their files may be gone."""
        self._refreshing = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._costs: dict[str, VoiceCosts] = {}
        self._families: dict[tuple[str, str], Cost] = {}
        """The cost of each family by language."""
        self._num_underruns = 0
        self.voices: tuple[Voice, ...] = ()
        self.variants: tuple[str, ...] = ()
        self.faults: tuple[str, ...] = ()
        self._index = VoiceIndex()

    @property
    def description(self) -> EngineDescription:
        return EngineDescription(self.voices, variants=self.variants, faults=self.faults)

    def load(self, on_progress: Callable[[str], None]) -> "CpuEngine | None":
        """Find the voices, load and warm up each. A voice that cannot be loaded or does not speak is skipped with an error
        in the log; raises ``ConfigError`` if none is left.
        """
        found = self._found()
        self.variants = tuple(variant for each in found for variant in each.variants)
        if self._purpose == "check":
            self.voices = tuple(voice for each in found for voice in each.voices)
            return None
        usable: list[Voice] = []
        for number, each in enumerate(found, 1):
            name = each.voices[0].id if len(each.voices) == 1 else each.voices[0].engine
            on_progress(f"loading {name}, {number}/{len(found)}")
            usable += self._loaded(each)
        if not usable:
            reason = "; ".join(self.faults)
            raise ConfigError(reason or "there is no voice: `cc-tts voices add` puts voices into tts.voices_dir")
        self.voices = tuple(usable)
        self._index = VoiceIndex(self.voices, self.variants)
        if self._purpose in ("load", "measure"):
            return None
        for number in range(self._tts.num_threads):
            thread = threading.Thread(target=self._work, name=f"synthesis {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def refresh(self, on_done: Callable[[], None]) -> None:
        """Look for added and removed models, on a thread; see the contract. A loaded model stays loaded."""
        threading.Thread(target=self._refresh, args=(on_done,), name="find voices", daemon=True).start()

    def _refresh(self, on_done: Callable[[], None]) -> None:
        with self._refreshing:
            listed: list[Voice] = []
            for each in self._found():
                is_known = each.voices[0].id in self._known
                listed += [self._known[voice.id] for voice in each.voices] if is_known else self._loaded(each)
            if listed:
                self.voices = tuple(listed)
                self._index = VoiceIndex(self.voices, self.variants)
            on_done()

    def _found(self) -> list[FoundModel]:
        """Return the models that exist now; files that are no models are faults."""
        self.faults = ()
        models: list[FoundModel] = []
        for each in self._find_models(Path(self._tts.voices_dir) if self._tts.voices_dir else None):
            if isinstance(each, ConfigError):
                self._leave_out("", each.detail)
            else:
                models.append(each)
        return models

    def _leave_out(self, name: str, detail: str) -> None:
        self.faults += (detail,)
        log.error("voice_left_out", detail=detail, **({"voice": name} if name else {}))

    def _loaded(self, found: FoundModel) -> Sequence[Voice]:
        """Load a model, and measure each voice whose costs matter, with its level. Returns nothing if the model cannot be
        loaded or does not speak.
        """
        is_measured = self._is_measured and self._purpose != "load"
        name = found.voices[0].id
        try:
            synthesiser = found.load()
            voices = [self._measured(each, synthesiser, found.family) if is_measured else each for each in found.voices]
        except Exception as error:  # noqa: BLE001 - whatever a damaged model raises, the other voices speak
            self._leave_out(name, error.detail if isinstance(error, CcTtsError) else f"{name}: {error}")
            return ()
        self._synthesisers.update((voice.id, synthesiser) for voice in voices)
        self._known.update((voice.id, voice) for voice in voices)
        return voices

    def _measured(self, voice: Voice, synthesiser: Synthesiser, family: str) -> Voice:
        """Warm a voice up, and measure its cost and its level. The first synthesis of a session takes ten times as long as
        later ones, so the second one is measured. For a further voice of a family only an unknown level is measured.
        """
        greeting, sentence = sample_of(voice.language)
        cost, level_dbfs = self._families.get((family, voice.language)), voice.level_dbfs
        if cost is None:
            deque(synthesiser.speak(greeting, voice_id=voice.id, speed=1.0), maxlen=0)
        if cost is None or level_dbfs is None:
            measured, level_dbfs = self._said(sentence, voice, synthesiser)
            cost = cost or measured
        if family:
            self._families[family, voice.language] = cost
        typical = _TYPICAL_FIRST_CHARACTERS * len(sentence) / len(sample_of("en")[1])
        self._costs[voice.id] = VoiceCosts(cost, self._clock, typical_characters=typical)
        streams = self._streams_of(cost)
        if not streams:
            log.warning("voice_too_slow", voice=voice.id, cost=round(cost.of_audio, 3), use="prompts made ahead")
        return replace(voice, level_dbfs=round(level_dbfs, 1), cost=round(cost.of_audio, 4), streams=streams)

    def _said(self, text: str, voice: Voice, synthesiser: Synthesiser) -> tuple[Cost, float]:
        """Measure the cost and the level of saying a text."""
        begun_ns, first_ms = self._spent_ns(), math.inf
        parts: list[bytes] = []
        for audio in synthesiser.speak(text, voice_id=voice.id, speed=1.0):
            if audio.pcm and not parts and audio.ends_with is None:
                first_ms = ms_between(begun_ns, self._spent_ns())
            parts.append(audio.pcm)
        elapsed_ms, pcm = ms_between(begun_ns, self._spent_ns()), b"".join(parts)
        if (level_dbfs := active_level_dbfs(pcm, synthesiser.rate_hz)) is None:
            raise ConfigError(f"{voice.id}: nothing is heard when it is to say {text!r}")
        audio_ms = max(AudioFormat(synthesiser.rate_hz).ms_for_bytes(len(pcm)), LEAST_MEASURED_MS)
        costs = max(elapsed_ms / audio_ms, LEAST_COST), max(elapsed_ms / len(text), LEAST_COST)
        return Cost(*costs, first_ms), level_dbfs

    def _streams_of(self, cost: Cost) -> int:
        """Return how many listeners such a voice can supply. A stream runs on one thread at a time, so one thread must
        suffice for it.
        """
        if cost.of_audio > self._tts.max_utilisation:
            return 0
        return min(int(self._tts.num_threads * self._tts.max_utilisation / cost.of_audio), self._max_streams)

    def open(self, request: StreamRequest) -> None:
        """Begin a stream; see the contract."""
        if (voice := self._index.find(request.voice)) is None:
            raise UnknownVoice(f"no voice is called {request.voice[:80]!r}")
        synthesiser = self._synthesisers.get(voice.id) or self._synthesisers[voice.id.partition("+")[0]]
        with self._changed:
            if refusal := self._refusal([voice.id]):
                raise EngineOverloaded(refusal, retry_after_s=1)
            clock = ListenerClock(first_audio_target_ms=self._tts.first_audio_target_ms, guard_ms=0.0)
            stream = _Stream(request.stream_id, voice.id, synthesiser, request.speed, clock)
            self._streams[request.stream_id] = stream

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        """Append a text chunk; voices of the CPU make no sounds besides words."""
        text = without_sounds(text)
        with self._changed:
            if (stream := self._streams.get(stream_id)) is not None:
                if not stream.clock.sent_ms and stream.saying is None and not stream.chunks:
                    stream.first_characters = len(text)
                stream.chunks.append((text, text_chunk_index))
                stream.clock.text_came(self._now_ms)
                self._changed.notify()

    def end(self, stream_id: int) -> None:
        """No more text will come."""
        with self._changed:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.is_text_whole = True
                self._finish_if_done(stream)

    def cancel(self, stream_id: int) -> None:
        """Forget the stream; the part that is being synthesised is dropped."""
        with self._changed:
            stream = self._streams.pop(stream_id, None)
            if stream is not None and stream.saying is not None and not stream.is_running:
                stream.saying.parts.close()
            self._outs = deque(out for out in self._outs if out.stream_id != stream_id)

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        """The reader has taken this much, and has not played ``ahead_ms`` of it."""
        with self._changed:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.taken_ms = taken_ms
                if ahead_ms is not None:
                    stream.clock.taken(self._now_ms, taken_ms, ahead_ms)
                self._changed.notify()

    @property
    def _now_ms(self) -> float:
        return self._clock.now_ns() / NS_PER_MS

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` has results."""
        return bool(self._outs)

    def step(self) -> Sequence[StepOut]:
        """Return what the threads have computed."""
        with self._changed:
            outs, self._outs = self._outs, deque()
        return outs

    def load_report(self) -> EngineLoad:
        with self._changed:
            return EngineLoad(
                num_streams=len(self._streams),
                first_audio_ms=self._first_audio_ms([self._typical_voice]),
                utilisation=self._utilisation([]),
                room=self._free_capacity(),
                refusal=self._refusal([self._typical_voice]),
                slots_used=len(self._streams),
                slots_total=self._max_streams,
                num_underruns=self._num_underruns,
            )

    def close(self) -> None:
        """End the synthesis threads."""
        with self._changed:
            self._is_closed = True
            self._streams.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # --- admission; under the lock ---

    def _cost_of(self, voice_id: str) -> Cost:
        costs = self._costs.get(voice_id)
        return costs.now if costs is not None else Cost(LEAST_COST, LEAST_COST)

    def _is_live(self, voice_id: str) -> bool:
        voice = self._known.get(voice_id)
        return voice is None or voice.is_live

    @property
    def _typical_voice(self) -> str:
        """Return the voice to assume for a new request: that of the newest stream, or the first voice."""
        newest = next(reversed(self._streams.values()), None)
        return newest.voice if newest else next(iter(self._costs), "")

    def _utilisation(self, new: Sequence[str]) -> float:
        """Return the share of the threads in use, with new streams of these voices. A stream uses at most one thread."""
        if not self._is_measured:
            return (len(self._streams) + len(new)) / self._max_streams
        voices = (*(stream.voice for stream in self._streams.values()), *new)
        return sum(min(self._cost_of(voice).of_audio, 1.0) for voice in voices) / self._tts.num_threads

    def _first_audio_ms(self, new: Sequence[str]) -> float:
        """Return when the last of the new streams would speak: after the first chunks of all silent streams, while the
        others use their share of the threads.
        """
        if not self._is_measured:
            return 0.0
        waiting_ms, speaking, now_ns = 0.0, 0.0, self._clock.now_ns()
        for stream in self._streams.values():
            cost = self._cost_of(stream.voice)
            if stream.clock.sent_ms:
                speaking += cost.of_audio
            else:
                done_ms = ms_between(stream.started_ns, now_ns) if stream.is_running else 0.0
                waiting_ms += max(0.0, cost.first_ms(stream.first_characters) - done_ms)
        new_ms = [self._cost_of(voice).first_ms(self._typical_characters(voice)) for voice in new]
        free = max(1.0 - speaking / self._tts.num_threads, _LEAST_FREE)
        return max((waiting_ms + sum(new_ms)) / self._tts.num_threads, *new_ms) / free

    def _typical_characters(self, voice_id: str) -> float:
        costs = self._costs.get(voice_id)
        return costs.typical_characters if costs is not None else _TYPICAL_FIRST_CHARACTERS

    def _target_ms(self, voice_id: str) -> float:
        """Return the time in which a new stream must have its first audio."""
        target_ms = self._tts.first_audio_target_ms
        alone_ms = self._costs[voice_id].alone_ms if voice_id in self._costs else 0.0
        return target_ms if alone_ms <= target_ms else _PATIENCE * alone_ms

    def _refusal(self, new: Sequence[str]) -> str:
        """Return why the last of these new streams would be refused; empty if it would be accepted."""
        num_streams = len(self._streams) + len(new)
        if num_streams > self._max_streams:
            return f"{num_streams - 1} streams are open: tts.max_streams"
        if not self._is_measured or self._purpose == "say" or num_streams == 1:
            return ""
        if not self._is_live(new[-1]):
            return self._refusal_of_slow(new)
        if (share := self._utilisation(new)) > self._tts.max_utilisation:
            limit = f"at most {100 * self._tts.max_utilisation:.0f} % may be"
            return f"{100 * share:.0f} % of the threads would be needed where {limit}"
        target_ms = self._target_ms(new[-1])
        if (first_ms := self._first_audio_ms(new)) > target_ms:
            return f"first audio would come after {first_ms:.0f} ms instead of at most {target_ms:.0f} ms"
        return ""

    def _refusal_of_slow(self, new: Sequence[str]) -> str:
        """A voice that is slower than real time makes one prompt at a time, and leaves a thread to others."""
        voices = [*(stream.voice for stream in self._streams.values()), *new[:-1]]
        if not all(map(self._is_live, voices)):
            return f"{new[-1]} is slower than speech here, and makes one prompt at a time"
        return (
            f"{new[-1]} is slower than speech here, and others speak on the only thread"
            if self._tts.num_threads == 1
            else ""
        )

    def _free_capacity(self) -> int:
        if not self._is_measured:
            return max(0, self._max_streams - len(self._streams))
        voice = self._typical_voice
        refused = (number for number in range(1, _MAX_FREE_CAPACITY + 1) if self._refusal([voice] * number))
        return next(refused, _MAX_FREE_CAPACITY + 1) - 1

    # --- synthesis threads ---

    def _work(self) -> None:
        while (stream := self._next_stream()) is not None:
            try:
                self._advance(stream, stream.saying or self._begun(stream))
            except Exception as error:
                log.exception("synthesis_failed", stream_id=stream.stream_id, voice=stream.voice)
                failure = EngineFailed(f"the voice {stream.voice} broke off: {type(error).__name__}")
                with self._changed:
                    self._finish(stream, failure)
            self._wake()

    def _next_stream(self) -> _Stream | None:
        with self._changed:
            while not self._is_closed:
                if ready := [each for each in self._streams.values() if not each.is_running and self._is_due(each)]:
                    stream = min(ready, key=lambda each: each.clock.deadline_ms)
                    stream.is_running, stream.started_ns = True, self._clock.now_ns()
                    return stream
                self._changed.wait()
        return None

    def _is_due(self, stream: _Stream) -> bool:
        return stream.saying is not None or (
            bool(stream.chunks) and stream.clock.sent_ms - stream.taken_ms < MAX_AHEAD_MS
        )

    def _begun(self, stream: _Stream) -> ChunkSpeech:
        with self._changed:
            text, index = stream.chunks.popleft()
            synthesiser, speed = stream.synthesiser, stream.speed
            parts = synthesiser.speak(text, voice_id=stream.voice, speed=speed)
            stream.saying = ChunkSpeech(
                parts,
                AudioFormat(synthesiser.rate_hz),
                speed,
                stream.carried_pause_ms,
                index=index,
                num_characters=len(text),
            )
            return stream.saying

    def _advance(self, stream: _Stream, saying: ChunkSpeech) -> None:
        """Compute the next part of a chunk, and end the chunk after its last part."""
        part = next(saying.parts, None)
        pcm, words = saying.take(part) if part is not None else (b"", ())
        saying.spent(ms_between(stream.started_ns, self._clock.now_ns()))
        with self._changed:
            stream.is_running = False
            if stream.stream_id not in self._streams:
                saying.parts.close()
            elif pcm:
                audio_ms = saying.audio_format.ms_for_bytes(len(pcm))
                if stream.clock.sent(self._now_ms, audio_ms) > 0.0:
                    self._num_underruns += 1
                chunk = SpeechChunk(pcm, stream_id=stream.stream_id, text_chunk_index=saying.index, spoken_words=words)
                self._outs.append(chunk)
            if part is None or part.is_last:
                self._end_chunk(stream, saying)
            self._changed.notify()

    def _end_chunk(self, stream: _Stream, saying: ChunkSpeech) -> None:
        cost, costs = saying.cost, self._costs.get(stream.voice)
        if cost is not None and costs is not None:
            costs.observe(cost)
        stream.carried_pause_ms, stream.saying = saying.carried_pause_ms, None
        if not stream.chunks:
            stream.clock.text_spoken()
        self._finish_if_done(stream)

    def _finish_if_done(self, stream: _Stream) -> None:
        if stream.is_text_whole and not stream.chunks and stream.saying is None:
            self._finish(stream)

    def _finish(self, stream: _Stream, error: EngineFailed | None = None) -> None:
        """End a chunk, unless it was cancelled."""
        if self._streams.pop(stream.stream_id, None) is not None:
            self._outs.append(StreamDone(stream.stream_id, error))
