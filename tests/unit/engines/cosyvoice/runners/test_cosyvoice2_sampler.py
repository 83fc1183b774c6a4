import math
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.runners.sampler import (
    NO_TOKEN,
    empty_history,
    forbid,
    push_history,
    sample_ras,
)
from tests.parity.samplers import SeededRas

pytestmark = pytest.mark.unit


def draws(log_probs: Tensor, history: list[int], count: int, *, one_seed: bool) -> Tensor:
    window = torch.tensor([[NO_TOKEN] * (10 - len(history)) + history]).expand(count, -1)
    numbers, same = torch.arange(count), torch.full((count,), 7)
    seeds, steps = (same, numbers) if one_seed else (numbers, same)
    return sample_ras(log_probs.expand(count, -1), window, seeds, steps)


def test_a_sequence_draws_the_same_in_any_company() -> None:
    torch.manual_seed(3)
    log_probs = torch.log_softmax(2.0 * torch.randn(12, 300), dim=-1)
    history = torch.randint(0, 300, (12, 10))
    seeds, steps = torch.randint(-(2**62), 2**62, (12,)), torch.randint(0, 500, (12,))
    together = sample_ras(log_probs, history, seeds, steps)
    order = torch.randperm(12)
    shuffled = sample_ras(log_probs[order], history[order], seeds[order], steps[order])
    rows = [slice(row, row + 1) for row in range(12)]
    alone = [sample_ras(log_probs[row], history[row], seeds[row], steps[row]) for row in rows]
    assert torch.equal(together[order], shuffled)
    assert torch.equal(together, torch.cat(alone))


def peaked(peak: int, size: int = 50) -> Tensor:
    scores = torch.zeros(size)
    scores[peak] = 12.0
    log_probs: Tensor = torch.log_softmax(scores, dim=-1)
    return log_probs


def test_a_token_of_the_window_is_drawn_again_from_all_others() -> None:
    drawn = draws(peaked(4), [4], 2000, one_seed=True)
    assert not (drawn == 4).any()
    assert len(set(drawn.tolist())) == 49


def test_a_token_before_the_window_may_come_again() -> None:
    sampler = SeededRas(1)
    assert sampler(peaked(4), [4, *range(10, 20)]) == 4
    assert sampler(peaked(4), [4, *range(10, 19)]) != 4


def test_forbidden_ids_are_never_drawn_and_others_keep_their_scores() -> None:
    log_probs = torch.log_softmax(torch.tensor([[0.0, 0.0, 9.0, 9.0, 9.0]] * 2), dim=-1)
    masked = forbid(log_probs, torch.tensor([[True, True, True], [True, False, True]]))
    assert masked[0, 2:].tolist() == [-math.inf] * 3
    assert masked[1, 3] == log_probs[1, 3]
    assert torch.equal(masked[:, :2], log_probs[:, :2])
    steps = torch.arange(500)
    drawn = sample_ras(masked[:1].expand(500, -1), empty_history(500), steps, steps)
    assert set(drawn.tolist()) == {0, 1}
    assert drawn.bincount()[0] > 200


def test_no_value_leaves_the_device() -> None:
    """Tensors without values can go through: nothing asks for one."""
    rows: dict[str, Any] = {"device": "meta", "dtype": torch.int64}
    log_probs = torch.empty(4, 6564, device="meta")
    ids = sample_ras(
        forbid(log_probs, torch.empty(4, 3, device="meta", dtype=torch.bool)),
        torch.empty(4, 10, **rows),
        torch.empty(4, **rows),
        torch.empty(4, **rows),
    )
    assert ids.shape == (4,)
    assert push_history(torch.empty(4, 10, **rows), ids).shape == (4, 10)
