"""``[quality]``: reports about the quality of calls to other systems."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from cc_tts.config.sip_uri import MAX_URI_CHARS, uri_fault

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


def faults(config: QualityConfig, *, transports: Collection[str]) -> Iterator[str]:
    """Each sentence says what is wrong with the address or the interval."""
    fault = uri_fault(config.collector) if config.collector else None
    if fault is not None:
        yield f"quality.collector: {fault}"
    if config.collector.lower().startswith("sips:") and "tls" not in transports:
        yield 'quality.collector is a sips: URI, but sip.transports has no "tls"'
    if 0 < config.interval_s < MIN_INTERVAL_S:
        yield f"quality.interval_s is 0, or {MIN_INTERVAL_S} to {MAX_INTERVAL_S}"
    if config.interval_s and not config.collector:
        yield "quality.interval_s needs quality.collector, which gets the reports"
