"""The plain engine: one sequence at a time, streams take turns (``EngineCore``).

::

    open ─▸ _Stream ─ push ─▸ text chunks ─▸ Synthesizer ─▸ step(): one piece of audio of one stream

Who has not been heard yet goes first; then whoever waited longest. Whoever is far ahead of its listener waits. Nothing is
batched: this engine is for machines without a GPU and a few calls, and what the batched one is compared with.

Runs on: the thread that owns the device.
"""

import hashlib
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from cc_tts.clock import Clock, MonotonicClock, ms_between
from cc_tts.engines.cosyvoice2.model.loader import LANGUAGES, RATE_HZ, load_networks
from cc_tts.engines.cosyvoice2.voice.speakers import Speaker, built_in_speakers, enrolled_speakers
from cc_tts.engines.cosyvoice2.voice.text_front import MAX_SEED
from cc_tts.engines.engine_core import EngineLoad, SpeechOut, StepOut, StreamDone, StreamRequest, check_speed
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded
from cc_tts.voices.catalog import unknown_voice
from cc_tts.voices.library import VoiceLibrary
from cc_tts.voices.voice import Voice
from lab.cosyvoice2.whole_vocoder import with_coarse_phase
from tests.parity.audio_track import NotFinite
from tests.parity.synthesizer import InterleavedSpeech, Synthesizer, to_pcm

MAX_AHEAD_MS: Final = 4000

_WARM_UP_TEXT: Final = "Hello."
_WEIGHT_OF_NEWEST: Final = 0.2
"""In the running means of how long a piece takes."""


@dataclass(slots=True, kw_only=True)
class _Stream:
    """One utterance."""

    stream_id: int
    speaker: Speaker
    speed: float
    texts: deque[tuple[int, str]] = field(default_factory=deque)  # by text chunk, not begun
    has_ended: bool = False
    pieces: Iterator[Tensor] | None = None  # of the text chunk that is being spoken
    interleaved: InterleavedSpeech | None = None
    may_go_on: bool = False  # interleaved speech that has not asked for more text yet
    text_chunk_index: int = 0
    last_text: str = ""
    made_ms: float = 0.0
    taken_ms: float = 0.0

    @property
    def has_work(self) -> bool:
        """Whether a turn would do something."""
        is_idle = not self.texts and self.pieces is None and not self.may_go_on
        if is_idle:
            return self.has_ended
        return self.made_ms - self.taken_ms <= MAX_AHEAD_MS

    def drop(self) -> None:
        """Free what is being spoken."""
        self.texts.clear()
        self.pieces = self.interleaved = None


class SingleStreamEngine:
    """Speaks streams in turn.

    Args:
        model_dir: laid out as published (§1).
        voices: the folder of enrolled voices, or what gives speakers when the engine is loaded; they win over those of the
            model of the same id. Voices of the folder that cannot be loaded are left out, which ``on_progress`` is told.
        device: where the networks run.
        dtype: of language model and flow; what suits the device, when left out.
        num_threads: of torch, for the whole process; as it is, when 0.
        max_streams: that are open at a time.
        interleaved: the text chunks of a stream feed one sequence, five text tokens to fifteen speech tokens (§3.5);
            otherwise each is a sequence of its own, as sentences are in the reference. Streams with a speed other than 1
            are never interleaved.
        compat: do as the reference does where it does worse (§12).
        seed: with the voice and the text it decides what is drawn.
        clock: tells how long steps take.

    """

    def __init__(
        self,
        model_dir: Path,
        *,
        voices: Path | Callable[[], Mapping[str, Speaker]] | None = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        num_threads: int = 0,
        max_streams: int = 8,
        interleaved: bool = False,
        compat: bool = False,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._model_dir = model_dir
        self._source = voices
        self._device = device
        self._dtype = dtype
        self._num_threads = num_threads
        self._max_streams = max_streams
        self._is_interleaved = interleaved
        self._compat = compat
        self._seed = seed
        self._clock = MonotonicClock() if clock is None else clock
        self._synthesizer: Synthesizer | None = None
        self._speakers: dict[str, Speaker] = {}
        self._streams: dict[int, _Stream] = {}  # whose turn is next comes first
        self._piece_ms = 0.0  # running means
        self._cost = 0.0  # ms of work for a ms of audio
        self._num_not_finite = 0

    @property
    def voices(self) -> Sequence[Voice]:
        """Every voice, once loaded."""
        return tuple(speaker.voice for speaker in self._speakers.values())

    @property
    def languages(self) -> Sequence[str]:
        """What every voice speaks besides its own."""
        return LANGUAGES

    def load(self, on_progress: Callable[[str], None]) -> None:
        """Load the networks and the voices, and speak a few tokens.

        Raises:
            CcTtsError: something of it cannot be used; the message says what.

        """
        if self._num_threads:
            torch.set_num_threads(self._num_threads)
        on_progress(f"loading the model from {self._model_dir}")
        model, tokenizer = load_networks(self._model_dir, device=self._device, dtype=self._dtype)
        if self._compat:
            with_coarse_phase(model.vocoder)
        synthesizer = Synthesizer(model, tokenizer, compat=self._compat)
        on_progress("loading the voices")
        speakers = {**built_in_speakers(self._model_dir), **self._enrolled(on_progress)}
        for speaker in speakers.values():
            speaker.check_fits(model.lm.config, model.flow.config)
        on_progress("warming up")
        begin_ns = self._clock.now_ns()
        for speaker in list(speakers.values())[:1]:
            audio = next(synthesizer.speak(speaker, _WARM_UP_TEXT, seed=0), None)
            if audio is not None:
                self._note(ms_between(begin_ns, self._clock.now_ns()), _duration_ms(audio))
        self._synthesizer, self._speakers = synthesizer, speakers

    def open(self, request: StreamRequest) -> None:
        """Begin a stream.

        Raises:
            UnknownVoice: no voice has this id.
            EngineOverloaded: as many streams are open as may be.
            Unprocessable: the speed is out of bounds.

        """
        speaker = self._speakers.get(request.voice)
        if speaker is None:
            raise unknown_voice(request.voice, self.voices)
        check_speed(request.speed)
        if refusal := self._refusal():
            raise EngineOverloaded(refusal, retry_after_s=1)
        if request.stream_id in self._streams:
            raise ValueError(f"stream {request.stream_id} is open already")
        stream = _Stream(stream_id=request.stream_id, speaker=speaker, speed=request.speed)
        self._streams[request.stream_id] = stream

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        """Append a text chunk; ignored when the stream is not there or has ended."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.has_ended:
            stream.texts.append((text_chunk_index, text))

    def end(self, stream_id: int) -> None:
        """No more text will come."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.has_ended = True
            stream.may_go_on = stream.interleaved is not None

    def cancel(self, stream_id: int) -> None:
        """Free all that the stream holds; nothing more is given out for it."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            stream.drop()

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        """How much audio the listener's side has taken since the stream began, ms."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.taken_ms = max(stream.taken_ms, taken_ms)

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do something."""
        return any(stream.has_work for stream in self._streams.values())

    def step(self) -> Sequence[StepOut]:
        """One piece of audio of the stream whose turn it is, or the end of it; nothing, when there is nothing to do."""
        ready = [stream for stream in self._streams.values() if stream.has_work]
        if not ready:
            return ()
        stream = next((stream for stream in ready if stream.made_ms == 0.0), ready[0])
        begin_ns = self._clock.now_ns()
        try:
            audio = self._next_audio(stream)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the end of this stream alone
            return (self._failed(stream, error),)
        self._streams[stream.stream_id] = self._streams.pop(stream.stream_id)  # to the end of the line
        if audio is not None:
            made_ms = _duration_ms(audio)
            self._note(ms_between(begin_ns, self._clock.now_ns()), made_ms)
            stream.made_ms += made_ms
            return (SpeechOut(stream.stream_id, to_pcm(audio), stream.text_chunk_index),)
        if stream.has_ended:
            del self._streams[stream.stream_id]
            stream.drop()
            return (StreamDone(stream.stream_id),)
        return ()

    def load_report(self) -> EngineLoad:
        """How busy it is; times are means of what was seen."""
        num_unheard = sum(stream.made_ms == 0.0 for stream in self._streams.values())
        return EngineLoad(
            num_streams=len(self._streams),
            first_audio_ms=self._piece_ms * (num_unheard + 1),
            utilisation=self._cost * len(self._streams),
            refusal=self._refusal(),
            slots_used=len(self._streams),
            slots_total=self._max_streams,
            num_not_finite=self._num_not_finite,
        )

    def close(self) -> None:
        """Free everything."""
        for stream_id in tuple(self._streams):
            self.cancel(stream_id)
        self._synthesizer = None
        self._speakers = {}

    def _enrolled(self, on_progress: Callable[[str], None]) -> Mapping[str, Speaker]:
        if self._source is None:
            return {}
        if not isinstance(self._source, Path):
            return self._source()
        library = VoiceLibrary(self._source)
        for fault in library.faults():
            on_progress(f"a voice is left out: {fault}")
        return enrolled_speakers(library, on_fault=on_progress)

    def _next_audio(self, stream: _Stream) -> Tensor | None:
        """The next piece of the stream; ``None`` when its text so far is spoken."""
        synthesizer = self._synthesizer
        if synthesizer is None:
            raise EngineFailed("the engine is not loaded")
        if self._is_interleaved and stream.speed == 1.0:
            return self._next_interleaved(stream, synthesizer)
        while stream.pieces is not None or stream.texts:
            if stream.pieces is None:
                stream.text_chunk_index, text = stream.texts.popleft()
                seed = self._seed_of(stream.speaker, text)
                stream.pieces = synthesizer.speak(stream.speaker, text, seed=seed, speed=stream.speed)
            audio = next(stream.pieces, None)
            if audio is not None:
                return audio
            stream.pieces = None
        return None

    def _next_interleaved(self, stream: _Stream, synthesizer: Synthesizer) -> Tensor | None:
        """The same of one sequence for all text; the audio counts for the text chunk that came last."""
        speech = stream.interleaved
        if speech is None:
            speech = synthesizer.interleaved(stream.speaker, seed=self._seed_of(stream.speaker, ""))
            stream.interleaved = speech
        while stream.texts:
            stream.text_chunk_index, text = stream.texts.popleft()
            speech.add_text(_joint(stream.last_text, text) + text)
            stream.last_text = text or stream.last_text
        if stream.has_ended:
            speech.end_text()
        audio = speech.next_audio()
        stream.may_go_on = audio is not None and not speech.is_over
        return audio

    def _failed(self, stream: _Stream, error: Exception) -> StreamDone:
        self._num_not_finite += isinstance(error, NotFinite)
        self.cancel(stream.stream_id)
        if not isinstance(error, CcTtsError):
            frames = traceback.extract_tb(error.__traceback__)
            where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
            error = EngineFailed(f"speech broke off: {type(error).__name__}{where}: {str(error)[:200]}")
        return StreamDone(stream.stream_id, error.with_traceback(None))  # whose frames would hold on to the caches

    def _refusal(self) -> str:
        if len(self._streams) < self._max_streams:
            return ""
        return f"{len(self._streams)} streams are open, {self._max_streams} are the most"

    def _seed_of(self, speaker: Speaker, text: str) -> int:
        key = f"{self._seed}\0{speaker.id}\0{text}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") & MAX_SEED

    def _note(self, work_ms: float, audio_ms: float) -> None:
        weight = _WEIGHT_OF_NEWEST if self._piece_ms else 1.0
        self._piece_ms += weight * (work_ms - self._piece_ms)
        self._cost += weight * (work_ms / max(audio_ms, 1.0) - self._cost)


def _duration_ms(audio: Tensor) -> float:
    return audio.shape[0] * 1000 / RATE_HZ


def _joint(before: str, after: str) -> str:
    """What stands between two text chunks: a space between words that are written with them."""
    is_joined = not before or not after or before[-1].isspace() or after[0].isspace()
    return "" if is_joined or not (before[-1].isascii() and after[0].isascii()) else " "
