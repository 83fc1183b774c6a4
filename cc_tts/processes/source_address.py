"""Maps an address to the source by which connections are counted."""

import ipaddress
from typing import Final

_IPV6_PREFIX_BITS: Final = 64
"""A host chooses its own addresses in a network of this size."""


def source_of(host: str) -> str:
    """Return the source of an address: the IPv4 address, or the IPv6 network of 64 bits."""
    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, _IPV6_PREFIX_BITS), strict=False))
    return str(address)
