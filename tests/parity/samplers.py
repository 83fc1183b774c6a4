"""Samplers of one sequence on its own: that of the engine in a batch of one, and the official one, for comparisons."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import ForbiddenIds, SpeechIds
from cc_tts.engines.cosyvoice.runners.sampler import NO_TOKEN, NUM_REPEATS, TOP_K, TOP_P, WINDOW, sample_ras


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

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._num_drawn = 0

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


def torch_exponentials(like: Tensor) -> Tensor:
    """Numbers of Exp(1) in the shape of ``like`` from the global generator of its device.

    With these the race is ``multinomial`` for one sample. On a CPU made by Intel torch takes them from another generator,
    which it seeds from the global one: the same seed then draws other ids.
    """
    return torch.empty_like(like).exponential_(1.0)


class OfficialRas:
    """The official sampler to the letter: the same ids and the same state of torch's global generator afterwards.

    ``exponentials`` makes the numbers of a race; a comparison across machines puts recorded or recomputed ones there.
    """

    def __init__(self, *, exponentials: Callable[[Tensor], Tensor] = torch_exponentials) -> None:
        self._exponentials = exponentials

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """Draw from the global generator of the device of ``log_probs``."""
        probs, candidates = log_probs.softmax(dim=0).sort(descending=True, stable=True)
        num_kept = 0
        mass = torch.zeros((), dtype=probs.dtype, device=probs.device)
        while num_kept < min(TOP_K, len(probs)) and mass < TOP_P:
            mass = mass + probs[num_kept]
            num_kept += 1
        drawn = int(candidates[self._race(probs[:num_kept])])
        if list(history[-WINDOW:]).count(drawn) >= NUM_REPEATS:
            others = log_probs.clone()
            others[drawn] = -torch.inf
            drawn = int(self._race(others.softmax(dim=0)))
        return drawn

    def _race(self, probs: Tensor) -> Tensor:
        return (probs / self._exponentials(probs)).argmax()
