"""``[quality]``: who is told how calls sound."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from cc_tts.config.sip_uri import MAX_URI_CHARS, uri_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityConfig:
    """``[quality]``: ``rtcp_xr`` asks far sides for VoIP metrics (RFC 3611), which those that ask us get in any case;
    ``collector`` gets a report of each call (RFC 6035).
    """

    rtcp_xr: bool = False
    collector: Annotated[str, msgspec.Meta(max_length=MAX_URI_CHARS)] = ""


def faults(config: QualityConfig, *, transports: Collection[str]) -> Iterator[str]:
    """Each sentence says what is wrong with the address."""
    fault = uri_fault(config.collector) if config.collector else None
    if fault is not None:
        yield f"quality.collector: {fault}"
    if config.collector.lower().startswith("sips:") and "tls" not in transports:
        yield 'quality.collector is a sips: URI, but sip.transports has no "tls"'
