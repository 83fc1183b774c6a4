"""What to dial, from which address, and which keys to press when."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TimedKeys:
    """Digits to press one after the other, beginning ``at_ms`` after the answer."""

    digits: str
    at_ms: float
    duration_ms: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DialPlan:
    """What to dial and how."""

    call: str
    uri: str
    codec: str = "pcmu"
    headers: Mapping[str, str] = field(default_factory=dict)
    rtp_port: int = 0
    record: Path | None = None
    keys: tuple[TimedKeys, ...] = ()
    answer_timeout_s: float = 30.0
    max_talk_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSettings:
    """Local addresses, the From URI and credentials."""

    address: str = "127.0.0.1"
    port: int = 0
    transport: str = "udp"
    from_uri: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    pjsip_log_level: int = 0
