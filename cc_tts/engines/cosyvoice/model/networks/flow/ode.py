"""Where the flow's way from noise to speech begins, and its steps (§4.6)."""

import math
from typing import Final

import torch
from torch import Tensor

NOISE_FRAMES: Final = 15_000
_NOISE_SEED: Final = 0
_NUM_MELS: Final = 80


def fixed_noise() -> Tensor:
    """The noise all speech starts from, [1, mels, frames]; not in the checkpoint but the same for everybody (§4.6).

    It is sampled one mel bin after the other, 300 s of each.
    """
    generator = torch.Generator(device="cpu").manual_seed(_NOISE_SEED)
    return torch.randn((1, _NUM_MELS, NOISE_FRAMES), generator=generator, device="cpu", dtype=torch.float32)


def euler_grid(num_steps: int) -> tuple[tuple[float, float], ...]:
    """Moment and length of each Euler step, added up in float32 as the reference does (§4.6)."""
    ends = 1 - torch.cos(torch.linspace(0, 1, num_steps + 1, device="cpu", dtype=torch.float32) * (0.5 * math.pi))
    moment, length = ends[0], ends[1] - ends[0]
    grid = []
    for end in ends[2:]:
        grid.append((float(moment), float(length)))
        moment = moment + length
        length = end - moment
    return (*grid, (float(moment), float(length)))
