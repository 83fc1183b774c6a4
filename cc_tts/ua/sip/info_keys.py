"""Keys that go out by INFO (``application/dtmf-relay``), for a far side that takes no telephone events. No pjsua2 here."""

from collections import deque
from collections.abc import Callable
from typing import Final

from cc_tts.clock import NS_PER_MS

MEDIA_TYPE: Final = "application/dtmf-relay"
MAX_PENDING: Final = 32
"""The most keys that wait, as many as PJMEDIA keeps for telephone events (``PJMEDIA_DTMF_BUF_SIZE``)."""


class InfoKeys:
    """Sends one key after another: the next when the one before was answered and its duration is over, so that the order is
    kept. ``send`` gets a body; ``on_failed`` gets the reason why the remaining keys are not sent.
    """

    def __init__(self, send: Callable[[str], None], on_failed: Callable[[str], None]) -> None:
        self._send = send
        self._on_failed = on_failed
        self._pending: deque[tuple[str, int]] = deque()
        self._is_awaited = False  # whether an answer is awaited
        self._free_ns = 0

    def put(self, digits: str, duration_ms: int, now_ns: int) -> None:
        """Queue these keys for sending."""
        if len(self._pending) + len(digits) > MAX_PENDING:
            self._on_failed(f"more than {MAX_PENDING} keys wait for their turn")
            return
        self._pending += [(digit, duration_ms) for digit in digits]
        self.tick(now_ns)

    def tick(self, now_ns: int) -> None:
        if self._pending and not self._is_awaited and now_ns >= self._free_ns:
            digit, duration_ms = self._pending.popleft()
            self._is_awaited = True
            self._free_ns = now_ns + duration_ms * NS_PER_MS
            try:
                self._send(f"Signal={digit}\r\nDuration={duration_ms}\r\n")
            except BaseException:  # no answer will come, and those behind it would be out of order
                self._is_awaited = False
                self._pending.clear()
                raise

    def answered(self, status: int) -> None:
        self._is_awaited = False
        if status >= 300:  # noqa: PLR2004 - no success (RFC 3261 §7.2)
            self._pending.clear()
            self._on_failed(f"the far side answered {status} to INFO")
