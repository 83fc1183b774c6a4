"""The guard against requests into the private network (SSRF): hosts that a URL may name, and the addresses behind them."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from yarl import URL

MAX_URL_CHARS: Final = 2048
"""The longest URL of a configuration or a client (unmeasured)."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
"""The prefixes of addresses that hold an IPv4 address in their last 32 bits (RFC 6052 §2.1)."""
_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")

IpAddress = IPv4Address | IPv6Address


class AllowedHosts:
    """The hosts that clients may name: ``app.example.com``, ``*.example.com``, addresses and networks. Only entries that are
    addresses or networks allow private addresses. With ``networks`` only these do.
    """

    def __init__(self, entries: Iterable[str], networks: Iterable[str] | None = None) -> None:
        self._networks = []
        self._names = set()
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry))
            except ValueError:
                self._names.add(entry.lower().rstrip("."))
        self._reached = (
            self._networks if networks is None else [ipaddress.ip_network(each, strict=False) for each in networks]
        )

    def has(self, host: str) -> bool:
        """Whether a URL may name this host. The addresses of a name are checked when it is resolved."""
        if (address := _address(host)) is not None:
            return any(address in network for network in self._networks) and self._may_reach(address)
        name = host.lower().rstrip(".")
        parents = ("*" + name[place:] for place, character in enumerate(name) if character == ".")
        return name in self._names or any(parent in self._names for parent in parents)

    def may_reach(self, address: str) -> bool:
        found = _address(address)
        return found is not None and self._may_reach(found)

    def _may_reach(self, address: IpAddress) -> bool:
        return _is_public(address) or any(address in network for network in self._reached)


def host_faults(key: str, entries: Iterable[str]) -> Iterator[str]:
    """Yield the hosts of a configuration key that :class:`AllowedHosts` cannot take."""
    for entry in entries:
        if not is_host_entry(entry):
            yield f"{key}: {entry[:80]!r} is no host name, *.name, address or network"


def is_host_entry(text: str) -> bool:
    """Whether this is a name, ``*.name``, an address or a network."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return _NAME.fullmatch(text) is not None and not re.fullmatch(r"[0-9./]+", text)
    return True


def usable_url(text: str, *schemes: str, may_have_user: bool = False) -> "URL | None":
    """Return a URL as it is requested; ``None`` if it has another scheme, or a fragment, or a user that it may not have."""
    from yarl import URL  # most processes that have the configuration check none

    if not re.fullmatch("[!-~]+", text):
        return None
    try:
        url = URL(text, encoded=True)
        is_usable = url.scheme in schemes and bool(url.raw_host) and url.port not in (None, 0)
    except ValueError:
        return None
    has_user = "@" in url.raw_authority and not may_have_user
    return url if is_usable and not has_user and not url.raw_fragment else None


def _address(text: str) -> IpAddress | None:
    """Return an address; an IPv4 address that is written as IPv6 becomes IPv4."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: IpAddress) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved
