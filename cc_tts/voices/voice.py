"""Value types of voices."""

from dataclasses import dataclass
from typing import Literal

VoiceKind = Literal["builtin", "zero_shot"]


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice of one engine. ``language`` is a BCP 47 tag (``en-GB``, ``cmn``)."""

    id: str
    engine: str
    language: str
    kind: VoiceKind = "builtin"
    ready: bool = True
    description: str = ""
