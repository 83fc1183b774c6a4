"""What is taken for a runaway, and that normal speech is not.

Without trained weights "normal" is: the ids of the golden data, and ids that the model's sampler draws from peaked
distributions, as long as texts take at the paces that the specification names, with phrases that are said three times.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SOS, TASK, LengthLimits
from cc_tts.engines.cosyvoice.prefill import Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runaway import (
    LENGTH_FACTOR,
    LENGTH_SPARE,
    MAX_PACE,
    MAX_REPEATED,
    MIN_DISTINCT,
    MIN_PACE,
    TYPICAL_PACE,
    WINDOW,
    Alarm,
    RunawayCause,
    RunawayGuard,
    pace_of,
    shares_said,
)

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit

GOLDEN: Final = [Path("tests/data") / name for name in ("golden/tiny.npz", "golden3/tiny.npz")]
NUM_NORMAL: Final = 1000
MAX_TOKENS: Final = 600
NUM_DRAWN: Final = 100
"""In a row; a longer sequence is made of several, as drawing takes the time of this test."""
NUM_CODES: Final = 243  # of the small golden models: with fewer codes chance repeats more than with the published 6561


def guard_of(num_likely: float = 0.0) -> RunawayGuard:
    """The guard of a text that takes so many tokens as a rule; 0: unknown."""
    rules = SamplingRules.of_request(LengthLimits(0, MAX_TOKENS))
    return RunawayGuard(Prefill([SOS, TASK], rules, num_likely=num_likely))


def first_alarm(ids: Iterable[int], num_likely: float = 0.0) -> tuple[int, Alarm] | None:
    guard, tokens = guard_of(num_likely), list[int]()
    for place, each in enumerate(ids):
        tokens.append(each)
        if (alarm := guard.look(tokens, place)) is not None:
            return len(tokens), alarm
    return None


# --- runaways


@pytest.mark.parametrize("period", [1, 2, 5, 11, 30, 100, 200])
@pytest.mark.parametrize("num_before", [0, 1, 77])
def test_a_loop_is_found_after_a_second_of_it_and_where_it_began_is_known(period: int, num_before: int) -> None:
    rng = random.Random(period)
    before = rng.choices(range(1000, 6000), k=num_before)
    cycle = rng.sample(range(1000), period)
    found = first_alarm(itertools.chain(before, itertools.islice(itertools.cycle(cycle), 1000)))
    at = num_before + period + MAX_REPEATED
    assert found == (at, Alarm(RunawayCause.REPEATS, num_before + period))


def test_a_loop_that_begins_within_another_repetition_is_found() -> None:
    """The token before is the same for two of the places that it could go on from."""
    phrase = [1, 2, 3, 4, 5, 6, 7, 8]
    ids = [*range(100, 160), *phrase, *range(20, 28), *phrase, *range(30, 38), *phrase]
    found = first_alarm([*ids, *itertools.islice(itertools.cycle([7, 8]), 40)])
    assert found is not None
    assert found[1].cause is RunawayCause.REPEATS
    assert found[1].num_good is not None
    assert found[1].num_good == len(ids)


def test_few_different_tokens_are_found_after_two_seconds() -> None:
    rng = random.Random(2)
    few = iter(lambda: rng.randrange(MIN_DISTINCT), None)
    assert first_alarm(itertools.islice(few, 300)) == (WINDOW, Alarm(RunawayCause.REPEATS, 0))


def test_what_takes_twice_its_time_and_a_second_is_found() -> None:
    ids = random.Random(1).choices(range(6561), k=300)
    limit = int(LENGTH_FACTOR * 60 + LENGTH_SPARE)
    assert first_alarm(ids, 60) == (limit + 1, Alarm(RunawayCause.LENGTH))
    assert first_alarm(ids[:limit], 60) is None
    assert first_alarm(ids, 0) is None  # how long the text takes is not known


def test_after_it_was_turned_back_it_knows_what_is_left_and_no_more() -> None:
    rng = random.Random(6)
    tokens, guard = rng.choices(range(6561), k=60), guard_of()
    for end in range(1, 61):
        assert guard.look(tokens[:end], end - 1) is None
    kept, rest = tokens[:40], tokens[40:]
    assert guard.turn_back(Alarm(RunawayCause.REPEATS, 40), kept, 60) is not None
    for end in range(1, 21):  # what was cut off comes again, which is no repetition
        assert guard.look([*kept, *rest[:end]], 59 + end) is None
    repeated = [guard.look([*tokens, *tokens[: end + 1]], 80 + end) for end in range(MAX_REPEATED)]
    assert repeated == [None] * (MAX_REPEATED - 1) + [Alarm(RunawayCause.REPEATS, 60)]


@pytest.mark.parametrize(
    ("num_speech", "num_text", "pace"),
    [
        (0, 0, TYPICAL_PACE),
        (0, 9, TYPICAL_PACE),
        (9, 0, TYPICAL_PACE),
        (66, 10, 6.6),
        (9, 9, MIN_PACE),
        (99, 9, MAX_PACE),
    ],
)
def test_the_pace_is_that_of_the_prompt_within_bounds(num_speech: int, num_text: int, pace: float) -> None:
    assert pace_of(num_speech, num_text) == pytest.approx(pace)


def test_how_much_was_said_of_each_text_chunk() -> None:
    marks = [(0, 4), (10, 5), (10, 6), (20, 7)]
    assert shares_said(0.5, marks, 30) == [(6, 0.5), (7, 0.0)]
    assert shares_said(0.0, marks, 30) == [(4, 0.0), (6, 0.0), (7, 0.0)]
    assert shares_said(1.0, marks, 30) == []


# --- normal speech


def golden_ids() -> list[list[int]]:
    names = ("forced", "out", "token", "tokens", "prompt_speech")
    return [
        np.load(path)[name].ravel().tolist()
        for path in GOLDEN
        for name in np.load(path).files
        if name.split("_", 1)[-1] in names or name.endswith(("_forced", "_out", "_token", "_tokens", "_speech"))
        if np.load(path)[name].dtype.kind in "iu"
    ]


def test_the_golden_ids_are_normal() -> None:
    found = [ids for ids in golden_ids() if len(ids) > MAX_REPEATED]
    assert len(found) >= 12
    assert all(first_alarm(ids) is None for ids in found)


def drawn(num_sequences: int, num_steps: int) -> "Tensor":
    """Ids that the model's sampler draws, [sequences, steps]; a sound lasts three tokens, in which one id is likely."""
    torch = pytest.importorskip("torch")
    from cc_tts.engines.cosyvoice.runners.sampler import empty_history, push_history, sample_ras

    generator = torch.Generator().manual_seed(11)
    history, rows = empty_history(num_sequences), torch.arange(num_sequences)
    chosen = []
    for step in range(num_steps):
        if step % 3 == 0:
            scores = 2.5 * torch.randn((num_sequences, NUM_CODES), generator=generator)
            log_probs = torch.log_softmax(scores, dim=-1)
        ids = sample_ras(log_probs, history, rows, torch.full_like(rows, step))
        history = push_history(history, ids)
        chosen.append(ids)
    found: Tensor = torch.stack(chosen, dim=1)
    return found


def lengths(rng: random.Random) -> tuple[int, float]:
    """The tokens of a text, up to half more or less than it takes as a rule, and those that it takes as a rule."""
    num_likely = rng.uniform(MIN_PACE, MAX_PACE) * rng.randint(2, 75)
    return min(MAX_TOKENS, round(num_likely * rng.uniform(0.5, 1.5))), num_likely


def with_a_phrase_thrice(ids: Sequence[int], rng: random.Random) -> list[int]:
    """A number of 0.6 s is said three times, each time with a third of its tokens as before."""
    begin = rng.randrange(max(1, len(ids) - 45))
    said = list(ids)
    for place in range(begin, min(begin + 15, len(ids) - 30)):
        for again in (15, 30):
            if rng.random() < 1 / 3:
                said[place + again] = said[place]
    return said


def test_a_thousand_normal_sequences_raise_no_alarm() -> None:
    rng = random.Random(4)
    alarms = []
    rows = drawn(NUM_NORMAL, NUM_DRAWN).tolist()
    for first in range(NUM_NORMAL):
        ids = [each for row in range(MAX_TOKENS // NUM_DRAWN) for each in rows[(first + 7 * row) % NUM_NORMAL]]
        num_tokens, num_likely = lengths(rng)
        alarms.append(first_alarm(with_a_phrase_thrice(ids[:num_tokens], rng), num_likely))
    assert alarms == [None] * NUM_NORMAL
