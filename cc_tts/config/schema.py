"""Sections of the configuration: frozen dataclasses with a unit in every field name. ``check`` compares them.

``configs/cc_tts.toml`` lists every key; a test keeps the two in step.
"""

import socket
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, get_args

import msgspec

from cc_tts.config.record import RecordConfig, RouteRecord
from cc_tts.config.sections.asterisk import AsteriskConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.models import Instructions, TtsConfig
from cc_tts.config.sections.mrcp import MrcpConfig
from cc_tts.config.sections.prompts import PromptsConfig
from cc_tts.config.sections.quality import QualityConfig
from cc_tts.config.sections.relay import RelayConfig, RouteRelay
from cc_tts.config.sections.tracing import TracingConfig
from cc_tts.config.sections.trunks import TrunkConfig
from cc_tts.config.sip_uri import MAX_URI_CHARS
from cc_tts.config.transfer import TransferConfig
from cc_tts.config.wording import form
from cc_tts.egress.hosts import MAX_URL_CHARS

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400 * 7)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Scope = Literal["read", "call", "listen", "talk", "digits", "recordings", "admin"]
MediaDialect = Literal["cc-tts", "twilio"]
DigestAlgorithm = Literal["SHA-256", "MD5"]
ALL_SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_TENANTS = 1000  # unmeasured
MAX_LEAD_IN_MS = 10_000
"""Silence before a call's first prompt, of ``routes.USER.lead_in_ms`` and of ``X-TTS-Delay`` (unmeasured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """``[server]``: the name of this server."""

    node: Annotated[
        str, msgspec.Meta(max_length=64, pattern=form(r"^[A-Za-z0-9._-]*$", "a name of letters, digits and . _ -"))
    ] = ""

    @property
    def node_name(self) -> str:
        """``node``, or the machine's name."""
        return self.node or socket.gethostname()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """``[cluster]``: several servers ("line nodes", each known by its ``server.node``) as one service."""

    base_url: Annotated[str, msgspec.Meta(max_length=255)] = ""
    nodes: dict[str, str] = field(default_factory=dict)
    pool_url: Annotated[str, msgspec.Meta(max_length=255)] = ""

    @property
    def is_on(self) -> bool:
        """Return whether there may be other nodes, so that ids name theirs."""
        return bool(self.base_url or self.nodes or self.pool_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class SipConfig:
    """``[sip]``: where the user agent listens and what it accepts."""

    host: str = "127.0.0.1"
    port: Port = 5060
    transports: tuple[Literal["udp", "tcp", "tls"], ...] = ("udp", "tcp")
    tls_port: Port = 5061
    public_address: str = ""
    max_calls: Count = 0
    retry_after_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 5
    max_media_lateness_ms: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 60.0
    trusted_peers: tuple[str, ...] = ("127.0.0.0/8",)
    allowed_peers: tuple[str, ...] = ()
    max_requests_per_source_s: Annotated[float, msgspec.Meta(ge=0, le=100_000)] = 50.0
    follow_redirects: bool = False
    user_agent: str = "cc-tts"
    allow_pypi_wheel: bool = False
    nameservers: tuple[str, ...] = ()
    trace_messages: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 50
    hep: Annotated[str, msgspec.Meta(max_length=270)] = ""
    hep_capture_id: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = 2001

    @property
    def local_address(self) -> str:
        """Return where processes of this machine reach ``host``."""
        return "127.0.0.1" if self.host == "0.0.0.0" else self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class UaConfig:
    """``[ua]``: the processes of the user agent. More than one speak behind ``sip.port``, over UDP."""

    processes: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    first_port: Port = 5070
    orphan_grace_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)] = 30_000

    @property
    def own_ports(self) -> range:
        """The SIP ports of the processes if there are several."""
        return range(self.first_port, self.first_port + self.processes)


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

    username: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=128, pattern=form(r"^[^:\x00-\x1f\x7f]+$", "printable text without a colon")
        ),
    ]
    password: Annotated[str, msgspec.Meta(min_length=8, max_length=256)] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """``[auth]``: digest authentication of inbound INVITEs (RFC 3261 §22.1, RFC 8760). No users: no challenges.
    ``algorithms`` are offered in this order, the strongest first.
    """

    realm: Annotated[
        str, msgspec.Meta(min_length=1, max_length=128, pattern=form(r"^[^\x00-\x1f\x7f]+$", "printable text"))
    ] = "cc-tts"
    users: tuple[UserConfig, ...] = field(default=(), repr=False)
    exempt_peers: tuple[str, ...] = ()
    algorithms: tuple[DigestAlgorithm, ...] = ("SHA-256", "MD5")
    nonce_lifetime_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationConfig:
    """``[registration]``: register with a PBX (RFC 3261 §10) and answer its digest challenges. Empty registrar: off."""

    registrar: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    realm: str = "*"
    expires_s: Annotated[int, msgspec.Meta(ge=30, le=86_400)] = 300
    retry_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 15
    stop_on: tuple[Annotated[int, msgspec.Meta(ge=300, le=699)], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RtpConfig:
    """Section ``[rtp]``: media ports and packets."""

    port_min: Annotated[int, msgspec.Meta(ge=1024, le=65534)] = 16384
    port_max: Annotated[int, msgspec.Meta(ge=1025, le=65535)] = 16584
    codecs: tuple[Literal["PCMU", "PCMA", "G722", "L16"], ...] = ("PCMU", "PCMA", "G722", "L16")
    srtp: Literal["off", "optional", "required"] = "off"
    inactivity_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    port_cooldown_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 5.0
    unacked_ms: Annotated[int, msgspec.Meta(ge=0, le=32_000)] = 2000
    clock_rate_hz: Literal[8000, 16000] = 8000

    @property
    def num_pairs(self) -> int:
        """The number of calls for which the range has ports: each takes one for RTP and the next for RTCP."""
        return (self.port_max - self.port_min + 1) // 2


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """One bearer token and what it may do."""

    token: Annotated[str, msgspec.Meta(min_length=8, max_length=512)] = field(repr=False)
    scopes: tuple[Scope, ...] = ALL_SCOPES
    tenant: str = ""
    """The tenant of the token; empty: the operator, who sees the calls of all tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """``[http]``: the control API."""

    host: str = "127.0.0.1"
    port: Port = 8080
    tokens: tuple[TokenConfig, ...] = ()
    console: bool = True
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=64 * 1024 * 1024)] = 262_144
    request_timeout_s: Seconds = 15.0
    header_timeout_s: Seconds = 10.0
    max_connections: Annotated[int, msgspec.Meta(ge=8, le=100_000)] = 1000
    max_connections_per_source: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 250
    idempotency_ttl_s: Seconds = 86_400.0
    max_idempotency_keys: Count = 10_000
    max_event_subscribers: Count = 100
    event_queue_size: Annotated[int, msgspec.Meta(ge=10, le=100_000)] = 1000
    event_history_size: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 10_000
    max_speech_streams: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """``[remote]``: how the server and ``cc-tts worker`` know each other. The certificate is what this machine shows,
    ``ca_file`` who signed those of the others. ``cc_tts/config/remote.py`` looks at them.
    """

    token: Annotated[
        str,
        msgspec.Meta(
            max_length=512,
            pattern=form(
                r"^([\x21-\x7e]{8,})?$", "a secret of at least 8 printable ASCII characters without blanks, or nothing,"
            ),
        ),
    ] = field(default="", repr=False)
    ca_file: str = ""
    certificate_file: str = ""
    private_key_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """``[pool]``: the settings of `cc-tts pool`."""

    ray_address: Annotated[str, msgspec.Meta(max_length=255)] = ""
    first_port: Annotated[int, msgspec.Meta(ge=1024, le=65_000)] = 7400


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayoutConfig:
    """``[playout]``: the buffer between the engine and the 20 ms media clock."""

    start_threshold_min_ms: Annotated[int, msgspec.Meta(ge=20, le=5000)] = 40
    start_threshold_max_ms: Annotated[int, msgspec.Meta(ge=20, le=5000)] = 300
    window_ms: Annotated[int, msgspec.Meta(ge=200, le=10_000)] = 1000


class SpeechBargeIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the caller's speech interrupts a prompt."""

    min_speech_ms: Annotated[int, msgspec.Meta(ge=50, le=5000, description="Speech of this length counts.")] = 300
    action: Annotated[
        Literal["stop", "pause"],
        msgspec.Meta(
            description="stop ends the prompt; pause holds it until it is clear whether the caller continues."
        ),
    ] = "stop"
    confirm_ms: Annotated[
        int, msgspec.Meta(ge=50, le=10_000, description="pause: speech of this length in all ends the prompt.")
    ] = 600
    resume_after_ms: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=60_000)] | None,
        msgspec.Meta(description="pause: after this much silence the prompt continues; null: never by itself."),
    ] = 1500
    guard_ms: Annotated[
        int, msgspec.Meta(ge=0, le=5000, description="Speech that begins so soon after a prompt is not heard.")
    ] = 300
    threshold: Annotated[
        float, msgspec.Meta(ge=0.2, le=0.95, description="How certain it must be that a sound is speech.")
    ] = 0.5


BargeInBySpeech = bool | SpeechBargeIn
"""Whether and how speech interrupts a prompt; ``True``: with the defaults of :class:`SpeechBargeIn`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsConfig:
    """``[calls]``: limits and defaults of calls."""

    max_queued_prompts: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100
    max_duration_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 7200.0
    manual_answer_timeout_s: Seconds = 60.0
    originate_timeout_s: Seconds = 60.0
    ended_retention_s: Seconds = 300.0
    max_ended_calls: Count = 1000
    drain_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    barge_in_dtmf: bool = True
    barge_in_speech: BargeInBySpeech = False
    max_repeat: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    max_announcement_s: Seconds = 300.0
    hangup_tail_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 200
    disclosure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherConfig:
    """Section ``[gather]``: how keys are collected."""

    type_ahead_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class VadConfig:
    """``[vad]``: hearing that a caller speaks (voice activity detection)."""

    model_file: str = ""
    silence_ms: Annotated[int, msgspec.Meta(ge=100, le=5000)] = 550


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """``[stream]``: text that comes over ``GET /v1/calls/{id}/stream`` while it is spoken."""

    max_per_call: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    max_buffered_chars: Annotated[int, msgspec.Meta(ge=100, le=1_000_000)] = 4000
    idle_timeout_s: Seconds = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaConfig:
    """``[media]``: the audio of calls over ``GET /v1/calls/{id}/media``."""

    max_per_call: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    max_frame_bytes: Annotated[int, msgspec.Meta(ge=1024, le=4 * 1024 * 1024)] = 2_097_152
    max_queued_ms: Annotated[int, msgspec.Meta(ge=100, le=60_000)] = 1000
    max_buffered_ms: Annotated[int, msgspec.Meta(ge=1000, le=600_000)] = 300_000
    start_threshold_ms: Annotated[int, msgspec.Meta(ge=20, le=1000)] = 60
    idle_end_ms: Annotated[int, msgspec.Meta(ge=20, le=60_000)] = 500
    connect_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """``[cache]``: audio of repeated prompts."""

    enabled: bool = True
    memory_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 40)] = 67_108_864
    disk_dir: str = ""
    disk_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 50)] = 1_073_741_824
    max_prompt_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 60.0
    min_uses: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingConfig:
    """``[accounting]``: what was spoken and for whom, a line of JSON an utterance and a call."""

    file: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class CallWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An additional endpoint for the events of one call."""

    url: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=MAX_URL_CHARS,
            description="http:// or https://, without user and password. The host must be in `webhooks.allowed_hosts`.",
        ),
    ]
    secret: Annotated[
        str,
        msgspec.Meta(
            max_length=128,
            description="whsec_ and 24 to 64 bytes in base64, to sign with; left out or empty: there is no signature.",
        ),
    ] = ""

    def __repr__(self) -> str:
        """Show neither field, since both may be secrets."""
        return "CallWebhook(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """``[[webhooks]]``: an endpoint that events are sent to. ``secret`` may be a list, as both sign while one replaces the
    other.
    """

    url: Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)] = field(repr=False)
    secret: str | tuple[str, ...] = field(repr=False)
    name: Annotated[
        str, msgspec.Meta(max_length=64, pattern=form(r"^[A-Za-z0-9._-]*$", "a name of letters, digits and . _ -"))
    ] = ""
    types: tuple[str, ...] = ()
    tenant: str = ""
    timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=30_000)] = 5000
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 32

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.secret,) if isinstance(self.secret, str) else self.secret


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhooksConfig:
    """``[webhooks]``: events to web applications. ``endpoints`` are what ``[[webhooks]]`` lists."""

    endpoints: tuple[WebhookConfig, ...] = ()
    file: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    max_queued: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 10_000
    order_hold_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    live_s: Seconds = 60.0
    durable_s: Seconds = 86_400.0
    breaker_failures: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 20
    probe_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 10.0
    answer_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=30_000)] = 2000
    allow_per_call: bool = False
    allowed_hosts: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=255)], ...] = ()

    @property
    def named(self) -> dict[str, WebhookConfig]:
        """Return the endpoints by name; one without a name is named by its place in the list, counted from 1."""
        return {each.name or str(place): each for place, each in enumerate(self.endpoints, start=1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig:
    """``[routes.USER]``: what happens to an INVITE whose Request-URI has this user. ``trunk:NAME`` takes other users that
    come by a trunk, ``*`` every other one.
    """

    answer: Literal["now", "ring", "manual"] = "now"
    ring_ms: Annotated[int, msgspec.Meta(ge=0, le=300_000)] = 2000
    greeting: str = ""
    greeting_prompt: Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)] = ""
    unanswered_greeting: str = ""
    disclosure: str = ""
    voice: str = ""
    language: str = ""
    instructions: Instructions = ""
    then: Literal["stay", "hangup", "transfer"] = "stay"
    transfer_to: Annotated[str, msgspec.Meta(max_length=MAX_URI_CHARS)] = ""
    refer: Literal["refuse", "allow", "ask"] = "refuse"
    barge_in_speech: BargeInBySpeech | Literal[""] = ""
    media_url: Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)] = field(default="", repr=False)
    media_dialect: MediaDialect = "cc-tts"
    lead_in_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_LEAD_IN_MS)] = 0
    relay: RouteRelay = ""
    record: RouteRecord = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantConfig:
    """``[tenants.NAME]``: what the calls and tokens of a tenant may use at once, on all nodes together; 0: any number."""

    max_calls: Count = 0
    max_streams: Count = 0
    max_listeners: Count = 0
    max_characters_per_day: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0
    weight: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration, one field for each section."""

    server: ServerConfig = field(default_factory=ServerConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    sip: SipConfig = field(default_factory=SipConfig)
    ua: UaConfig = field(default_factory=UaConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    registration: RegistrationConfig = field(default_factory=RegistrationConfig)
    trunks: dict[str, TrunkConfig] = field(default_factory=dict)
    asterisk: AsteriskConfig = field(default_factory=AsteriskConfig)
    rtp: RtpConfig = field(default_factory=RtpConfig)
    quality: QualityConfig = field(default_factory=QualityConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    tts: TtsConfig = field(default_factory=TtsConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    playout: PlayoutConfig = field(default_factory=PlayoutConfig)
    calls: CallsConfig = field(default_factory=CallsConfig)
    gather: GatherConfig = field(default_factory=GatherConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    vad: VadConfig = field(default_factory=VadConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    media: MediaConfig = field(default_factory=MediaConfig)
    relay: RelayConfig = field(default_factory=RelayConfig)
    record: RecordConfig = field(default_factory=RecordConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    prompts: PromptsConfig = field(default_factory=PromptsConfig)
    accounting: AccountingConfig = field(default_factory=AccountingConfig)
    webhooks: WebhooksConfig = field(default_factory=WebhooksConfig)
    mrcp: MrcpConfig = field(default_factory=MrcpConfig)
    log: LogConfig = field(default_factory=LogConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    tenants: dict[str, TenantConfig] = field(default_factory=dict)
    routes: dict[str, RouteConfig] = field(default_factory=lambda: {"*": RouteConfig()})


def listens(config: Config) -> bool:
    """Whether speech may interrupt prompts of some call without a client asking for it."""
    routes = config.routes.values()
    by_relay = (route.relay and "speech" in route.relay.interrupting for route in routes)
    return any((config.calls.barge_in_speech, *(route.barge_in_speech for route in routes), *by_relay))


RELOADABLE: Final = (
    "log.level",
    "log.pjsip_level",
    "http.tokens",
    "sip.allowed_peers",
    "mrcp.allowed_peers",
    "sip.trusted_peers",
    "sip.max_requests_per_source_s",
    "sip.trace_messages",
    "sip.hep",
    "sip.hep_capture_id",
    "quality",
    "auth",
    "tls",
    "tenants",
    "tts.generations",
    "transfer.allowed",
    "transfer.music",
    "webhooks.endpoints",
    "routes",
)
"""Sections and keys that a running server takes over; every other one needs a restart."""
