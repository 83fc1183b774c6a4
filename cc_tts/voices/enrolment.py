"""Makes a voice from a recording and its transcript: checked, computed once, and kept (spec §7.3, §12). No network here: a
``ReferenceEncoder`` computes the features, and ``embedding_cache`` keeps them under a hash of everything that they depend
on.
"""

import hashlib
import struct
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from cc_tts.errors import Unprocessable
from cc_tts.voices.embedding_cache import EmbeddingCache, EnrolledVoice

MIN_DURATION_S: Final = 1.0  # unmeasured
MAX_DURATION_S: Final = 30.0  # the speech tokenizer takes no more (spec §7.3)
MIN_RATE_HZ: Final = 16_000  # as the reference implementation (spec §7.3)

FULL_SCALE: Final = 0.999
MAX_CLIPPED_SHARE: Final = 0.005  # unmeasured
WARN_CLIPPED_SHARE: Final = 0.0005  # unmeasured
SILENCE_DBFS: Final = -45.0  # of the loudest 20 ms of a recording, below which it is refused as silent; unmeasured
QUIET_DBFS: Final = -30.0  # unmeasured
SPEECH_BELOW_LOUDEST_DB: Final = 35.0  # unmeasured
MIN_SPEECH_S: Final = 0.5  # unmeasured
MAX_CHARACTERS_PER_S: Final = 30.0
MAX_TRANSCRIPT_CHARS: Final = int(MAX_CHARACTERS_PER_S * MAX_DURATION_S)  # no longer one fits the longest recording
TOKENS_PER_S: Final = 25
TOKENS_PER_CHUNK: Final = 25  # of the flow, counted from the start of the prompt (spec §2, §4.4)
FLOW_RESIDUE_TOKENS: Final = 13
"""The reference tokens in its last, incomplete chunk: 12 tokens complete the chunk, which is the first hop of speech."""
MAX_LM_TOKENS: Final = 200
"""The most reference tokens for the language model, 8 s. A short text after a longer reference tends to be babbled
(unmeasured).
"""
MAX_FLOW_TOKENS: Final = 188
"""The most reference tokens for the flow, 7.5 s. More hardly changes the voice, but costs attention and memory in every call
(unmeasured).
"""

_TOO_LONG_FOR_LM: Final = (
    "{:.1f} s are more than the 8 s that the language model can follow, so it is not given the recording, and the likeness "
    "is less; enrol 3 to 8 s of it with the words of that part"
)

_TOO_FAST: Final = (
    "the transcript has {} characters for {:.1f} s; that is too fast for speech. It must be the words of this recording and "
    "no others"
)

Samples = npt.NDArray[np.float32]


class PromptUnusable(Unprocessable, code="prompt_unusable", title="The recording cannot be used as a voice"):
    """The recording or its transcript cannot be used for a voice; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ReferenceFeatures:
    """The features that the networks compute from a recording."""

    tokens: npt.NDArray[np.int32]  # [n], 25 a second
    mel: npt.NDArray[np.float32]  # [frames, 80], 50 a second
    embedding: npt.NDArray[np.float32]  # [192]


class ReferenceEncoder(Protocol):
    """Computes the features of a recording; it is implemented in ``engines/cosyvoice/voice/encoder``."""

    @property
    def fingerprint(self) -> str:
        """Identifies the networks; features of another fingerprint are not comparable."""

    def encode(self, audio: Samples, rate_hz: int) -> ReferenceFeatures:
        """Compute tokens, mel and embedding of mono audio."""


@dataclass(frozen=True, slots=True)
class ReferenceRecording:
    """Mono audio in −1 … 1. ``data``: the bytes of its file, by which its voice is found again."""

    audio: Samples
    rate_hz: int
    data: bytes = b""

    @property
    def duration_s(self) -> float:
        return len(self.audio) / self.rate_hz


def enrol(
    recording: ReferenceRecording,
    words: str | None,
    encoder: ReferenceEncoder,
    *,
    name: str,
    cache: EmbeddingCache | None = None,
    trim_to_chunk: bool = True,
    announced: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> EnrolledVoice:
    """Make a voice of a recording of one person, or take it from the cache if it was made before. ``words``: what is said in
    it, as it is heard; ``None`` for a voice whose language model is given nothing (spec §3.2).

    Tokens and mel come to one length, two frames a token (spec §7.3). A recording that is too long for the language model
    is not cut, since nothing says which words of the transcript would go: the model is given none of it, with a warning.
    ``trim_to_chunk`` shortens the reference of the *flow* to :func:`num_flow_tokens`: the oldest tokens go. ``announced`` is
    entered while ``encoder`` works. Raises ``PromptUnusable``, which begins with the recording's ``name``.
    """
    warnings = check_recording(recording, name=name)
    if words is not None:
        warnings += check_transcript(words, recording.duration_s)
    key = voice_key(recording.data, words or "", encoder.fingerprint, trim_to_chunk=trim_to_chunk)
    if cache is not None and (known := cache.load(key)) is not None:
        return known
    with announced():
        features = encoder.encode(recording.audio, recording.rate_hz)
    num_tokens = min(len(features.mel) // 2, len(features.tokens))
    if num_tokens == 0:
        raise PromptUnusable("the recording gives no speech tokens; it is too short")
    is_too_long = bool(words) and num_tokens > MAX_LM_TOKENS
    if is_too_long:
        warnings.append(_TOO_LONG_FOR_LM.format(num_tokens / TOKENS_PER_S))
    surplus = num_tokens - num_flow_tokens(num_tokens) if trim_to_chunk else 0
    voice = EnrolledVoice(
        key=key,
        transcript=words or "",
        fingerprint=encoder.fingerprint,
        duration_s=recording.duration_s,
        warnings=tuple(warnings),
        llm_tokens=np.ascontiguousarray(features.tokens[: 0 if is_too_long else num_tokens], dtype=np.int32),
        flow_tokens=np.ascontiguousarray(features.tokens[surplus:num_tokens], dtype=np.int32),
        flow_mel=np.ascontiguousarray(features.mel[2 * surplus : 2 * num_tokens], dtype=np.float32),
        embedding=np.ascontiguousarray(features.embedding, dtype=np.float32),
    )
    if cache is not None:
        cache.store(voice)
    return voice


def spoken_words(transcript: str, normalize: Callable[[str], str]) -> str:
    words = unicodedata.normalize("NFC", transcript).strip()
    return normalize(words) or words


def num_flow_tokens(num_tokens: int) -> int:
    """Return how many of the tokens of a reference the flow is given: 13 more than a multiple of 25, 188 at most.

    Chunks that are all reference are computed once a voice; 12 tokens of speech complete the last one (spec §12).
    """
    if num_tokens < FLOW_RESIDUE_TOKENS:
        return num_tokens
    return min(MAX_FLOW_TOKENS, num_tokens - (num_tokens - FLOW_RESIDUE_TOKENS) % TOKENS_PER_CHUNK)


def voice_key(data: bytes, transcript: str, fingerprint: str, *, trim_to_chunk: bool) -> str:
    """Return a hash of everything that the stored features depend on."""
    digest = hashlib.sha256(b"cc-tts voice 2\n")
    for part in (data, transcript.encode(), fingerprint.encode(), b"trimmed" if trim_to_chunk else b"whole"):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.hexdigest()


def check_transcript(transcript: str, duration_s: float) -> list[str]:
    """Raise ``PromptUnusable`` for a transcript without words; return a warning if it is too long for the recording."""
    if not transcript.strip():
        raise PromptUnusable("the transcript is empty; write down what is said in the recording, word for word")
    if not any(character.isalnum() for character in transcript):
        raise PromptUnusable("the transcript holds no words, only signs")
    if len(transcript) > MAX_CHARACTERS_PER_S * duration_s:
        return [_TOO_FAST.format(len(transcript), duration_s)]
    return []


def check_recording(recording: ReferenceRecording, *, name: str = "recording") -> list[str]:
    """Raise ``PromptUnusable`` for an unusable recording: too short, too long, of too low a rate, silent, overdriven, or not
    numbers. Return warnings about a poor one.
    """
    _check_form(recording, name)
    levels = _levels_dbfs(recording.audio, recording.rate_hz)
    loudest = float(levels.max())
    clipped = float(np.mean(np.abs(recording.audio) >= FULL_SCALE))
    speech_s = 0.02 * int(np.count_nonzero(levels > max(loudest - SPEECH_BELOW_LOUDEST_DB, SILENCE_DBFS)))
    if loudest < SILENCE_DBFS:
        raise PromptUnusable(f"{name}: silent, its loudest moment is at {loudest:.0f} dBFS; is it the right channel?")
    if clipped > MAX_CLIPPED_SHARE:
        raise PromptUnusable(
            f"{name}: overdriven, {clipped:.1%} of its samples are at full scale; record it again with less gain "
            "(turning this file down does not bring back what was cut off)"
        )
    if speech_s < MIN_SPEECH_S:
        raise PromptUnusable(f"{name}: only {speech_s:.2f} s of it are not silence; half a second is the least")
    warnings = []
    if clipped > WARN_CLIPPED_SHARE:
        warnings.append(f"{clipped:.2%} of the samples are at full scale; the voice may sound harsh")
    if loudest < QUIET_DBFS:
        warnings.append(f"quiet, its loudest moment is at {loudest:.0f} dBFS; noise may become part of the voice")
    if speech_s < recording.duration_s / 3:
        warnings.append(f"only {speech_s:.1f} of {recording.duration_s:.1f} s are speech; cut the silence off")
    return warnings


def _check_form(recording: ReferenceRecording, name: str) -> None:
    seconds = recording.duration_s
    if recording.rate_hz < MIN_RATE_HZ:
        raise PromptUnusable(
            f"{name}: sampled at {recording.rate_hz} Hz; it must be {MIN_RATE_HZ} Hz at least, best 24000 or "
            "48000 (a telephone recording has lost what makes the voice)"
        )
    if seconds < MIN_DURATION_S:
        raise PromptUnusable(f"{name}: {seconds:.2f} s long; it must be 1 s at least, best 5 to 10 s")
    if seconds > MAX_DURATION_S:
        raise PromptUnusable(f"{name}: longer than {MAX_DURATION_S:g} s; best are 5 to 10 s. Cut it")
    if not np.isfinite(recording.audio).all():
        raise PromptUnusable(f"{name}: holds values that are not numbers; export it again")


def _levels_dbfs(audio: Samples, rate_hz: int) -> npt.NDArray[np.float64]:
    """Level of each 20 ms; 0 dBFS is a full-scale square wave."""
    length = rate_hz // 50
    frames = audio[: len(audio) // length * length].reshape(-1, length).astype(np.float64)
    frames = frames - frames.mean()  # a constant is not sound
    power: npt.NDArray[np.float64] = np.maximum(np.mean(frames**2, axis=1), 1e-12)
    return 10.0 * np.log10(power)
