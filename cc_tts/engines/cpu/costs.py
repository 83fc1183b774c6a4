"""The cost of a voice is the time that a thread takes for its audio and for a character."""

import math
from dataclasses import dataclass
from typing import Final

from cc_tts.clock import Clock

_ALPHA: Final = 0.2
"""Weight of an observation in the mean cost; unmeasured."""
_MAX_RISE: Final = 4.0
"""An observation counts as at most so many times the mean that it changes; unmeasured."""
_ALPHA_OF_RISE: Final = 0.005
"""Weight of an observation in the cost on a quiet machine, where it is higher; unmeasured."""
_BUSY_HALF_LIFE_S: Final = 0.5
"""The time that other processes took from the threads is half forgotten after so long: bursts last about a second
(unmeasured).
"""
LEAST_COST: Final = 1e-4  # unmeasured


@dataclass(frozen=True, slots=True)
class Cost:
    """A voice takes this much of a thread."""

    of_audio: float
    """Time for a second of audio, s."""
    of_character_ms: float
    of_first_ms: float = math.inf
    """Time until its first audio, for a voice that does not make the whole sentence first."""

    def first_ms(self, num_characters: float) -> float:
        """The time until the first audio of a text chunk."""
        return min(self.of_character_ms * num_characters, self.of_first_ms)

    def moved_to(self, other: "Cost", *, fall: float, rise: float) -> "Cost":
        """Nearer to ``other`` by the share ``fall`` where that is less, by ``rise`` where it is more."""

        def moved(old: float, new: float) -> float:
            if math.isinf(old):
                return old
            return max(LEAST_COST, old + (rise if new > old else fall) * (min(new, _MAX_RISE * old) - old))

        return Cost(
            moved(self.of_audio, other.of_audio),
            moved(self.of_character_ms, other.of_character_ms),
            moved(self.of_first_ms, other.of_first_ms),
        )


class VoiceCosts:
    """The costs of a voice are learned from wall time: on a thread that shares its core, a chunk takes twice as long. That
    holds for this moment only, so it is forgotten with time, and not only with the next chunks: while prompts are
    refused there are none.
    """

    def __init__(self, first: Cost, clock: Clock, *, typical_characters: float) -> None:
        self.alone_ms = first.first_ms(typical_characters)
        """Its first audio comes after so long on a quiet machine."""
        self.typical_characters = typical_characters
        """The length that is assumed of a first text chunk until it comes."""
        self._clock = clock
        self._quiet = self._mean = first
        self._observed_ns = clock.now_ns()

    @property
    def now(self) -> Cost:
        """The next chunk will cost this much."""
        age_s = (self._clock.now_ns() - self._observed_ns) / 1e9
        forgotten = 1.0 - 0.5 ** (age_s / _BUSY_HALF_LIFE_S)
        return self._mean.moved_to(self._quiet, fall=forgotten, rise=forgotten)

    def observe(self, cost: Cost) -> None:
        self._mean = self.now.moved_to(cost, fall=_ALPHA, rise=_ALPHA)
        self._quiet = self._quiet.moved_to(cost, fall=_ALPHA, rise=_ALPHA_OF_RISE)
        self._observed_ns = self._clock.now_ns()
