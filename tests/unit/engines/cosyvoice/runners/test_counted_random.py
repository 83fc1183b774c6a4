from functools import partial

import pytest

pytest.importorskip("torch")

import torch

from cc_tts.engines.cosyvoice.runners.counted_random import counted_exponentials, counted_normals

pytestmark = pytest.mark.unit

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
