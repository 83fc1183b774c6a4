"""Enrolment: what is accepted, what is refused and in which words, and that it happens once."""

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cc_tts.errors import ClientError
from cc_tts.voices import enrolment
from cc_tts.voices.embedding_cache import EmbeddingCache
from cc_tts.voices.enrolment import (
    PromptUnusable,
    Recording,
    ReferenceFeatures,
    check_recording,
    check_transcript,
    enrol,
    read_wav,
)

pytestmark = pytest.mark.unit

Samples = npt.NDArray[np.float32]
TEXT = "Thank you for calling, how can I help?"


def speech(seconds: float, rate_hz: int = 24_000, peak: float = 0.5) -> Samples:
    """A tone whose loudness goes up and down four times a second, as syllables do."""
    at = np.arange(int(seconds * rate_hz)) / rate_hz
    wave: Samples = (peak * np.sin(2 * np.pi * 180 * at) * np.abs(np.sin(2 * np.pi * 2 * at))).astype(np.float32)
    return wave


def wav_bytes(
    audio: Samples, rate_hz: int, *, bits: int = 16, tag: int = 1, channels: int = 1, extensible: bool = False
) -> bytes:
    if tag == 3:
        body = audio.astype(f"<f{bits // 8}").tobytes()
    else:
        whole = np.clip(
            np.round(audio.astype(np.float64) * 2.0 ** (bits - 1)), -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1
        )
        body = whole.astype("<i4").view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    align = channels * bits // 8
    layout = struct.pack("<HHIIHH", 0xFFFE if extensible else tag, channels, rate_hz, rate_hz * align, align, bits)
    if extensible:
        layout += struct.pack("<HHIH", 22, bits, 0, tag) + bytes(14)
    chunks = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"fmt " + struct.pack("<I", len(layout)) + layout
    chunks += b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


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


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "anna.wav"
    path.write_bytes(wav_bytes(speech(4.5), 24_000))
    return path


def test_a_voice_is_computed_once(wav: Path, cache: EmbeddingCache) -> None:
    encoder = CountingEncoder()
    first = enrol(wav, TEXT, encoder, cache)
    second = enrol(wav, f"  {TEXT}\n", encoder, cache)
    assert encoder.num_calls == 1
    assert (first.key, first.transcript, first.duration_s) == (second.key, second.transcript, 4.5)
    for name in ("llm_tokens", "flow_tokens", "flow_mel", "embedding"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_other_audio_text_networks_or_trim_make_another_voice(wav: Path, cache: EmbeddingCache, tmp_path: Path) -> None:
    other = tmp_path / "other.wav"
    other.write_bytes(wav_bytes(speech(4.5, peak=0.4), 24_000))
    keys = {
        enrol(wav, TEXT, CountingEncoder(), cache).key,
        enrol(other, TEXT, CountingEncoder(), cache).key,
        enrol(wav, "Something else.", CountingEncoder(), cache).key,
        enrol(wav, TEXT, CountingEncoder("networks 2"), cache).key,
        enrol(wav, TEXT, CountingEncoder(), cache, trim_to_chunk=False).key,
    }
    assert len(keys) == 5


def test_the_flows_prompt_keeps_its_end_and_the_language_models_is_whole(wav: Path, cache: EmbeddingCache) -> None:
    voice = enrol(wav, TEXT, CountingEncoder(), cache)
    np.testing.assert_array_equal(voice.llm_tokens, np.arange(112))  # min(225 // 2, 113)
    np.testing.assert_array_equal(voice.flow_tokens, np.arange(24, 112))
    np.testing.assert_array_equal(voice.flow_mel[:, 0], np.arange(48, 224))
    whole = enrol(wav, TEXT, CountingEncoder(), cache, trim_to_chunk=False)
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
def test_tokens_and_mel_come_to_one_length(
    wav: Path, cache: EmbeddingCache, num_tokens: int, num_frames: int, kept: int
) -> None:
    voice = enrol(wav, None, FixedEncoder(num_tokens, num_frames), cache)
    assert (len(voice.flow_tokens), len(voice.flow_mel)) == (kept, 2 * kept)
    assert len(voice.llm_tokens) == min(num_tokens, num_frames // 2)


def test_no_tokens_at_all_are_refused(wav: Path, cache: EmbeddingCache) -> None:
    with pytest.raises(PromptUnusable, match="too short"):
        enrol(wav, TEXT, FixedEncoder(0, 60), cache)


@pytest.mark.parametrize(("bits", "tag"), [(16, 1), (24, 1), (32, 1), (32, 3), (64, 3)])
@pytest.mark.parametrize("extensible", [False, True])
def test_every_usual_kind_of_wav_is_read(bits: int, tag: int, *, extensible: bool) -> None:
    audio = speech(1.2)
    recording = read_wav(wav_bytes(audio, 24_000, bits=bits, tag=tag, extensible=extensible))
    assert recording.rate_hz == 24_000
    assert recording.duration_s == pytest.approx(1.2)
    np.testing.assert_allclose(recording.audio, audio, rtol=0, atol=2.0**-16)


def test_channels_are_averaged() -> None:
    left, right = speech(1.0), speech(1.0, peak=0.1)
    both = np.stack([left, right], axis=1).reshape(-1)
    recording = read_wav(wav_bytes(both, 24_000, channels=2))
    np.testing.assert_allclose(recording.audio, (left + right) / 2, rtol=0, atol=1e-4)


def test_a_length_unknown_to_its_writer_means_all_the_rest() -> None:
    data = bytearray(wav_bytes(speech(1.0), 24_000))
    at = data.index(b"data") + 4
    data[at : at + 4] = b"\xff\xff\xff\xff"
    assert read_wav(bytes(data)).duration_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a WAV file"),
        (b"hello, this is text", "not a WAV file; convert"),
        (b"ID3\x04" + bytes(100), "but an MP3 file"),
        (b"fLaC" + bytes(100), "but a FLAC file"),
        (b"\0\0\0\x20ftypM4A " + bytes(100), "but an MP4 file"),
        (wav_bytes(speech(2.0), 24_000)[:40_000], r"cut short, 39,\d+ of 96,000 bytes"),
        (wav_bytes(speech(2.0), 24_000)[:48], "holds no sound"),
        (wav_bytes(speech(0.0), 24_000), "holds no sound"),
        (wav_bytes(speech(2.0), 24_000, bits=8), r"format 1, 8 bit"),
        (wav_bytes(speech(2.0), 24_000, tag=7, bits=8), r"format 7, 8 bit"),
        (wav_bytes(speech(2.0), 0), "contradicts itself"),
        (wav_bytes(speech(2.0), 24_000, channels=0), "contradicts itself"),
        (b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0\x01\0\x01\0", "description is too short"),
        (b"RIFF\0\0\0\0WAVEdata\x04\0\0\0\x01\0\x01\0", "before their description"),
    ],
)
def test_what_is_no_whole_wav_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PromptUnusable, match=message):
        read_wav(data)


def test_floats_beyond_any_sound_are_refused_and_not_warned_of() -> None:
    data = bytearray(wav_bytes(speech(2.0), 24_000, bits=64, tag=3))
    data[-8:] = struct.pack("<d", 1e300)
    with pytest.raises(PromptUnusable, match="not numbers"):
        check_recording(read_wav(bytes(data)))


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
        (speech(45.0), 24_000, r"45\.0 s long; it must be 30 s at most"),
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
        check_recording(Recording(audio.astype(np.float32), rate_hz))


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
    warnings = check_recording(Recording(audio, 24_000))
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


def test_a_transcript_too_long_for_the_recording_is_remarked_on(wav: Path, cache: EmbeddingCache) -> None:
    voice = enrol(wav, TEXT * 10, CountingEncoder(), cache)
    assert "that is too fast for speech" in voice.warnings[0]
    assert enrol(wav, TEXT * 10, CountingEncoder(), cache).warnings == voice.warnings


def test_nothing_is_kept_of_what_was_refused(wav: Path, tmp_path: Path, cache: EmbeddingCache) -> None:
    path = tmp_path / "long.wav"
    path.write_bytes(wav_bytes(speech(45.0, 16_000), 16_000))
    encoder = CountingEncoder()
    with pytest.raises(ClientError, match=r"long\.wav: 45\.0 s long") as caught:
        enrol(path, TEXT, encoder, cache)
    assert (caught.value.code, caught.value.http_status) == ("prompt_unusable", 422)
    with pytest.raises(PromptUnusable, match="the transcript is empty"):
        enrol(wav, "", encoder, cache)
    with pytest.raises(PromptUnusable, match="cannot be read: No such file"):
        enrol(tmp_path / "nowhere.wav", TEXT, encoder, cache)
    assert encoder.num_calls == 0
    assert list(cache.entries()) == []


def test_the_limits_are_those_of_the_tokenizer() -> None:
    assert enrolment.MAX_DURATION_S == 30.0
    check_recording(Recording(speech(30.0, 16_000), 16_000))


def test_the_transcript_is_kept_as_the_words_that_are_heard(wav: Path, cache: EmbeddingCache) -> None:
    from cc_tts.text.normalizer import Normalizer

    def words(text: str) -> str:
        return Normalizer().normalize(text, "en-GB")

    voice = enrol(wav, "Dr. Lee pays 25 pounds.", CountingEncoder(), cache, normalize=words)
    assert voice.transcript == "Doctor Lee pays twenty-five pounds."
    assert enrol(wav, "Dr. Lee pays 25 pounds.", CountingEncoder(), cache).key != voice.key


@pytest.mark.parametrize(("num_tokens", "num_kept"), [(200, 200), (201, 0), (750, 0)])
def test_a_long_recording_is_not_given_to_the_language_model(
    wav: Path, cache: EmbeddingCache, num_tokens: int, num_kept: int
) -> None:
    encoder = FixedEncoder(num_tokens, 2 * num_tokens)
    voice = enrol(wav, TEXT, encoder, cache)
    assert len(voice.llm_tokens) == num_kept
    assert ("3 to 8 s" in "".join(voice.warnings)) == (num_kept == 0)
    assert enrol(wav, None, encoder, cache).warnings == ()
