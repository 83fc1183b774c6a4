"""``[tracing]``: spans for OpenTelemetry."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """``[tracing]``: where traces of calls go. OTEL_EXPORTER_OTLP_ENDPOINT says it where ``endpoint`` is empty."""

    endpoint: Annotated[str, msgspec.Meta(max_length=2048)] = ""
    sample_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    salt: Annotated[str, msgspec.Meta(max_length=256)] = field(default="", repr=False)


def faults(config: TracingConfig) -> Iterator[str]:
    """Each sentence says what is wrong with the endpoint."""
    try:
        url = urlsplit(config.endpoint)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        is_url = False
    if config.endpoint and (not is_url or url.query or url.fragment or url.username):
        yield 'tracing.endpoint: write the base URL of a collector that takes OTLP over HTTP, as in "http://otel:4318"'
