"""The sampler of the engine for one sequence on its own, for comparisons."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import ForbiddenIds, SpeechIds
from cc_tts.engines.cosyvoice.runners.sampler import NO_TOKEN, WINDOW, sample_ras


class Sampler(Protocol):
    """Draws for one sequence."""

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """The next id, given its log-probabilities [V] with forbidden ids at -inf, and the ids drawn before."""
        ...


def forbidden_row(
    forbidden: ForbiddenIds, ids: SpeechIds, device: torch.device | str = "cpu", *, compat: bool = False
) -> Tensor:
    """The rule for one sequence as a row for :func:`forbid`, [special].

    With ``compat`` the first special id is forbidden where the end is meant, as the reference does: in the third generation
    that is another id (v3 §3.3).
    """
    row = [forbidden[kind] for kind in ids.kinds]
    if compat and ids.generation > 2:
        row = [forbidden.end, *(False for _ in row[1:])]
    return torch.tensor(row, dtype=torch.bool, device=device)


class SeededRas:
    """The sampler of one sequence on its own: :func:`sample_ras` with a batch of one."""

    def __init__(self, seed: int, num_drawn: int = 0) -> None:
        self._seed = seed
        self._num_drawn = num_drawn

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """Draw with the next step of the seed."""
        device = log_probs.device
        window = list(history[-WINDOW:])
        padded = [NO_TOKEN] * (WINDOW - len(window)) + window
        drawn = sample_ras(
            log_probs[None],
            torch.tensor([padded], device=device),
            torch.tensor([self._seed], device=device),
            torch.tensor([self._num_drawn], device=device),
        )
        self._num_drawn += 1
        return int(drawn)
