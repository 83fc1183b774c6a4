"""Repetition-aware sampling: which speech token comes next (§3.4).

A token is sampled from the nucleus; if it occurred in the last few, another one from all the others. Both are exponential
races, ``argmax p / q`` with ``q ~ Exp(1)``, so a batch of sequences is sampled without asking the device. The ``q`` of a
sequence depend on its seed and its step only (:mod:`counted_random`), not on its batch.
"""

from typing import Final

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.runners.counted_random import counted_exponentials

NO_TOKEN: Final = -1  # fills the window of a sequence that is shorter than it


TOP_P: Final = 0.8
TOP_K: Final = 25
WINDOW: Final = 10
NUM_REPEATS: Final = 1  # a token that occurs so often in the window is replaced: 0.1 of it (§2)


def forbid(log_probs: Tensor, forbidden: Tensor) -> Tensor:
    """Put the special ids, which are the last of ``log_probs`` [B, V], to -inf where ``forbidden`` [B, special] says so."""
    num_codes = log_probs.shape[-1] - forbidden.shape[-1]
    special = log_probs[..., num_codes:].masked_fill(forbidden, -torch.inf)
    return torch.cat((log_probs[..., :num_codes], special), dim=-1)


def empty_history(num_rows: int, device: torch.device | str = "cpu") -> Tensor:
    """The windows of sequences without ids, [B, window]."""
    return torch.full((num_rows, WINDOW), NO_TOKEN, dtype=torch.int64, device=device)


def push_history(history: Tensor, ids: Tensor) -> Tensor:
    """The windows after ``ids`` [B]."""
    return torch.cat((history[:, 1:], ids[:, None]), dim=1)


def sample_ras(
    log_probs: Tensor,  # [B, V], forbidden ids at -inf
    history: Tensor,  # the last ``window`` ids of each row, oldest first, [B, window]; NO_TOKEN where there is none
    seeds: Tensor,  # of each sequence, [B], int64
    steps: Tensor,  # how many ids were sampled for each sequence, [B], int64
) -> Tensor:
    """Sample one id for each row, [B]; no value leaves the device."""
    vocab_size = log_probs.shape[-1]
    probs, candidates = torch.softmax(log_probs, dim=-1).topk(min(TOP_K, vocab_size), dim=-1)  # [B, top_k] each
    kept = probs.cumsum(dim=-1) - probs < TOP_P  # the mass before a candidate; the one that crosses stays
    counts = [candidates.shape[-1], vocab_size]
    log_first, log_second = torch.split(counted_exponentials(seeds, steps, counts).log(), counts, dim=-1)
    race = torch.where(kept, probs.log(), -torch.inf) - log_first
    first = candidates.gather(-1, race.argmax(dim=-1, keepdim=True))  # [B, 1]

    repeated = (history == first).sum(dim=-1, keepdim=True) >= NUM_REPEATS  # [B, 1]
    others = log_probs.masked_fill(torch.arange(vocab_size, device=first.device) == first, -torch.inf)  # [B, V]
    second = (others - log_second).argmax(dim=-1, keepdim=True)  # [B, 1]
    return torch.where(repeated, second, first)[:, 0]
