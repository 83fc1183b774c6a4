"""``Idempotency-Key``: a request that is sent twice is executed once.

The first response under a key is stored for ``http.idempotency_ttl_s`` and returned again; a request that arrives while
the first is in progress waits for it. The work continues if its client disconnects, since that client will repeat the
request. Responses after which a retry makes sense (5xx, 408, 429) are not stored.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.errors import CapacityExceeded, IdempotencyMismatch, MalformedRequest
from cc_tts.processes.tasks import cancel_all
from cc_tts.tenants.shares import SharedRoom

MAX_KEY_CHARS: Final = 255  # unmeasured
RETRY_AFTER_S: Final = 1  # unmeasured
_TRY_AGAIN: Final = frozenset({408, 429})
_SERVER_ERRORS: Final = 500


class ResponseKey(NamedTuple):
    """The key of a stored response: the token's holder (``auth.Holder.key``), the method, the path and the
    header's value.
    """

    holder: str
    method: str
    path: str
    value: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response that can be sent again."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def is_final(self) -> bool:
        return self.status < _SERVER_ERRORS and self.status not in _TRY_AGAIN


@dataclass(slots=True)
class _Entry:
    fingerprint: bytes
    accepted_ns: int
    task: asyncio.Task[StoredResponse]


def check_key(values: Sequence[str]) -> str:
    """Return the value of the header, which may come once, if it is a key.

    Raises:
        MalformedRequest: empty, too long, not printable ASCII, or there are several.
    """
    if len(values) > 1:
        raise MalformedRequest("the header Idempotency-Key comes twice")
    (value,) = values
    if not 0 < len(value) <= MAX_KEY_CHARS or not (value.isascii() and value.isprintable()):
        raise MalformedRequest(f"Idempotency-Key is 1 to {MAX_KEY_CHARS} printable ASCII characters")
    return value


class IdempotencyStore:
    """A bounded store. For a new response, the oldest finished one of the token with the most is evicted. Runs on: the event
    loop.
    """

    def __init__(self, clock: Clock, *, ttl_s: float, max_keys: int) -> None:
        self._clock = clock
        self._ttl_ns = round(ttl_s * NS_PER_S)
        self._max_keys = max_keys
        self._entries: SharedRoom[ResponseKey, _Entry] = SharedRoom()

    def __len__(self) -> int:
        return len(self._entries)

    async def run_once(
        self, key: ResponseKey, fingerprint: bytes, work: Callable[[], Coroutine[Any, Any, StoredResponse]]
    ) -> tuple[StoredResponse, bool]:
        """Run ``work``, or return the response of the first request with this key.

        Args:
            key: what the request is known by.
            fingerprint: of the body.
            work: makes the response. It runs in a task of its own, which a disconnecting client does not cancel.

        Returns:
            The response, and whether it is the stored one of an earlier request.

        Raises:
            IdempotencyMismatch: the key came with another body before.
            CapacityExceeded: every entry of the store is still in progress.
        """
        if self._max_keys == 0:
            return await work(), False
        self._forget_expired()
        entry = self._entries.get(key)
        if entry is not None:
            if entry.fingerprint != fingerprint:
                raise IdempotencyMismatch("use a new key for another body")
            return await asyncio.shield(entry.task), True
        task = asyncio.create_task(work())
        self._entries.add(key, _Entry(fingerprint, self._clock.now_ns(), task), key.holder)
        if not self._has_room():
            self._entries.discard(key)
            task.cancel()  # it has not begun
            raise CapacityExceeded("every Idempotency-Key is still being worked on", retry_after_s=RETRY_AFTER_S)
        task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task), False

    async def close(self) -> None:
        tasks = [entry.task for entry in self._entries.values() if not entry.task.done()]
        await cancel_all(*tasks)
        self._entries.clear()

    def _finished(self, key: ResponseKey, task: asyncio.Task[StoredResponse]) -> None:
        if task.cancelled() or task.exception() is not None or not task.result().is_final:
            self._entries.discard(key)

    def _forget_expired(self) -> None:
        horizon_ns = self._clock.now_ns() - self._ttl_ns
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.accepted_ns > horizon_ns or not entry.task.done():
                return
            self._entries.discard(key)

    def _has_room(self) -> bool:
        if len(self._entries) <= self._max_keys:
            return True
        if (oldest := self._entries.next_out(lambda entry: entry.task.done())) is None:
            return False
        self._entries.discard(oldest)
        return True
