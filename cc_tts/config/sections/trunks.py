"""The settings of trunks, the carriers and PBXs that calls are placed by."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec

from cc_tts.config.sip_uri import MAX_URI_CHARS
from cc_tts.config.wording import form

DEFAULT_USERNAME: Final = "cc-tts"
"""The user name of a trunk without one."""
OF_TRUNK: Final = "trunk:"
"""The prefix of the key in ``[routes]`` for calls that came by a trunk; the trunk's name follows."""
_AROUND_HOST: Final = re.compile(r"^sips?:(?:[^@]*@)?|;.*$", re.IGNORECASE)
_Code = Annotated[int, msgspec.Meta(ge=300, le=699)]


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
