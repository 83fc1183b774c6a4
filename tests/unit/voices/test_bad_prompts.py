"""What ``docs/bad-input.md`` promises about the recording and the transcript of a voice."""

import io
import wave
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest

from cc_tts.voices.embedding_cache import EmbeddingCache
from cc_tts.voices.enrolment import PromptUnusable, ReferenceFeatures, enrol

pytestmark = pytest.mark.unit

RATE_HZ: Final = 16_000
TEXT: Final = "Thank you for calling, how can I help?"

Samples = npt.NDArray[np.float32]


class NoEncoder:
    """What is refused never gets as far as the networks."""

    fingerprint = "networks"

    def encode(self, audio: Samples, rate_hz: int) -> ReferenceFeatures:
        pytest.fail(f"{len(audio) / rate_hz} s were encoded")


def recording(seconds: float, peak: float) -> bytes:
    """A tone that swells four times a second, as syllables do."""
    at = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    tone = peak * np.sin(2 * np.pi * 180 * at) * np.abs(np.sin(2 * np.pi * 2 * at))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE_HZ)
        out.writeframes(np.round(tone * 32767).astype("<i2").tobytes())
    return file.getvalue()


GOOD: Final = recording(5.0, 0.5)


@pytest.mark.parametrize(
    ("data", "transcript", "words"),
    [
        (recording(45.0, 0.5), TEXT, r"anna\.wav: 45\.0 s long; it must be 30 s at most"),
        (recording(5.0, 0.0), TEXT, r"anna\.wav: silent"),
        (GOOD, "", "the transcript is empty"),
        (GOOD, " \n", "the transcript is empty"),
        (GOOD, "?!", "the transcript holds no words"),
        (GOOD[:-1000], TEXT, r"anna\.wav: cut short"),
        (b"ID3\x04" + bytes(100), TEXT, "not a WAV file but an MP3"),
        (b"", TEXT, "not a WAV file"),
    ],
)
def test_a_voice_that_cannot_be_made_is_refused_and_nothing_is_kept(
    tmp_path: Path, data: bytes, transcript: str, words: str
) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "anna.wav"
    path.write_bytes(data)
    cache = EmbeddingCache(tmp_path / "voices")
    with pytest.raises(PromptUnusable, match=words) as caught:
        enrol(path, transcript, NoEncoder(), cache)
    assert (caught.value.code, caught.value.http_status) == ("prompt_unusable", 422)
    assert list(cache.entries()) == []
