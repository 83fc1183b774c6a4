"""The requests that we send in a dialog. Runs on: the SIP thread."""

from typing import Any, Final

import pjsua2 as pj

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.ua.guard.c_library import CLibrary

ANSWER_TIMEOUT_NS: Final = 30 * NS_PER_S
"""A REFER or NOTIFY may be without final response for this long. After 32 s (RFC 3261 §17.1.2.2: 64·T1) PJSIP would end the
call.
"""


class OwnRequests:
    """Requests of one kind that have no final response yet, by their transactions, and since when."""

    def __init__(self, library: CLibrary, clock: Clock) -> None:
        self._library = library
        self._clock = clock
        self._since_ns: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._since_ns)

    def note(self, change: Any) -> bool:
        """Note a change of a transaction, a ``TsxStateEvent``; return whether it has got its final response."""
        transaction = int(change.tsx.pjTransaction)
        if change.tsx.state < pj.PJSIP_TSX_STATE_COMPLETED:
            self._since_ns.setdefault(transaction, self._clock.now_ns())
            return False
        return self._since_ns.pop(transaction, None) is not None

    def end(self, *, timeout_ns: int = 0) -> bool:
        """End those that have waited for this long, or all; return whether there were any."""
        before_ns = self._clock.now_ns() - timeout_ns
        late = [each for each, since_ns in self._since_ns.items() if since_ns <= before_ns]
        for each in late:
            del self._since_ns[each]
            self._library.end_transaction(each, pj.PJSIP_SC_REQUEST_TERMINATED)
        return bool(late)
