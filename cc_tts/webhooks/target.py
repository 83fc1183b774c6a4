"""An endpoint as it is addressed: where events go, how they are signed, and which hosts a call may name."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Self

from yarl import URL

from cc_tts.config.schema import CallWebhook, WebhookConfig
from cc_tts.config.webhooks import PER_CALL, key_of

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
"""Addresses that hold one of IPv4 in their last 32 bits (RFC 6052 §2.1)."""

IpAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where events go. ``types`` empty: all; ``tenant`` empty: the events of every tenant. ``of_call``: a client chose
    it for a call, so it must be at an address that :class:`AllowedHosts` lets through.
    """

    name: str
    url: URL = field(repr=False)
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    types: frozenset[str] = frozenset()
    tenant: str = ""
    timeout_s: float = 5.0
    max_in_flight: int = 32
    of_call: CallWebhook | None = field(default=None, repr=False)

    @property
    def is_guarded(self) -> bool:
        """Whether a client chose it."""
        return self.of_call is not None

    @classmethod
    def configured(cls, name: str, config: WebhookConfig) -> Self:
        """Return the endpoint of a section of the configuration."""
        return cls(
            name=name,
            url=URL(config.url),
            keys=tuple(map(key_of, config.secrets)),
            types=frozenset(config.types),
            tenant=config.tenant,
            timeout_s=config.timeout_ms / 1000,
            max_in_flight=config.max_in_flight,
        )

    @classmethod
    def chosen(cls, webhook: CallWebhook) -> Self:
        """Return the endpoint that a call was placed with."""
        keys = (key_of(webhook.secret),) if webhook.secret else ()
        return cls(name=PER_CALL, url=URL(webhook.url), keys=keys, of_call=webhook)

    def wants(self, kind: str, tenant: str) -> bool:
        """Whether events of this type and tenant go there."""
        return (not self.types or kind in self.types) and self.tenant in ("", tenant)

    @property
    def shown(self) -> str:
        """The URL without its path and query, which may hold a secret."""
        return str(self.url.origin())


class AllowedHosts:
    """The hosts that clients may name: ``app.example.com``, ``*.example.com``, and addresses or networks, which alone let
    private addresses through.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks = []
        self._names = set()
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry))
            except ValueError:
                self._names.add(entry.lower().rstrip("."))

    def has(self, host: str) -> bool:
        """Whether a URL may name this host. Its addresses are to be looked at as well."""
        if (address := _address(host)) is not None:
            return self._lists(address)
        name = host.lower().rstrip(".")
        parents = ("*" + name[place:] for place, character in enumerate(name) if character == ".")
        return name in self._names or any(parent in self._names for parent in parents)

    def may_reach(self, address: str) -> bool:
        """Whether a connection to this address may be made."""
        found = _address(address)
        return found is not None and (self._lists(found) or _is_public(found))

    def _lists(self, address: IpAddress) -> bool:
        return any(address in network for network in self._networks)


def _address(text: str) -> IpAddress | None:
    """An address; one of IPv4 that is written as IPv6 is that of IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: IpAddress) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved
