"""Enrolment: what is accepted, what is refused and in which words, and that it happens once."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cc_tts.errors import ClientError
from cc_tts.voices import enrolment
from cc_tts.voices.embedding_cache import EmbeddingCache, EnrolledVoice
from cc_tts.voices.enrolment import (
    PromptUnusable,
    ReferenceFeatures,
    ReferenceRecording,
    check_recording,
    check_transcript,
    enrol,
)

pytestmark = pytest.mark.unit

Samples = npt.NDArray[np.float32]
TEXT = "Thank you for calling, how can I help?"


def speech(seconds: float, rate_hz: int = 24_000, peak: float = 0.5) -> Samples:
    """A tone whose loudness goes up and down four times a second, as syllables do."""
    at = np.arange(int(seconds * rate_hz)) / rate_hz
    wave: Samples = (peak * np.sin(2 * np.pi * 180 * at) * np.abs(np.sin(2 * np.pi * 2 * at))).astype(np.float32)
    return wave


class CountingEncoder:
    """Stands in for the networks."""

    def __init__(self, fingerprint: str = "networks 1") -> None:
        self.fingerprint = fingerprint
        self.num_calls = 0

    def encode(self, audio: Samples, rate_hz: int) -> ReferenceFeatures:
        self.num_calls += 1
        seconds = len(audio) / rate_hz
        tokens = np.arange(int(seconds * 25) + 1, dtype=np.int32)
        mel = np.repeat(np.arange(int(seconds * 50), dtype=np.float32)[:, None], 80, axis=1)
        return ReferenceFeatures(tokens, mel, np.full(192, audio[1000], dtype=np.float32))


class FixedEncoder:
    """Makes the same features of any recording."""

    fingerprint = "networks"

    def __init__(self, num_tokens: int, num_frames: int) -> None:
        tokens, mel = np.zeros(num_tokens, np.int32), np.zeros((num_frames, 80), np.float32)
        self._features = ReferenceFeatures(tokens, mel, np.zeros(192, np.float32))

    def encode(self, audio: Samples, rate_hz: int) -> ReferenceFeatures:
        return self._features


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    pytest.importorskip("safetensors")
    return EmbeddingCache(tmp_path / "voices")


ANNA = ReferenceRecording(speech(4.5), 24_000, b"anna")


def made(
    encoder: CountingEncoder | FixedEncoder,
    words: str | None = TEXT,
    recording: ReferenceRecording = ANNA,
    **options: Any,
) -> EnrolledVoice:
    return enrol(recording, words, encoder, name="anna.wav", **options)


def test_a_voice_is_computed_once(cache: EmbeddingCache) -> None:
    encoder = CountingEncoder()
    first, second = (made(encoder, cache=cache) for _ in range(2))
    assert encoder.num_calls == 1
    assert (first.key, first.transcript, first.duration_s) == (second.key, second.transcript, 4.5)
    for name in ("llm_tokens", "flow_tokens", "flow_mel", "embedding"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_other_audio_text_networks_or_trim_make_another_voice() -> None:
    keys = {
        made(CountingEncoder()).key,
        made(CountingEncoder(), recording=ReferenceRecording(ANNA.audio, 24_000, b"another file")).key,
        made(CountingEncoder(), "Something else.").key,
        made(CountingEncoder("networks 2")).key,
        made(CountingEncoder(), trim_to_chunk=False).key,
    }
    assert len(keys) == 5


def test_the_flows_prompt_keeps_its_end_and_the_language_models_is_whole() -> None:
    voice = made(CountingEncoder())
    np.testing.assert_array_equal(voice.llm_tokens, np.arange(112))  # min(225 // 2, 113)
    np.testing.assert_array_equal(voice.flow_tokens, np.arange(24, 112))
    np.testing.assert_array_equal(voice.flow_mel[:, 0], np.arange(48, 224))
    whole = made(CountingEncoder(), trim_to_chunk=False)
    np.testing.assert_array_equal(whole.flow_tokens, whole.llm_tokens)
    np.testing.assert_array_equal(whole.flow_mel[:, 0], np.arange(224))


@pytest.mark.parametrize(
    ("num_tokens", "num_frames", "kept"),
    [
        (9, 60, 9),
        (13, 60, 13),
        (24, 60, 13),
        (25, 60, 13),
        (49, 99, 38),
        (80, 101, 38),
        (250, 500, 188),
        (749, 1498, 188),
    ],
)
def test_tokens_and_mel_come_to_one_length(num_tokens: int, num_frames: int, kept: int) -> None:
    voice = made(FixedEncoder(num_tokens, num_frames), None)
    assert (len(voice.flow_tokens), len(voice.flow_mel)) == (kept, 2 * kept)
    assert len(voice.llm_tokens) == min(num_tokens, num_frames // 2)


def test_no_tokens_at_all_are_refused() -> None:
    with pytest.raises(PromptUnusable, match="too short"):
        made(FixedEncoder(0, 60))


def silence(seconds: float) -> Samples:
    return np.zeros(int(seconds * 24_000), dtype=np.float32)


def with_clicks(number: int) -> Samples:
    audio = speech(5.0)
    audio[:: len(audio) // number] = 1.0
    return audio


def with_a_hole(value: float) -> Samples:
    audio = speech(3.0)
    audio[100] = value
    return audio


@pytest.mark.parametrize(
    ("audio", "rate_hz", "message"),
    [
        (speech(45.0), 24_000, "longer than 30 s"),
        (speech(0.9), 24_000, r"0\.90 s long; it must be 1 s at least"),
        (speech(6.0, 8000), 8000, r"sampled at 8000 Hz.*telephone"),
        (speech(2.0, 11_025), 11_025, "sampled at 11025 Hz"),
        (silence(3.0), 24_000, r"silent, its loudest moment is at -120 dBFS"),
        (speech(3.0, peak=0.004), 24_000, "silent"),
        (silence(3.0) + np.float32(0.4), 24_000, "silent"),  # a constant is no sound
        (np.clip(speech(3.0, peak=4.0), -1, 1), 24_000, r"overdriven, \d+\.\d% of its samples"),
        (speech(3.0, peak=3.0), 24_000, "overdriven"),  # a float file beyond full scale
        (np.concatenate([speech(0.3), silence(3.0)]), 24_000, r"only 0\.\d+ s of it are not silence"),
        (with_a_hole(float("nan")), 24_000, "not numbers"),
        (with_a_hole(float("inf")), 24_000, "not numbers"),
    ],
)
def test_recordings_that_no_voice_can_come_of_are_refused(audio: Samples, rate_hz: int, message: str) -> None:
    with pytest.raises(PromptUnusable, match=message):
        check_recording(ReferenceRecording(audio.astype(np.float32), rate_hz))


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (speech(5.0), None),
        (with_clicks(200), "full scale; the voice may sound harsh"),
        (speech(5.0, peak=0.02), "quiet, its loudest moment"),
        (np.concatenate([speech(2.0), silence(8.0)]), "cut the silence off"),
    ],
)
def test_poor_recordings_pass_with_a_warning(audio: Samples, message: str | None) -> None:
    warnings = check_recording(ReferenceRecording(audio, 24_000))
    assert len(warnings) == (message is not None)
    assert message is None or message in warnings[0]


@pytest.mark.parametrize(
    ("transcript", "message"), [("", "empty"), (" \n\t", "empty"), ("...!", "no words, only signs")]
)
def test_transcripts_that_say_nothing_are_refused(transcript: str, message: str) -> None:
    with pytest.raises(PromptUnusable, match=message):
        check_transcript(transcript, 5.0)


@pytest.mark.parametrize("transcript", [TEXT, "感谢您的来电。", "12"])
def test_transcripts_in_any_script_pass(transcript: str) -> None:
    assert check_transcript(transcript, 3.0) == []


def test_a_transcript_too_long_for_the_recording_is_remarked_on(cache: EmbeddingCache) -> None:
    voices = [made(CountingEncoder(), TEXT * 10, cache=cache) for _ in range(2)]
    assert "that is too fast for speech" in voices[0].warnings[0]
    assert voices[1].warnings == voices[0].warnings


def test_nothing_is_kept_of_what_was_refused(cache: EmbeddingCache) -> None:
    encoder = CountingEncoder()
    with pytest.raises(ClientError, match=r"anna\.wav: longer than 30 s") as caught:
        made(encoder, recording=ReferenceRecording(speech(45.0, 16_000), 16_000), cache=cache)
    assert (caught.value.code, caught.value.http_status) == ("prompt_unusable", 422)
    with pytest.raises(PromptUnusable, match="the transcript is empty"):
        made(encoder, "", cache=cache)
    assert encoder.num_calls == 0
    assert list(cache.entries()) == []


def test_the_limits_are_those_of_the_tokenizer() -> None:
    assert enrolment.MAX_DURATION_S == 30.0
    check_recording(ReferenceRecording(speech(30.0, 16_000), 16_000))


@pytest.mark.parametrize(("num_tokens", "num_kept"), [(200, 200), (201, 0), (750, 0)])
def test_a_long_recording_is_not_given_to_the_language_model(num_tokens: int, num_kept: int) -> None:
    encoder = FixedEncoder(num_tokens, 2 * num_tokens)
    voice = made(encoder)
    assert len(voice.llm_tokens) == num_kept
    assert ("3 to 8 s" in "".join(voice.warnings)) == (num_kept == 0)
    assert made(encoder, None).warnings == ()
