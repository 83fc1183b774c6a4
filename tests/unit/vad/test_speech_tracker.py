"""Where speech begins and ends, window by window."""

import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.vad.speech import (
    MAX_GAP_MS,
    Edge,
    Listening,
    SpeechConfirmed,
    SpeechStarted,
    SpeechStopped,
    SpeechTracker,
)

pytestmark = pytest.mark.unit

STEP_MS = 20


def ns(ms: int) -> int:
    return ms * NS_PER_MS


def run(voices: str, **listening: int) -> list[tuple[int, Edge]]:
    """The edges and the end of the window in which each was found, ms; a letter is 20 ms, ``v`` one with voice."""
    tracker, found = SpeechTracker(Listening(**listening)), []
    for number, letter in enumerate(voices):
        start, end = number * STEP_MS, (number + 1) * STEP_MS
        found += [(end, edge) for edge in tracker.window(ns(start), ns(end), is_voice=letter == "v")]
    return found


def test_speech_starts_after_its_shortest_length_and_stops_after_silence() -> None:
    found = run("-" * 5 + "v" * 20 + "-" * 40, min_speech_ms=300, silence_ms=540)
    assert found == [(400, SpeechStarted(ns(100))), (500 + 540, SpeechStopped(ns(100), ns(500)))]


def test_what_is_shorter_is_no_speech() -> None:
    assert run("v" * 14 + "-" * 60) == []
    assert len(run("v" * 15 + "-" * 60)) == 2


def test_short_gaps_do_not_begin_anew_and_long_ones_do() -> None:
    gap = MAX_GAP_MS // STEP_MS
    assert run("v" * 8 + "-" * gap + "v" * 8)[0] == (340, SpeechStarted(0))
    assert run("v" * 8 + "-" * (gap + 1) + "v" * 8) == []
    assert run("v" * 8 + "-" * (gap + 1) + "v" * 15) == [((8 + gap + 1 + 15) * STEP_MS, SpeechStarted(ns(340)))]


def test_a_pause_that_is_not_silence_ends_nothing() -> None:
    found = run("v" * 20 + "-" * 27 + "v" * 5 + "-" * 40)
    assert [type(edge) for _, edge in found] == [SpeechStarted, SpeechStopped]
    assert found[1][1] == SpeechStopped(0, ns(52 * STEP_MS))


def test_longer_speech_is_confirmed_once() -> None:
    found = run("v" * 60, min_speech_ms=200, confirm_ms=600)
    assert found == [(200, SpeechStarted(0)), (600, SpeechConfirmed(0))]
    assert run("v" * 60, min_speech_ms=200, confirm_ms=100) == [(200, SpeechStarted(0)), (200, SpeechConfirmed(0))]


def test_what_begins_too_early_is_not_heard() -> None:
    assert run("v" * 20, deaf_until_ns=ns(200)) == []
    assert run("v" * 40, deaf_until_ns=ns(200)) == [(500, SpeechStarted(ns(200)))]


def test_two_utterances_are_two() -> None:
    found = run(("v" * 20 + "-" * 30) * 2)
    assert [type(edge) for _, edge in found] == [SpeechStarted, SpeechStopped] * 2
    assert found[2][1] == SpeechStarted(ns(1000))
