"""The outline of WAV files: both encodings, one and two sides, and files that are none."""

from pathlib import Path

import numpy as np
import pytest

from cc_tts import wav_file
from cc_tts.callreport.waveform import MAX_PEAKS, waveforms
from cc_tts.recorder.info import RecordingInfo
from cc_tts.recorder.wav import WavFormat

pytestmark = pytest.mark.unit

LOUD, QUIET = 16_384, 1_024


def recording(path: Path, encoding: str, channels: str, seconds: float = 1.0) -> Path:
    """Write a recording whose left side is loud in its first half, and whose right side is quiet."""
    wav = WavFormat.of(RecordingInfo(recording_id="r", call_id="c", encoding=encoding, channels=channels))  # type: ignore[arg-type]
    num = round(8000 * seconds)
    left = np.zeros(num, np.int16)
    left[: num // 2] = LOUD
    right = np.full(num, QUIET, np.int16)
    samples = np.stack([left, right], axis=1).reshape(-1) if channels == "dual" else left
    data = wav.encode(samples)
    path.write_bytes(wav.header(len(data)) + data)
    return path


@pytest.mark.parametrize("encoding", ["ulaw", "pcm16"])
def test_each_side_of_a_recording_has_its_own(tmp_path: Path, encoding: str) -> None:
    file = recording(tmp_path / "a.wav", encoding, "dual")
    found = waveforms(file, "caller", "we", begin_s=2.5)
    assert [(each.name, each.begin_s) for each in found] == [("caller", 2.5), ("we", 2.5)]
    left, right = (each.peaks for each in found)
    assert left[0] == pytest.approx(0.5, rel=0.05)
    assert left[-1] == pytest.approx(0.0, abs=0.001)
    assert right[0] == right[-1] == pytest.approx(1 / 32, rel=0.05)


def test_one_side_and_a_file_of_another_program(tmp_path: Path) -> None:
    assert len(waveforms(recording(tmp_path / "a.wav", "ulaw", "mono"), "a", "b", begin_s=0.0)) == 1
    wav_file.write(tmp_path / "b.wav", bytes(8000), rate_hz=8000)
    (silent,) = waveforms(tmp_path / "b.wav", "a", begin_s=0.0)
    assert set(silent.peaks) == {0.0}


def test_a_long_recording_has_no_more_pieces_than_a_picture_has_room_for(tmp_path: Path) -> None:
    (shape,) = waveforms(recording(tmp_path / "a.wav", "ulaw", "mono", seconds=120.0), "a", begin_s=0.0)
    assert len(shape.peaks) <= MAX_PEAKS
    assert len(shape.peaks) * shape.step_s == pytest.approx(120.0, abs=0.2)


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEdata\xff\xff\xff\x7f", b"x" * 99]
)
def test_what_is_no_audio_has_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    assert not waveforms(tmp_path / "a.wav", "a", begin_s=0.0)


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", "ulaw", "mono")
    path.write_bytes(path.read_bytes()[:4000])
    (shape,) = waveforms(path, "a", begin_s=0.0)
    assert shape.peaks[0] == pytest.approx(0.5, rel=0.05)
