"""Calls that are over and keep a slot of PJSUA, while PJSIP repeats a BYE that nobody answers, or waits for the response
that lets it send CANCEL (RFC 3261 §9.1). Either takes up to 32 s. Runs on: the SIP thread.
"""

from collections import deque
from typing import Final

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.ua.guard.c_library import CLibrary

REPEATED_FOR_NS: Final = 4 * NS_PER_S
"""A request is repeated at least this long: it is sent four times by then, after 0, 0.5, 1.5 and 3.5 s (RFC 3261 §17.1)."""
_FORGOTTEN_NS: Final = 32 * NS_PER_S
"""After 64 T1 PJSIP has ended a request by itself (RFC 3261 §17.1)."""


class LeftCalls:
    """Ends the oldest when a slot is needed. A response that comes later has no effect."""

    def __init__(self, library: CLibrary, clock: Clock) -> None:
        self._library = library
        self._clock = clock
        self._dialogs: deque[tuple[int, tuple[str, str, str]]] = deque()

    def add(self, dialog: tuple[str, str, str]) -> None:
        """Note that a call is over. ``dialog``: the Call-ID, our tag and the far side's."""
        now_ns = self._clock.now_ns()
        while self._dialogs and now_ns - self._dialogs[0][0] > _FORGOTTEN_NS:
            self._dialogs.popleft()
        self._dialogs.append((now_ns, dialog))

    def end_oldest(self) -> None:
        """End the oldest one that PJSIP has and that has waited for long enough, if there is one."""
        while self._dialogs and self._clock.now_ns() - self._dialogs[0][0] >= REPEATED_FOR_NS:
            if self._library.end_call(*self._dialogs.popleft()[1]):
                return
