"""Where the flow's way from noise to speech begins, and its steps (§4.6)."""

import math
from typing import Final

import torch
from torch import Tensor

NOISE_FRAMES: Final = 15_000
_NOISE_SEED: Final = 0


def fixed_noise(num_frames: int = NOISE_FRAMES, num_mels: int = 80) -> Tensor:
    """The noise all speech starts from, [1, mels, frames]; not in the checkpoint but the same for everybody (§4.6).

    It is sampled one mel bin after the other, 300 s of each; fewer frames are the first ones of these, more there are none.
    """
    if num_frames > NOISE_FRAMES:
        raise ValueError(f"there is noise for {NOISE_FRAMES} frames, not for {num_frames}")
    generator = torch.Generator(device="cpu").manual_seed(_NOISE_SEED)
    noise = torch.randn((1, num_mels, NOISE_FRAMES), generator=generator, device="cpu", dtype=torch.float32)
    return noise[:, :, :num_frames].contiguous()


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
