"""The label of synthetic WAV files is found by those who read RIFF, and in nobody's way."""

import io
import struct
import wave
from pathlib import Path

import msgspec
import pytest

from cc_tts import wav_file
from cc_tts.media import synthetic_label

pytestmark = pytest.mark.unit

PCM = bytes(range(200)) * 4


def chunks_of(riff: bytes) -> dict[bytes, bytes]:
    """The chunks of a file, as a reader of RIFF walks through them."""
    assert riff[:4] == b"RIFF"
    assert struct.unpack("<I", riff[4:8]) == (len(riff) - 8,)
    found, at = {}, 12
    while at < len(riff):
        name, size = struct.unpack("<4sI", riff[at : at + 8])
        found[name] = riff[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    return found


@pytest.mark.parametrize("speech_id", ["u", "u2"])  # of odd and of even length
def test_a_file_has_both_labels_and_its_samples(speech_id: str) -> None:
    file = wav_file.encoded(PCM, rate_hz=8000, chunks=synthetic_label.wav_chunks(speech_id, "Bank 统一"))
    chunks = chunks_of(file)
    assert list(chunks) == [b"fmt ", b"AIGC", b"LIST", b"data"]
    label = msgspec.json.decode(chunks[b"AIGC"])["AIGC"]
    assert (label["Label"], label["ContentProducer"], label["ProduceID"]) == ("1", "Bank 统一", speech_id)
    assert b"ICMT" in chunks[b"LIST"]
    assert synthetic_label.COMMENT.encode() in chunks[b"LIST"]
    assert chunks[b"data"] == PCM
    with wave.open(io.BytesIO(file)) as read:
        assert (read.getframerate(), read.readframes(1000)) == (8000, PCM)


def test_a_file_without_a_label_has_none(tmp_path: Path) -> None:
    wav_file.write(tmp_path / "x.wav", PCM, rate_hz=8000)
    assert list(chunks_of((tmp_path / "x.wav").read_bytes())) == [b"fmt ", b"data"]
    assert wav_file.read(tmp_path / "x.wav", rate_hz=8000, max_s=1) == PCM


def test_without_a_name_the_producer_is_this_program() -> None:
    chunks = chunks_of(wav_file.encoded(b"", rate_hz=8000, chunks=synthetic_label.wav_chunks("u")))
    assert msgspec.json.decode(chunks[b"AIGC"])["AIGC"]["ContentProducer"] == "cc-tts"
