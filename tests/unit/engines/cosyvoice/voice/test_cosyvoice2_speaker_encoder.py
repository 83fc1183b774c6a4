"""The ONNX graphs: inputs by position, form checked, outputs checked, and the whole encoder in an enrolment."""

import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("safetensors")

import onnxruntime as runtime

from cc_tts.engines.cosyvoice.model.checkpoint import ModelError, ModelFileDamaged, ModelFileMissing
from cc_tts.engines.cosyvoice.voice import encoder as speaker_encoder
from cc_tts.engines.cosyvoice.voice import features
from cc_tts.engines.cosyvoice.voice.encoder import (
    CosyVoiceReferenceEncoder,
    EncoderFailed,
    SpeakerEncoder,
    SpeechTokenizer,
    quick_fingerprint,
)
from cc_tts.engines.enrolment.recording import read_recording
from cc_tts.voices.embedding_cache import EmbeddingCache
from cc_tts.voices.enrolment import enrol
from lab.cosyvoice import tiny_model

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("graphs")
    tiny_model.write_campplus(directory / "campplus.onnx")
    tiny_model.write_speech_tokenizer(directory / "speech_tokenizer_v2.onnx")
    return directory


def chirp(seconds: float, rate_hz: int = 16_000) -> npt.NDArray[np.float32]:
    at = np.arange(int(seconds * rate_hz)) / rate_hz
    samples: npt.NDArray[np.float32] = (0.3 * np.sin(2 * np.pi * (200 + 400 * at) * at)).astype(np.float32)
    return samples


def test_the_embedding_is_of_the_filter_bank_less_its_mean(graphs: Path) -> None:
    embedding = SpeakerEncoder(graphs / "campplus.onnx").embed(chirp(2.0))
    fbank = features.kaldi_fbank(chirp(2.0))
    expected = (fbank - fbank.mean(axis=0)).astype(np.float32).var(axis=0) @ tiny_model.random_values(
        "campplus.mix", (80, 192)
    )
    assert embedding.shape == (192,)
    assert embedding.dtype == np.float32
    np.testing.assert_allclose(embedding, expected, rtol=1e-3, atol=1e-3)


def test_there_are_25_tokens_a_second(graphs: Path) -> None:
    tokens = SpeechTokenizer(graphs / "speech_tokenizer_v2.onnx").tokens(chirp(3.0))
    assert tokens.shape == (75,)
    assert tokens.dtype == np.int32
    assert len(set(tokens.tolist())) > 10


def test_tokens_outside_the_codebook_are_refused(graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker_encoder, "NUM_CODES", 10)
    tokenizer = SpeechTokenizer(graphs / "speech_tokenizer_v2.onnx")
    with pytest.raises(EncoderFailed, match="wanted 0 to 9"):
        tokenizer.tokens(chirp(2.0))


def test_graphs_run_on_one_thread_of_the_cpu(graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    real = runtime.InferenceSession

    def session(path: str, sess_options: Any, providers: list[str]) -> Any:
        seen.update(threads=(sess_options.intra_op_num_threads, sess_options.inter_op_num_threads), providers=providers)
        return real(path, sess_options=sess_options, providers=providers)

    monkeypatch.setattr(runtime, "InferenceSession", session)
    SpeakerEncoder(graphs / "campplus.onnx")
    assert seen == {"threads": (1, 1), "providers": ["CPUExecutionProvider"]}


def test_exchanged_graphs_are_noticed(graphs: Path) -> None:
    with pytest.raises(ModelError, match="a graph with inputs"):
        SpeakerEncoder(graphs / "speech_tokenizer_v2.onnx")
    with pytest.raises(ModelError, match="a graph with inputs"):
        SpeechTokenizer(graphs / "campplus.onnx")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cut short"),
        (b"\x08\x08not a graph", "not a whole ONNX graph"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"", "empty"),
    ],
)
def test_damaged_graphs_are_refused(graphs: Path, tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "campplus.onnx"
    path.write_bytes((graphs / "campplus.onnx").read_bytes()[:30_000] if content is None else content)
    with pytest.raises(ModelFileDamaged, match=message if content is not None else "not a whole ONNX graph"):
        SpeakerEncoder(path)
    with pytest.raises(ModelFileMissing):
        SpeakerEncoder(tmp_path / "nowhere.onnx")


def test_without_onnxruntime_the_message_says_what_to_install(graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"gpu\.lock"):
        SpeakerEncoder(graphs / "campplus.onnx")


def test_every_reader_gets_audio_at_its_own_rate(graphs: Path) -> None:
    encoder = CosyVoiceReferenceEncoder(graphs)
    found = encoder.encode(chirp(2.0, 48_000), 48_000)
    assert found.tokens.shape == (50,)
    assert found.mel.shape == (100, 80)
    at_16k = features.resample(chirp(2.0, 48_000), 48_000, 16_000)
    speaker = SpeakerEncoder(graphs / "campplus.onnx")
    np.testing.assert_array_equal(found.embedding, speaker.embed(at_16k))
    mel = features.reference_mel(features.resample(chirp(2.0, 48_000), 48_000, 24_000))
    np.testing.assert_array_equal(found.mel, mel)


def test_the_fingerprint_follows_the_files(graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = CosyVoiceReferenceEncoder(graphs).fingerprint
    assert fingerprint == CosyVoiceReferenceEncoder(graphs).fingerprint
    for name in ("campplus.onnx", "speech_tokenizer_v2.onnx"):
        (tmp_path / name).write_bytes((graphs / name).read_bytes())
    assert CosyVoiceReferenceEncoder(tmp_path).fingerprint == fingerprint
    changed = bytearray((graphs / "campplus.onnx").read_bytes())
    changed[len(changed) // 2] ^= 1
    (tmp_path / "campplus.onnx").write_bytes(changed)
    assert CosyVoiceReferenceEncoder(tmp_path).fingerprint != fingerprint
    monkeypatch.setattr(features, "VERSION", 2)
    assert CosyVoiceReferenceEncoder(graphs).fingerprint != fingerprint


def test_a_big_file_is_sampled_at_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "big"
    content = bytearray(6 << 20)
    path.write_bytes(content)
    seen = {quick_fingerprint(path)}
    for at in (0, len(content) - 1):
        content[at] = 1
        path.write_bytes(content)
        seen.add(quick_fingerprint(path))
    path.write_bytes(content + b"\0")
    seen.add(quick_fingerprint(path))
    assert len(seen) == 4


def test_a_voice_is_enrolled_from_end_to_end(graphs: Path, tmp_path: Path) -> None:
    path = tmp_path / "anna.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes((chirp(3.3, 24_000) * 32767).astype("<i2").tobytes())
    encoder, cache = CosyVoiceReferenceEncoder(graphs), EmbeddingCache(tmp_path / "cache")
    recording = read_recording(path.read_bytes())
    voice = enrol(recording, "hello and welcome", encoder, name="anna", cache=cache)
    assert (len(voice.llm_tokens), len(voice.flow_tokens), voice.flow_mel.shape) == (82, 63, (126, 80))
    again = enrol(recording, "hello and welcome", encoder, name="anna", cache=cache)
    np.testing.assert_array_equal(again.flow_mel, voice.flow_mel)
    np.testing.assert_array_equal(again.embedding, voice.embedding)
