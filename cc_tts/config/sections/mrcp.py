"""The settings of the MRCPv2 server."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MrcpConfig:
    """``[mrcp]``: speech for contact centres over MRCPv2 (RFC 6787), in a process of its own."""

    enabled: bool = False
    transports: tuple[Literal["udp", "tcp", "tls"], ...] = ("udp", "tcp")
    sip_port: _Port = 8060
    sip_tls_port: _Port = 8061
    control_port: _Port = 1544
    control_tls_port: _Port = 1545
    rtp_port_min: Annotated[int, msgspec.Meta(ge=1024, le=65535)] = 17000
    rtp_port_max: Annotated[int, msgspec.Meta(ge=1024, le=65535)] = 17198
    allowed_peers: tuple[str, ...] = ("127.0.0.0/8",)
    tenant: str = ""
    max_sessions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    max_queued: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    complete_delay_ms: Annotated[int, msgspec.Meta(ge=0, le=5000)] = 100
    idle_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0

    @property
    def rtp_ports(self) -> range:
        """The ports for RTP; the odd ones stay free, since they belong to RTCP."""
        return range(self.rtp_port_min + self.rtp_port_min % 2, self.rtp_port_max + 1, 2)
