"""Configuration sections for TLS and digest authentication."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

DigestAlgorithm = Literal["SHA-256", "MD5"]
SrtpUse = Literal["off", "optional", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """``[tls]``: SIP over TLS (RFC 3261 §26.2, RFC 5922), at ``sip.tls_port`` when ``sip.transports`` has it.

    TLS 1.2 or 1.3. Files are in PEM form. ``cc_tts/config/tls.py`` looks at them.
    """

    certificate_file: str = ""
    private_key_file: str = ""
    private_key_password: str = field(default="", repr=False)
    ca_file: str = ""
    verify_client: bool = False
    verify_server: bool = True


@dataclass(frozen=True, slots=True)
class UserConfig:
    """A user name and password that a caller may authenticate with."""

    username: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[^:\x00-\x1f\x7f]+$")]
    password: Annotated[str, msgspec.Meta(min_length=8, max_length=256)] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """``[auth]``: digest authentication of inbound INVITEs (RFC 3261 §22.1, RFC 8760). No users: no challenges.

    ``algorithms`` are offered in this order, the strongest first.
    """

    realm: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")] = "cc-tts"
    users: tuple[UserConfig, ...] = field(default=(), repr=False)
    exempt_peers: tuple[str, ...] = ()
    algorithms: tuple[DigestAlgorithm, ...] = ("SHA-256", "MD5")
    nonce_lifetime_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 60.0
