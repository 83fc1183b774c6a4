"""Random numbers that are functions of a seed and a place, not of a state: the same in whatever batch they are made.

Each is a hash of (seed, step, group, number): what SplitMix64 (Steele, Lea, Flood 2014) gives at that place of a stream.
"""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

_GOLDEN: Final = 0x9E3779B97F4A7C15 - 2**64  # 2^64 over the golden ratio, odd, as a signed number
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9 - 2**64  # of the mixer of SplitMix64 (paper below)
_SECOND_FACTOR: Final = 0x94D049BB133111EB - 2**64
"""Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (paper of 2014)."""
_MANTISSA_BITS: Final = 23
_GROUPS_A_STEP: Final = 2


def counted_exponentials(seeds: Tensor, steps: Tensor, counts: Sequence[int]) -> Tensor:
    """Numbers of Exp(1) for each row, functions of (seed, step, group) alone; positive and finite. [B, sum of counts].

    ``counts`` are of the groups of a step, of which there are at most two; their numbers lie side by side.
    """
    return -_uniform(_hashes(seeds, steps, counts), 64 - _MANTISSA_BITS).log()


def counted_normals(seeds: Tensor, steps: Tensor, count: int) -> Tensor:
    """Standard normal numbers for each row, functions of (seed, step) alone, [B, count].

    Two from each hash (Box and Muller 1958): none is further from 0 than 5.8.
    """
    hashes = _hashes(seeds, steps, [-(-count // 2)])
    radii = (-2.0 * _uniform(hashes, 64 - _MANTISSA_BITS).log()).sqrt()
    angles = 2.0 * math.pi * _uniform(hashes, 64 - 2 * _MANTISSA_BITS)
    return torch.cat((radii * angles.cos(), radii * angles.sin()), dim=1)[:, :count]


def _hashes(seeds: Tensor, steps: Tensor, counts: Sequence[int]) -> Tensor:
    """64 bits for each number, [B, sum of counts]."""
    groups = torch.arange(len(counts), device=seeds.device)
    keys = _scramble(_scramble(seeds + _GOLDEN)[:, None] + (_GROUPS_A_STEP * steps[:, None] + groups) * _GOLDEN)
    keys = torch.cat([keys[:, i : i + 1].expand(-1, count) for i, count in enumerate(counts)], dim=1)
    places = torch.cat([torch.arange(1, count + 1, device=seeds.device) for count in counts]) * _GOLDEN
    return _scramble(keys + places)


def _uniform(hashes: Tensor, first_bit: int) -> Tensor:
    """Numbers between 0 and 1 from the bits of ``hashes`` from ``first_bit`` on: neither end, both are exact in float32."""
    bits = (hashes >> first_bit) & ((1 << _MANTISSA_BITS) - 1)
    return (bits.to(torch.float32) + 0.5) * 2.0**-_MANTISSA_BITS


def _scramble(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on 64 bits that torch calls signed."""
    x = (x ^ _logical_shift(x, 30)) * _FIRST_FACTOR
    x = (x ^ _logical_shift(x, 27)) * _SECOND_FACTOR
    return x ^ _logical_shift(x, 31)


def _logical_shift(x: Tensor, num_bits: int) -> Tensor:
    return (x >> num_bits) & ((1 << (64 - num_bits)) - 1)
