"""The ids by which spans of several systems belong together (W3C Trace Context)."""

import re
import secrets
from dataclasses import dataclass
from typing import Final

_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})-"
    r"(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
"""W3C Trace Context §3.2; later versions may carry more."""
_SAMPLED: Final = 1
"""The flag of a trace that is recorded (§3.2.2.3)."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span, as others refer to it. The ids are hexadecimal."""

    trace_id: str
    span_id: str
    is_sampled: bool

    @classmethod
    def parse(cls, traceparent: str) -> "TraceContext | None":
        """The span that a header ``traceparent`` names; ``None`` if it cannot be read."""
        match = _TRACEPARENT.fullmatch(traceparent)
        if match is None or (match["version"] == "00" and match["more"]):
            return None
        return cls(match["trace"], match["span"], bool(int(match["flags"], 16) & _SAMPLED))

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


def new_trace_id() -> str:
    return secrets.token_hex(16)


def new_span_id() -> str:
    return secrets.token_hex(8)
