"""The settings of the MRCPv2 server, and how they must fit to others."""

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from cc_tts.errors import did_you_mean

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


def faults(
    config: MrcpConfig,
    *,
    rtp_ports: range,
    other_ports: Mapping[str, int],
    tenants: Collection[str],
    has_certificate: bool,
) -> Iterator[str]:
    """Yield the conflicts with other settings. ``rtp_ports``: those of calls; ``other_ports``: the keys and ports of the
    server.
    """
    for peer in config.allowed_peers:
        try:
            ipaddress.ip_network(peer)
        except ValueError as error:
            yield f"mrcp.allowed_peers: {error}; write an address or a network such as 10.0.0.0/8"
    if config.tenant and config.tenant not in tenants:
        yield f"mrcp.tenant names the tenant {config.tenant[:80]!r}{did_you_mean(config.tenant, tenants)}"
    if not config.enabled:
        return
    if not config.transports:
        yield 'mrcp.transports is empty; use any of "udp", "tcp", "tls"'
    if not config.rtp_ports:
        yield "mrcp.rtp_port_max must be above mrcp.rtp_port_min; a session needs an even port"
    elif config.rtp_port_min < rtp_ports.stop and rtp_ports.start <= config.rtp_port_max:
        yield "mrcp.rtp_port_min to mrcp.rtp_port_max must be other ports than rtp.port_min to rtp.port_max"
    yield from _ports_given_twice(config, other_ports)
    if "tls" in config.transports and not has_certificate:
        yield 'mrcp.transports has "tls": set tls.certificate_file and tls.private_key_file'


def _ports_given_twice(config: MrcpConfig, other_ports: Mapping[str, int]) -> Iterator[str]:
    taken = dict(other_ports)
    for name in ("sip_port", "sip_tls_port", "control_port", "control_tls_port"):
        key, port = f"mrcp.{name}", getattr(config, name)
        if port and (other := next((each for each, value in taken.items() if value == port), "")):
            yield f"{key} and {other} are both {port}; set {key} to a port of its own"
        taken[key] = port
