"""The server's requests for the SIP messages of calls. Never imports pjsua2. Runs on: the event loop."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Final

from cc_tts.errors import UserAgentUnavailable
from cc_tts.processes.channel import Message
from cc_tts.ua.messages import CallTrace, SendTrace

TRACE_TIMEOUT_S: Final = 3.0
"""The time that the UA processes may take to send a trace; unmeasured."""
RETRY_AFTER_S: Final = 2
"""Retry-After of a request that no process answers; unmeasured."""


class TraceRequests:
    """Asks every UA process, as it is not known which one had an ended call."""

    def __init__(self) -> None:
        self._serials = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[CallTrace]] = {}

    async def ask(self, asked: Sequence[Callable[[Message], None]], call_id: str, sip_call_id: str) -> CallTrace:
        """Return the answer with the most messages; ``asked`` sends the request to the running processes.

        Raises:
            UserAgentUnavailable: none is up, or one does not answer.
        """
        if not asked:
            raise UserAgentUnavailable("the ua process is not up", retry_after_s=RETRY_AFTER_S)
        serial = next(self._serials)
        answers = self._answers[serial] = asyncio.Queue()
        try:
            for send in asked:
                send(SendTrace(call_id=call_id, sip_call_id=sip_call_id, serial=serial))
            async with asyncio.timeout(TRACE_TIMEOUT_S):
                found = [await answers.get() for _ in asked]
        except TimeoutError:
            raise UserAgentUnavailable("the ua process does not answer", retry_after_s=RETRY_AFTER_S) from None
        finally:
            del self._answers[serial]
        return max(found, key=lambda each: len(each.messages))

    def take(self, trace: CallTrace) -> None:
        if (answers := self._answers.get(trace.serial)) is not None:
            answers.put_nowait(trace)
