"""Audio on its way from one leg to another, within one tick of the media clock. PJMEDIA takes from every port what it sends
before it gives it what was received, so that a frame is sent on in the next tick: 20 ms later, and none is left over. No
lock: one thread has the media clock.
"""

from dataclasses import dataclass, field


class PassedFrame:
    """The last frame that one leg received, until the other one sends it."""

    def __init__(self) -> None:
        self._frame = b""

    def put(self, frame: bytes) -> None:
        """Take a frame in place of one that nobody took. REAL-TIME."""
        self._frame = frame

    def take(self) -> bytes:
        """The frame, once; empty if none came. REAL-TIME."""
        frame, self._frame = self._frame, b""
        return frame


@dataclass(frozen=True, slots=True)
class Passed:
    """The frames that pass between two legs, as one of them sees it: what it hears, and what it says."""

    heard: PassedFrame = field(default_factory=PassedFrame)
    said: PassedFrame = field(default_factory=PassedFrame)

    @property
    def other_way(self) -> "Passed":
        return Passed(heard=self.said, said=self.heard)
