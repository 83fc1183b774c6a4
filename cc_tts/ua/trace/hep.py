"""HEP version 3 (sipcapture.org, HEP3 Network Protocol Specification): chunks of type, length and value. No I/O."""

import functools
import ipaddress
import struct
from typing import Final

from cc_tts.clock import NS_PER_S

SIP: Final = 1
RTCP: Final = 5
"""An RTCP report as JSON."""
QUALITY: Final = 35
"""A short report of quality; its figures are chunks of their own too."""
LOG: Final = 100
"""A line of JSON, here the record of a call."""
DATAGRAM_BYTES: Final = 65_000
"""A UDP datagram takes 65,507."""
_AF_INET: Final = 2
_AF_INET6: Final = 10
PROTOCOLS: Final = {"udp": 17, "tcp": 6, "tls": 6}
"""Numbers of IP protocols (IANA)."""
_MOS: Final = 0x20
_JITTER: Final = 0x23

Address = tuple[str, int]


def packet(
    payload: bytes,
    *,
    kind: int,
    transport: str,
    source: Address,
    target: Address,
    at_ns: int,
    capture_id: int,
    correlation_id: str,
    mos: float | None = None,
    jitter_ms: float | None = None,
) -> bytes | None:
    """Return one packet; ``None`` if the payload does not fit into a datagram.

    Raises:
        ValueError: a host is no IP address.
    """
    if len(payload) > DATAGRAM_BYTES:
        return None
    seconds, rest_ns = divmod(at_ns, NS_PER_S)
    correlation = correlation_id.encode("utf-8", "replace")[:1024]
    chunks = [
        _beginning(kind, transport, source, target, capture_id),
        struct.pack("!HHHIHHHI", 0, 9, 10, seconds & 0xFFFFFFFF, 0, 10, 10, rest_ns // 1000),
        _chunk(17, correlation),
    ]
    if mos is not None:
        chunks.append(_chunk(_MOS, struct.pack("!H", round(mos * 100))))
    if jitter_ms is not None:
        chunks.append(_chunk(_JITTER, struct.pack("!I", round(jitter_ms))))
    chunks.append(_chunk(15, payload))
    length = 6 + sum(map(len, chunks))
    if length > DATAGRAM_BYTES:
        return None
    return b"HEP3" + struct.pack("!H", length) + b"".join(chunks)


@functools.lru_cache(1024)
def _beginning(kind: int, transport: str, source: Address, target: Address, capture_id: int) -> bytes:
    """Return the chunks that are the same for all messages between two addresses. Raises ``ValueError``."""
    hosts = ipaddress.ip_address(source[0]), ipaddress.ip_address(target[0])
    if hosts[0].version != hosts[1].version:
        hosts = _mapped(hosts[0]), _mapped(hosts[1])
    is_ipv4 = hosts[0].version == 4  # noqa: PLR2004
    first_host = 3 if is_ipv4 else 5
    return b"".join(
        (
            _chunk(1, struct.pack("!B", _AF_INET if is_ipv4 else _AF_INET6)),
            _chunk(2, struct.pack("!B", PROTOCOLS[transport])),
            _chunk(first_host, hosts[0].packed),
            _chunk(first_host + 1, hosts[1].packed),
            _chunk(7, struct.pack("!H", source[1])),
            _chunk(8, struct.pack("!H", target[1])),
            _chunk(11, struct.pack("!B", kind)),
            _chunk(12, struct.pack("!I", capture_id)),
        )
    )


def _chunk(kind: int, value: bytes) -> bytes:
    """Return a chunk of vendor 0, which is for types that everybody knows."""
    return struct.pack("!HHH", 0, kind, 6 + len(value)) + value


def _mapped(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv6Address:
    return host if isinstance(host, ipaddress.IPv6Address) else ipaddress.IPv6Address(f"::ffff:{host}")
