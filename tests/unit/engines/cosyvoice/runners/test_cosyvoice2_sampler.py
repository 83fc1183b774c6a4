import math
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.runners.counted_random import counted_exponentials, counted_normals
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


SEEDS = torch.arange(200) - 100
STEPS = torch.zeros_like(SEEDS)


def test_exponentials_are_exponential_and_independent() -> None:
    drawn, other = counted_exponentials(SEEDS, STEPS, (5000, 5000)).chunk(2, dim=1)
    assert torch.isfinite(drawn).all()
    assert (drawn > 0).all()
    assert abs(float(drawn.mean()) - 1.0) < 0.005
    assert abs(float(drawn.var()) - 1.0) < 0.02
    correlations = torch.corrcoef(drawn) - torch.eye(200)
    assert float(correlations.abs().max()) < 0.08
    assert abs(float(torch.corrcoef(torch.stack((drawn.flatten(), other.flatten())))[0, 1])) < 0.005


def test_normals_are_normal_and_independent() -> None:
    drawn = counted_normals(SEEDS, STEPS, 5000)
    assert float(drawn.abs().max()) < 5.8
    assert abs(float(drawn.mean())) < 0.005
    assert abs(float(drawn.var()) - 1.0) < 0.01
    assert abs(float((drawn**4).mean()) - 3.0) < 0.05
    shares = [float((drawn < limit).float().mean()) for limit in (-2.0, -1.0, 0.0, 1.0, 2.0)]
    assert shares == pytest.approx([0.0228, 0.1587, 0.5, 0.8413, 0.9772], abs=0.002)
    correlations = torch.corrcoef(drawn) - torch.eye(200)
    assert float(correlations.abs().max()) < 0.08
    halves = torch.stack((drawn[:, :2500].flatten(), drawn[:, 2500:].flatten()))  # of the same hashes
    assert abs(float(torch.corrcoef(halves)[0, 1])) < 0.005
    assert abs(float(torch.corrcoef(halves.square())[0, 1])) < 0.005


def test_numbers_depend_on_seed_and_step_alone() -> None:
    seeds, steps = torch.tensor([5, -7, 5]), torch.tensor([3, 3, 4])
    for draw in (partial(counted_normals, count=9), partial(counted_exponentials, counts=(4, 9))):
        together = draw(seeds, steps)
        alone = torch.cat([draw(seeds[i : i + 1], steps[i : i + 1]) for i in (2, 0, 1)])
        assert torch.equal(together[[2, 0, 1]], alone)
        assert not torch.equal(together[0], together[1])
        assert not torch.equal(together[0], together[2])


def test_a_draw_does_not_depend_on_how_many_numbers_the_others_have() -> None:
    few, many = (counted_exponentials(SEEDS, STEPS, (count, 6)) for count in (3, 8))
    assert torch.equal(few[:, :3], many[:, :3])
    assert torch.equal(few[:, 3:], many[:, 8:])
    assert torch.equal(counted_exponentials(SEEDS, STEPS, (3,)), few[:, :3])
