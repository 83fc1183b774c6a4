"""How trunks must fit together, and to the other sections."""

import itertools
import re
from collections.abc import Collection, Iterator
from typing import Final

from cc_tts.config.schema import Config
from cc_tts.config.sections.trunks import OF_TRUNK, TrunkConfig
from cc_tts.config.sip_uri import uri_fault
from cc_tts.errors import did_you_mean

MAX_TRUNKS: Final = 7
"""``PJSUA_MAX_ACC`` is 8 in both builds of pjsua2, and one account is that of calls without a trunk (pjsua.h)."""
_NEVER_FAILS_OVER: Final = frozenset({401, 404, 407, 484, 486, 487, 600, 603, 604})
"""Statuses of the called party or about the number, or a call that was given up (RFC 3261 §21.4, §21.6): another trunk would
reach the same telephone.
"""


def trunks(config: Config) -> Iterator[str]:
    if len(config.trunks) > MAX_TRUNKS:
        yield f"there are {len(config.trunks)} trunks; {MAX_TRUNKS} are possible"
    for name, trunk in config.trunks.items():
        key = f"trunks.{name[:64]}"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            yield f"trunks: {name[:64]!r} is no name of a trunk; a name is 1 to 64 of A-Z a-z 0-9 _ -"
        yield from _own_faults(key, trunk, config)
        yield from _unknown(key, trunk, config.trunks.keys() - {name}, config)
    for user in config.routes:
        if user.startswith(OF_TRUNK) and (name := user.removeprefix(OF_TRUNK)) not in config.trunks:
            hint = did_you_mean(name, config.trunks)
            yield f"routes.{user[:80]} is for the trunk {name[:64]!r}, which is not there{hint}"
    yield from _prefixes_given_twice(config)


def _own_faults(key: str, trunk: TrunkConfig, config: Config) -> Iterator[str]:
    transports = config.sip.transports
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


def _unknown(key: str, trunk: TrunkConfig, others: Collection[str], config: Config) -> Iterator[str]:
    """Yield the names in a trunk that the configuration does not define."""
    for other in trunk.failover_to:
        if other not in others:
            yield f"{key}.failover_to names {other[:64]!r}, which is no other trunk{did_you_mean(other, others)}"
    for tenant in trunk.tenants:
        if tenant != "*" and tenant not in config.tenants:
            hint = did_you_mean(tenant, config.tenants)
            yield f"{key}.tenants names the tenant {tenant[:64]!r}{hint}; add it to [tenants]"
    for codec in trunk.codecs:
        if codec not in config.rtp.codecs:
            yield f'{key}.codecs has "{codec}", which rtp.codecs does not have'


def _prefixes_given_twice(config: Config) -> Iterator[str]:
    """Yield the prefixes that two trunks have for the same tenant, so that the trunk is ambiguous."""
    for (name, trunk), (other, second) in itertools.combinations(config.trunks.items(), 2):
        for prefix in sorted(set(trunk.prefixes).intersection(second.prefixes)):
            if _share_tenants(trunk.tenants, second.tenants):
                yield f'trunks.{name}.prefixes and trunks.{other}.prefixes both have "{prefix}"; let failover_to name one'


def _share_tenants(one: Collection[str], other: Collection[str]) -> bool:
    if not (one and other):
        return not (one or other)  # the operator's calls go by the first; those of tenants by the one that is theirs
    return "*" in (*one, *other) or not set(one).isdisjoint(other)
