from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from cc_tts.engines.cosyvoice2.engine.bistream import Bistream, BistreamState, BistreamStep  # noqa: E402
from cc_tts.engines.cosyvoice2.engine.sampling_rules import SamplingRules  # noqa: E402
from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import (  # noqa: E402
    SOS,
    TASK,
    ForbiddenIds,
    LmInput,
    SpeechIds,
    Table,
    speech_inputs,
    text_inputs,
    unistream_inputs,
)
from cc_tts.errors import EngineFailed  # noqa: E402
from tests.support.golden import read_json  # noqa: E402

pytestmark = pytest.mark.unit

IDS: Final = SpeechIds()
TRACES: Final[list[dict[str, Any]]] = read_json("spec/bistream.json")

# What a sampler draws: it is shown the drawn ids and whether the last text is in.
Draw = Callable[[Sequence[int], bool], int]


class Drawn:
    """A sampler that counts up from 501, says FILL where it is told to, and ends so many draws after the last text."""

    def __init__(self, fills: Sequence[int] = (), end_after: int = 4) -> None:
        self._fills, self._end_after = fills, end_after
        self._num_draws, self._num_last = 0, 0

    def __call__(self, history: Sequence[int], is_last: bool) -> int:
        self._num_draws += 1
        self._num_last += is_last
        if self._num_last > self._end_after:
            return IDS.end
        return IDS.fill if len(history) in self._fills and not is_last else 500 + self._num_draws


def run(bistream: Bistream, draw: Draw) -> Iterator[tuple[BistreamStep, int | None]]:
    """Every step that can be made now, with the speech token given out after it."""
    while (step := bistream.next_step()) is not None:
        drawn = step.forced
        if drawn is None:
            drawn = draw(bistream.history, bistream.state is BistreamState.LAST)
        yield step, bistream.take(drawn)


def whole_run(bistream: Bistream, pieces: Sequence[Sequence[int]], draw: Draw) -> list[tuple[BistreamStep, int | None]]:
    steps = []
    for piece in pieces:
        bistream.add_text(piece)
        steps += list(run(bistream, draw))
    bistream.end_text()
    steps += list(run(bistream, draw))
    assert bistream.state is BistreamState.DONE
    return steps


def fed(steps: Sequence[tuple[BistreamStep, int | None]]) -> list[list[LmInput]]:
    return [list(step.inputs) for step, _ in steps]


def emitted(steps: Sequence[tuple[BistreamStep, int | None]]) -> list[int]:
    return [token for _, token in steps if token is not None]


def spelled(inputs: Sequence[LmInput]) -> str:
    """As the recorded traces spell it."""
    words = {SOS: "SOS", TASK: "TASK"}
    return " ".join(words.get(item, f"{'t' if item.table is Table.TEXT else 's'}{item.row}") for item in inputs)


# --- as the official code does


@pytest.mark.parametrize("late", [False, True], ids=["text comes in time", "all text is there"])
@pytest.mark.parametrize("trace", TRACES, ids=range(len(TRACES)))
def test_official_order_is_the_recorded_one(trace: dict[str, Any], late: bool) -> None:
    bistream = Bistream(range(1, trace["prompt_text"] + 1), range(trace["prompt_speech"]), compat=True)
    draw = Drawn(trace["sampler_returns_fill_at_out_index"], trace["sampler_eos_after"])
    text = [[1000 + number] for number in range(trace["tts_text"])]
    if late:
        for piece in text:
            bistream.add_text(piece)
        steps = whole_run(bistream, [], draw)
    else:
        steps = whole_run(bistream, text, draw)
    assert [spelled(inputs) for inputs in fed(steps)] == trace["feeds"]
    assert emitted(steps) == trace["out"]


def test_official_end_feeds_the_last_speech_token_twice() -> None:
    steps = fed(whole_run(Bistream(compat=True), [[text] for text in range(7)], Drawn()))
    last = steps.index([*speech_inputs([515]), *text_inputs([5, 6]), TASK])
    assert steps[last - 1] == speech_inputs([515])


def test_official_rules_drop_prompt_speech_when_text_is_short() -> None:
    steps = whole_run(Bistream([1, 2], range(40), compat=True), [[3], [4], [5], [6]], Drawn())
    assert spelled(steps[0][0].inputs).split()[-3:] == ["s14", "t6", "TASK"]


def test_officially_one_group_is_taken_for_each_arrival() -> None:
    """The first arrival starts the speech, the second brings one more group, and eight text tokens wait for the end."""
    steps = fed(whole_run(Bistream(compat=True), [range(5), range(5, 18)], Drawn()))
    groups = [[item.row for item in inputs if item.table is Table.TEXT] for inputs in steps]
    assert [group for group in groups if group] == [[*range(5)], [*range(5, 10)], [*range(10, 18)]]


def test_officially_only_the_end_is_forbidden_and_only_before_the_last_text() -> None:
    steps = whole_run(Bistream(compat=True), [[text] for text in range(6)], Drawn())
    rules = [tuple(step.forbidden) for step, _ in steps]
    assert rules == [(True, False, False)] * 16 + [(False, False, False)] * 5


# --- our own rules

CUTS = st.lists(st.integers(1, 9), max_size=30)
FILLS = st.lists(st.integers(0, 60), max_size=6)


def cut(text: Sequence[int], sizes: Sequence[int]) -> list[Sequence[int]]:
    """The text in pieces of these sizes, the rest in one."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(text[start : start + size])
        start += size
    return [*pieces, text[start:]]


def by_the_rule(prompt_text: int, prompt_speech: int, num_text: int, fills: Sequence[int]) -> list[list[LmInput]]:
    """The order of feeding as if all text were known from the start."""
    text = [*text_inputs(range(prompt_text)), *text_inputs(range(100, 100 + num_text))]
    speech = speech_inputs(range(prompt_speech))
    draw = Drawn(fills)
    history: list[int] = []
    feeds: list[list[LmInput]] = []
    num_groups = max(1, -(-prompt_speech // 15))
    if num_text == 0:
        return []
    if len(text) < 5 * num_groups:
        feeds.append(unistream_inputs(range(prompt_text), range(100, 100 + num_text), range(prompt_speech)))
    else:
        feed = [SOS]
        for _ in range(num_groups):
            feed += text[:5] + speech[:15]
            text, speech = text[5:], speech[15:]
        next_fill = 15 - prompt_speech % 15
        while True:
            feeds.append(feed)
            drawn = IDS.fill if len(history) == next_fill else draw(history, is_last=False)
            history.append(drawn)
            feed = speech_inputs([drawn])
            if drawn == IDS.fill:
                next_fill = len(history) + 15
                if len(text) < 5:
                    break
                feed, text = text[:5], text[5:]
        feeds.append([*text, TASK])
    while (drawn := draw(history, is_last=True)) != IDS.end:
        history.append(drawn)
        feeds.append(speech_inputs([drawn]))
    return feeds


@given(
    prompt_text=st.integers(0, 25),
    prompt_speech=st.integers(0, 50),
    num_text=st.integers(0, 40),
    sizes=CUTS,
    fills=FILLS,
)
def test_any_cutting_of_a_text_feeds_the_same(
    prompt_text: int, prompt_speech: int, num_text: int, sizes: list[int], fills: list[int]
) -> None:
    bistream = Bistream(range(prompt_text), range(prompt_speech))
    steps = fed(whole_run(bistream, cut(range(100, 100 + num_text), sizes), Drawn(fills)))
    assert steps == by_the_rule(prompt_text, prompt_speech, num_text, fills)


@given(prompt_text=st.integers(0, 25), prompt_speech=st.integers(0, 50), num_text=st.integers(1, 40), sizes=CUTS)
def test_every_input_is_fed_once_and_in_order(
    prompt_text: int, prompt_speech: int, num_text: int, sizes: list[int]
) -> None:
    bistream = Bistream(range(prompt_text), range(prompt_speech))
    steps = whole_run(bistream, cut(range(100, 100 + num_text), sizes), Drawn())
    items = [item for inputs in fed(steps) for item in inputs]
    assert [item.row for item in items if item.table is Table.TEXT] == [
        *range(prompt_text),
        *range(100, 100 + num_text),
    ]
    speech = [item.row for item in items if item.table is Table.SPEECH]
    assert speech == [*range(prompt_speech), *emitted(steps)]
    assert items.count(SOS) == items.count(TASK) == 1


def test_a_text_that_ends_early_is_spoken_in_one_piece() -> None:
    steps = whole_run(Bistream([1, 2], range(40)), [[3], [4], [5], [6]], Drawn(end_after=9))
    assert fed(steps)[0] == unistream_inputs([1, 2], [3, 4, 5, 6], range(40))
    rules = [tuple(step.forbidden) for step, _ in steps]
    assert (
        rules == [(True, True, True)] * 8 + [(False, True, True)] * 2
    )  # two tokens of speech for each of text at least


def test_no_text_is_no_speech() -> None:
    assert whole_run(Bistream([1, 2, 3, 4, 5, 6], range(10)), [], Drawn()) == []
    assert whole_run(Bistream(), [[], []], Drawn()) == []


def test_what_means_nothing_is_forbidden() -> None:
    steps = whole_run(Bistream(), [range(6)], Drawn())
    rules = [tuple(step.forbidden) for step, _ in steps]
    assert rules == [(True, True, False)] * 16 + [(False, True, True)] * 5


@pytest.mark.parametrize(("num_text", "expected"), [(3, 20 * 3), (7, 15 + 20 * 7)])
def test_the_speech_after_the_last_text_is_limited(num_text: int, expected: int) -> None:
    steps = whole_run(Bistream(), [range(num_text)], Drawn(end_after=10_000))
    assert len(emitted(steps)) == expected


def test_fill_is_forced_and_then_text_is_waited_for() -> None:
    bistream = Bistream()
    bistream.add_text(range(9))
    steps = list(run(bistream, Drawn()))
    assert [step.forced for step, _ in steps] == [None] * 15 + [IDS.fill]
    assert emitted(steps) == list(range(501, 516))
    assert bistream.state is BistreamState.WAITING
    assert bistream.history == [*range(501, 516), IDS.fill]
    bistream.add_text([9])
    step = bistream.next_step()
    assert step is not None
    assert list(step.inputs) == text_inputs(range(5, 10))
    assert bistream.next_step() == step  # asking changes nothing


@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("drawn", [IDS.end, IDS.unused])
def test_an_id_out_of_its_place_fails(compat: bool, drawn: int) -> None:
    bistream = Bistream(compat=compat)
    bistream.add_text(range(5))
    assert bistream.next_step() is not None
    with pytest.raises(EngineFailed, match=f"special id {drawn} "):
        bistream.take(drawn)


def test_text_after_the_end_is_refused() -> None:
    bistream = Bistream()
    bistream.end_text()
    with pytest.raises(ValueError, match="after the end"):
        bistream.add_text([1])


# --- rules for a device


def test_rules_of_a_stream_in_each_state() -> None:
    stream = Bistream((), range(4))
    with pytest.raises(ValueError, match="nothing is drawn"):
        _ = stream.rules
    stream.add_text(range(5))
    stream.next_step()
    forbidden = ForbiddenIds(end=True, unused=True, fill=False)
    assert stream.rules == SamplingRules(forbidden=forbidden, forced_fill_at=11, reports_special=True)
    for drawn in (7, 8, 6563):
        stream.take(drawn)
    stream.end_text()
    stream.next_step()
    forbidden = ForbiddenIds(end=False, unused=True, fill=True)
    last = SamplingRules(forbidden=forbidden, min_drawn=3, max_drawn=103, reports_special=True)
    assert stream.rules == last
    stream.take(9)
    assert stream.rules == last
    stream.take(6561)
    with pytest.raises(ValueError, match="nothing is drawn"):
        _ = stream.rules


def test_official_rules_of_a_stream() -> None:
    stream = Bistream(compat=True)
    stream.add_text(range(5))
    stream.next_step()
    assert stream.rules.forbidden == ForbiddenIds(end=True, unused=False, fill=False)
    stream.take(6563)
    stream.end_text()
    stream.next_step()
    forbidden = ForbiddenIds(end=False, unused=False, fill=False)
    assert stream.rules == SamplingRules(forbidden=forbidden, reports_special=True)
