"""Who spoke when, and what the caller felt of it. All times are ms from the answer."""

import pytest

from cc_tts.softphone.probe.turns import (
    Act,
    Spread,
    Stretch,
    Turn,
    dead_air_ms,
    first_speech_ms,
    spread_of,
    turns_of,
)

pytestmark = pytest.mark.unit

PAUSE_MS = 500.0
END_MS = 20_000.0


def words(begin_ms: float, end_ms: float) -> Act:
    return Act(what="speech", begin_ms=begin_ms, end_ms=end_ms)


def key(at_ms: float) -> Act:
    return Act(what="key", begin_ms=at_ms, end_ms=at_ms)


def turns(acts: list[Act], *agent: tuple[float, float], end_ms: float = END_MS) -> list[Turn]:
    return turns_of(acts, [Stretch(*each) for each in agent], end_ms=end_ms, pause_ms=PAUSE_MS)


@pytest.mark.parametrize(
    ("act", "agent", "stop_ms", "response_ms", "silence_ms", "is_talked_over"),
    [
        (words(3000, 5000), [(100, 2000), (5800, 9000)], None, 800, 800, False),
        (words(3000, 5000), [(100, 3400), (5900, 9000)], 400, 900, 900, False),
        (words(3000, 4000), [(100, 5000), (6500, 9000)], 2000, 2500, 1500, False),
        (words(3000, 6000), [(100, 2000), (5000, 9000)], None, None, 0, True),
        (words(3000, 6000), [(4000, 4300), (6700, 9000)], None, 700, 700, False),
        (words(3000, 6000), [(100, 3500), (5000, 9000)], 500, None, 0, True),
        (key(3000), [(100, 3050), (4000, 5000)], 50, 1000, 950, False),
    ],
    ids=[
        "an answer counts from the end of the caller's speech",
        "a stop counts from the begin of the caller's speech",
        "a stop after the caller's end shortens the silence",
        "an agent that does not wait talks over the caller",
        "a backchannel is neither an answer nor talk over the caller",
        "an agent that resumes while the caller speaks talks over the caller",
        "a key stops an agent too",
    ],
)
def test_a_turn(
    act: Act,
    agent: list[tuple[float, float]],
    stop_ms: float | None,
    response_ms: float | None,
    silence_ms: float,
    *,
    is_talked_over: bool,
) -> None:
    (turn,) = turns([act], *agent)
    assert (turn.what, turn.is_interruption) == (act.what, stop_ms is not None)
    assert (turn.stop_ms, turn.response_ms, turn.silence_ms) == (stop_ms, response_ms, silence_ms)
    assert turn.is_talked_over is is_talked_over


@pytest.mark.parametrize(("end_ms", "stop_ms"), [(5499, None), (5500, 2000)])
def test_a_stop_is_one_once_a_pause_has_followed(end_ms: float, stop_ms: float | None) -> None:
    (turn,) = turns([words(3000, 4000)], (100, 5000), end_ms=end_ms)
    assert turn.is_interruption
    assert turn.stop_ms == stop_ms


def test_no_answer_is_silence_until_the_caller_goes_on() -> None:
    first, second = turns([words(3000, 4000), words(14_000, 15_000)], (100, 2000))
    assert (first.response_ms, first.silence_ms) == (None, 10_000)
    assert (second.response_ms, second.silence_ms) == (None, END_MS - 15_000)


def test_an_answer_belongs_to_the_words_before_it() -> None:
    first, second = turns([words(1000, 2000), words(8000, 9000)], (9700, 12_000))
    assert (first.response_ms, second.response_ms) == (None, 700)
    assert turns([], (100, 2000)) == []


def test_dead_air_is_longer_than_its_bound_and_is_due_to_speech_only() -> None:
    found = turns([words(1000, 2000), words(8000, 9000), key(14_000)], (5500, 7000), (10_000, 11_000))
    assert list(dead_air_ms(found, 1000, 3000)) == [3500]
    assert list(dead_air_ms(found, 3001, 3000)) == [3001, 3500]
    assert list(dead_air_ms(found, 1000, 900)) == [1000, 3500, 1000]


def test_the_first_speech_counts_from_the_answer() -> None:
    assert first_speech_ms([]) is None
    assert first_speech_ms([Stretch(-3000, -1000), Stretch(300, 900)]) == 300, "a ringing announcement is over"
    assert first_speech_ms([Stretch(-3000, 1000)]) == 0


def test_percentiles_are_linear() -> None:
    assert spread_of([]) == Spread()
    spread = spread_of([300.0, 100.0, 200.04])
    assert (spread.count, spread.p50, spread.p95, spread.max) == (3, 200.0, 290.0, 300.0)
    assert spread.values == (300.0, 100.0, 200.0)
