"""Speakers: what each mode hands to the language model, the table of a model directory, enrolled voices."""

import dataclasses
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from cc_tts.engines.cosyvoice.model.checkpoint import ModelError, ModelFileDamaged, UnsafeCheckpoint
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SOS, TASK, LengthLimits, SpeechIds, text_inputs
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.voice import speakers
from cc_tts.engines.cosyvoice.voice.speakers import (
    Mode,
    Speaker,
    built_in_speakers,
    enrolled_speakers,
)
from cc_tts.engines.cosyvoice.voice.spoken_text import as_sentence
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.library import VoiceLibrary, VoiceMode, VoiceRecord
from cc_tts.voices.voice import Voice

pytestmark = pytest.mark.unit

TEXT = "hello and welcome"


def text_ids(tokenizer: TextTokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(as_sentence(text)))


def speaker(mode: Mode, **changes: Any) -> Speaker:
    fields: dict[str, Any] = {
        "id": "anna",
        "language": "en",
        "mode": mode,
        "prompt_text": "please hold the line.",
        "llm_tokens": np.arange(7, dtype=np.int32),
        "flow_tokens": np.arange(5, dtype=np.int32),
        "flow_mel": np.zeros((10, 80), np.float32),
        "embedding": np.ones(192, np.float32),
    }
    return Speaker(**{**fields, **changes})


def zero_shot_entry() -> dict[str, Any]:
    return {
        "prompt_text": torch.tensor([[3, 4, 5]], dtype=torch.int32),
        "prompt_text_len": torch.tensor([3], dtype=torch.int32),
        "llm_prompt_speech_token": torch.tensor([[10, 11, 12, 13]], dtype=torch.int32),
        "flow_prompt_speech_token": torch.tensor([[12, 13]], dtype=torch.int32),
        "prompt_speech_feat": torch.full((1, 4, 80), 0.5),
        "llm_embedding": torch.zeros(1, 192),
        "flow_embedding": torch.full((1, 192), 0.25),
    }


def table(directory: Path, content: object) -> Path:
    torch.save(content, directory / "spk2info.pt")
    return directory


# --- what the language model gets


def test_zero_shot_goes_on_from_transcript_and_speech(tokenizer: TextTokenizer) -> None:
    request = speaker("zero_shot").lm_request(tokenizer, text_ids(tokenizer, TEXT))
    assert request.text == tuple(tokenizer.encode(TEXT + "."))
    assert request.prompt_text == tuple(tokenizer.encode("please hold the line."))
    assert request.prompt_speech == tuple(range(7))


@pytest.mark.parametrize("mode", ["cross_lingual", "builtin"])
def test_other_modes_get_the_text_alone(tokenizer: TextTokenizer, mode: Mode) -> None:
    request = speaker(mode).lm_request(tokenizer, text_ids(tokenizer, TEXT))
    assert (request.prompt_text, request.prompt_speech) == ((), ())
    assert request.text == tuple(tokenizer.encode(TEXT + "."))


def test_an_instruction_ends_with_its_mark(tokenizer: TextTokenizer) -> None:
    request = speaker("instruct", prompt_text="thank you").lm_request(tokenizer, text_ids(tokenizer, TEXT))
    assert request.prompt_text == (*tokenizer.encode("thank you"), tokenizer.end_of_prompt)
    assert request.inputs_for(SpeechIds()) == [SOS, *text_inputs(request.prompt_text), *text_inputs(request.text), TASK]
    assert request.limits == LengthLimits.of_text(len(request.text))
    assert request.prompt_speech == ()


@pytest.mark.parametrize("mode", ["zero_shot", "cross_lingual", "instruct", "builtin"])
def test_instructions_of_a_request_are_laid_out_as_instruct2_whatever_the_voice(
    tokenizer: TextTokenizer, mode: Mode
) -> None:
    """The instruction with its mark before the text, and neither transcript nor speech of the prompt (§3.2)."""
    ids, instruction = text_ids(tokenizer, TEXT), tokenizer.instruction("speak calmly")
    request = speaker(mode).lm_request(tokenizer, ids, instruction)
    words = [*tokenizer.encode("speak calmly"), tokenizer.end_of_prompt]
    assert request.inputs_for(SpeechIds()) == [SOS, *text_inputs(words), *text_inputs(ids), TASK]
    assert request.limits == LengthLimits.of_text(len(ids))


def test_nothing_to_say_is_no_tokens(tokenizer: TextTokenizer) -> None:
    assert speaker("zero_shot").lm_request(tokenizer, text_ids(tokenizer, "...")).text == ()


def test_tokens_of_another_tokenizer_are_refused(tokenizer: TextTokenizer) -> None:
    foreign = speaker("zero_shot", prompt_text_ids=(1, tokenizer.num_tokens))
    with pytest.raises(ModelError, match="not of this model"):
        foreign.lm_request(tokenizer, text_ids(tokenizer, TEXT))


@pytest.mark.parametrize(("mode", "kind"), [("instruct", "zero_shot"), ("builtin", "builtin")])
def test_callers_see_a_voice(mode: Mode, kind: Any) -> None:
    assert speaker(mode, description="calm").voice == Voice(
        "anna", "cosyvoice2", "en", kind, description="calm", takes_instructions=True
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"flow_mel": np.zeros((9, 80), np.float32)}, "flow_mel"),
        ({"flow_mel": np.zeros((10, 80), np.float64)}, "flow_mel"),
        ({"flow_mel": np.full((10, 80), np.nan, np.float32)}, "flow_mel"),
        ({"embedding": np.ones(100, np.float32)}, "embedding"),
        ({"embedding": np.full(192, np.inf, np.float32)}, "embedding"),
        ({"llm_tokens": np.array([-1], np.int32)}, "llm_tokens"),
        ({"llm_tokens": np.zeros(751, np.int32)}, "llm_tokens"),
        ({"llm_tokens": np.zeros((2, 2), np.int32)}, "llm_tokens"),
        ({"prompt_text_ids": (-1,)}, "prompt_text"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=f"'anna' cannot be used: {named}"):
        speaker("zero_shot", **changes)


# --- the table of the model directory


def test_no_table_is_no_speakers(tmp_path: Path) -> None:
    assert built_in_speakers(tmp_path) == {}


def test_an_entry_with_a_prompt_is_a_zero_shot_speaker(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    found = built_in_speakers(table(tmp_path, {"anna": zero_shot_entry()}))["anna"]
    assert (found.mode, found.language) == ("zero_shot", "cmn")
    request = found.lm_request(tokenizer, text_ids(tokenizer, TEXT))
    assert (request.prompt_text, request.prompt_speech) == ((3, 4, 5), (10, 11, 12, 13))
    assert found.flow_tokens.tolist() == [12, 13]
    assert found.flow_mel.shape == (4, 80)
    assert (found.embedding == 0.25).all()


def test_an_entry_of_the_first_version_gives_its_embedding_only(tmp_path: Path) -> None:
    entry = {
        "embedding": torch.full((1, 192), 0.5, dtype=torch.float64),
        "speech_token": torch.zeros(1, 9, dtype=torch.int32),
    }
    found = built_in_speakers(table(tmp_path, {"中文女": entry}))["中文女"]
    assert found.mode == "builtin"
    assert found.flow_tokens.size == found.llm_tokens.size == 0
    assert found.embedding.dtype == np.float32
    assert (found.embedding == 0.5).all()


@pytest.mark.parametrize(
    ("speaker_id", "language"),
    [("英文男", "en"), ("日语男", "ja"), ("韩语女", "ko"), ("粤语女", "yue"), ("中文男", "cmn"), ("anna", "cmn")],
)
def test_the_name_tells_the_language(tmp_path: Path, speaker_id: str, language: str) -> None:
    content = {speaker_id: {"embedding": torch.ones(1, 192)}}
    assert built_in_speakers(table(tmp_path, content))[speaker_id].language == language


def _changed(**changes: Any) -> dict[str, Any]:
    return {"anna": {**zero_shot_entry(), **changes}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "not a table"),
        ({3: zero_shot_entry()}, "not a table"),
        ({"": zero_shot_entry()}, "not a table"),
        ({"anna": torch.ones(192)}, "is a Tensor, not an entry"),
        ({"anna": {}}, "neither a prompt nor an embedding, but: nothing"),
        ({"anna": {"speech_feat": torch.ones(1)}}, "but: speech_feat"),
        ({"anna": {"embedding": "loud"}}, "embedding is a str"),
        ({"anna": {"embedding": torch.ones(2, 192)}}, "shape"),
        ({"anna": {"embedding": torch.ones(1, 192, dtype=torch.int32)}}, "embedding is torch.int32"),
        ({"anna": {"embedding": torch.full((1, 192), float("nan"))}}, "embedding"),
        (_changed(prompt_speech_feat=torch.ones(1, 5, 80)), "flow_mel"),
        (_changed(flow_prompt_speech_token=torch.ones(1, 2)), "must be whole numbers"),
        (_changed(flow_prompt_speech_token=torch.tensor([[1, -1]])), "no tokens"),
        (_changed(llm_prompt_speech_token=torch.zeros(1, 751, dtype=torch.int32)), "llm_tokens"),
        (_changed(prompt_text=torch.zeros(1, 1001, dtype=torch.int32)), "prompt_text"),
        (_changed(flow_embedding=torch.ones(1, 100)), "embedding"),
    ],
)
def test_an_odd_table_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        built_in_speakers(table(tmp_path, content))


def test_too_many_speakers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speakers, "MAX_SPEAKERS", 1)
    content = {name: {"embedding": torch.ones(1, 192)} for name in ("anna", "bert")}
    with pytest.raises(ModelError, match="2 speakers"):
        built_in_speakers(table(tmp_path, content))


class _Runs:
    """What calls a function when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., int], tuple[str]]:
        return os.system, ("exit 0",)


def test_a_table_that_runs_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeCheckpoint, match="system"):
        built_in_speakers(table(tmp_path, {"anna": _Runs()}))


@pytest.mark.parametrize("cut", [0, 1, 300])
def test_a_damaged_table_is_refused(tmp_path: Path, cut: int) -> None:
    path = table(tmp_path, {"anna": zero_shot_entry()}) / "spk2info.pt"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelFileDamaged, match="spk2info"):
        built_in_speakers(tmp_path)


def test_a_bare_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spk2info.pt").write_bytes(pickle.dumps({"anna": {}}))
    with pytest.raises(UnsafeCheckpoint, match="bare pickle"):
        built_in_speakers(tmp_path)


# --- enrolled voices


def enrolled(key: str) -> EnrolledVoice:
    return EnrolledVoice(
        key=key,
        transcript="please hold the line.",
        fingerprint="f",
        duration_s=1.0,
        warnings=(),
        llm_tokens=np.arange(7, dtype=np.int32),
        flow_tokens=np.arange(2, 7, dtype=np.int32),
        flow_mel=np.zeros((10, 80), np.float32),
        embedding=np.ones(192, np.float32),
    )


@pytest.mark.parametrize(
    ("mode", "instruction", "prompt_text", "num_llm_tokens"),
    [
        ("zero_shot", "", "please hold the line.", 7),
        ("cross_lingual", "", "", 0),
        ("instruct", "Speak calmly.", "Speak calmly.", 0),
    ],
)
def test_enrolled_voices_are_speakers(
    tmp_path: Path, mode: VoiceMode, instruction: str, prompt_text: str, num_llm_tokens: int
) -> None:
    library = VoiceLibrary(tmp_path)
    library.features.store(enrolled("a" * 64))
    record = VoiceRecord(
        id="anna", language="en-GB", mode=mode, key="a" * 64, instruction=instruction, description="the desk"
    )
    library.store(record)
    found = enrolled_speakers(library, on_fault=pytest.fail)["anna"]
    assert (found.mode, found.prompt_text, len(found.llm_tokens)) == (mode, prompt_text, num_llm_tokens)
    assert found.flow_tokens.tolist() == [2, 3, 4, 5, 6]
    assert found.voice == Voice(
        "anna", "cosyvoice2", "en-GB", "zero_shot", description="the desk", takes_instructions=True
    )


def test_a_voice_without_its_features_is_left_out(tmp_path: Path) -> None:
    library = VoiceLibrary(tmp_path)
    library.store(VoiceRecord(id="anna", language="en", mode="zero_shot", key="a" * 64))
    faults: list[str] = []
    assert enrolled_speakers(library, on_fault=faults.append) == {}
    assert len(faults) == 1
    assert faults[0].startswith("the voice 'anna' is left out: ")
    assert "enrol it again" in faults[0]


def test_importing_speakers_does_not_import_torch() -> None:
    code = "import sys, cc_tts.engines.cosyvoice.voice.speakers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_flows_reference_of_a_table_is_trimmed_for_the_first_hop(tmp_path: Path) -> None:
    entry = zero_shot_entry()
    entry["flow_prompt_speech_token"] = torch.arange(60)[None]
    entry["prompt_speech_feat"] = torch.arange(120.0)[None, :, None].expand(1, 120, 80)
    found = built_in_speakers(table(tmp_path, {"anna": entry}))["anna"]
    assert found.flow_tokens.tolist() == list(range(22, 60))
    assert found.flow_mel[:, 0].tolist() == list(range(44, 120))


@pytest.mark.parametrize(("num_tokens", "mode"), [(0, "cross_lingual"), (200, "zero_shot"), (201, "cross_lingual")])
def test_a_reference_too_long_for_the_language_model_is_not_given_to_it(
    tmp_path: Path, tokenizer: TextTokenizer, num_tokens: int, mode: str
) -> None:
    library = VoiceLibrary(tmp_path)
    library.features.store(dataclasses.replace(enrolled("a" * 64), llm_tokens=np.zeros(num_tokens, np.int32)))
    library.store(VoiceRecord(id="anna", language="en", mode="zero_shot", key="a" * 64))
    found = enrolled_speakers(library, on_fault=pytest.fail)["anna"]
    assert found.mode == mode
    request = found.lm_request(tokenizer, text_ids(tokenizer, TEXT))
    assert len(request.prompt_speech) == (num_tokens if mode == "zero_shot" else 0)
    assert bool(request.prompt_text) == (mode == "zero_shot")
    entry = zero_shot_entry() | {"llm_prompt_speech_token": torch.zeros((1, num_tokens), dtype=torch.int32)}
    (tmp_path / "model").mkdir()
    assert built_in_speakers(table(tmp_path / "model", {"anna": entry}))["anna"].mode == mode
