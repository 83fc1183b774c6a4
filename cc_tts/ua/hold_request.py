"""A request to hold or resume a call: a re-INVITE, repeated while the far side is sending one of its own. No pjsua2 here."""

import secrets
from typing import Final

from cc_tts.clock import NS_PER_MS

MAX_REINVITES: Final = 5
"""A request fails when this many re-INVITEs in a row have collided with the far side's; unmeasured."""
REQUEST_PENDING: Final = 491
_FIRST_REFUSAL: Final = 300
"""A final response from here on is no success (RFC 3261 §7.2)."""


class HoldRequest:
    """A request in one of three states: its re-INVITE has no response yet, it waits to be sent again, or it is over."""

    def __init__(self, *, hold: bool, owns_call_id: bool) -> None:
        self.hold = hold
        self.is_over = False
        self.failure = ""
        """The reason why the request failed, once it is over; empty after a success."""
        self._owns_call_id = owns_call_id
        self._num_collisions = 0
        self._again_ns: int | None = None

    def answered(self, status: int, now_ns: int, *, is_repeated: bool) -> None:
        """The re-INVITE got a final response. ``is_repeated``: PJSIP has repeated it by itself, as after a 401."""
        if status == REQUEST_PENDING:
            self.collided("491 Request Pending", now_ns)
        elif status >= _FIRST_REFUSAL and not is_repeated:
            self._fail(f"the far side answered {status}")
        elif 0 < status < _FIRST_REFUSAL:
            self.is_over = True

    def collided(self, detail: str, now_ns: int) -> None:
        """A re-INVITE of the far side was in progress. Ours is repeated after a time that differs between the two sides."""
        self._num_collisions += 1
        if self._num_collisions >= MAX_REINVITES:
            self._fail(detail)
        else:
            self._again_ns = now_ns + glare_pause_ms(owns_call_id=self._owns_call_id) * NS_PER_MS

    def take_due(self, now_ns: int) -> bool:
        """Return whether the re-INVITE must be repeated now; it then waits for its response."""
        if self._again_ns is None or now_ns < self._again_ns:
            return False
        self._again_ns = None
        return True

    def _fail(self, detail: str) -> None:
        self.is_over, self.failure = True, detail


def glare_pause_ms(*, owns_call_id: bool) -> int:
    """Return the pause after a 491, in steps of 10 ms (RFC 3261 §14.1)."""
    return 10 * (210 + secrets.randbelow(191) if owns_call_id else secrets.randbelow(201))
