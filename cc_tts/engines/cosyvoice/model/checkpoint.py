"""Reads the three weight files without running any code in them, and compares every tensor with the specification.

``llm.pt`` (spec §3.6), ``flow.pt`` (§4.8) and ``hift.pt`` (§5.4) are state dicts. Which tensors they must hold follows
from a few sizes, which are read off the file itself (:mod:`sizes`), so small models of the same structure pass too.

torch is imported by the functions that read tensors; the rest works without it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_tts.engines.cosyvoice.model.sizes import Generation, Part, Shape, Shapes
from cc_tts.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTIONS: Final[Mapping[Generation, str]] = {2: "cosyvoice2.yaml", 3: "cosyvoice3.yaml"}
"""The file that describes the modules (spec §1), by generation."""
DESCRIPTION: Final = DESCRIPTIONS[2]
_OTHER_DESCRIPTION: Final = "cosyvoice.yaml"  # its name in the first version (§8)
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_ZIP: Final = b"PK\x03\x04"
_NAMES_SHOWN: Final = 5
_OF_TRAINING: Final = ("epoch", "step")
"""Numbers that the official training leaves beside the tensors."""


class ModelError(ConfigError, code="model", title="The model cannot be used"):
    """The model directory cannot be used; the message says which file and why."""


class ModelFileMissing(ModelError, code="model_file_missing", title="A model file is missing"):
    """A file that the engine needs is not there."""


class ModelFileDamaged(ModelError, code="model_file_damaged", title="A model file is damaged"):
    """A file is there, but cut short, empty, or something else under the right name."""


class UnsafeCheckpoint(ModelError, code="unsafe_checkpoint", title="A model file contains code"):
    """The file would run code on being read. It was not run."""


class WrongModelVersion(ModelError, code="wrong_model_version", title="Not a CosyVoice 2 or 3 model"):
    """The directory holds CosyVoice 1, or files of two versions."""


class TensorMismatch(ModelError, code="tensor_mismatch", title="A model file has the wrong tensors"):
    """A weight file lacks tensors, has others than it should, or has them in other shapes."""

    def __init__(
        self, file: str, *, missing: Sequence[str] = (), unexpected: Sequence[str] = (), wrong: Sequence[str] = ()
    ) -> None:
        parts = (("missing", missing), ("unexpected", unexpected), ("wrong shape", wrong))
        said = []
        for what, names in parts:
            if names:
                rest = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
                said.append(f"{len(names)} {what}: {', '.join(names[:_NAMES_SHOWN])}{rest}")
        super().__init__(f"{file}: {'; '.join(said)}")
        self.missing, self.unexpected, self.wrong = tuple(missing), tuple(unexpected), tuple(wrong)


def refuse_stand_in(path: Path) -> None:
    """Raise ``ModelFileMissing``, or ``ModelFileDamaged`` for an empty file, a Git LFS pointer or a web page."""
    if not path.is_file():
        raise ModelFileMissing(f"{path}: no such file")
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        raise ModelFileDamaged(f"{path}: the file is empty")
    if head.startswith(_LFS_POINTER):
        raise ModelFileDamaged(
            f"{path}: this is a Git LFS pointer, not the file; run `git lfs pull` there, or `cc-tts model download`"
        )
    if head.lstrip().lower().startswith((b"<!doctype", b"<html")):
        raise ModelFileDamaged(f"{path}: this is a web page, not the file; the download went wrong")


def read_saved(path: Path) -> object:
    """Return what ``torch.save`` wrote, without running code; tensors stay on disk (mmap) until they are used. Errors
    are those of :func:`refuse_stand_in`, and ``UnsafeCheckpoint`` if reading it would call a function of somebody's
    choice.
    """
    import pickle

    import torch

    refuse_stand_in(path)
    with path.open("rb") as file:
        magic = file.read(len(_ZIP))
    if magic.startswith(b"\x80"):
        raise UnsafeCheckpoint(
            f"{path}: this is a bare pickle, which runs code when read; the published file is not one"
        )
    if magic != _ZIP:
        raise ModelFileDamaged(f"{path}: this is not a PyTorch checkpoint")
    try:
        content: object = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # noqa: BLE001 - a damaged index makes the reader fail in any way
        called = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if called:
            raise UnsafeCheckpoint(f"{path}: refused, it calls {called[1]}; a checkpoint has no need of that") from None
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise ModelFileDamaged(
            f"{path}: cannot be read, {path.stat().st_size:,} bytes are probably not the whole file ({reason})"
        ) from None
    return content


def read_checkpoint(path: Path, part: Part) -> dict[str, "Tensor"]:
    """Read a state dict, with canonical names; errors as of :func:`read_saved`, and ``TensorMismatch`` if it holds something
    besides floating-point tensors and the numbers of training, or a tensor twice.
    """
    import torch

    content = read_saved(path)
    if not isinstance(content, dict):
        raise TensorMismatch(path.name, unexpected=[f"a {type(content).__name__} in place of named tensors"])
    content = {key: value for key, value in content.items() if not (key in _OF_TRAINING and isinstance(value, int))}
    kinds = {
        key: value.dtype if isinstance(value, torch.Tensor) else type(value).__name__ for key, value in content.items()
    }
    odd = [f"{key} ({kind})" for key, kind in kinds.items() if isinstance(kind, str) or not kind.is_floating_point]
    if odd:
        raise TensorMismatch(path.name, unexpected=odd)
    state = {str(key): value for key, value in content.items()}
    return canonical_names(path.name, state) if part == "hift" else state


def canonical_names(file: str, state: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Name the tensors of ``hift.pt`` in one way: no ``generator.``, weight norm as parametrizations (spec §1). Raises
    ``TensorMismatch`` if two tensors get the same name.
    """
    result: dict[str, Tensor] = {}
    for key, value in state.items():
        name = key.replace("generator.", "")
        for old, new in ((".weight_g", ".original0"), (".weight_v", ".original1")):
            if name.endswith(old):
                name = name.removesuffix(old) + ".parametrizations.weight" + new
        if name in result:
            raise TensorMismatch(file, unexpected=[f"{key} (the same tensor under a second name)"])
        result[name] = value
    return result


def shapes_of(state: Mapping[str, "Tensor"]) -> dict[str, Shape]:
    return {key: tuple(value.shape) for key, value in state.items()}


def check_tensors(file: str, found: Shapes, expected: Shapes) -> None:
    """Raise ``TensorMismatch`` with all differences between the found and the expected tensors."""
    missing = [key for key in expected if key not in found]
    unexpected = [key for key in found if key not in expected]
    wrong = [
        f"{key} is {_by(found[key])}, must be {_by(shape)}"
        for key, shape in expected.items()
        if key in found and tuple(found[key]) != tuple(shape)
    ]
    if missing or unexpected or wrong:
        raise TensorMismatch(file, missing=missing, unexpected=unexpected, wrong=wrong)


def _by(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "a scalar"


def described(directory: Path) -> Generation | None:
    """Return the generation that the description in the directory belongs to; None if there is no description, or there are
    two.
    """
    found = [generation for generation, name in DESCRIPTIONS.items() if (directory / name).exists()]
    return found[0] if len(found) == 1 else None


def other_description(directory: Path) -> str:
    """Return the sign that the directory belongs to CosyVoice 1, in words; empty without one."""
    names = (*DESCRIPTIONS.values(), _OTHER_DESCRIPTION)
    if [name for name in names if (directory / name).exists()] == [_OTHER_DESCRIPTION]:
        return f"{_OTHER_DESCRIPTION}, so it is CosyVoice 1; this engine speaks with CosyVoice 2 and 3"
    return ""


def refuse_other_version(file: str, part: Part, found: Shapes) -> None:
    """Raise ``WrongModelVersion`` if the tensors clearly belong to CosyVoice 1 (spec §8)."""
    if _FIRST_VERSION[part](found):
        raise WrongModelVersion(
            f"{file} is of CosyVoice 1; this engine speaks with CosyVoice 2 (iic/CosyVoice2-0.5B) and 3 "
            "(FunAudioLLM/Fun-CosyVoice3-0.5B-2512)"
        )


def _has(found: Shapes, *prefixes: str) -> bool:
    return any(key.startswith(prefixes) for key in found)


_FIRST_VERSION: Final[Mapping[Part, Callable[[Shapes], bool]]] = {
    "llm": lambda found: _has(found, "text_encoder.", "llm.encoders."),
    "flow": lambda found: _has(found, "length_regulator."),
    # two stages of upsampling, for 22.05 kHz
    "hift": lambda found: "conv_pre.bias" in found and "ups.2.bias" not in found,
}
