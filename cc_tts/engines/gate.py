"""Whether new calls come in, by the state of the engine: what ``/readyz`` says is what a peer's OPTIONS and INVITE get.

Pure: no I/O, so that a test plays it on a clock of its own.
"""

from typing import Final

from cc_tts.clock import Clock, ms_between

LOOK_S: Final = 0.1
"""How often the engine is looked at (unmeasured)."""
FULL_FOR_MS: Final = 1000.0
"""An engine that is full for less is in a burst of prompts, which says nothing of the next call (unmeasured)."""
READY_FOR_MS: Final = 1000.0
"""An engine that was lost or full takes prompts for so long before calls come in again: peers that probe with OPTIONS take a
node that comes and goes for down (unmeasured).
"""


class EngineGate:
    """Open while the engine can be expected to speak to a new call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ns = clock.now_ns()
        """Since when the engine has said other than the gate."""
        self.is_open = True

    def poll(self, *, is_ready: bool, is_full: bool) -> bool:
        """The engine takes a stream now, or not, maybe because it is full; returns whether the gate has moved."""
        now_ns = self._clock.now_ns()
        if is_ready == self.is_open:
            self._since_ns = now_ns
            return False
        wait_ms = READY_FOR_MS if is_ready else FULL_FOR_MS if is_full else 0.0
        if ms_between(self._since_ns, now_ns) < wait_ms:
            return False
        self.is_open, self._since_ns = is_ready, now_ns
        return True
