"""The settings of recordings."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

MIN_RECORDING_MS = 100  # unmeasured
MAX_RECORDING_MS = 43_200_000
"""Twelve hours: the sizes in the header of a WAV file have 32 bits (Microsoft RIFF spec)."""

Channels = Literal["mono", "dual"]
Tracks = Literal["both", "caller", "agent"]
"""``caller``: what was received; ``agent``: what we sent."""
Encoding = Literal["ulaw", "pcm16"]
WantedConsent = Literal["required", "given"]
_Duration = Annotated[int, msgspec.Meta(ge=MIN_RECORDING_MS, le=MAX_RECORDING_MS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """``[record]``: recordings of calls. ``dir`` empty: nothing is recorded."""

    dir: Annotated[str, msgspec.Meta(max_length=4000)] = ""
    format: Encoding = "ulaw"
    max_duration_s: Annotated[float, msgspec.Meta(ge=1, le=43_200)] = 14_400.0
    consent_required: bool = False
    min_free_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = 536_870_912
    retention_days: Annotated[float, msgspec.Meta(ge=0, le=36_500)] = 30.0
    upload_hosts: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=255)], ...] = ()
    upload_networks: tuple[str, ...] = ()
    on_saved: tuple[Annotated[str, msgspec.Meta(max_length=4000)], ...] = ()
    deliver_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0
    deliver_tries: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRecordConfig:
    """``record`` of a route as a table: how its calls are recorded, in the words of ``POST /v1/calls/{id}/record``."""

    channels: Channels = "mono"
    tracks: Tracks = "both"
    encoding: Encoding | None = None
    max_duration_ms: _Duration | None = None
    silence_timeout_ms: _Duration | None = None
    finish_on_key: Annotated[str, msgspec.Meta(pattern="^[0-9A-D*#]{0,16}$")] = ""
    beep: bool = False
    trim_silence: bool = False
    consent: WantedConsent | None = None


RouteRecord = RouteRecordConfig | Channels | Literal[""]
"""``mono`` and ``dual`` stand for a table with these ``channels``; empty: calls are recorded only on request."""
