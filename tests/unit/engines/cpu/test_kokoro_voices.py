"""Kokoro's voices: which there are in a folder, what a damaged file costs, and what is given to the model."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cc_tts.engines.cpu.contract import FoundModel, SentenceAudio
from cc_tts.engines.cpu.kokoro.model import tokens_input
from cc_tts.engines.cpu.kokoro.phonemes import phonemes_of
from cc_tts.engines.cpu.kokoro.voices import kokoro_models
from cc_tts.errors import ConfigError
from lab.kokoro_voice import make_kokoro_voices

pytestmark = pytest.mark.unit

SAMPLES_EACH = 1200


def spoken(found: FoundModel, text: str, *, speed: float = 1.0) -> list[SentenceAudio]:
    return list(found.load().speak(text, voice_id=found.voices[0].id, speed=speed))


def models_in(folder: Path) -> list[FoundModel]:
    return [each for each in kokoro_models(folder) if isinstance(each, FoundModel)]


def num_tokens(parts: list[SentenceAudio]) -> float:
    """Those of the words, without the two at the ends of a sentence."""
    num_sentences = sum(part.ends_with is not None for part in parts)
    return sum(len(part.pcm) for part in parts) / 2 / SAMPLES_EACH - 2 * num_sentences


def test_each_style_is_a_voice_of_the_language_and_sex_in_its_name(tmp_path: Path) -> None:
    make_kokoro_voices(tmp_path, "zf_a", "bm_b", "ef_c", "jf_d")
    voices = [each.voices[0] for each in models_in(tmp_path)]
    assert [(voice.id, voice.language, voice.gender) for voice in voices] == [
        ("kokoro-bm_b", "en-GB", "male"),
        ("kokoro-ef_c", "es", "female"),
        ("kokoro-zf_a", "cmn", "female"),
    ]


def test_a_style_that_is_none_costs_itself(tmp_path: Path) -> None:
    styles = make_kokoro_voices(tmp_path, "ef_good") / "styles"
    (styles / "ef_short.bin").write_bytes(b"short")
    (styles / "ef_gone.bin").symlink_to(tmp_path / "nothing")
    (styles / "nobody.bin").write_bytes(b"")
    (styles / "xf_other.bin").write_bytes(b"")
    np.full((510, 256), np.nan, np.float32).tofile(styles / "em_nan.bin")
    found = models_in(tmp_path)
    assert [each.voices[0].id for each in found] == ["kokoro-ef_good", "kokoro-em_nan"]
    faults = [each.detail for each in kokoro_models(tmp_path) if isinstance(each, ConfigError)]
    assert [Path(each.partition(":")[0]).name for each in faults] == [
        "ef_gone.bin",
        "ef_short.bin",
        "nobody.bin",
        "xf_other.bin",
    ]
    assert len(spoken(found[0], "Hola."))
    with pytest.raises(ConfigError, match="em_nan"):
        found[1].load()


def test_a_model_that_is_none_is_named(tmp_path: Path) -> None:
    folder = make_kokoro_voices(tmp_path, "ef_a")
    (folder / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"model\.onnx: not a model"):
        models_in(tmp_path)[0].load()
    (folder / "model.onnx").unlink()
    with pytest.raises(ConfigError, match=r"model\.onnx: the model of Kokoro's voices is missing"):
        models_in(tmp_path)[0].load()


def test_a_model_that_cannot_be_measured_runs_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherExport:
        def __init__(self, _path: Path) -> None:
            """It looks like the published one."""

        def measure(self, _spoken: object) -> None:
            raise RuntimeError("Required inputs (['input_ids']) are missing")

    make_kokoro_voices(tmp_path, "ef_a", "ef_b")
    split = importlib.import_module("cc_tts.engines.cpu.kokoro.split")
    monkeypatch.setattr(split, "SplitModel", OtherExport)
    assert [bool(spoken(each, "Hola.")) for each in models_in(tmp_path)] == [True, True]


@pytest.mark.parametrize("name", ["tokens", "input_ids"])
def test_exports_give_the_tokens_different_names(name: str) -> None:
    session = SimpleNamespace(get_inputs=lambda: [SimpleNamespace(name=each) for each in (name, "style", "speed")])
    assert tokens_input(session, Path("model.onnx")) == name


def test_sentences_end_with_their_marks_and_speed_makes_them_shorter(tmp_path: Path) -> None:
    make_kokoro_voices(tmp_path, "ef_a")
    voice = models_in(tmp_path)[0]
    parts = spoken(voice, "Buenos días. ¿Quién habla?")
    assert [part.ends_with for part in parts if part.ends_with is not None] == [".", "?"]
    assert sum(len(part.pcm) for part in spoken(voice, "Buenos días.", speed=2.0)) == pytest.approx(
        sum(len(part.pcm) for part in spoken(voice, "Buenos días.")) / 2, rel=0.01
    )


def test_a_sentence_beyond_the_models_positions_is_said_in_parts(tmp_path: Path) -> None:
    make_kokoro_voices(tmp_path, "ef_a")
    parts = spoken(models_in(tmp_path)[0], "palabra " * 100)
    assert max(len(part.pcm) for part in parts) <= 512 * 2 * SAMPLES_EACH
    assert sum(bool(part.pcm) for part in parts) > 1


def test_nothing_is_given_out_for_a_text_without_words(tmp_path: Path) -> None:
    make_kokoro_voices(tmp_path, "ef_a")
    assert spoken(models_in(tmp_path)[0], "… !") == []


def test_without_pypinyin_chinese_voices_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_kokoro_voices(tmp_path, "zf_a")
    monkeypatch.setitem(sys.modules, "cc_tts.engines.cpu.kokoro.mandarin", None)
    phonemes_of.cache_clear()
    with pytest.raises(ConfigError, match="the extra kokoro"):
        models_in(tmp_path)[0].load()


def test_chinese_and_english_are_said_by_one_voice(tmp_path: Path) -> None:
    pytest.importorskip("pypinyin")
    make_kokoro_voices(tmp_path, "zf_a")
    voice = models_in(tmp_path)[0]
    alone = num_tokens(spoken(voice, "请打开"))
    assert num_tokens(spoken(voice, "请打开 Windows")) > alone + 5
    assert voice.voices[0].also_speaks == ("en",)
