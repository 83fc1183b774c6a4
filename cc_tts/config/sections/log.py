"""The settings of the log, which every process has."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Section ``[log]``: level and format."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    json: bool = True
    pjsip_level: Annotated[int, msgspec.Meta(ge=0, le=6)] = 1
