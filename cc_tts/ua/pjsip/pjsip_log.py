"""PJSIP's own log as our log lines, and the failed assertions in it. Runs on: any thread of PJSIP.

PJSIP writes whole messages into its log: those that it cannot parse, at some levels. Of an entry of several lines only what
stands before the message is kept, whatever PJSIP calls it.
"""

import re
from collections import Counter, deque
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock

MAX_ASSERTIONS: Final = 1000
"""The most failed assertions that are counted between two calls of :meth:`PjsipLog.take_assertions`; unmeasured."""
BAD_PACKETS_INTERVAL_NS: Final = NS_PER_S
"""Messages that PJSIP cannot parse are reported once in this time at most; unmeasured."""

log = logs.get(__name__)

_ERROR: Final = 1
_WARNING: Final = 2
_PREFIX: Final = re.compile(r"[\d:.]+ +\S+ +[!.]*")
"""The beginning of each entry: time, file or object, depth of the call."""
_OTHERS_FAULT: Final = re.compile(
    r"Error processing packet|Dropp(?:ed|ing)(?: \d+ bytes)? packet|Error parsing|Can't parse input string"
    r"|Unknown Content|Error in provided SDP"
)
"""PJSIP's words for messages that it cannot parse or use. Their senders determine how often they appear."""
_DUMP: Final = re.compile(r"\bpacket:")
"""The words before a message that is on one line."""
_ERROR_PROCESSING: Final = "Error processing packet"
_REASON_ENDS: Final = "]:"
"""The words after the reason in such a line; the message follows."""
_FAILED_ASSERTION: Final = re.compile(r"[\d:.]+ +(\S+) +!?[. ]*Assert failed: (.+)")
"""The form of a failed assertion if PJLIB is built with NDEBUG: time, file, expression. Later in a line there may be words
of others.
"""
_NEVER_LOGGED: Final = (
    (re.compile(r"\bkey=.*"), "key=…"),  # PJMEDIA writes the keys of SRTP at level 5
    (re.compile(r"\bDTMF\b.*"), "DTMF …"),
    (re.compile(r"\bError parsing '[^']*'?"), "Error parsing '…'"),
    (re.compile(r"\bparsing (header: )?'(?![\w-]{1,40}')[^']*'?"), "parsing '…'"),
    (
        re.compile(r"(?i)\b(sips?:[^\s;?>\"',]*)[;?][^\s>\"',]*"),
        r"\1;…",
    ),  # ;play= and ?X-TTS-Text= hold what is to be said
    (
        re.compile(r"(?i)\b([\w-]*authoriz[\w-]*|[\w-]*authenticate|X-[\w-]+|User-to-User|response|cnonce)( *[:=]).*"),
        r"\1\2 …",
    ),
)


class PjsipLog(pj.LogWriter):  # type: ignore[misc]
    """PJSIP's own log as our log lines."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._reported_ns = -BAD_PACKETS_INTERVAL_NS
        self._unreported = 0
        self._assertions: deque[str] = deque(maxlen=MAX_ASSERTIONS)

    def take_assertions(self) -> Counter[str]:
        return Counter(self._assertions.popleft() for _ in range(len(self._assertions)))

    def write(self, entry: Any) -> None:
        """Called by PJSIP. The busy ports that it passes over while it looks for a free one are not reported."""
        if "socket bind() at" in entry.msg:
            return
        text, level = entry.msg, entry.level
        if level == _ERROR and (failed := _FAILED_ASSERTION.match(text)):
            self._assertions.append(f"{failed[1]} {failed[2].strip()}")
            return
        detail = without_message(text)
        if _OTHERS_FAULT.search(detail):
            now_ns = self._clock.now_ns()
            if now_ns - self._reported_ns < BAD_PACKETS_INTERVAL_NS:
                self._unreported += 1
                return
            self._reported_ns, detail, self._unreported = now_ns, f"{detail}; {self._unreported} more not reported", 0
            level = max(level, _WARNING)
        write = {_ERROR: log.error, _WARNING: log.warning}.get(level, log.info)
        write("pjsip", pjsip_level=entry.level, detail=detail)


def without_message(text: str) -> str:
    """Return PJSIP's own words in an entry: the text before its first colon if it has several lines, or why a message could
    not be parsed. The rest may hold prompt text, keys or passwords.
    """
    first, *more = text.strip().splitlines() or [""]
    if more or _DUMP.search(first):
        prefix = match.group() if (match := _PREFIX.match(first)) else ""
        said = first[len(prefix) :]
        end = said.find(_REASON_ENDS) + 1 if said.startswith(_ERROR_PROCESSING) else said.find(":")
        first = prefix + (said[:end] if end >= 0 else said)
    for pattern, instead in _NEVER_LOGGED:
        first = pattern.sub(instead, first)
    return first
