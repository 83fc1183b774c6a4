"""The settings of trunks, the carriers and PBXs that calls are placed by, and how they must fit together."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec

from cc_tts.config.sip_uri import MAX_URI_CHARS, uri_fault
from cc_tts.config.wording import form
from cc_tts.errors import did_you_mean

MAX_TRUNKS: Final = 7
"""``PJSUA_MAX_ACC`` is 8 in both builds of pjsua2, and one account is that of calls without a trunk (pjsua.h)."""
DEFAULT_USERNAME: Final = "cc-tts"
"""The user name of a trunk without one."""
OF_TRUNK: Final = "trunk:"
"""The prefix of the key in ``[routes]`` for calls that came by a trunk; the trunk's name follows."""
_AROUND_HOST: Final = re.compile(r"^sips?:(?:[^@]*@)?|;.*$", re.IGNORECASE)
_Code = Annotated[int, msgspec.Meta(ge=300, le=699)]
_NEVER_FAILS_OVER: Final = frozenset({401, 404, 407, 484, 486, 487, 600, 603, 604})
"""Statuses of the called party or about the number, or a call that was given up (RFC 3261 §21.4, §21.6): another trunk would
reach the same telephone.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrunkConfig:
    """``[trunks.NAME]``: a carrier or PBX that calls are placed by, and that may send us calls once it is registered."""

    registrar: Annotated[str, msgspec.Meta(max_length=MAX_URI_CHARS)] = ""
    domain: Annotated[
        str, msgspec.Meta(max_length=255, pattern=form(r"^[A-Za-z0-9.:-]*$", "a host, with a port if need be"))
    ] = ""
    proxy: Annotated[str, msgspec.Meta(max_length=MAX_URI_CHARS)] = ""
    transport: Literal["", "udp", "tcp", "tls"] = ""
    username: Annotated[
        str,
        msgspec.Meta(
            max_length=128, pattern=form(r"^[A-Za-z0-9_.!~*'()+-]*$", "letters, digits and _ . ! ~ * ' ( ) + -")
        ),
    ] = ""
    password: str = field(default="", repr=False)
    realm: str = "*"
    expires_s: Annotated[int, msgspec.Meta(ge=30, le=86_400)] = 300
    retry_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 15
    stop_on: tuple[_Code, ...] = ()
    required: bool = False
    caller_id: Annotated[
        str, msgspec.Meta(max_length=64, pattern=form(r"^\+?[A-Za-z0-9_.-]*$", "a number or a name"))
    ] = ""
    prefixes: tuple[
        Annotated[str, msgspec.Meta(max_length=32, pattern=form(r"^\+?[0-9]*$", "digits, + before them"))], ...
    ] = ()
    tenants: tuple[str, ...] = ()
    codecs: tuple[Literal["PCMU", "PCMA", "G722"], ...] = ()
    max_calls: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    max_calls_per_s: Annotated[float, msgspec.Meta(ge=0, le=100_000)] = 0.0
    response_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=32_000)] = 5_000
    failover_to: tuple[str, ...] = ()
    failover_codes: tuple[_Code, ...] = (408, 500, 502, 503, 504)

    @property
    def host(self) -> str:
        return self.domain or _AROUND_HOST.sub("", self.registrar)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that take calls of this trunk, in lower case and without ports."""
        authorities = [_AROUND_HOST.sub("", each) for each in (self.host, self.proxy) if each]
        return frozenset(re.sub(r":[0-9]+$", "", each).lower().rstrip(".") for each in authorities)

    def may_be_used_by(self, tenant: str) -> bool:
        """Whether calls of this tenant may use the trunk; the operator (an empty name) always may."""
        return not tenant or tenant in self.tenants or "*" in self.tenants


def faults(
    trunks: Mapping[str, TrunkConfig],
    *,
    tenants: Collection[str],
    transports: Collection[str],
    codecs: Collection[str],
    routes: Collection[str],
) -> Iterator[str]:
    """Yield the inconsistencies of the trunks."""
    if len(trunks) > MAX_TRUNKS:
        yield f"there are {len(trunks)} trunks; {MAX_TRUNKS} are possible"
    for name, trunk in trunks.items():
        key = f"trunks.{name[:64]}"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            yield f"trunks: {name[:64]!r} is no name of a trunk; a name is 1 to 64 of A-Z a-z 0-9 _ -"
        yield from _own_faults(key, trunk, transports)
        yield from _unknown(key, trunk, others=trunks.keys() - {name}, tenants=tenants, codecs=codecs)
    for user in routes:
        if user.startswith(OF_TRUNK) and (name := user.removeprefix(OF_TRUNK)) not in trunks:
            yield f"routes.{user[:80]} is for the trunk {name[:64]!r}, which is not there{did_you_mean(name, trunks)}"
    yield from _prefixes_given_twice(trunks)


def _unknown(
    key: str, trunk: TrunkConfig, *, others: Collection[str], tenants: Collection[str], codecs: Collection[str]
) -> Iterator[str]:
    """Yield the names in a trunk that the configuration does not define."""
    for other in trunk.failover_to:
        if other not in others:
            yield f"{key}.failover_to names {other[:64]!r}, which is no other trunk{did_you_mean(other, others)}"
    for tenant in trunk.tenants:
        if tenant != "*" and tenant not in tenants:
            yield f"{key}.tenants names the tenant {tenant[:64]!r}{did_you_mean(tenant, tenants)}; add it to [tenants]"
    for codec in trunk.codecs:
        if codec not in codecs:
            yield f'{key}.codecs has "{codec}", which rtp.codecs does not have'


def _prefixes_given_twice(trunks: Mapping[str, TrunkConfig]) -> Iterator[str]:
    """Yield the prefixes that two trunks have for the same tenant, so that the trunk is ambiguous."""
    for (name, trunk), (other, second) in itertools.combinations(trunks.items(), 2):
        for prefix in sorted(set(trunk.prefixes).intersection(second.prefixes)):
            if _share_tenants(trunk.tenants, second.tenants):
                yield f'trunks.{name}.prefixes and trunks.{other}.prefixes both have "{prefix}"; let failover_to name one'


def _share_tenants(one: Collection[str], other: Collection[str]) -> bool:
    if not (one and other):
        return not (one or other)  # the operator's calls go by the first; those of tenants by the one that is theirs
    return "*" in (*one, *other) or not set(one).isdisjoint(other)


def _own_faults(key: str, trunk: TrunkConfig, transports: Collection[str]) -> Iterator[str]:
    if not trunk.host:
        yield f"{key}: set registrar, or domain for a trunk that is not registered with"
    elif uri_fault(f"sip:{trunk.host}"):
        yield f"{key}: {trunk.host[:80]!r} is no host"
    if trunk.registrar and not trunk.username:
        yield f"{key}.registrar is set but {key}.username is empty"
    if trunk.required and not trunk.registrar:
        yield f"{key}.required is for a trunk with a registrar"
    if trunk.proxy and (fault := uri_fault(trunk.proxy)):
        yield f"{key}.proxy: {fault}"
    if trunk.transport and trunk.transport not in transports:
        yield f'{key}.transport is "{trunk.transport}", which sip.transports does not have'
    if trunk.registrar.lower().startswith("sips:") and "tls" not in transports:
        yield f'{key}.registrar is a sips: URI, but sip.transports has no "tls"'
    for code in _NEVER_FAILS_OVER.intersection(trunk.failover_codes):
        yield f"{key}.failover_codes has {code}, with which the called party has answered, or the request was at fault"
