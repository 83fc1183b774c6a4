"""Repetition-aware sampling: which speech token comes next (§3.4).

A first draw from the nucleus; if that token occurred in the last few, a second draw from all other tokens. Both draws are
exponential races, ``argmax p / q`` with ``q ~ Exp(1)``, so a batch of sequences is sampled without asking the device.

The ``q`` of a sequence depend on its seed and its step only (:mod:`counted_random`): a sequence draws the same tokens in
whatever company it is. :class:`OfficialRas` draws as the official code does, from torch's global generator, for comparisons.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import NUM_SPECIAL_SPEECH_IDS, ForbiddenIds
from cc_tts.engines.cosyvoice2.runners.counted_random import counted_exponentials

NO_TOKEN: Final = -1  # fills the window of a sequence that is shorter than it


@dataclass(frozen=True, slots=True)
class RasParams:
    """How the repetition-aware sampler draws (§2)."""

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    max_repeats: float = 0.1  # share of the window from which on a token counts as repeated

    @property
    def num_repeats(self) -> float:
        """A token that occurs so often in the window is drawn again."""
        return self.window * self.max_repeats


class Sampler(Protocol):
    """Draws for one sequence."""

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """The next id, given its log-probabilities [V] with forbidden ids at -inf, and the ids drawn before."""
        ...


def forbid(log_probs: Tensor, forbidden: Tensor) -> Tensor:
    """Put the last three ids of ``log_probs`` [B, V] to -inf where ``forbidden`` [B, 3] says so (``ForbiddenIds``)."""
    num_codes = log_probs.shape[-1] - NUM_SPECIAL_SPEECH_IDS
    special = log_probs[..., num_codes:].masked_fill(forbidden, -torch.inf)
    return torch.cat((log_probs[..., :num_codes], special), dim=-1)


def unistream_forbidden(num_drawn: Tensor, min_lens: Tensor, *, compat: bool = False) -> Tensor:
    """What must not be drawn when the text is there as a whole, [B, 3] (§3.3).

    The end of speech, while fewer than ``min_lens`` [B] tokens were drawn. Beyond the official rules, which end the speech
    at any of the three special ids, the two that mean nothing here are never drawn (§12).
    """
    early = num_drawn < min_lens  # [B]
    never = torch.full_like(early, fill_value=not compat)
    return torch.stack((early, never, never), dim=-1)


def forbidden_row(forbidden: ForbiddenIds, device: torch.device) -> Tensor:
    """The rule for one sequence as a row for :func:`forbid`."""
    return torch.tensor(forbidden, dtype=torch.bool, device=device)  # [3]


def empty_history(num_rows: int, params: RasParams, device: torch.device | str = "cpu") -> Tensor:
    """The windows of sequences that have drawn nothing, [B, window]."""
    return torch.full((num_rows, params.window), NO_TOKEN, dtype=torch.int64, device=device)


def push_history(history: Tensor, ids: Tensor) -> Tensor:
    """The windows after ``ids`` [B] were drawn."""
    return torch.cat((history[:, 1:], ids[:, None]), dim=1)


def sample_ras(log_probs: Tensor, history: Tensor, seeds: Tensor, steps: Tensor, params: RasParams) -> Tensor:
    """Draw one id for each row; no value leaves the device.

    Args:
        log_probs: [B, V], forbidden ids at -inf.
        history: the last ``window`` ids of each row, oldest first, [B, window]; :data:`NO_TOKEN` where there is none.
        seeds: of each sequence, [B], int64.
        steps: how many ids each sequence has drawn, [B], int64.
        params: how to draw.

    Returns:
        Ids [B].

    """
    vocab_size = log_probs.shape[-1]
    probs, candidates = torch.softmax(log_probs, dim=-1).topk(min(params.top_k, vocab_size), dim=-1)  # [B, top_k] each
    kept = probs.cumsum(dim=-1) - probs < params.top_p  # the mass before a candidate; the one that crosses stays
    counts = [candidates.shape[-1], vocab_size]
    log_first, log_second = torch.split(counted_exponentials(seeds, steps, counts).log(), counts, dim=-1)
    race = torch.where(kept, probs.log(), -torch.inf) - log_first
    first = candidates.gather(-1, race.argmax(dim=-1, keepdim=True))  # [B, 1]

    repeated = (history == first).sum(dim=-1, keepdim=True) >= params.num_repeats  # [B, 1]
    others = log_probs.scatter(-1, first, -torch.inf)  # [B, V]
    second = (others - log_second).argmax(dim=-1, keepdim=True)  # [B, 1]
    return torch.where(repeated, second, first)[:, 0]


class SeededRas:
    """The sampler of one sequence on its own: :func:`sample_ras` with a batch of one."""

    def __init__(self, seed: int, params: RasParams | None = None) -> None:
        self._seed = seed
        self._params = RasParams() if params is None else params
        self._num_drawn = 0

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """Draw with the next step of the seed."""
        device = log_probs.device
        window = list(history[-self._params.window :])
        padded = [NO_TOKEN] * (self._params.window - len(window)) + window
        drawn = sample_ras(
            log_probs[None],
            torch.tensor([padded], device=device),
            torch.tensor([self._seed], device=device),
            torch.tensor([self._num_drawn], device=device),
            self._params,
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

    def __init__(
        self, params: RasParams | None = None, *, exponentials: Callable[[Tensor], Tensor] = torch_exponentials
    ) -> None:
        self._params = RasParams() if params is None else params
        self._exponentials = exponentials

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """Draw from the global generator of the device of ``log_probs``."""
        params = self._params
        probs, candidates = log_probs.softmax(dim=0).sort(descending=True, stable=True)
        num_kept = 0
        mass = torch.zeros((), dtype=probs.dtype, device=probs.device)
        while num_kept < min(params.top_k, len(probs)) and mass < params.top_p:
            mass = mass + probs[num_kept]
            num_kept += 1
        drawn = int(candidates[self._race(probs[:num_kept])])
        if list(history[-params.window :]).count(drawn) >= params.num_repeats:
            others = log_probs.clone()
            others[drawn] = -torch.inf
            drawn = int(self._race(others.softmax(dim=0)))
        return drawn

    def _race(self, probs: Tensor) -> Tensor:
        return (probs / self._exponentials(probs)).argmax()
