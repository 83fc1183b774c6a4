"""``[quality]``: reports about the quality of calls to other systems."""

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from cc_tts.config.sip_uri import MAX_URI_CHARS

MIN_INTERVAL_S: Final = 5
"""The interval of RTCP, which carries the figures of a report (RFC 3550 §6.2)."""
MAX_INTERVAL_S: Final = 3600  # unmeasured


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityConfig:
    """``[quality]``: ``rtcp_xr`` asks far sides for VoIP metrics (RFC 3611), which those that ask us get in any case;
    ``collector`` gets a report of each call at its end, and every ``interval_s`` of it; 0: only at its end (RFC 6035).
    """

    rtcp_xr: bool = False
    collector: Annotated[str, msgspec.Meta(max_length=MAX_URI_CHARS)] = ""
    interval_s: Annotated[int, msgspec.Meta(ge=0, le=MAX_INTERVAL_S)] = 0
