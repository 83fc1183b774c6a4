"""A queue for the frames of one direction of a leg, from the media clock to the SIP thread. No lock: the clock appends, the
SIP thread takes.
"""

from collections import deque
from typing import Final

MAX_FRAMES: Final = 100
"""A queue holds two seconds; further frames are dropped and counted; unmeasured."""


class FrameQueue:
    """A bounded queue; a frame that finds it full is dropped."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, int, bytes]] = deque()
        self._num_dropped = 0  # since the last frame that was queued

    def add(self, at_ns: int, frame: bytes) -> None:
        """Add a frame that the media clock handled at this instant. REAL-TIME. Runs on: the media clock's thread."""
        if len(self._frames) >= MAX_FRAMES:
            self._num_dropped += 1
            return
        self._frames.append((at_ns, self._num_dropped, frame))
        self._num_dropped = 0

    def take(self) -> tuple[int, int, bytes] | None:
        """Return the joined frames up to the next gap: the instant of the first, how many were dropped before it, and the
        PCM. ``None`` if there are none. Runs on: the SIP thread.
        """
        if not self._frames:
            return None
        at_ns, num_dropped, frame = self._frames.popleft()
        frames = [frame]
        while self._frames and not self._frames[0][1]:
            frames.append(self._frames.popleft()[2])
        return at_ns, num_dropped, b"".join(frames)
