"""Which keys the far side presses, and for how long (RFC 4733 §2.5.2). It has no clock of its own. Runs on: the SIP thread.

PJMEDIA reports each packet of a telephone event. A key begins with the first and ends with the one that says so; if all of
those are lost, it ends when no packet has come for :data:`LOST_AFTER_NS`. A key that is held for longer than a duration can
say comes in segments, each with the timestamp at which the one before ended (§2.5.1.3).
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from cc_tts.clock import NS_PER_MS, NS_PER_S
from cc_tts.ua.messages import DtmfMethod

LOST_AFTER_NS: Final = 200 * NS_PER_MS
"""Senders repeat an event every 50 ms or more often (RFC 4733 §2.5.1.2)."""
MAX_DOWN_NS: Final = 10 * NS_PER_S
"""A key that is still down after this time is reported nevertheless. One segment of an event lasts 8 s at
most (§2.5.1.3).
"""
MAX_DURATION_MS: Final = 60_000
"""A longer duration is not believed; unmeasured."""
MIN_SEGMENT_MS: Final = 4_000
"""After a shorter segment the next event is a new key. At 8 kHz a full segment lasts 8,191 ms at most (RFC 4733
§2.5.1.3); half of that is unmeasured."""
_SEGMENT_TOLERANCE_MS: Final = 80
"""PJMEDIA computes milliseconds of a timestamp with 24 bits of precision: up to 32 ms off, on both sides."""
_TIMESTAMP_WRAP_MS: Final = (1 << 32) // 8
"""A timestamp of 8 kHz begins again after this many ms: it has 32 bits (RFC 3550 §5.1)."""
_REMEMBERED: Final = 3
"""The number of released keys whose packets may still come: ends are repeated, also during the next key (RFC
4733 §2.5.1.4).
"""


@dataclass(slots=True)
class DtmfKey:
    """A key: when it went down, and how long it has been down by its sender's account, 0 if unknown. ``timestamp_ms`` is its
    last segment's, ``segment_ms`` how long that is, and ``earlier_ms`` how long those before it were.
    """

    digit: str
    method: DtmfMethod
    began_ns: int
    duration_ms: int
    timestamp_ms: int = 0
    heard_ns: int = 0
    segment_ms: int = 0
    earlier_ms: int = 0
    is_ended: bool = False

    def has(self, digit: str, timestamp_ms: int) -> bool:
        """Whether a packet with this timestamp belongs to its last segment."""
        return (digit, timestamp_ms) == (self.digit, self.timestamp_ms)

    def goes_on(self, digit: str, timestamp_ms: int) -> bool:
        """Whether a packet begins its next segment."""
        if digit != self.digit or self.segment_ms < MIN_SEGMENT_MS:
            return False
        gap_ms = (timestamp_ms - self.timestamp_ms - self.segment_ms) % _TIMESTAMP_WRAP_MS
        return min(gap_ms, _TIMESTAMP_WRAP_MS - gap_ms) <= _SEGMENT_TOLERANCE_MS

    def begin_segment(self, timestamp_ms: int) -> None:
        self.earlier_ms += self.segment_ms
        self.timestamp_ms, self.segment_ms = timestamp_ms, 0

    def hear(self, duration_ms: int, now_ns: int) -> None:
        """Note the duration in a packet of its last segment."""
        self.heard_ns = now_ns
        self.segment_ms = max(self.segment_ms, checked_duration_ms(duration_ms))
        self.duration_ms = self.earlier_ms + self.segment_ms


Edge = tuple[Literal["down", "up"], DtmfKey]


class Keypad:
    """The key that is down on one leg, if any."""

    def __init__(self) -> None:
        self._down: DtmfKey | None = None
        self._up: deque[DtmfKey] = deque(maxlen=_REMEMBERED)

    def packet(
        self, digit: str, *, timestamp_ms: int, duration_ms: int, is_update: bool, is_end: bool, now_ns: int
    ) -> list[Edge]:
        """Handle one packet of an event; return which keys went down or up with it, in order. ``is_update``: PJMEDIA takes
        it for the same key as the packet before, judging by digit and duration alone.
        """
        edges: list[Edge] = []
        down = self._down
        if down is None or not down.has(digit, timestamp_ms):
            if (late := self._of_the_past(digit, timestamp_ms, may_be_new=not (is_update or is_end))) is not None:
                late.hear(duration_ms, now_ns)
                return []
            if down is not None and down.goes_on(digit, timestamp_ms):
                down.begin_segment(timestamp_ms)
            elif down is None or not is_update or digit != down.digit:
                if (up := self.release()) is not None:
                    edges.append(("up", up))
                down = self._down = DtmfKey(digit, "rfc4733", now_ns, 0, timestamp_ms)
                edges.append(("down", down))
        down.hear(duration_ms, now_ns)
        if is_end:
            down.is_ended = True
            self.release()
            edges.append(("up", down))
        return edges

    def _of_the_past(self, digit: str, timestamp_ms: int, *, may_be_new: bool) -> DtmfKey | None:
        """Return the released key that a packet belongs to: its end is repeated, or it was given up before."""
        for key in self._up:
            if key.has(digit, timestamp_ms) and not may_be_new:
                return key
            if self._down is None and not key.is_ended and key.goes_on(digit, timestamp_ms):
                key.begin_segment(timestamp_ms)
                return key
        return None

    def overdue(self, now_ns: int) -> DtmfKey | None:
        """Return the key that must be reported although its end did not arrive."""
        down = self._down
        if down is None or (now_ns - down.heard_ns < LOST_AFTER_NS and now_ns - down.began_ns < MAX_DOWN_NS):
            return None
        return self.release()

    def release(self) -> DtmfKey | None:
        """Return the key that is down, as it is released or the call ends."""
        key, self._down = self._down, None
        if key is not None:
            self._up.append(key)
        return key


def checked_duration_ms(duration_ms: int) -> int:
    """Return the stated duration; 0 if it is impossible."""
    return duration_ms if 0 <= duration_ms <= MAX_DURATION_MS else 0
