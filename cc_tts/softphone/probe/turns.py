"""The arithmetic of a conversation: from who spoke when to what the caller experienced. No audio, no clocks.

Instants are ms from the answer. An agent's speech is a stretch: pauses shorter than ``PAUSE_MS`` of
:mod:`cc_tts.softphone.probe.ear` are part of it, so an end of a stretch is known once that much silence has followed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Stretch:
    """Speech without a longer pause."""

    begin_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act of the caller: words, or a key, which begins and ends at once."""

    what: Literal["speech", "key"]
    begin_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An act of the caller, and the reaction of the agent.

    ``is_interruption``: the agent was speaking. ``stop_ms``: from the caller's first speech to the agent's silence; ``None``
    if it did not fall silent. ``response_ms``: from the caller's end to the agent's next speech; ``None`` if none came, or
    if the agent did not wait (``is_talked_over``). ``silence_ms``: how long nobody spoke before that speech, or in vain.
    """

    what: Literal["speech", "key"]
    begin_ms: float
    end_ms: float
    is_interruption: bool
    is_talked_over: bool
    stop_ms: float | None
    response_ms: float | None
    silence_ms: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of times, linear between the values (numpy's default), and the values themselves, ms."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    max: float | None = None
    values: tuple[float, ...] = ()


def spread_of(values_ms: Iterable[float]) -> Spread:
    values = tuple(round(each, 1) for each in values_ms)
    if not values:
        return Spread()
    p50, p95 = (round(float(each), 1) for each in np.percentile(values, (50, 95)))
    return Spread(len(values), p50, p95, max(values), values)


def first_speech_ms(agent: Sequence[Stretch]) -> float | None:
    """Return the time from the answer to the agent's first speech: 0 if the caller already heard it before the answer (early
    media).
    """
    return next((max(0.0, each.begin_ms) for each in agent if each.end_ms > 0), None)


def turns_of(acts: Sequence[Act], agent: Sequence[Stretch], *, end_ms: float, pause_ms: float) -> list[Turn]:
    """The turns of a call that ended at ``end_ms``."""
    ends = [*(act.begin_ms for act in acts[1:]), end_ms]
    return [_turn(act, agent, until_ms, end_ms - pause_ms) for act, until_ms in zip(acts, ends, strict=False)]


def _turn(act: Act, agent: Sequence[Stretch], until_ms: float, known_ms: float) -> Turn:
    """Return a turn that lasts until ``until_ms``; an end of speech after ``known_ms`` is not certain."""
    cut = next((each for each in agent if each.begin_ms <= act.begin_ms < each.end_ms), None)
    is_silent = cut is not None and cut.end_ms <= known_ms
    later = [each for each in agent if act.begin_ms < each.begin_ms < until_ms]
    is_talked_over = any(each.begin_ms < act.end_ms < each.end_ms for each in later)
    answer = None if is_talked_over else next((each for each in later if each.begin_ms >= act.end_ms), None)
    quiet_from_ms = act.end_ms if cut is None else max(act.end_ms, cut.end_ms)
    quiet_to_ms = until_ms if answer is None else answer.begin_ms
    return Turn(
        what=act.what,
        begin_ms=act.begin_ms,
        end_ms=act.end_ms,
        is_interruption=cut is not None,
        is_talked_over=is_talked_over,
        stop_ms=round(cut.end_ms - act.begin_ms, 1) if cut is not None and is_silent else None,
        response_ms=None if answer is None else round(answer.begin_ms - act.end_ms, 1),
        silence_ms=0.0 if is_talked_over else round(max(0.0, quiet_to_ms - quiet_from_ms), 1),
    )


def dead_air_ms(turns: Iterable[Turn], greeting_ms: float, bound_ms: float) -> Iterator[float]:
    """Stretches beyond the bound in which nobody spoke while an answer was due; ``greeting_ms``: the wait for the first one.
    No answer is due to a key.
    """
    waits = (greeting_ms, *(turn.silence_ms for turn in turns if turn.what == "speech"))
    return (each for each in waits if each > bound_ms)
