"""The settings of lines without SIP: calls that Asterisk brings over its WebSocket channel or AudioSocket."""

import ipaddress
from collections.abc import Iterator
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


def faults(config: AsteriskConfig) -> Iterator[str]:
    """Say what is wrong with the listeners. Networks are checked with those of other sections."""
    try:
        is_loopback = ipaddress.ip_address(config.host).is_loopback
    except ValueError:
        yield f"asterisk.host: {config.host!r} is not an IP address"
        return
    if config.websocket_port and config.websocket_port == config.audiosocket_port:
        yield f"asterisk.websocket_port and asterisk.audiosocket_port are both {config.websocket_port}"
    if config.websocket_port and not is_loopback and not config.password:
        yield f"asterisk.host is {config.host} but asterisk.password is empty: anybody there could bring calls"
    if config.username and not config.password:
        yield "asterisk.username goes with asterisk.password"
