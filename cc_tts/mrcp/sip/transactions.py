"""Server transactions, and the requests that we send ourselves (RFC 3261 §17, RFC 6026).

A transaction keeps its response, so that a request that is sent again gets the same one. Every INVITE is answered at once,
and there is no provisional response. Runs on: the event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cc_tts.mrcp.sip.request import SipRequest

T1_S: Final = 0.5  # RFC 3261 §17.1.1.1
T2_S: Final = 4.0  # RFC 3261 §17.1.1.1
T4_S: Final = 5.0
"""How long a message may stay in the network (RFC 3261 §17.1.1.1)."""
LIFETIME_S: Final = 64 * T1_S
"""Timers B, F, H, J and L."""
MAX_TRANSACTIONS: Final = 5000
"""Requests beyond this many get no answer until others are over; the sender tries again (unmeasured)."""

Key = tuple[str, ...]


class Repeater:
    """Sends a message at T1, 2 T1, 4 T1 … at most T2, until it is stopped; after 64 T1 it gives up and reports that."""

    def __init__(self, send: Callable[[], None], give_up: Callable[[], None], *, repeats: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self._send = send
        self._interval_s = T1_S
        self._next = loop.call_later(T1_S, self._again) if repeats else None
        self._end = loop.call_later(LIFETIME_S, self._over)
        self._give_up = give_up

    def _again(self) -> None:
        self._send()
        self._interval_s = min(2 * self._interval_s, T2_S)
        self._next = asyncio.get_running_loop().call_later(self._interval_s, self._again)

    def _over(self) -> None:
        self.stop()
        self._give_up()

    def stop(self) -> None:
        """Stop sending. May be called twice."""
        if self._next is not None:
            self._next.cancel()
        self._end.cancel()


@dataclass(slots=True, eq=False)
class _Transaction:
    response: bytes
    repeater: Repeater | None = None
    end: asyncio.TimerHandle | None = None


class Transactions:
    def __init__(self) -> None:
        self._by_key: dict[Key, _Transaction] = {}

    @property
    def is_full(self) -> bool:
        return len(self._by_key) >= MAX_TRANSACTIONS

    def repeats(self, request: SipRequest) -> bool:
        """Return whether the request has come before; if so, send its response again."""
        found = self._by_key.get(request.key)
        if found is not None:
            request.reply(found.response)
        return found is not None

    def has_invite(self, request: SipRequest) -> bool:
        """Return whether the INVITE of a CANCEL exists (RFC 3261 §9.2)."""
        return ("INVITE", *request.key[1:]) in self._by_key

    def answer(self, request: SipRequest, response: bytes) -> None:
        """Send the final response, and keep it as long as the request may be repeated."""
        request.reply(response)
        kept = self._by_key[request.key] = _Transaction(response)
        is_refusal = not response.startswith(b"SIP/2.0 2")
        if request.method == "INVITE" and is_refusal:
            kept.repeater = Repeater(
                lambda: request.reply(response),
                lambda: self._forget(request.key),
                repeats=not request.flow.is_reliable,
            )
        else:
            lasts_s = LIFETIME_S if request.method == "INVITE" or not request.flow.is_reliable else 0.0
            kept.end = asyncio.get_running_loop().call_later(lasts_s, self._forget, request.key)

    def acknowledge(self, request: SipRequest) -> None:
        """Handle an ACK: if it is for a refusal, stop repeating that."""
        found = self._by_key.get(request.key)
        if found is not None and found.repeater is not None:
            found.repeater.stop()
            lasts_s = 0.0 if request.flow.is_reliable else T4_S
            found.end = asyncio.get_running_loop().call_later(lasts_s, self._forget, request.key)

    def close(self) -> None:
        for key in list(self._by_key):
            self._forget(key)

    def _forget(self, key: Key) -> None:
        found = self._by_key.pop(key, None)
        if found is None:
            return
        if found.repeater is not None:
            found.repeater.stop()
        if found.end is not None:
            found.end.cancel()
