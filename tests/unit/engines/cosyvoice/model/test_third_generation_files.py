"""A directory of the third generation: recognised by its files, checked, fetched, enrolled with; and its published sizes."""

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

import torch

from cc_tts import wav_file
from cc_tts.config.sections.log import LogConfig
from cc_tts.engines.cosyvoice.model import loader, sizes
from cc_tts.engines.cosyvoice.model.checkpoint import WrongModelVersion
from cc_tts.engines.cosyvoice.model.directory import add_model_commands, check_model_dir, needed_files
from cc_tts.engines.cosyvoice.model.loader import (
    check_weights,
    generation_of_directory,
    new_vocoder,
    stored_shapes,
)
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmInput, SpeechIds, Table, text_inputs
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.sizes import CAUSAL, DitConfig, FlowConfig, LmConfig, LookaheadConfig
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.prefill import Bistream
from cc_tts.engines.cosyvoice.runners.kv_cache import FlowArena
from cc_tts.engines.cosyvoice.voice import features
from cc_tts.engines.cosyvoice.voice.encoder import CosyVoiceReferenceEncoder
from cc_tts.engines.cosyvoice.voice.speakers import enrolled_speakers, generation_of_fingerprint
from cc_tts.engines.cosyvoice.worker_engine import make_loader
from cc_tts.engines.enrolment.recording import read_recording
from cc_tts.engines.worker.messages import WorkerSettings
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.enrolment import enrol
from cc_tts.voices.library import VoiceLibrary, VoiceRecord
from lab.cosyvoice.tiny_model import make_tiny_model
from tests.support.golden import read_json
from tests.support.neural_settings import neural_settings

pytestmark = pytest.mark.unit

PUBLISHED: Final = FlowConfig(encoder=LookaheadConfig(), estimator=DitConfig())


@pytest.fixture(scope="module")
def third(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("third"), 3)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("second"))


def test_a_directory_is_known_by_its_description_and_without_it_by_its_tensors(third: Path, tmp_path: Path) -> None:
    assert generation_of_directory(third) == 3
    nameless = shutil.copytree(third, tmp_path / "nameless")
    (nameless / "cosyvoice3.yaml").unlink()
    assert generation_of_directory(nameless) == 3
    config = check_weights(nameless)[0]["llm"].config
    assert isinstance(config, LmConfig)
    assert config.speech_ids == SpeechIds(243, 3)


@pytest.mark.parametrize("name", ["llm.pt", "flow.pt", "hift.pt"])
def test_a_file_of_the_other_model_is_named(third: Path, second: Path, tmp_path: Path, name: str) -> None:
    mixed = shutil.copytree(third, tmp_path / "mixed")
    shutil.copy(second / name, mixed)
    with pytest.raises(WrongModelVersion, match=rf"two models: .*{name} is of CosyVoice 2"):
        check_weights(mixed)
    report = check_model_dir(mixed)
    assert report.exit_code == 1
    assert any(f"{name} is of CosyVoice 2" in fault for fault in report.faults)


def test_the_check_looks_at_the_files_of_its_model(third: Path) -> None:
    report = check_model_dir(third)
    assert report.exit_code == 0, report
    assert {file.name for file in report.files} >= {"cosyvoice3.yaml", "speech_tokenizer_v3.onnx", "llm.rl.pt"}
    assert not any("v2" in file.name for file in report.files)


def test_a_download_of_the_model_by_name(
    third: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import argparse

    asked: dict[str, Any] = {}

    def snapshot_download(model_id: str, *, local_dir: str, allow_patterns: list[str]) -> None:
        asked.update(model_id=model_id, allow_patterns=allow_patterns)
        shutil.copytree(third, local_dir, dirs_exist_ok=True)

    site = ModuleType("modelscope")
    site.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "modelscope", site)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parser = argparse.ArgumentParser()
    add_model_commands(parser, parents=())
    options = parser.parse_args(["download", "--model", "cosyvoice3"])
    assert options.run(options, None) == 0
    assert asked == {"model_id": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512", "allow_patterns": list(needed_files(3))}
    assert f"{tmp_path}/cc-tts/models/Fun-CosyVoice3-0.5B-2512\n" in capsys.readouterr().out


def enrolled(wav: Path, directory: Path) -> EnrolledVoice:
    recording = read_recording(wav.read_bytes())
    return enrol(recording, "hello", CosyVoiceReferenceEncoder(directory), name=wav.name)


def test_a_voice_is_of_the_model_that_it_was_enrolled_with(third: Path, second: Path, tmp_path: Path) -> None:
    """Its mel goes up to 12 kHz, and a voice of the other model is left out with the reason."""
    rate_hz, seconds = 24_000, 2.0
    tone = np.sin(np.arange(int(rate_hz * seconds)) * 2 * np.pi * 300 / rate_hz) * 0.3
    tone[: rate_hz // 2] *= 0.01
    wav = tmp_path / "tone.wav"
    wav_file.write(wav, (tone * 32767).astype("<i2").tobytes(), rate_hz=rate_hz)
    library = VoiceLibrary(tmp_path / "voices")
    for directory, voice_id in ((second, "two"), (third, "three")):
        voice = enrolled(wav, directory)
        library.add(VoiceRecord(id=voice_id, language="en", mode="zero_shot", key=voice.key), voice)
    faults: list[str] = []
    assert set(enrolled_speakers(library, 3, on_fault=faults.append)) == {"three"}
    assert set(enrolled_speakers(library, 2, on_fault=faults.append)) == {"two"}
    assert "'two' is left out: it was enrolled for CosyVoice 2, and this model is CosyVoice 3" in faults[0]
    assert "'three' is left out: it was enrolled for CosyVoice 3, and this model is CosyVoice 2" in faults[1]
    noise = np.random.default_rng(1).normal(0, 0.1, rate_hz).astype(np.float32)
    tops = [features.reference_mel(noise, generation)[:, -1].mean() for generation in (2, 3)]
    assert tops[0] != tops[1]


def test_a_voice_that_is_left_out_is_told_by_the_engine(third: Path, second: Path, tmp_path: Path) -> None:
    """`cc-tts check` and `cc-tts voices` print what the engine tells."""
    samples = (np.random.default_rng(1).normal(0, 0.1, 48_000) * 32767).astype("<i2")
    wav_file.write(tmp_path / "noise.wav", samples.tobytes(), rate_hz=24_000)
    library = VoiceLibrary(tmp_path / "voices")
    for directory, voice_id in ((second, "two"), (third, "three")):
        voice = enrolled(tmp_path / "noise.wav", directory)
        library.add(VoiceRecord(id=voice_id, language="en", mode="zero_shot", key=voice.key), voice)
    (library.folder / "odd.voice.json").write_text("{")
    tts = neural_settings(third, voices_dir=str(library.folder))
    made = make_loader(WorkerSettings(device="cpu", purpose="check", tts=tts, log=LogConfig()))
    assert made.load(lambda _: None) is None
    told = made.description
    assert [each.id for each in told.voices] == ["three"]
    assert ["odd.voice.json" in told.faults[0], "'two' is left out" in told.faults[1]] == [True, True]
    library.remove("two")
    (library.folder / "odd.voice.json").unlink()
    made.refresh(lambda: None)
    assert made.description.faults == ()


def test_where_both_descriptions_are_a_voice_is_enrolled_for_the_model_that_speaks(
    third: Path, second: Path, tmp_path: Path
) -> None:
    """The third model was fetched into the folder of the second one."""
    both = tmp_path / "both"
    shutil.copytree(second, both)
    shutil.copytree(third, both, dirs_exist_ok=True)
    assert generation_of_directory(both) == 3
    assert generation_of_fingerprint(CosyVoiceReferenceEncoder(both).fingerprint) == 3


def test_the_flow_is_float32_where_a_device_would_take_float16(third: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless float16 is asked for; bfloat16 is trusted."""
    for half, by_itself in ((torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)):
        monkeypatch.setattr(loader, "dtype_for", lambda _device, half=half: half)
        for dtype, expected in ((None, by_itself), (half, half)):
            model = loader.load_model(third, dtype=dtype)
            assert (model.lm.dtype, model.flow.dtype) == (half, expected)
            assert {each.dtype for each in model.vocoder.f0_predictor.parameters()} == {torch.float64}
            assert model.vocoder.conv_pre.weight.dtype == torch.float32


def test_special_tokens_follow_on_the_vocabulary(third: Path) -> None:
    tokenizer = TextTokenizer.from_directory(third / "CosyVoice-BlankEN", 3)
    num_words = len(json.loads((third / "CosyVoice-BlankEN" / "vocab.json").read_text(encoding="utf-8")))
    published = {"<|endofsystem|>": 151_663, "[AA]": 151_664, "[ZH]": 151_747, "[a]": 151_748, "[ǜ]": 151_923}
    ids = {token: tokenizer.encode_written(tokenizer.written(token)) for token in published}
    assert {token: found[0] - num_words + 151_643 for token, found in ids.items()} == published
    assert tokenizer.num_tokens == num_words + 281


def test_an_instruction_comes_before_the_groups_of_a_text_in_pieces() -> None:
    """It waits for five text tokens, unlike the reference (v3 §3.5)."""
    ids = SpeechIds(6561, 3)
    bistream = Bistream((7, 8, 9), speech_ids=ids)
    bistream.add_text([1, 2, 3, 4])
    assert bistream.next_prefill() is None
    bistream.add_text([5, 6])
    prefill = bistream.next_prefill()
    assert prefill is not None
    assert prefill.inputs == [LmInput(Table.SPEECH, 6561), *text_inputs([7, 8, 9, 1, 2, 3, 4, 5])]
    assert bistream.take(ids.fill) is None
    bistream.end_text()
    prefill = bistream.next_prefill()
    assert prefill is not None
    assert prefill.inputs == [*text_inputs([6]), LmInput(Table.SPEECH, 6563)]


def test_a_short_text_in_pieces_is_prefilled_as_a_whole() -> None:
    ids = SpeechIds(6561, 3)
    bistream = Bistream((7, 8), speech_ids=ids)
    bistream.add_text([1, 2])
    bistream.end_text()
    prefill = bistream.next_prefill()
    assert prefill is not None
    assert prefill.inputs == ids.unistream_inputs((7, 8), (1, 2), ())


@pytest.mark.parametrize(("part", "num_numbers"), [("flow", 332_257_120), ("hift", 20_779_887)])
def test_the_published_sizes_have_the_published_tensors(part: str, num_numbers: int) -> None:
    with torch.device("meta"):
        network = Flow(PUBLISHED) if part == "flow" else new_vocoder(sizes.VocoderConfig(**CAUSAL))
    stored = {key: list(shape) for key, shape in stored_shapes(network).items()}
    listed: dict[str, Any] = read_json(f"keys/cosyvoice3_{part}_pt.json")
    assert stored == listed
    assert sum(int(np.prod(shape)) for shape in stored.values()) == num_numbers


def test_a_page_of_the_published_size_is_ninety_megabytes() -> None:
    with torch.device("meta"):
        flow = Flow(PUBLISHED).to(torch.bfloat16)
        assert len(stored_shapes(SpeechLm(LmConfig(generation=3)))) == 293
    arena = FlowArena(flow, num_slots=1, num_pages=1)
    assert arena.bytes_per_page == 90_112_000
    assert arena.bytes_per_slot == 2 * (1_228_800 + 2 * 1024)
