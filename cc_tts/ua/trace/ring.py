"""The last messages of each call, bounded in number and in bytes. Runs on: the SIP thread."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from cc_tts.ua.messages import TracedMessage

MAX_CALL_BYTES: Final = 256 << 10
"""The most bytes of messages of one call; the channel takes 1 MiB in a record (unmeasured)."""
MAX_TOTAL_BYTES: Final = 32 << 20
"""The most bytes of messages of all calls of a process, including ended ones: some 5,000 calls of seven messages
(unmeasured).
"""
MAX_STRANGERS: Final = 200
"""The most dialogs that are not, or not yet, calls: refused INVITEs, a scanner (unmeasured)."""


class TraceRing:
    """Messages by Call-ID. Dialogs that are no calls cannot displace the messages of calls."""

    def __init__(self, max_messages: int) -> None:
        self._max_messages = max_messages
        self._calls: OrderedDict[str, deque[TracedMessage]] = OrderedDict()
        self._strangers: OrderedDict[str, deque[TracedMessage]] = OrderedDict()
        self._num_bytes = 0  # of calls

    def add(self, sip_call_id: str, message: TracedMessage) -> None:
        """Add a message; the dialogs that were silent for longest are forgotten first."""
        dialogs = self._calls if sip_call_id in self._calls else self._strangers
        kept = dialogs.setdefault(sip_call_id, deque())
        num_bytes = before = _num_bytes(kept)
        if len(kept) == self._max_messages:
            num_bytes -= len(kept.popleft().text)
        kept.append(message)
        num_bytes += len(message.text)
        while num_bytes > MAX_CALL_BYTES and len(kept) > 1:
            num_bytes -= len(kept.popleft().text)
        if dialogs is self._calls:
            self._calls.move_to_end(sip_call_id)
            self._count(num_bytes - before)
        elif len(self._strangers) > MAX_STRANGERS:
            self._strangers.popitem(last=False)

    def know(self, sip_call_id: str) -> None:
        """The messages of this Call-ID are those of a call."""
        if (found := self._strangers.pop(sip_call_id, None)) is not None:
            self._calls[sip_call_id] = found
            self._count(_num_bytes(found))

    def messages(self, sip_call_id: str) -> list[TracedMessage]:
        return list(self._calls.get(sip_call_id) or self._strangers.get(sip_call_id) or ())

    def _count(self, more_bytes: int) -> None:
        self._num_bytes += more_bytes
        while self._num_bytes > MAX_TOTAL_BYTES and len(self._calls) > 1:
            _, oldest = self._calls.popitem(last=False)
            self._num_bytes -= _num_bytes(oldest)


def _num_bytes(kept: Iterable[TracedMessage]) -> int:
    return sum(len(each.text) for each in kept)
