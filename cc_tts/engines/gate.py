"""Whether new calls are accepted, by the state of the engine. ``/readyz``, OPTIONS and INVITE all answer by this.

Pure: no I/O, so that a test plays it on a clock of its own.
"""

from typing import Final

from cc_tts.clock import Clock, ms_between

LOOK_S: Final = 0.1
"""The interval of looking at the engine (unmeasured)."""
FULL_FOR_MS: Final = 1000.0
"""An engine that is full for less than this is in a burst of prompts; that says nothing about the next call (unmeasured)."""
READY_FOR_MS: Final = 1000.0
"""An engine that was lost or full must be ready for this long before new calls are accepted. Peers that probe with OPTIONS
treat a node that flaps as down (unmeasured).
"""


class EngineGate:
    """Accepts new calls while the engine can be expected to speak to them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ns = clock.now_ns()
        """Since when the engine's state has differed from the gate's."""
        self.is_open = True

    def poll(self, *, is_ready: bool, is_full: bool) -> bool:
        """Take the engine's state: ready, or not because it ``is_full`` or otherwise. Returns whether the
        gate has changed.
        """
        now_ns = self._clock.now_ns()
        if is_ready == self.is_open:
            self._since_ns = now_ns
            return False
        wait_ms = READY_FOR_MS if is_ready else FULL_FOR_MS if is_full else 0.0
        if ms_between(self._since_ns, now_ns) < wait_ms:
            return False
        self.is_open, self._since_ns = is_ready, now_ns
        return True
