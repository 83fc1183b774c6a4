"""Audio that passes from one leg to another within one tick of the media clock. In a tick PJMEDIA first takes from every
port the frame to send, and then gives it the received one. So a received frame is sent on in the next tick, 20 ms later, and
none is left over. No lock: all of this runs on one thread.
"""

from dataclasses import dataclass, field


class PassedFrame:
    """The last frame that one leg received, until the other leg sends it."""

    def __init__(self) -> None:
        self._frame = b""

    def put(self, frame: bytes) -> None:
        """Store a frame; it replaces one that was not taken. REAL-TIME."""
        self._frame = frame

    def take(self) -> bytes:
        """Return the frame, once; empty if none came. REAL-TIME."""
        frame, self._frame = self._frame, b""
        return frame


@dataclass(frozen=True, slots=True)
class Passed:
    """The two frames of a bridge from one leg's side: what it hears, and what it says."""

    heard: PassedFrame = field(default_factory=PassedFrame)
    said: PassedFrame = field(default_factory=PassedFrame)

    @property
    def other_way(self) -> "Passed":
        return Passed(heard=self.said, said=self.heard)
