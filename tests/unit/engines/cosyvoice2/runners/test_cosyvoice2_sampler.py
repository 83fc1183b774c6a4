import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import ForbiddenIds  # noqa: E402
from cc_tts.engines.cosyvoice2.runners.sampler import (  # noqa: E402
    NO_TOKEN,
    empty_history,
    forbid,
    push_history,
    sample_ras,
)
from lab.cosyvoice2.golden_fill import hashed_normal  # noqa: E402
from tests.parity.samplers import OfficialRas, SeededRas, forbidden_row  # noqa: E402
from tests.support.golden import read_arrays, read_json  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit


def exponentials_of_intel(seed: int) -> "Callable[[Tensor], Tensor]":
    """What ``exponential_`` draws on a CPU made by Intel, where the recorded cases come from.

    There torch asks its Mersenne twister for one seed a call, and MKL's MCG31 (L'Ecuyer's multiplicative congruential
    generator modulo 2**31 - 1) for the uniform numbers, of which the logarithm is taken.
    """
    twister = np.random.RandomState(seed)  # torch seeds its twister in just this way
    modulus = 2**31 - 1

    def draw(like: "Tensor") -> "Tensor":
        state = int(twister.randint(0, 2**32, dtype=np.uint32)) % modulus or 1
        states = []
        for _ in range(like.numel()):
            states.append(state)
            state = 1132489760 * state % modulus
        drawn: Tensor = -(torch.tensor(states, dtype=torch.float64) / modulus).log().to(like.dtype)
        return drawn

    return draw


@pytest.mark.parametrize("number", range(32))
def test_official_sampler_draws_the_recorded_ids(number: int) -> None:
    case = read_json("spec/ras.json")[number]
    scores = torch.log_softmax(hashed_normal(f"input:ras{number}", (6564,)) * case["scale"], dim=-1)
    sampler = OfficialRas(exponentials=exponentials_of_intel(case["seed"]))
    assert sampler(scores, case["decoded"]) == case["token"]


@pytest.mark.parametrize("seed", range(40))
def test_official_sampler_is_two_draws_of_multinomial(seed: int) -> None:
    torch.manual_seed(seed)
    scores = torch.log_softmax(3.0 * torch.randn(100), dim=-1)
    history = torch.randint(0, 100, (30,)).tolist() + scores.topk(5).indices.tolist()
    before = torch.get_rng_state()

    drawn = OfficialRas()(scores, history)
    after = torch.get_rng_state()

    torch.set_rng_state(before)
    probs, ids = scores.softmax(0).sort(descending=True, stable=True)
    num_kept = min(25, int((probs.cumsum(0) - probs < 0.8).sum()))
    expected = int(ids[probs[:num_kept].multinomial(1)])
    if expected in history[-10:]:
        others = scores.clone()
        others[expected] = -torch.inf
        expected = int(others.softmax(0).multinomial(1))
    assert drawn == expected
    assert torch.equal(after, torch.get_rng_state())


def chi_square_limit(degrees: int, deviations: float = 3.5) -> float:
    """The value a chi-square sum exceeds as seldom as a normal one exceeds ``deviations`` (Wilson and Hilferty 1931)."""
    spread = 2.0 / (9.0 * degrees)
    return float(degrees * (1.0 - spread + deviations * math.sqrt(spread)) ** 3)


def assert_same_distribution(ours: "np.ndarray[Any, Any]", theirs: "np.ndarray[Any, Any]") -> None:
    both = ours + theirs
    often = both >= 10
    ours = np.append(ours[often], ours[~often].sum()).astype(float)
    theirs = np.append(theirs[often], theirs[~often].sum()).astype(float)
    ratio = math.sqrt(ours.sum() / theirs.sum())
    seen = ours + theirs > 0
    ours, theirs = ours[seen], theirs[seen]
    value = float(((ours / ratio - theirs * ratio) ** 2 / (ours + theirs)).sum())
    assert value < chi_square_limit(len(ours) - 1)


def draws(log_probs: "Tensor", history: list[int], count: int, *, one_seed: bool) -> "Tensor":
    window = torch.tensor([[NO_TOKEN] * (10 - len(history)) + history]).expand(count, -1)
    numbers, same = torch.arange(count), torch.full((count,), 7)
    seeds, steps = (same, numbers) if one_seed else (numbers, same)
    return sample_ras(log_probs.expand(count, -1), window, seeds, steps)


@pytest.mark.parametrize("one_seed", [True, False], ids=["steps of one seed", "seeds at one step"])
@pytest.mark.parametrize("case", range(4))
def test_frequencies_are_the_recorded_ones(case: int, one_seed: bool) -> None:
    arrays = read_arrays("features.npz")
    log_probs = torch.from_numpy(arrays[f"ras{case}_logp"])
    history = arrays[f"ras{case}_decoded"].tolist()
    theirs = arrays[f"ras{case}_counts"]
    ours = draws(log_probs, history, 20_000, one_seed=one_seed).bincount(minlength=64).numpy()
    assert_same_distribution(ours, theirs)
    assert not history or ours[(theirs == 0)].sum() < 20  # the second draw is from all ids
    assert history or not ours[theirs == 0].any()  # the first from the nucleus only


def test_chi_square_tells_distributions_apart() -> None:
    probs = np.full(20, 0.05)
    other = probs * np.linspace(0.85, 1.15, 20)
    rng = np.random.default_rng(1)
    with pytest.raises(AssertionError):
        assert_same_distribution(rng.multinomial(20_000, probs), rng.multinomial(20_000, other / other.sum()))


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


def peaked(peak: int, size: int = 50) -> "Tensor":
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


def test_the_sampler_of_one_sequence_is_the_batch_with_its_steps() -> None:
    torch.manual_seed(5)
    history: list[int] = []
    sampler, window = SeededRas(99), empty_history(1)
    for step in range(30):
        log_probs = torch.log_softmax(2.0 * torch.randn(1, 40), dim=-1)
        batch = sample_ras(log_probs, window, torch.tensor([99]), torch.tensor([step]))
        history.append(sampler(log_probs[0], history))
        assert history[-1] == int(batch)
        window = push_history(window, batch)
    assert window[0].tolist() == history[-10:]


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


def test_the_rule_of_one_sequence_as_a_row() -> None:
    row = forbidden_row(ForbiddenIds(end=True, unused=False, fill=True), torch.device("cpu"))
    assert row.tolist() == [True, False, True]


def test_no_value_leaves_the_device() -> None:
    """Tensors without values can go through: nothing asks for one."""
    rows = {"device": "meta", "dtype": torch.int64}
    log_probs = torch.empty(4, 6564, device="meta")
    ids = sample_ras(
        forbid(log_probs, torch.empty(4, 3, device="meta", dtype=torch.bool)),
        torch.empty(4, 10, **rows),
        torch.empty(4, **rows),
        torch.empty(4, **rows),
    )
    assert ids.shape == (4,)
    assert push_history(torch.empty(4, 10, **rows), ids).shape == (4, 10)
