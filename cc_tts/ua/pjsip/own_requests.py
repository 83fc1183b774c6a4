"""The requests that we send in a dialog. Runs on: the SIP thread."""

from typing import Any

import pjsua2 as pj

from cc_tts.clock import Clock
from cc_tts.ua.guard.c_library import CLibrary


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

    def end(self, *, before_ns: int | None = None) -> bool:
        """End those that were sent before this time, or all; return whether there were any."""
        late = [each for each, since_ns in self._since_ns.items() if before_ns is None or since_ns <= before_ns]
        for each in late:
            del self._since_ns[each]
            self._library.end_transaction(each, pj.PJSIP_SC_REQUEST_TERMINATED)
        return bool(late)
