"""One attempt to deliver an event: an HTTP POST that follows no redirect and reads little of the response.

Runs on: the event loop; names are looked up by a thread.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp

from cc_tts.clock import Clock, ms_between
from cc_tts.egress.hosts import AllowedHosts
from cc_tts.egress.http import GuardedClient, failure, read_at_most
from cc_tts.webhooks.target import WebhookTarget

MAX_ANSWER_BYTES: Final = 65_536
"""The most that is read of a response (unmeasured): as much as a JSON body of the API with a long text."""
MAX_UNREAD_BYTES: Final = 4096
"""An unwanted response is read up to this size, so that its connection can be used again (unmeasured)."""
MAX_RETRY_AFTER_S: Final = 3600.0
"""A receiver cannot ask for a longer pause (unmeasured)."""
READ_TIMEOUT_S: Final = 1.0
"""The time that the body of a response may take after its head (unmeasured)."""
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an attempt. ``status`` ``None``: there was no response, for the reason in ``error``. ``answer`` is the
    JSON of the response, if that was wanted.
    """

    status: int | None = None
    error: str = ""
    is_unreachable: bool = False
    """Whether there was no connection, so that no other event could have been delivered either."""
    retry_after_s: float | None = None
    answer: bytes = b""
    duration_ms: float = 0.0

    @property
    def is_taken(self) -> bool:
        """Whether the receiver has accepted the event: a status of 2xx."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - RFC 9110 §15.3


class HttpPost:
    """Makes attempts, which raise nothing but a cancellation. A guarded target is reached only at ``allowed`` hosts."""

    def __init__(self, clock: Clock, allowed: Callable[[], AllowedHosts]) -> None:
        self._clock = clock
        self._clients = {
            is_guarded: GuardedClient("webhooks.allowed_hosts", allowed if is_guarded else None)
            for is_guarded in (False, True)
        }

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def __call__(
        self, target: WebhookTarget, headers: dict[str, str], body: bytes, *, wants_answer: bool
    ) -> Outcome:
        """Send ``body`` to the target, and wait for a response up to the target's timeout."""
        begun_ns = self._clock.now_ns()
        try:
            client = self._clients[target.is_guarded]
            headers = {"Content-Type": _JSON, **headers}
            async with (
                asyncio.timeout(target.timeout_s) as limit,
                client.request("POST", target.url, data=body, headers=headers) as response,
            ):
                limit.reschedule(None)  # the endpoint has the event; reading the response has a limit of its own
                answer = await _read(response, wants_answer=wants_answer)
                result: dict[str, Any] = {
                    "status": response.status,
                    "answer": answer,
                    "retry_after_s": self._retry_after_s(response),
                }
        except TimeoutError:
            result = {"error": f"no response within {target.timeout_s:g} s"}
        except (aiohttp.ClientError, OSError, ValueError) as error:
            unreachable = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError))
            result = {"error": failure(error), "is_unreachable": unreachable}
        return Outcome(**result, duration_ms=round(ms_between(begun_ns, self._clock.now_ns()), 1))

    def _retry_after_s(self, response: aiohttp.ClientResponse) -> float | None:
        """Return the pause that the receiver asks for (RFC 9110 §10.2.3: seconds, or a date)."""
        text = response.headers.get("Retry-After", "").strip()
        seconds = math.nan
        if text.isascii() and text.isdecimal():
            seconds = float(text[:9])
        elif text:
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                seconds = parsedate_to_datetime(text[:40]).timestamp() - self._clock.wall_s()
        return None if math.isnan(seconds) else min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


async def _read(response: aiohttp.ClientResponse, *, wants_answer: bool) -> bytes:
    """Return the JSON of a response if it is wanted and arrives soon; only the beginning of a longer one. The event counts
    as delivered whatever the body is.
    """
    length = response.content_length
    is_answer = wants_answer and response.content_type == _JSON
    if not is_answer and (length is None or length > MAX_UNREAD_BYTES):
        response.close()
        return b""
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            answer = await read_at_most(response.content, MAX_ANSWER_BYTES + 1)
    except (TimeoutError, aiohttp.ClientError, OSError):
        answer = b""
    if not response.content.at_eof():
        response.close()
    return answer if is_answer else b""
