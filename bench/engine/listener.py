"""The listener of one utterance: plays in real time what it has got, and says where it stands. No torch, no clock.

All instants are ms of one clock, given by whoever calls.
"""

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Listener:
    """Plays from the first piece on; when it has nothing, it waits and goes on where it stopped."""

    opened_ms: float
    hold_ms: float = 1000.0
    """What its playout takes ahead of what it plays."""
    first_ms: float | None = None
    received_ms: float = 0.0
    dry_ms: float = -math.inf
    """The instant at which all that was received is played."""
    worst_deficit_ms: float = 0.0
    """The most by which the audio received was less than the time since the first piece (engine-performance §5.4)."""
    slacks_ms: list[float] = field(default_factory=list)
    """Of every piece but the first: what was left to be played when it came; negative when there was silence before."""
    is_done: bool = False

    def got(self, now_ms: float, audio_ms: float) -> None:
        """A piece came."""
        if self.first_ms is None:
            self.first_ms = now_ms
        else:
            self.slacks_ms.append(self.dry_ms - now_ms)
            self.worst_deficit_ms = max(self.worst_deficit_ms, now_ms - self.first_ms - self.received_ms)
        self.received_ms += audio_ms
        self.dry_ms = max(self.dry_ms, now_ms) + audio_ms

    def ended(self) -> None:
        """No more will come."""
        self.is_done = True

    def first_audio_ms(self) -> float | None:
        """From the opening to the first piece."""
        return None if self.first_ms is None else self.first_ms - self.opened_ms

    def waited_ms(self, now_ms: float) -> float:
        """How much the audio received is less than the time since the first piece, for one that still waits; 0 else."""
        if self.first_ms is None or self.is_done:
            return 0.0
        return max(0.0, now_ms - self.first_ms - self.received_ms)

    def played_ms(self, now_ms: float) -> float:
        """Audio that has been heard."""
        return self.received_ms - max(0.0, self.dry_ms - now_ms)

    def report(self, now_ms: float) -> tuple[float, float]:
        """What the playout has taken, and how much of that is not played yet, ms."""
        played_ms = self.played_ms(now_ms)
        taken_ms = min(self.received_ms, played_ms + self.hold_ms)
        return taken_ms, taken_ms - played_ms

    def has_heard_all(self, now_ms: float) -> bool:
        """Whether it is over for the listener."""
        return self.is_done and self.dry_ms <= now_ms
