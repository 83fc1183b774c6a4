"""The reference numbers of ``tests/data/golden``; its README says where they are from. Only tensors need PyTorch."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from cc_tts.engines.cosyvoice.model.sizes import Part

if TYPE_CHECKING:
    from torch import Tensor

GOLDEN: Final = Path(__file__).resolve().parents[1] / "data" / "golden"

Arrays = dict[str, npt.NDArray[Any]]
Shapes = dict[str, list[int]]


def read_arrays(name: str, folder: Path = GOLDEN) -> Arrays:
    """Everything of an ``.npz`` file."""
    with np.load(folder / name) as file:
        return {key: file[key] for key in file.files}


def read_tensors(name: str) -> "dict[str, Tensor]":
    """The numbers of an ``.npz`` file; a text cannot be a tensor."""
    import torch

    return {key: torch.from_numpy(array) for key, array in read_arrays(name).items() if array.dtype.kind != "U"}


def read_json(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def tiny_shapes(part: Part) -> Shapes:
    """Of the small networks that ``tiny.npz`` was made with."""
    return {key: shape for key, (shape, _dtype) in read_json("tiny_state_dict.json")[f"{part}.pt"].items()}


def full_shapes(part: Part) -> Shapes:
    shapes: Shapes = read_json(f"keys/cosyvoice2_{part}_pt.json")
    return shapes
