"""The clock of a listener: when its audio runs out, and so when the next piece is due.

::

             text came     first audio                                text all spoken    more text
    deadline + target ───▸ instant of running dry less the guard ───▸ none ───────────▸ dry instant less the guard,
                                                                                        or + target when dry already

Playout is in real time from the first piece on; reports of the playout side correct that, and so a listener who is paused
needs nothing. All instants are of one clock, ms; nothing here reads it.
"""

import math
from collections import deque
from typing import Final

_WINDOW_MS: Final = 2000.0  # unmeasured
_MAX_SLACKS: Final = 2000  # unmeasured


class SlackWindow:
    """The slack of all listeners over the last two seconds: the audio that was left when the next piece came. Measured, not
    predicted.
    """

    def __init__(self) -> None:
        self._slacks: deque[tuple[float, float]] = deque(maxlen=_MAX_SLACKS)

    def add(self, now_ms: float, slack_ms: float) -> None:
        """Note the slack of a piece; negative if there was silence before it."""
        self._slacks.append((now_ms, slack_ms))

    def low_ms(self, now_ms: float) -> float:
        """Return the 5th percentile, or the lowest value if that was an underrun; infinite if nothing was seen."""
        while self._slacks and self._slacks[0][0] < now_ms - _WINDOW_MS:
            self._slacks.popleft()
        slacks = sorted(slack_ms for _, slack_ms in self._slacks)
        if not slacks:
            return math.inf
        return slacks[0] if slacks[0] < 0.0 else slacks[len(slacks) // 20]


class ListenerClock:
    """The clock of one stream: a first piece is due some time after its text, later ones some time before silence."""

    def __init__(self, *, first_audio_target_ms: float = 0.0, guard_ms: float = 0.0) -> None:
        self._target_ms = first_audio_target_ms
        self._guard_ms = guard_ms
        self.sent_ms = 0.0  # all audio handed out so far
        self._dry_ms = -math.inf  # the instant at which all that was sent is played
        self._due_ms: float | None = math.inf  # when a chunk that ends a silence is due
        self._is_spoken = True

    @property
    def is_first(self) -> bool:
        """Whether the next piece ends a silence in which nothing was owed. It is then late by its target, and
        no underrun.
        """
        return self._due_ms is not None

    def text_came(self, now_ms: float) -> None:
        """Note that a text chunk was pushed. It matters for the first one and after :meth:`text_spoken`;
        others do no harm.
        """
        if self._is_spoken:
            self._is_spoken = False
            self._due_ms = None if self._dry_ms - self._guard_ms > now_ms else now_ms + self._target_ms

    def text_spoken(self) -> None:
        """Note that all text so far was delivered as audio; nothing is due until more comes."""
        self._is_spoken = True

    def sent(self, now_ms: float, audio_ms: float) -> float:
        """Note audio that was delivered; return for how long the listener had lacked it, ms: 0 for a first piece."""
        if audio_ms == 0.0:
            return 0.0
        underrun_ms = 0.0 if self.is_first else max(0.0, now_ms - self._dry_ms)
        self.sent_ms += audio_ms
        self._dry_ms = max(self._dry_ms, now_ms) + audio_ms
        self._due_ms = None
        return underrun_ms

    def taken(self, now_ms: float, taken_ms: float, ahead_ms: float) -> None:
        """The reader has taken this much audio since the stream began, and has not played ``ahead_ms`` of it."""
        ahead_ms = min(ahead_ms, self.sent_ms)  # resampling adds some
        self.holds(now_ms, ahead_ms + max(0.0, self.sent_ms - max(taken_ms, ahead_ms)))

    def holds(self, now_ms: float, left_ms: float) -> None:
        """The playout side has not played this much, and nothing else is on its way."""
        # one who is dry has been so since before the report
        self._dry_ms = now_ms + left_ms if left_ms > 0.0 else min(self._dry_ms, now_ms)

    def left_ms(self, now_ms: float) -> float:
        """Return the audio that the listener has left; negative since it ran out."""
        return self._dry_ms - now_ms

    @property
    def deadline_ms(self) -> float:
        """Return when the next piece is due; infinite while there is nothing to say."""
        if self._is_spoken:
            return math.inf
        running_ms = self._dry_ms - self._guard_ms
        return running_ms if self._due_ms is None else max(self._due_ms, running_ms)
