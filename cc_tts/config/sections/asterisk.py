"""The settings of lines without SIP: calls that Asterisk brings over its WebSocket channel or AudioSocket."""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name = Annotated[str, msgspec.Meta(max_length=128)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsteriskConfig:
    """``[asterisk]``: where Asterisk reaches us without SIP. A port of 0 is off."""

    host: str = "127.0.0.1"
    websocket_port: Port = 0
    audiosocket_port: Port = 0
    username: Name = ""
    password: Annotated[str, msgspec.Meta(max_length=256)] = field(default="", repr=False)
    allowed_peers: tuple[str, ...] = ("127.0.0.0/8",)
    route: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "asterisk"
    max_calls: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100

    @property
    def is_on(self) -> bool:
        return bool(self.websocket_port or self.audiosocket_port)
