"""Detects from the speech tokens alone, before they are audio, that the speech of a sequence has run away.

::

    tokens ─▸ RunawayGuard.look ─▸ Alarm: length · repeats · silence

A language model of speech sometimes repeats itself, babbles, or goes on after its text. A token costs a few look-ups on the
host, which has the tokens anyway. What is taken for normal was never measured with trained weights (0026).
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import speech_inputs
from cc_tts.engines.cosyvoice.prefill import UNLIMITED, Prefill

MIN_PACE: Final = 5.0  # speech tokens of a text token, at least as a rule (§3.5)
MAX_PACE: Final = 8.0  # the same, at most (§3.5)
TYPICAL_PACE: Final = 6.5  # the middle of both (§3.5)
LENGTH_FACTOR: Final = 2.0  # how often the time that a text takes as a rule it may take; unmeasured
LENGTH_SPARE: Final = 25  # tokens besides, 1 s, for silence at both ends; unmeasured
MAX_REPEATED: Final = 25  # tokens, 1 s, that were there before in the same order; unmeasured
WINDOW: Final = 50  # tokens, 2 s, of which more than MIN_DISTINCT are different ones
MIN_DISTINCT: Final = 12  # unmeasured; eleven are known as silence, and the sampler avoids its last ten
MAX_SILENT: Final = 50  # silent tokens in a row, 2 s; unmeasured
_GRAM: Final = 4  # tokens by which a repetition is noticed


class RunawayCause(StrEnum):
    """How speech has run away; labels of a metric."""

    LENGTH = "length"
    REPEATS = "repeats"
    SILENCE = "silence"


class Alarm(NamedTuple):
    """The speech has run away; its first ``num_good`` tokens are good. None if that is unknown."""

    cause: RunawayCause
    num_good: int | None = None


def pace_of(num_speech: int, num_text: int) -> float:
    """Return how many speech tokens a voice takes for a text token, by the counts of its prompt if it has one. The result
    stays within the usual bounds, since the text may be of another kind than the prompt.
    """
    if not num_speech or not num_text:
        return TYPICAL_PACE
    return min(MAX_PACE, max(MIN_PACE, num_speech / num_text))


def shares_said(said: float, marks: Sequence[tuple[int, int]], num_text: int) -> list[tuple[int, float]]:
    """Return the text chunks whose text is not all ``said``, a share of ``num_text`` text tokens, and how much of each is.
    ``marks``: the text tokens before each, and its index.
    """
    ends = [*(begin for begin, _ in marks[1:]), num_text]
    spans = [(index, begin, end) for (begin, index), end in zip(marks, ends, strict=True) if end > begin]
    shares = [(index, (said * num_text - begin) / (end - begin)) for index, begin, end in spans]
    return [(index, max(0.0, share)) for index, share in shares if share < 1.0]


class RunawayGuard:
    """Looks at the tokens of one sequence as they come. ``whole``: the prefill of a text that is there as a whole, which is
    the ``span`` of a text chunk, two shares of it. One that does not ``judge`` the tokens only tells that speech has reached
    the model's limit.
    """

    def __init__(
        self, whole: Prefill | None = None, span: tuple[float, float] = (0.0, 1.0), *, judges: bool = True
    ) -> None:
        self._whole = whole
        self._span = span
        self._judges = judges
        self.max_ids = UNLIMITED if whole is None else whole.rules.max_sampled
        """The model's limit: sampling ends after this many ids of any kind."""
        self._num_likely = 0.0 if whole is None else whole.num_likely
        """The tokens that the text takes as a rule; 0: unknown."""
        self._said: float | None = None
        """The share of the text that was said until the sequence was ended, by the pace of the voice."""
        self._has_turned_back = False
        self._places: list[int] = []
        """How many ids were sampled before each token."""
        self._seen: dict[tuple[int, ...], int] = {}
        """Each run of a few tokens, and how many tokens there were when it was last complete."""
        self._lag = 0
        """How many tokens back the same was said; 0 if it was not."""
        self._num_repeated = 0
        self._window: dict[int, int] = {}
        """The tokens of the window, and how often each is there."""
        self._begin = 0
        """The window has nothing before this token."""

    def add_text(self, num_text: int) -> None:
        """Expect the speech of this many more text tokens."""
        self._num_likely += TYPICAL_PACE * num_text

    def look(self, tokens: Sequence[int], place: int) -> Alarm | None:
        """Look at the last of ``tokens``, before which ``place`` ids were sampled."""
        if not self._judges:
            return None
        self._places.append(place)
        if self._repeats(tokens):
            return Alarm(RunawayCause.REPEATS, len(tokens) - self._num_repeated)
        if self._is_poor(tokens):
            return Alarm(RunawayCause.REPEATS, len(tokens) - WINDOW)
        if self._num_likely and len(tokens) > LENGTH_FACTOR * self._num_likely + LENGTH_SPARE:
            return Alarm(RunawayCause.LENGTH)
        return None

    def check_silence(self, num_silent: int, num_good: int) -> Alarm | None:
        """Judge this many silent tokens in a row; ``num_good`` tokens were before them."""
        return Alarm(RunawayCause.SILENCE, num_good) if self._judges and num_silent > MAX_SILENT else None

    def at_limit(self, num_tokens: int) -> Alarm:
        """Return the alarm for speech of ``num_tokens`` that did not end before the model's limit. All of it is kept if
        runaway speech is not stopped.
        """
        return Alarm(RunawayCause.LENGTH, None if self._judges else num_tokens)

    def turn_back(self, alarm: Alarm, tokens: Sequence[int], num_ids: int) -> Prefill | None:
        """Return the prefill with which the sequence continues from ``tokens``, those that are left. As ``num_ids`` were
        sampled, the sampler draws other ones now. The sequence is over and the result ``None`` if it was turned back
        before, if its text comes in pieces, or if it has taken the time that all its words take.
        """
        num_kept, whole = len(tokens), self._whole
        is_over = alarm.cause is RunawayCause.LENGTH and (num_kept >= self._num_likely or not self._judges)
        if whole is None or self._has_turned_back or is_over:
            num_said = num_kept if alarm.num_good is None else alarm.num_good
            self._said = num_said / self._num_likely if self._num_likely else 1.0
            return None
        self._has_turned_back = True
        self._seen = {tuple(tokens[end - _GRAM : end]): end for end in range(_GRAM, num_kept + 1)}
        self._lag = self._num_repeated = 0
        self._window, self._begin = {}, num_kept
        least = num_ids + max(0, whole.rules.min_sampled - num_kept)
        self.max_ids = num_ids + whole.rules.max_sampled - num_kept
        rules = replace(whole.rules, min_sampled=least, max_sampled=self.max_ids)
        last = self._places[num_kept - 1] if num_kept else -1
        inputs = speech_inputs(tokens[-1:]) or whole.inputs[-1:]
        return Prefill(inputs, rules, extends=True, keeps=len(whole.inputs) + last)

    def unsaid(self, marks: Sequence[tuple[int, int]], num_text: int) -> Sequence[tuple[int, float]]:
        """Return the text chunks that were not said to their end, and how much of each was; see :func:`shares_said`. All of
        the last one, 1, where only what came after the words was stopped.
        """
        if self._said is None:
            return ()
        if self._said >= 1.0:
            return ((marks[-1][1], 1.0),)
        if self._whole is None:
            return shares_said(self._said, marks, num_text)
        begin, end = self._span
        return ((marks[0][1], begin + self._said * (end - begin)),)

    def _repeats(self, tokens: Sequence[int]) -> bool:
        end, gram = len(tokens), tuple(tokens[-_GRAM:])
        if self._lag and tokens[-1] == tokens[-1 - self._lag]:
            self._num_repeated += 1
        else:
            before = self._seen.get(gram)
            self._lag, self._num_repeated = (0, 0) if before is None else (end - before, _GRAM)
        if end >= _GRAM:
            self._seen[gram] = end
        return self._num_repeated >= MAX_REPEATED

    def _is_poor(self, tokens: Sequence[int]) -> bool:
        """Whether the window has hardly any different tokens: a loop that the sampler has not let repeat exactly."""
        window, size = self._window, len(tokens) - self._begin
        window[tokens[-1]] = window.get(tokens[-1], 0) + 1
        if size > WINDOW:
            gone = tokens[-1 - WINDOW]
            window[gone] -= 1
            if not window[gone]:
                del window[gone]
        return size >= WINDOW and len(window) <= MIN_DISTINCT
