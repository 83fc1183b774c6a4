"""What ``docs/bad-input.md`` promises about models and special tokens: the loader and ``cc-tts model check`` agree."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

import torch

from cc_tts.engines.cosyvoice.model.checkpoint import (
    ModelError,
    ModelFileDamaged,
    ModelFileMissing,
    TensorMismatch,
    UnsafeCheckpoint,
    WrongModelVersion,
)
from cc_tts.engines.cosyvoice.model.directory import check_model_dir
from cc_tts.engines.cosyvoice.model.loader import check_weights
from cc_tts.engines.cosyvoice.model.special_tokens import SPECIAL_TOKENS
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.text.normalizer import Normalizer

pytestmark = pytest.mark.unit

LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:b144\nsize 2023316821\n"


class Code:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("exit 1",)


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    state = torch.load(path, weights_only=True)
    edit(state)
    path.unlink()
    torch.save(state, path)


def cut_short(model: Path) -> None:
    replace(model / "hift.pt", (model / "hift.pt").read_bytes()[:-1000])


def put_code_in(model: Path) -> None:
    change(model / "flow.pt", lambda state: state.update(extra=Code()))


def take_a_tensor(model: Path) -> None:
    change(model / "flow.pt", lambda state: state.pop("encoder_proj.bias"))


def add_a_tensor(model: Path) -> None:
    change(model / "llm.pt", lambda state: state.update(optimizer=torch.zeros(3)))


def bend_a_tensor(model: Path) -> None:
    change(model / "hift.pt", lambda state: state.update({"conv_post.bias": torch.zeros(31)}))


def leave_a_pointer(model: Path) -> None:
    replace(model / "llm.pt", LFS_POINTER)


def take_a_file(model: Path) -> None:
    (model / "flow.pt").unlink()


def name_version_1(model: Path) -> None:
    (model / "cosyvoice2.yaml").rename(model / "cosyvoice.yaml")


def name_version_3(model: Path) -> None:
    (model / "cosyvoice2.yaml").rename(model / "cosyvoice3.yaml")


def swap_in_version_3(model: Path) -> None:
    (model / "flow.pt").unlink()
    torch.save({"decoder.estimator.transformer_blocks.0.attn.to_q.weight": torch.zeros(4, 4)}, model / "flow.pt")


BAD: Final[list[tuple[Callable[[Path], None], type[ModelError], str, str]]] = [
    (cut_short, ModelFileDamaged, "model_file_damaged", "bytes are probably not the whole file"),
    (put_code_in, UnsafeCheckpoint, "unsafe_checkpoint", "flow.pt: refused, it calls"),
    (take_a_tensor, TensorMismatch, "tensor_mismatch", "flow.pt: 1 missing: encoder_proj.bias"),
    (add_a_tensor, TensorMismatch, "tensor_mismatch", "llm.pt: 1 unexpected: optimizer"),
    (bend_a_tensor, TensorMismatch, "tensor_mismatch", "hift.pt: 1 wrong shape: conv_post.bias is 31, must be 18"),
    (leave_a_pointer, ModelFileDamaged, "model_file_damaged", "llm.pt: this is a Git LFS pointer"),
    (take_a_file, ModelFileMissing, "model_file_missing", "flow.pt"),
    (name_version_1, WrongModelVersion, "wrong_model_version", "so it is CosyVoice 1"),
    (name_version_3, WrongModelVersion, "wrong_model_version", "CosyVoice 3"),
    (swap_in_version_3, WrongModelVersion, "wrong_model_version", "flow.pt is of CosyVoice 3"),
]


@pytest.mark.parametrize(("spoil", "error", "code", "words"), BAD, ids=[case[0].__name__ for case in BAD])
def test_a_bad_directory_is_refused_by_loader_and_check(
    model: Path,
    spoil: Callable[[Path], None],
    error: type[ModelError],
    code: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(model)
    monkeypatch.setattr(os, "system", lambda _command: pytest.fail("the code was run"))
    with pytest.raises(error) as caught:
        check_weights(model)
    assert type(caught.value) is error
    assert caught.value.code == code
    assert words in caught.value.detail
    report = check_model_dir(model)
    assert report.exit_code == 1
    assert any(words in fault for fault in report.faults), report.faults


def test_the_directory_that_was_spoiled_is_whole(model: Path) -> None:
    assert check_model_dir(model).exit_code == 0
    check_weights(model)


@pytest.mark.parametrize(
    "text", ["hello <|en|> there", "<|endofprompt|>", "<||>x", "[laughter] ok", "<strong>no</strong>"]
)
@pytest.mark.parametrize("language", ["en", "zh", None])
def test_a_prompt_cannot_spell_special_tokens(whole: Path, text: str, language: str | None) -> None:
    """The normaliser takes their signs away, known or not, and the tokenizer takes what it is given for words."""
    tokenizer = TextTokenizer.from_directory(whole / "CosyVoice-BlankEN")
    first_special = tokenizer.num_tokens - len(SPECIAL_TOKENS[2])
    spoken = Normalizer().normalize(text, language)
    assert not any(token in spoken for token in SPECIAL_TOKENS[2])
    assert all(text_id < first_special for each in (text, spoken) for text_id in tokenizer.encode(each))
