"""Rotary positions as Qwen2 has them (§3.7): pairs are (i, i + half), angles are made in float32."""

import torch
from torch import Tensor


def inverse_frequencies(head_dim: int, theta: float) -> Tensor:
    """Angle per position of each pair, ``theta ** (-2 i / head_dim)``; made on the CPU, whatever the default device."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    return 1.0 / theta**exponents  # [head_dim / 2]


def rotation(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine for ``positions`` [B, T], ready for :func:`rotate`: the first half of the sines is negated."""
    angles = positions.to(torch.float32)[..., None] * frequencies  # [B, T, head_dim / 2]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)  # [B, T, head_dim] each


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the heads ``x`` [B, T, heads, head_dim] to their positions; float32 inside, the type of ``x`` outside."""
    wide = x.to(torch.float32)
    swapped = wide.roll(wide.shape[-1] // 2, dims=-1)
    return torch.addcmul(wide * cos[:, :, None], swapped, sin[:, :, None]).to(x.dtype)
