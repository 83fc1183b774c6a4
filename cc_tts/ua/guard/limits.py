"""Rate limits of one source, in tables that a flood of forged addresses cannot make grow. No pjsua2 here.

A source is an IPv4 address or an IPv6 network of 64 bits, since whoever has one address there has them all.
"""

import enum
import functools
import ipaddress
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.processes import source_address

MAX_SOURCES: Final = 10_000
"""The most sources that are remembered; the one that has been silent longest is forgotten; unmeasured."""
BURST_S: Final = 2.0
"""A source that was quiet may send the requests of this many seconds at once; unmeasured."""
_CACHED_ADDRESSES: Final = 4096

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@functools.lru_cache(_CACHED_ADDRESSES)
def address_of(text: str) -> tuple[str, int]:
    """Return host and port of ``192.0.2.1:5060`` or ``[2001:db8::1]:5060``, without brackets and zone; 0: no port."""
    host, _, port = text.rpartition(":")
    return host.strip("[]").partition("%")[0], int(port) if port.isdecimal() else 0


def host_of(socket_address: str) -> str:
    return address_of(socket_address)[0]


@functools.lru_cache(_CACHED_ADDRESSES)
def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@functools.lru_cache(_CACHED_ADDRESSES)
def source_of(host: str) -> str:
    """Return the source that ``host`` belongs to; empty if ``host`` is no address."""
    return source_address.source_of(host) if _address(host) else ""


class PeerList:
    """Addresses and networks of the configuration."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks: tuple[Network, ...] = tuple(ipaddress.ip_network(entry) for entry in entries)
        self._is_listed = functools.lru_cache(_CACHED_ADDRESSES)(self._look_up)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, host: str) -> bool:
        return self._is_listed(host)

    def _look_up(self, host: str) -> bool:
        address = _address(host)
        return address is not None and any(address in network for network in self._networks)


class Verdict(enum.Enum):
    """The decision whether a request is within its limit."""

    TAKE = enum.auto()
    ANSWER = enum.auto()
    """The request is over the limit: refuse it."""
    IGNORE = enum.auto()
    """The request is also over the limit of refusals: do not respond."""


class SourceLimits:
    """Two token buckets a source, for requests and for refusals, of the same rate and burst."""

    def __init__(self, *, per_s: float, clock: Clock, burst_s: float = BURST_S) -> None:
        self._per_s = per_s
        self._size = max(1.0, per_s * burst_s)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def ask(self, source: str) -> Verdict:
        bucket = self._bucket(source)
        if bucket.requests >= 1:
            bucket.requests -= 1
            return Verdict.TAKE
        if bucket.refusals >= 1:
            bucket.refusals -= 1
            return Verdict.ANSWER
        return Verdict.IGNORE

    def has_room(self, source: str) -> bool:
        """Whether :meth:`ask` would accept a request, without counting one."""
        return source not in self._buckets or self._bucket(source).requests >= 1

    def give_back(self, source: str) -> None:
        if source in self._buckets:
            bucket = self._bucket(source)
            bucket.requests = min(self._size, bucket.requests + 1)

    def _bucket(self, source: str) -> "_Bucket":
        now_ns = self._clock.now_ns()
        bucket = self._buckets.setdefault(source, _Bucket(self._size, self._size, now_ns))
        self._buckets.move_to_end(source)
        if len(self._buckets) > MAX_SOURCES:
            self._buckets.popitem(last=False)
        earned = (now_ns - bucket.at_ns) / NS_PER_S * self._per_s
        bucket.requests = min(self._size, bucket.requests + earned)
        bucket.refusals = min(self._size, bucket.refusals + earned)
        bucket.at_ns = now_ns
        return bucket


@dataclass(slots=True)
class _Bucket:
    requests: float
    refusals: float
    at_ns: int
