from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    SOS,
    TASK,
    ForbiddenIds,
    LmInput,
    SpecialKind,
    SpeechIds,
    Table,
    text_inputs,
)
from cc_tts.engines.cosyvoice.prefill import Bistream, BistreamState, Prefill, SamplingRules
from cc_tts.errors import EngineFailed

pytestmark = pytest.mark.unit

IDS: Final = SpeechIds()
CUTS = st.lists(st.integers(1, 9), max_size=30)
FILLS = st.lists(st.integers(0, 60), max_size=6)


class Sampler:
    """Counts up from 501, says FILL where it is told to, and ends so many ids after the last text, if the rules allow it."""

    def __init__(self, fills: Sequence[int] = (), end_after: int = 4) -> None:
        self._fills, self._end_after = fills, end_after
        self.history: list[int] = []
        self._num_last = 0

    def sample(self, rules: SamplingRules) -> int:
        number = len(self.history)
        self._num_last += rules.forced_fill_at is None
        if number == rules.forced_fill_at or (number in self._fills and not rules.forbidden.fill):
            sampled = IDS.fill
        elif self._num_last > self._end_after and number >= rules.min_sampled:
            sampled = IDS.end
        else:
            sampled = 501 + number
        self.history.append(sampled)
        return sampled


def run(bistream: Bistream, sampler: Sampler) -> list[tuple[Prefill, list[int]]]:
    """All prefills that are possible now, each with the speech tokens that a device samples after it."""
    steps = []
    while (prefill := bistream.next_prefill()) is not None:
        tokens = []
        while bistream.state in (BistreamState.INTERLEAVED, BistreamState.LAST):
            assert len(sampler.history) < prefill.rules.max_sampled
            token = bistream.take(sampler.sample(prefill.rules))
            tokens += [] if token is None else [token]
        steps.append((prefill, tokens))
    return steps


def whole_run(bistream: Bistream, pieces: Sequence[Sequence[int]], sampler: Sampler) -> list[tuple[Prefill, list[int]]]:
    steps = []
    for piece in pieces:
        bistream.add_text(piece)
        steps += run(bistream, sampler)
    bistream.end_text()
    steps += run(bistream, sampler)
    assert bistream.state is BistreamState.DONE
    return steps


def new(*prompt_text: int) -> Bistream:
    return Bistream(prompt_text, speech_ids=IDS)


def cut(text: Sequence[int], sizes: Sequence[int]) -> list[Sequence[int]]:
    """The text in pieces of these sizes, the rest in one."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(text[start : start + size])
        start += size
    return [*pieces, text[start:]]


def by_the_rule(prompt_text: int, num_text: int) -> list[list[LmInput]]:
    """The prefills as if all text were known from the start."""
    text = [*text_inputs(range(prompt_text)), *text_inputs(range(100, 100 + num_text))]
    if num_text == 0 and len(text) < 5:
        return []
    if len(text) < 5:
        return [IDS.unistream_inputs(range(prompt_text), range(100, 100 + num_text), ())]
    prefills = [text[start : start + 5] for start in range(0, len(text) // 5 * 5, 5)]
    return [[SOS, *prefills[0]], *prefills[1:], [*text[len(text) // 5 * 5 :], TASK]]


@given(prompt_text=st.integers(0, 25), num_text=st.integers(1, 40), sizes=CUTS, fills=FILLS)
def test_any_cutting_of_a_text_prefills_the_same(
    prompt_text: int, num_text: int, sizes: list[int], fills: list[int]
) -> None:
    steps = whole_run(new(*range(prompt_text)), cut(range(100, 100 + num_text), sizes), Sampler(fills))
    assert [list(prefill.inputs) for prefill, _ in steps] == by_the_rule(prompt_text, num_text)
    assert [prefill.extends for prefill, _ in steps] == [False] + [True] * (len(steps) - 1)
    items = [item for prefill, _ in steps for item in prefill.inputs]
    assert [each.row for each in items if each.table is Table.TEXT] == [
        *range(prompt_text),
        *range(100, 100 + num_text),
    ]
    assert items.count(SOS) == items.count(TASK) == 1


def test_a_text_that_ends_early_is_spoken_in_one_piece() -> None:
    ((prefill, tokens),) = whole_run(new(1, 2), [[3], [4]], Sampler(end_after=1))
    assert prefill.inputs == IDS.unistream_inputs([1, 2], [3, 4], ())
    assert len(tokens) == 4  # two tokens of speech for each of text at least
    assert prefill.rules.max_sampled == 40


def test_no_text_is_no_speech() -> None:
    assert whole_run(new(1, 2), [], Sampler()) == []
    assert whole_run(new(), [[], []], Sampler()) == []


def test_what_means_nothing_is_forbidden() -> None:
    rules = [prefill.rules for prefill, _ in whole_run(new(), [range(6)], Sampler())]
    assert [each.forbidden for each in rules] == [ForbiddenIds(True, True, False), ForbiddenIds(False, True, True)]
    assert all(each.reports_special for each in rules)


@pytest.mark.parametrize(("num_text", "expected"), [(3, 20 * 3), (7, 15 + 20 * 7)])
def test_the_speech_after_the_last_text_is_limited(num_text: int, expected: int) -> None:
    steps = whole_run(new(), [range(num_text)], Sampler(end_after=10_000))
    assert sum(len(tokens) for _, tokens in steps) == expected


def test_fill_is_forced_and_then_text_is_waited_for() -> None:
    bistream, sampler = new(), Sampler()
    bistream.add_text(range(9))
    ((_, tokens),) = run(bistream, sampler)
    assert tokens == list(range(501, 516))
    assert sampler.history == [*tokens, IDS.fill]
    assert bistream.state is BistreamState.WAITING
    bistream.add_text([9])
    prefill = bistream.next_prefill()
    assert prefill is not None
    assert prefill.inputs == text_inputs(range(5, 10))
    assert prefill.rules.forced_fill_at == 31
    assert bistream.next_prefill() is None  # it is sampling


@pytest.mark.parametrize("sampled", [IDS.end, IDS.num_codes + IDS.kinds.index(SpecialKind.UNUSED)])
def test_an_id_out_of_its_place_fails(sampled: int) -> None:
    bistream = new()
    bistream.add_text(range(5))
    assert bistream.next_prefill() is not None
    with pytest.raises(EngineFailed, match=f"special id {sampled} "):
        bistream.take(sampled)


def test_rules_count_from_the_start_of_the_sequence() -> None:
    bistream = new()
    assert bistream.next_prefill() is None
    bistream.add_text(range(5))
    first = bistream.next_prefill()
    assert first is not None
    assert first.rules.forced_fill_at == 15
    for sampled in (7, 8, IDS.fill):
        bistream.take(sampled)
    bistream.end_text()
    last = bistream.next_prefill()
    assert last is not None
    assert (last.rules.min_sampled, last.rules.max_sampled, last.rules.forced_fill_at) == (3, 103, None)
