"""The settings of recordings."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """``[record]``: recordings of calls. ``dir`` empty: nothing is recorded."""

    dir: Annotated[str, msgspec.Meta(max_length=4000)] = ""
    format: Literal["ulaw", "pcm16"] = "ulaw"
    max_duration_s: Annotated[float, msgspec.Meta(ge=1, le=43_200)] = 14_400.0
    consent_required: bool = False
    min_free_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = 536_870_912
    retention_days: Annotated[float, msgspec.Meta(ge=0, le=36_500)] = 30.0
    upload_hosts: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=255)], ...] = ()
    upload_networks: tuple[str, ...] = ()
    on_saved: tuple[Annotated[str, msgspec.Meta(max_length=4000)], ...] = ()
    deliver_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0
    deliver_tries: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
