"""The keys that the caller presses on one call: each goes to the gather that runs, or is kept a while for the next.

Runs on: the event loop.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from cc_tts.calls.gather import Gather
from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.ua import messages

MAX_TYPED_AHEAD: Final = 128
ECHO_NS: Final = 100 * NS_PER_MS
"""A key that comes again this soon by another method (RFC 4733 and SIP INFO) is the same key."""


class DtmfCollector:
    """Keys on their way to a gather. ``interrupt`` silences what a key may interrupt on this call.

    A finish key right after the last digit of a gather that ended by ``max_digits`` belongs to that gather: callers press it
    out of habit.
    """

    def __init__(self, clock: Clock, *, type_ahead_ms: int, interrupt: Callable[[int], None]) -> None:
        self._clock = clock
        self._type_ahead_ns = type_ahead_ms * NS_PER_MS
        self._interrupt = interrupt
        self._typed: deque[tuple[int, str]] = deque(maxlen=MAX_TYPED_AHEAD)
        self._down_ns: int | None = None
        self._last_heard: tuple[str, str, int] | None = None
        self._last: Gather | None = None
        self.gather: Gather | None = None

    def down(self, at_ns: int) -> None:
        """A key is being pressed: stop what may be interrupted. :meth:`pressed` follows when it is released."""
        self._down_ns = at_ns
        self._interrupt(at_ns)
        if self.gather is not None:
            self.gather.key_down()

    def is_repeated(self, key: messages.DtmfReceived) -> bool:
        """Whether this is the other report of a key that came by two methods; the first counts."""
        if key.method == "sip_info" and self._down_ns is not None:
            return True
        now_ns = self._clock.now_ns()
        last, self._last_heard = self._last_heard, (key.digit, key.method, now_ns)
        if last is None or last[0] != key.digit or last[1] == key.method or now_ns - last[2] >= ECHO_NS:
            return False
        self._released()
        return True

    def _released(self) -> None:
        self._down_ns = None
        if self.gather is not None:
            self.gather.key_up()

    def pressed(self, key: messages.DtmfReceived) -> None:
        """A key was pressed."""
        if key.at_ns != self._down_ns:
            self._interrupt(key.at_ns)
        self._released()
        gather, is_late = self.gather, self._is_late(key.digit)
        if gather is None:
            if not is_late:
                self._typed.append((self._clock.now_ns(), key.digit))
        elif not (is_late and gather.is_ended_by(key.digit)):
            gather.key_pressed(key.digit)

    def begin(self, gather: Gather) -> list[str]:
        """A gather runs from now on; returns the keys that were typed ahead of it."""
        horizon_ns = self._clock.now_ns() - self._type_ahead_ns
        typed = [] if gather.request.flush_buffer else [key for at_ns, key in self._typed if at_ns >= horizon_ns]
        self._typed.clear()
        self.gather = gather
        return typed

    def end(self, gather: Gather) -> None:
        """The gather is complete; keys that it did not need are for the next."""
        self.gather, self._last = None, gather
        now_ns = self._clock.now_ns()
        unused = gather.unused_keys()
        if unused and self._is_late(unused[0]):
            del unused[0]
        self._typed.extend((now_ns, key) for key in unused)

    def _is_late(self, key: str) -> bool:
        """Whether the last gather was complete without this finish key; only the next key can be it."""
        last, self._last = self._last, None
        if last is None or last.ended_ns is None or last.result != "max_digits":
            return False
        return key in last.request.finish_on_key and self._clock.now_ns() - last.ended_ns <= self._type_ahead_ns
