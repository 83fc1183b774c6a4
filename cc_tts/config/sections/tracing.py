"""``[tracing]``: spans for OpenTelemetry."""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from cc_tts.egress.hosts import MAX_URL_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """``[tracing]``: where traces of calls go. OTEL_EXPORTER_OTLP_ENDPOINT says it where ``endpoint`` is empty."""

    endpoint: Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)] = ""
    sample_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    salt: Annotated[str, msgspec.Meta(max_length=256)] = field(default="", repr=False)
