"""Weights by rule, for comparison with the reference outputs while the trained ones cannot be had.

Two rules, one for each set of outputs: :func:`fill_by_kind` for ``tiny`` and ``full``, :func:`fill_by_hash` for the
acceptance data of the specification (§11). Neither is used when speech is served.
"""

import hashlib
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

ANGLES: Final = "decoder.estimator.rotary_embed.inv_freq"
"""A tensor of the third generation that is not filled by a rule: it is the same in every model."""
_DIMS_OF_CONV: Final = 3
_SCALE_ENDINGS: Final = ("weight", "original0", "alpha")
_HASH_MASK: Final = 2**63 - 1

Shapes: TypeAlias = Mapping[str, Sequence[int]]


def fill_by_kind(shapes: Shapes, prefix: str, salt: str = "") -> dict[str, Tensor]:
    """Fill by the rule of ``tiny`` and ``full``; ``prefix`` is ``llm.``, ``flow.`` or ``hift.``."""
    filled = {key: _by_kind(prefix + key, tuple(shape), salt) for key, shape in shapes.items()}
    if ANGLES in filled:
        pairs = torch.arange(0, 2 * len(filled[ANGLES]), 2, dtype=torch.float32)
        filled[ANGLES] = 1.0 / 10_000.0 ** (pairs / (2 * len(pairs)))
    return filled


def _by_kind(name: str, shape: tuple[int, ...], salt: str) -> Tensor:
    seed = zlib.crc32((salt + name).encode())
    x = np.random.Generator(np.random.PCG64(seed)).standard_normal(shape, dtype=np.float32)
    fan = math.prod(shape) // shape[0] if shape else 1
    if "conv_post" in name and len(shape) == _DIMS_OF_CONV and fan == 1:
        x = 0.1 * (1 + 0.1 * x)
    elif len(shape) > 1 and fan > 1:
        x = x / np.sqrt(fan)
    elif name.endswith(_SCALE_ENDINGS):
        x = 1 + 0.1 * x
    else:
        x = 0.1 * x
    return torch.from_numpy(np.asarray(x, dtype=np.float32))


def hashed_normal(key: str, shape: Sequence[int]) -> Tensor:
    """Standard normal numbers that depend on ``key`` alone (§11); inputs are made with the key ``input:<name>``."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") & _HASH_MASK
    return torch.randn(tuple(shape), generator=torch.Generator(device="cpu").manual_seed(seed), device="cpu")


def fill_by_hash(shapes: Shapes, *, vocoder: bool = False) -> dict[str, Tensor]:
    """Fill by the rule of the specification (§11); the vocoder has rules of its own besides."""
    rule: Callable[[str, Tensor], Tensor] = _by_hash_vocoder if vocoder else _by_hash
    return {key: rule(key, hashed_normal(key, shape)) for key, shape in shapes.items()}


def _by_hash(key: str, r: Tensor) -> Tensor:
    if r.dim() > 1 and "pos_bias" not in key:
        return r / math.sqrt(r.numel() / r.shape[0])
    if r.dim() == 1 and key.endswith(".weight"):
        return 1 + 0.1 * r
    return 0.1 * r


def _by_hash_vocoder(key: str, r: Tensor) -> Tensor:
    if key.endswith("original1"):
        return r
    if key.endswith("original0"):
        return (0.5 + 0.25 * r.abs()) * (0.05 if "conv_post" in key else 1.0)
    if key.endswith(".alpha"):
        return 0.5 + 0.5 * r.abs()
    if key == "f0_predictor.classifier.bias":
        return torch.full_like(r, 120.0)
    filled = _by_hash(key, r)
    return filled * 300.0 if key == "f0_predictor.classifier.weight" else filled
