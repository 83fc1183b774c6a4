"""Audio files become PCM of the line."""

import io
import struct

import numpy as np
import pytest
import soundfile

from cc_tts.errors import AudioUnreadable
from cc_tts.speech.staged.audio_file import amplified, decode

pytestmark = pytest.mark.unit


def sine(rate_hz: int, seconds: float = 1.0) -> np.ndarray:
    return 0.25 * np.sin(np.arange(round(seconds * rate_hz)) * 2 * np.pi * 440 / rate_hz)


def file_of(samples: np.ndarray, rate_hz: int, kind: str, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=kind, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "subtype", "rate_hz"),
    [
        ("WAV", "PCM_16", 44_100),
        ("WAV", "ULAW", 8000),
        ("WAV", "FLOAT", 16_000),
        ("FLAC", None, 48_000),
        ("MP3", None, 44_100),
        ("OGG", "VORBIS", 22_050),
    ],
)
def test_every_format_is_heard_at_the_rate_of_the_line(kind: str, subtype: str | None, rate_hz: int) -> None:
    stereo = np.stack([sine(rate_hz)] * 2, axis=1)
    pcm = np.frombuffer(decode(file_of(stereo, rate_hz, kind, subtype), rate_hz=8000, max_s=10), "<i2")
    assert len(pcm) == pytest.approx(8000, abs=800)
    inside = pcm[2000:6000].astype(float)
    spectrum = np.abs(np.fft.rfft(inside))
    assert np.argmax(spectrum) * 8000 / len(inside) == pytest.approx(440, abs=4)
    assert np.sqrt(np.mean(inside**2)) == pytest.approx(0.25 * 32767 / np.sqrt(2), rel=0.05)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF" + bytes(100),
        b"no audio",
        file_of(sine(8000, 3), 8000, "WAV"),
        file_of(np.zeros((100, 9)), 8000, "WAV"),
        file_of(np.zeros(0), 8000, "WAV"),
    ],
    ids=["empty", "a header alone", "text", "too long", "nine channels", "no samples"],
)
def test_what_is_not_read(data: bytes) -> None:
    with pytest.raises(AudioUnreadable):
        decode(data, rate_hz=8000, max_s=2)


@pytest.mark.parametrize("num_silent", [0, 1])
def test_channels_that_cancel_each_other_are_heard(num_silent: int) -> None:
    sound, silence = sine(8000), np.zeros(8000)
    file = file_of(np.stack([silence] * num_silent + [sound, -sound], axis=1), 8000, "WAV")
    pcm = np.frombuffer(decode(file, rate_hz=8000, max_s=10), "<i2")
    assert np.abs(pcm - sound * 32767).max() < 3


def test_one_channel_of_many_is_mixed() -> None:
    file = file_of(np.stack([sine(8000)] + [np.zeros(8000)] * 7, axis=1), 8000, "WAV")
    assert np.abs(np.frombuffer(decode(file, rate_hz=8000, max_s=10), "<i2")).max() == pytest.approx(
        0.25 * 32767 / 8, abs=2
    )


@pytest.mark.parametrize(
    ("promised", "kept", "is_read"),
    [
        (16_000, 16_000, True),
        (16_000, 3000, False),
        (16_000, 15_000, True),
        (16_036, 16_000, True),
        (0xFFFF_FFFF, 3000, True),
        (0x7FFF_F000, 3000, True),
    ],
    ids=["whole", "cut", "a little short", "a sloppy header", "ffmpeg into a pipe", "sox into a pipe"],
)
def test_a_wav_file_that_is_cut_short_is_refused(promised: int, kept: int, *, is_read: bool) -> None:
    file = file_of(sine(8000), 8000, "WAV")
    start = file.index(b"data") + 8
    file = file[: start - 4] + struct.pack("<I", promised) + file[start : start + kept]
    if is_read:
        assert len(decode(file, rate_hz=8000, max_s=10)) == kept
        return
    with pytest.raises(AudioUnreadable, match=r"cut short: 0\.2 s of 1\.0 s"):
        decode(file, rate_hz=8000, max_s=10)


def test_a_gain_clips_and_none_changes_nothing() -> None:
    pcm = np.array([100, -100, 30_000, -30_000], "<i2").tobytes()
    assert amplified(pcm, 0.0) == pcm
    assert np.frombuffer(amplified(pcm, 20.0), "<i2").tolist() == [1000, -1000, 32767, -32768]
