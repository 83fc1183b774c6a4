"""The cost of a voice: the time of a thread for a second of audio and for a character."""

import math
from dataclasses import dataclass
from typing import Final

from cc_tts.clock import NS_PER_S, Clock

_ALPHA: Final = 0.2
"""The weight of an observation in the mean cost; unmeasured."""
_MAX_RISE: Final = 4.0
"""An observation counts at most as this many times the mean; unmeasured."""
_ALPHA_OF_RISE: Final = 0.005
"""The weight of an observation in the cost on a quiet machine if it is higher; unmeasured."""
_BUSY_HALF_LIFE_S: Final = 0.5
"""The half-life of the observed slowdown by other processes: bursts last about a second (unmeasured)."""
LEAST_COST: Final = 1e-4  # unmeasured


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a voice."""

    of_audio: float
    """The time for a second of audio, s."""
    of_character_ms: float
    of_first_ms: float = math.inf
    """The time to first audio, for a voice that does not compute whole sentences first."""

    def first_ms(self, num_characters: float) -> float:
        """Return the time to the first audio of a text chunk."""
        return min(self.of_character_ms * num_characters, self.of_first_ms)

    def moved_to(self, other: "Cost", *, fall: float, rise: float) -> "Cost":
        """Return this cost moved towards ``other``: by the share ``fall`` where that is lower, by ``rise`` where it is
        higher.
        """

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
    """Learns the costs of a voice from wall time, since a chunk takes twice as long on a thread that shares its core. Such a
    slowdown is temporary, so it also decays with time: while prompts are refused there are no chunks to learn from.
    """

    def __init__(self, first: Cost, clock: Clock, *, typical_characters: float) -> None:
        self.alone_ms = first.first_ms(typical_characters)
        """The time to first audio on a quiet machine."""
        self.typical_characters = typical_characters
        """The assumed length of a first text chunk that has not arrived yet."""
        self._clock = clock
        self._quiet = self._mean = first
        self._observed_ns = clock.now_ns()

    @property
    def now(self) -> Cost:
        """Return the expected cost of the next chunk."""
        age_s = (self._clock.now_ns() - self._observed_ns) / NS_PER_S
        forgotten = 1.0 - 0.5 ** (age_s / _BUSY_HALF_LIFE_S)
        return self._mean.moved_to(self._quiet, fall=forgotten, rise=forgotten)

    def observe(self, cost: Cost) -> None:
        self._mean = self.now.moved_to(cost, fall=_ALPHA, rise=_ALPHA)
        self._quiet = self._quiet.moved_to(cost, fall=_ALPHA, rise=_ALPHA_OF_RISE)
        self._observed_ns = self._clock.now_ns()
