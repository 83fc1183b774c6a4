"""PJSIP's own log as lines of ours, and the assertions that fail in it. Runs on: any thread of PJSIP."""

import re
from collections import Counter, deque
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import Clock

MAX_ASSERTIONS: Final = 1000
"""Failed assertions that are counted between two calls of :meth:`PjsipLog.take_assertions`."""
BAD_PACKETS_INTERVAL_NS: Final = 1_000_000_000
"""Messages that PJSIP cannot parse are reported once in this time at most."""

log = logs.get(__name__)

_BAD_PACKET: Final = "Error processing packet"
"""How PJSIP begins the line about a message that it cannot parse."""
_FAILED_ASSERTION: Final = re.compile(r"[\d:.]+ +(\S+) +!?[. ]*Assert failed: (.+)")
"""What PJLIB says if it is built with NDEBUG: time, file, expression. Further on in a line others' words may stand."""
_KEY: Final = re.compile(r"\bkey=.*", re.DOTALL)
"""PJMEDIA writes the keys of SRTP at level 5."""


class PjsipLog(pj.LogWriter):  # type: ignore[misc]
    """PJSIP's own log as lines of ours."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._reported_ns = 0
        self._unreported = 0
        self._assertions: deque[str] = deque(maxlen=MAX_ASSERTIONS)

    def take_assertions(self) -> Counter[str]:
        """Assertions that failed since the last time."""
        return Counter(self._assertions.popleft() for _ in range(len(self._assertions)))

    def write(self, entry: Any) -> None:
        """Called by PJSIP. The ports it passes over while it looks for a free one are nothing to report."""
        if "socket bind() at" in entry.msg:
            return
        text = entry.msg
        if entry.level == 1 and (failed := _FAILED_ASSERTION.match(text)):
            self._assertions.append(f"{failed[1]} {failed[2].strip()}")
            return
        if _BAD_PACKET in text:
            text = text.partition("]:")[0]  # what follows is the packet
            now_ns = self._clock.now_ns()
            if now_ns - self._reported_ns < BAD_PACKETS_INTERVAL_NS:
                self._unreported += 1
                return
            self._reported_ns, text, self._unreported = now_ns, f"{text}; {self._unreported} more not reported", 0
        log.info("pjsip", level=entry.level, detail=_KEY.sub("key=…", text).strip())
