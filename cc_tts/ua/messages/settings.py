"""The settings of the UA process, which it gets as JSON on its standard input."""

import dataclasses
import hashlib
from typing import Final

import msgspec

from cc_tts.config.schema import RELOADABLE, AuthConfig, RegistrationConfig, RtpConfig, SipConfig, TlsConfig
from cc_tts.config.sections.asterisk import AsteriskConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.quality import QualityConfig
from cc_tts.config.sections.trunks import DEFAULT_USERNAME, TrunkConfig
from cc_tts.ua.sip.uri import with_transport

ACCOUNT_KEYS: Final = (
    "registrar", "domain", "proxy", "transport", "username", "password", "realm", "expires_s", "retry_s", "stop_on",
    "codecs",
)  # fmt: skip
"""The keys of a trunk that a running UA process cannot change. The server uses the others."""


class UaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the UA process: sections of the configuration, with values that depend on the machine filled in
    (``sip.nameservers``, ``tls.ca_file``).
    """

    sip: SipConfig
    rtp: RtpConfig
    registration: RegistrationConfig
    trunks: dict[str, TrunkConfig] = {}
    auth: AuthConfig
    log: LogConfig
    quality: QualityConfig = QualityConfig()
    tls: TlsConfig | None = None
    """``None``: there is no SIP over TLS, and the password of the key is not passed on."""
    playout_max_buffered_ms: int
    dispatcher_port: int = 0
    """The configured ``sip.port`` if a dispatcher listens on it, else 0. Our own port is in ``sip.port``."""
    registers: bool = True
    """Whether this process registers, if any does."""
    call_id_prefix: str = "call_"
    """The beginning of the ids of incoming calls."""
    takes_refer: bool = False
    """Whether a route accepts REFERs of its callers, so that Allow names the method."""
    orphan_grace_ms: int = 0
    """The time for which calls are kept when the server is gone."""
    adoption_socket: str = ""
    """The socket at which the process then waits for the next server."""
    asterisk: AsteriskConfig | None = None
    """The settings for the process of lines without SIP, which gets none of SIP's passwords."""
    playout_window_ms: int = 1000

    @property
    def fingerprint(self) -> str:
        """Return a digest of the settings that a running process cannot change, as far as they differ from the defaults.
        Keys that only one of two versions of cc-tts knows then make no difference.
        """
        fixed = {
            f"{name}.{key.name}": getattr(section, key.name)
            for name, section in (("sip", self.sip), ("rtp", self.rtp), ("registration", self.registration))
            for key in dataclasses.fields(section)
            if getattr(section, key.name) != getattr(type(section)(), key.name)
        }
        for key in (*RELOADABLE, "sip.nameservers"):  # the machine's name servers may differ from one start to the next
            fixed.pop(key, None)
        for key in ("playout_max_buffered_ms", "dispatcher_port", "registers", "call_id_prefix"):
            fixed[key] = getattr(self, key)
        if self.trunks:
            accounts = {name: {key: getattr(trunk, key) for key in ACCOUNT_KEYS} for name, trunk in self.trunks.items()}
            fixed["trunks"] = accounts
        if self.asterisk is not None:
            fixed["asterisk"] = self.asterisk, self.playout_window_ms
        return hashlib.sha256(msgspec.json.encode(fixed, order="deterministic")).hexdigest()

    def codecs_of(self, trunk: str) -> tuple[str, ...]:
        """Return the codecs that calls of a trunk are limited to; empty if they are not."""
        return self.trunks[trunk].codecs if trunk in self.trunks else ()

    def of_trunk(self, name: str) -> "UaSettings":
        trunk = self.trunks[name]
        transport = f";transport={trunk.transport}" if trunk.transport else ""
        registration = RegistrationConfig(
            registrar=(trunk.registrar or trunk.host) + ("" if ";transport=" in trunk.registrar else transport),
            username=trunk.username or DEFAULT_USERNAME,
            password=trunk.password,
            realm=trunk.realm,
            expires_s=trunk.expires_s,
            retry_s=trunk.retry_s,
            stop_on=trunk.stop_on,
        )
        return msgspec.structs.replace(self, registration=registration)

    @property
    def own_host(self) -> str:
        return self.sip.public_address or self.sip.local_address

    @property
    def local_uri(self) -> str:
        return f"sip:cc-tts@{self.own_host}:{self.public_port}"

    @property
    def public_port(self) -> int:
        return self.sip.tls_port if self.sip.transports == ("tls",) else self.dispatcher_port or self.sip.port

    @property
    def registrar_uri(self) -> str:
        """The registrar; empty without one."""
        registrar = self.registration.registrar
        if not registrar:
            return ""
        uri = registrar if registrar.startswith(("sip:", "sips:")) else f"sip:{registrar}"
        return with_transport(uri, self.sip.transports)

    @property
    def account_uri(self) -> str:
        """Return the default From of calls that we place: the registered user, or :attr:`local_uri`. A ``sips:`` registrar
        makes a ``sips:`` address of record (RFC 3261 §26.2.2), with TLS on every hop of its calls.
        """
        if not self.registration.registrar:
            return self.local_uri
        scheme, _, rest = self.registrar_uri.partition(":")
        return f"{scheme}:{self.registration.username}@{rest.split(';', 1)[0]}"
