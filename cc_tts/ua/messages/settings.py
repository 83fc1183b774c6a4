"""The UA process needs these settings at its start: it gets them as JSON on its standard input."""

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
"""The keys of a trunk that a running UA process cannot change; the others are the server's."""


class UaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The UA process needs this at its start: sections of the configuration, with the values that depend on the machine
    filled in (``sip.nameservers``, ``tls.ca_file``).
    """

    sip: SipConfig
    rtp: RtpConfig
    registration: RegistrationConfig
    trunks: dict[str, TrunkConfig] = {}
    auth: AuthConfig
    log: LogConfig
    quality: QualityConfig = QualityConfig()
    tls: TlsConfig | None = None
    """``None``: SIP is not spoken over TLS, and the password of the key is not handed on."""
    playout_max_buffered_ms: int
    dispatcher_port: int = 0
    """``sip.port`` of the configuration where a dispatcher listens on it, 0 without one. ``sip.port`` is our own."""
    registers: bool = True
    """Whether this is the process that registers, if any does."""
    call_id_prefix: str = "call_"
    """The ids of incoming calls begin with this."""
    takes_refer: bool = False
    """Whether a route takes REFERs of its callers, so that Allow names the method."""
    orphan_grace_ms: int = 0
    """Calls are kept this long when the server is gone."""
    adoption_socket: str = ""
    """The process waits here for the next server then."""
    asterisk: AsteriskConfig | None = None
    """The process of the lines without SIP needs this, and has none of SIP's passwords."""
    playout_window_ms: int = 1000

    @property
    def fingerprint(self) -> str:
        """A digest of what a running process cannot change, as far as it differs from the defaults: those of keys that only
        one of two versions of cc-tts knows make no difference.
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
        """The default From of calls that we place: the registered user, or :attr:`local_uri`.

        A ``sips:`` registrar makes a ``sips:`` address of record (RFC 3261 §26.2.2): TLS on every hop of its calls.
        """
        if not self.registration.registrar:
            return self.local_uri
        scheme, _, rest = self.registrar_uri.partition(":")
        return f"{scheme}:{self.registration.username}@{rest.split(';', 1)[0]}"
