"""The last messages of each call, bounded in number and in bytes. Runs on: the SIP thread."""

from collections import OrderedDict, deque
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


class _Messages:
    def __init__(self, max_messages: int) -> None:
        self.kept: deque[TracedMessage] = deque(maxlen=max_messages)
        self.num_bytes = 0

    def add(self, message: TracedMessage) -> int:
        """Add a message; return by how many bytes the contents have grown."""
        before = self.num_bytes
        if len(self.kept) == self.kept.maxlen:
            self.num_bytes -= len(self.kept.popleft().text)
        self.kept.append(message)
        self.num_bytes += len(message.text)
        while self.num_bytes > MAX_CALL_BYTES and len(self.kept) > 1:
            self.num_bytes -= len(self.kept.popleft().text)
        return self.num_bytes - before


class TraceRing:
    """Messages by Call-ID. Dialogs that are no calls cannot displace the messages of calls."""

    def __init__(self, max_messages: int) -> None:
        self._max_messages = max_messages
        self._calls: OrderedDict[str, _Messages] = OrderedDict()
        self._strangers: OrderedDict[str, _Messages] = OrderedDict()
        self._num_bytes = 0

    def add(self, sip_call_id: str, message: TracedMessage) -> None:
        """Add a message; the dialogs that were silent for longest are forgotten first."""
        if (known := self._calls.get(sip_call_id)) is not None:
            self._num_bytes += known.add(message)
            self._calls.move_to_end(sip_call_id)
            self._forget()
            return
        if (stranger := self._strangers.get(sip_call_id)) is None:
            stranger = self._strangers[sip_call_id] = _Messages(self._max_messages)
            if len(self._strangers) > MAX_STRANGERS:
                self._strangers.popitem(last=False)
        stranger.add(message)

    def know(self, sip_call_id: str) -> None:
        if (found := self._strangers.pop(sip_call_id, None)) is not None:
            self._calls[sip_call_id] = found
            self._num_bytes += found.num_bytes
            self._forget()

    def messages(self, sip_call_id: str) -> list[TracedMessage]:
        found = self._calls.get(sip_call_id) or self._strangers.get(sip_call_id)
        return list(found.kept) if found else []

    def _forget(self) -> None:
        while self._num_bytes > MAX_TOTAL_BYTES and len(self._calls) > 1:
            _, oldest = self._calls.popitem(last=False)
            self._num_bytes -= oldest.num_bytes
