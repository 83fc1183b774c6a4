"""How loud a caller must be: louder than the noise of the line, and than the echo of our own prompt.

::

    received ─▸ level ─▸ noise floor ─▸ floor + 9 dB, −45 dBFS at least, 6 dB more while a prompt plays ─┐
    sent ─▸ level ─▸ loudest of the last 500 ms, less the echo return loss of the leg (ITU-T G.168) ─────┴─▸ the higher one

The echo return loss is learned of each leg: a telephone that returns nothing of a prompt can be interrupted softly. Nothing
is subtracted from the audio; this is no echo canceller. Levels are of a window, dB relative to full scale.
"""

import math
from collections import deque
from typing import Final

from cc_tts.clock import NS_PER_MS

SILENCE_DBFS: Final = -100.0  # unmeasured
MIN_LEVEL_DBFS: Final = -45.0  # decision 0019
ABOVE_FLOOR_DB: Final = 9.0  # decision 0019
MAX_FLOOR_DBFS: Final = MIN_LEVEL_DBFS
"""The highest noise floor. A louder floor (a tone, music) would hide speech of the same level; the model
tells them apart.
"""
SPEAKING_DB: Final = 6.0
"""The margin above the noise is smaller by this while the caller speaks (unmeasured)."""
PLAYING_DB: Final = 6.0
"""The margin is larger by this while a prompt plays (unmeasured)."""
AUDIBLE_DBFS: Final = -50.0
"""An echo of our own audio is expected above this playout level (unmeasured)."""
ECHO_NS: Final = 500 * NS_PER_MS
"""The longest delay of an echo."""

MIN_ECHO_RETURN_LOSS_DB: Final = 12.0  # lines return our audio 14 to 35 dB softer (decision 0019)
START_ECHO_RETURN_LOSS_DB: Final = 18.0
"""The assumed echo return loss of a leg until it has been measured."""
ECHO_MARGIN_DB: Final = 4.0  # unmeasured
_LEARN_WINDOWS: Final = 31
"""About a second of a prompt."""
_FLOOR_RISE: Final = 0.02
_FLOOR_FALL: Final = 0.3
"""The share of the difference by which the floor follows a window's level: up in seconds, down in tenths of a second."""


def dbfs(mean_square: float) -> float:
    """Return the level of a mean square relative to full scale 1."""
    return 10 * math.log10(mean_square) if mean_square > 1e-10 else SILENCE_DBFS  # noqa: PLR2004 - −100 dB


class EnergyGate:
    def __init__(self) -> None:
        self.floor_dbfs = MAX_FLOOR_DBFS
        self.echo_return_loss_db = START_ECHO_RETURN_LOSS_DB
        self._sent: deque[tuple[int, float]] = deque()
        self._num_learned = 0
        self._loudest_sent = self._loudest_received = SILENCE_DBFS

    def sent(self, at_ns: int, level_dbfs: float) -> None:
        """Note a window of sent audio."""
        self._sent.append((at_ns, level_dbfs))
        while self._sent[0][0] < at_ns - 2 * ECHO_NS:  # received audio is never earlier than this
            self._sent.popleft()

    def threshold_dbfs(self, at_ns: int, *, is_speaking: bool = False) -> float:
        """Return the level that a received window must reach to be the caller's, who may be speaking already."""
        quiet = max(MIN_LEVEL_DBFS, self.floor_dbfs + ABOVE_FLOOR_DB) - SPEAKING_DB * is_speaking
        echo = self.echo_dbfs(at_ns)
        return quiet if echo == SILENCE_DBFS else max(quiet + PLAYING_DB, echo)

    def echo_dbfs(self, at_ns: int) -> float:
        """Return how loud the echo of sent audio may be at this time."""
        loudest = self._loudest_before(at_ns)
        return SILENCE_DBFS if loudest < AUDIBLE_DBFS else loudest - self.echo_return_loss_db + ECHO_MARGIN_DB

    def heard(self, at_ns: int, level_dbfs: float, *, is_caller: bool) -> None:
        """Note a received window that was judged. If it is not the caller's, it is noise and the echo of sent audio."""
        loudest = self._loudest_before(at_ns)
        if is_caller:
            self._forget_lesson()
            return
        step = _FLOOR_RISE if level_dbfs > self.floor_dbfs else _FLOOR_FALL
        self.floor_dbfs = min(self.floor_dbfs + step * (level_dbfs - self.floor_dbfs), MAX_FLOOR_DBFS)
        if loudest >= AUDIBLE_DBFS:
            self._learn(loudest, level_dbfs)

    def _learn(self, sent_dbfs: float, received_dbfs: float) -> None:
        """Learn from the loudest window in a second of each direction, so that the delay of the echo does not matter."""
        self._loudest_sent = max(self._loudest_sent, sent_dbfs)
        self._loudest_received = max(self._loudest_received, received_dbfs)
        self._num_learned += 1
        if self._num_learned >= _LEARN_WINDOWS:
            loss_db = max(self._loudest_sent - self._loudest_received, MIN_ECHO_RETURN_LOSS_DB)
            before_db = self.echo_return_loss_db
            self.echo_return_loss_db = loss_db if loss_db < before_db else (loss_db + before_db) / 2
            self._forget_lesson()

    def _forget_lesson(self) -> None:
        self._num_learned = 0
        self._loudest_sent = self._loudest_received = SILENCE_DBFS

    def _loudest_before(self, at_ns: int) -> float:
        """Return the loudest window sent in the last :data:`ECHO_NS` before ``at_ns``."""
        sent = self._sent
        while sent and sent[0][0] < at_ns - ECHO_NS:
            sent.popleft()
        return max((level for _, level in sent), default=SILENCE_DBFS)
