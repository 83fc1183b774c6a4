"""Which keys the far side presses, and for how long (RFC 4733 §2.5.2). No clock of its own. Runs on: the SIP thread.

PJMEDIA reports each packet of a telephone event. A key begins with the first and ends with the one that says so; if all of
those are lost, it ends when no packet has come for :data:`LOST_AFTER_NS`.
"""

from dataclasses import dataclass
from typing import Final, Literal

from cc_tts.clock import NS_PER_MS

LOST_AFTER_NS: Final = 200 * NS_PER_MS
"""Senders repeat an event every 50 ms or more often (RFC 4733 §2.5.1.2)."""
MAX_DOWN_NS: Final = 10_000 * NS_PER_MS
"""A key that is still down after this is reported nonetheless. One segment of an event lasts 8 s at most (§2.5.1.3)."""
MAX_DURATION_MS: Final = 60_000
"""A longer duration is not believed."""

DtmfMethod = Literal["rfc4733", "sip_info"]


@dataclass(slots=True)
class Key:
    """A key: when it went down, and how long it has been down by its sender's account, 0 if unknown."""

    digit: str
    method: DtmfMethod
    began_ns: int
    duration_ms: int
    timestamp_ms: int = 0
    heard_ns: int = 0


Edge = tuple[Literal["down", "up"], Key]


class Keypad:
    """The key that is down on one leg, if any."""

    def __init__(self) -> None:
        self._down: Key | None = None
        self._last_timestamp_ms: int | None = None  # of the last key that went up

    def packet(
        self, digit: str, *, timestamp_ms: int, duration_ms: int, is_update: bool, is_end: bool, now_ns: int
    ) -> list[Edge]:
        """Take one packet of an event; returns which keys went up or down with it, in order.

        ``is_update``: PJMEDIA takes it for the same key as the packet before, by digit and duration alone.
        """
        edges: list[Edge] = []
        down = self._down
        if down is None or not is_update or digit != down.digit:
            if is_update and timestamp_ms == self._last_timestamp_ms:
                return []  # of a key that has gone up: it was given up for lost
            if (up := self.release()) is not None:
                edges.append(("up", up))
            down = self._down = Key(digit, "rfc4733", now_ns, 0, timestamp_ms)
            edges.append(("down", down))
        down.heard_ns = now_ns
        down.duration_ms = max(down.duration_ms, checked_duration_ms(duration_ms))
        if is_end:
            self.release()
            edges.append(("up", down))
        return edges

    def overdue(self, now_ns: int) -> Key | None:
        """The key that has to be reported though nothing said that it went up."""
        down = self._down
        if down is None or (now_ns - down.heard_ns < LOST_AFTER_NS and now_ns - down.began_ns < MAX_DOWN_NS):
            return None
        return self.release()

    def release(self) -> Key | None:
        """The key that is down, as it goes up or the call ends."""
        key, self._down = self._down, None
        if key is not None:
            self._last_timestamp_ms = key.timestamp_ms
        return key


def checked_duration_ms(duration_ms: int) -> int:
    """A stated duration; 0 if it cannot be one."""
    return duration_ms if 0 <= duration_ms <= MAX_DURATION_MS else 0
