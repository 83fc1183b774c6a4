"""Rotary positions as Qwen2 has them (§3.7): pairs are (i, i + half), angles are made in float32."""

import torch
from torch import Tensor


def inverse_frequencies(head_dim: int, theta: float) -> Tensor:
    """Angle per position of each pair, ``theta ** (-2 i / head_dim)``; made on the CPU, whatever the default device."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    return 1.0 / theta**exponents  # [head_dim / 2]


def rotation(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine for ``positions`` [B, T], ready for :func:`rotate`."""
    angles = positions.to(torch.float32)[..., None] * frequencies  # [B, T, head_dim / 2]
    angles = torch.cat((angles, angles), dim=-1)[:, None]  # [B, 1, T, head_dim]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the heads ``x`` [B, heads, T, head_dim] to their positions; float32 inside, the type of ``x`` outside."""
    wide = x.to(torch.float32)
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)
