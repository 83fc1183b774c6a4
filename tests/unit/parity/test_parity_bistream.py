from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice2.engine.prefill import BistreamState  # noqa: E402
from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import (  # noqa: E402
    SOS,
    TASK,
    LmInput,
    SpeechIds,
    Table,
    speech_inputs,
    text_inputs,
)
from cc_tts.errors import EngineFailed  # noqa: E402
from tests.parity.bistream import BistreamStep, SteppedBistream  # noqa: E402
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


def run(bistream: SteppedBistream, draw: Draw) -> Iterator[tuple[BistreamStep, int | None]]:
    """Every step that can be made now, with the speech token given out after it."""
    while (step := bistream.next_step()) is not None:
        drawn = step.forced
        if drawn is None:
            drawn = draw(bistream.history, bistream.state is BistreamState.LAST)
        yield step, bistream.take(drawn)


def whole_run(
    bistream: SteppedBistream, pieces: Sequence[Sequence[int]], draw: Draw
) -> list[tuple[BistreamStep, int | None]]:
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


@pytest.mark.parametrize("late", [False, True], ids=["text comes in time", "all text is there"])
@pytest.mark.parametrize("trace", TRACES, ids=range(len(TRACES)))
def test_official_order_is_the_recorded_one(trace: dict[str, Any], late: bool) -> None:
    bistream = SteppedBistream(range(1, trace["prompt_text"] + 1), range(trace["prompt_speech"]), compat=True)
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
    steps = fed(whole_run(SteppedBistream(compat=True), [[text] for text in range(7)], Drawn()))
    last = steps.index([*speech_inputs([515]), *text_inputs([5, 6]), TASK])
    assert steps[last - 1] == speech_inputs([515])


def test_official_rules_drop_prompt_speech_when_text_is_short() -> None:
    steps = whole_run(SteppedBistream([1, 2], range(40), compat=True), [[3], [4], [5], [6]], Drawn())
    assert spelled(steps[0][0].inputs).split()[-3:] == ["s14", "t6", "TASK"]


def test_officially_one_group_is_taken_for_each_arrival() -> None:
    """The first arrival starts the speech, the second brings one more group, and eight text tokens wait for the end."""
    steps = fed(whole_run(SteppedBistream(compat=True), [range(5), range(5, 18)], Drawn()))
    groups = [[item.row for item in inputs if item.table is Table.TEXT] for inputs in steps]
    assert [group for group in groups if group] == [[*range(5)], [*range(5, 10)], [*range(10, 18)]]


def test_officially_only_the_end_is_forbidden_and_only_before_the_last_text() -> None:
    steps = whole_run(SteppedBistream(compat=True), [[text] for text in range(6)], Drawn())
    rules = [tuple(step.forbidden) for step, _ in steps]
    assert rules == [(True, False, False)] * 16 + [(False, False, False)] * 5


@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("drawn", [IDS.end, IDS.unused])
def test_an_id_out_of_its_place_fails(compat: bool, drawn: int) -> None:
    bistream = SteppedBistream(compat=compat)
    bistream.add_text(range(5))
    assert bistream.next_step() is not None
    with pytest.raises(EngineFailed, match=f"special id {drawn} "):
        bistream.take(drawn)
