"""The facts of one call: who talks, by which leg, and how it ended. Runs on: the event loop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.dtmf.gather import NOBODY, DigitsTo
from cc_tts.calls.ending import Ending, ending_of
from cc_tts.calls.events import types
from cc_tts.calls.recording.recording import RecordingStamp
from cc_tts.calls.relay.request import RelayRequest
from cc_tts.calls.services import CallServices
from cc_tts.config.schema import CallWebhook, MediaDialect
from cc_tts.errors import LineUnsupported
from cc_tts.media.quality import Levels, Quality
from cc_tts.speech.prompt import Disclosure, PromptDefaults
from cc_tts.tracing.context import TraceContext
from cc_tts.ua import messages
from cc_tts.ua.sip import message as sip_message

log = logs.get(__name__)

Direction = Literal["inbound", "outbound"]
AmdStage = Literal["", "answer", "greeting"]


@dataclass(kw_only=True, eq=False, repr=False)
class CallInfo:
    """The facts of a call, and its events. The API, the log and the accounting file read them; the call changes them."""

    services: CallServices
    id: str
    direction: Direction
    caller: str
    callee: str
    sip_call_id: str
    headers: dict[str, str]
    tags: tuple[str, str] = ("", "")
    """The two tags of the dialog; empty until the call is answered."""
    uri_parameters: dict[str, str] = field(default_factory=dict)
    tenant: str = ""
    """The tenant of the call; empty for the operator's own calls."""
    trunk: str = ""
    """The trunk that places the call, or that it came by."""
    route: str = ""
    """The key of ``[routes]`` that matched an incoming call."""
    peer: str = ""
    """The source address of an INVITE that came in, or the host that ours goes to."""
    defaults: PromptDefaults = field(default_factory=PromptDefaults)
    metadata: Mapping[str, str] = field(default_factory=dict)
    client_state: str | None = None
    """The client's own data, from the last command that had some. It is in every event of the call, as ``metadata`` is."""
    webhook: CallWebhook | None = None
    """The endpoint that gets its events in addition to those of the configuration."""
    created_at_s: float = 0.0
    answered_at_s: float | None = None
    ended_at_s: float | None = None
    ended_ns: int = 0
    """The end on CLOCK_MONOTONIC; 0 before it."""
    codec: str | None = None
    clock_rate_hz: int | None = None
    transport: str | None = None
    srtp: bool | None = None
    dtmf_method: messages.DtmfMethod | None = "rfc4733"
    held: bool = False
    """Whether either side has the call on hold."""
    paused: bool = False
    """Whether a client has paused the prompts."""
    ending: Ending | None = None
    quality: Quality = field(default_factory=Quality)
    levels: Levels | None = None
    """The volume of the call, measured while somebody asks for it."""
    local_reason: str | None = None
    """The reason for which we end the call, once we do."""
    end_in_gap: str | None = None
    """The reason that is given if the UA process ends the call while it has no server."""
    hangup_cause: str = ""
    """The cause that our BYE gives."""
    lead_in_ms: int = 0
    disclosure: Disclosure | None = None
    """The words that precede its first synthetic words."""
    disclosed_at_s: float | None = None
    """The wall-clock time at which the disclosure was heard."""
    media_route: tuple[str, MediaDialect] | None = None
    """The URL and the dialect of the application that the call's route connects to."""
    relay_request: RelayRequest | None = None
    """The relay of the call."""
    amd_stage: AmdStage = ""
    """The part that machine detection still has to find: who answers, or the end of a machine's greeting."""
    referral: tuple[str, str] | None = None
    """The REFER that asked for this call, and the call on which it arrived."""
    recordings: tuple[RecordingStamp, ...] = ()
    """The recordings of the call, made or requested."""
    invite: messages.Originate | None = None
    """The request that placed this call. It is repeated with the next trunk if the first one fails."""
    traceparent: str = ""
    """The trace context of the INVITE or of the request that placed the call; the call's own once it is traced."""
    no_answer_at_s: float | None = None
    """The wall-clock time at which an unanswered outgoing call is given up."""

    def check_sip(self, command: str, *, instead: str = ": have Asterisk do that with the caller's channel") -> None:
        """Raise ``LineUnsupported`` if the call has no SIP."""
        if self.transport in messages.LINES_WITHOUT_SIP:
            raise LineUnsupported(f"call {self.id} came by {self.transport}, which has no {command}{instead}")

    def note_media(self, media: messages.MediaActive) -> None:
        self.codec, self.clock_rate_hz, self.srtp = media.codec, media.clock_rate_hz, media.srtp
        self.dtmf_method = media.dtmf

    def note_quality(self, report: messages.QualityReport) -> None:
        self.quality, self.levels = report.quality, report.levels

    def note_leg(self, snapshot: messages.CallSnapshot) -> None:
        self.sip_call_id, self.tags = snapshot.sip_call_id or self.sip_call_id, snapshot.tags
        self.transport = snapshot.transport or self.transport
        self.held = snapshot.held_by != "none"
        if snapshot.media is not None:
            self.note_media(snapshot.media)

    def ending_by(self, ended: messages.CallEnded) -> Ending:
        """Return how the call ended, from the report of the UA process."""
        return ending_of(
            ended,
            was_established=self.answered_at_s is not None,
            local_reason=self.local_reason or self.end_in_gap,
            direction=self.direction,
        )

    def stamped(self, data: types.CallData) -> types.CallData:
        """Return an event about the call itself, with the metadata and the client state."""
        client_state = self.client_state if data.client_state is UNSET else data.client_state
        return msgspec.structs.replace(
            data, client_state=UNSET if client_state is None else client_state, metadata=self.metadata or UNSET
        )

    def publish(
        self, data: types.EventData, in_clear: types.CallData | None = None, digits_to: DigitsTo = NOBODY
    ) -> None:
        """Publish an event of this call. Events about the call itself carry its metadata and client state."""
        self.services.events.publish(
            self.stamped(data) if isinstance(data, types.CallData) else data,
            call_id=self.id,
            tenant=self.tenant,
            webhook=self.webhook,
            trace=self.trace,
            in_clear=None if in_clear is None else self.stamped(in_clear),
            digits_to=digits_to,
        )

    @property
    def remote_uri(self) -> str:
        """The address of record of the far side."""
        return sip_message.uri_of(self.caller if self.direction == "inbound" else self.callee)

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the call belongs to; ``None`` if there is none."""
        return TraceContext.parse(self.traceparent) if self.traceparent else None

    @property
    def trace_headers(self) -> dict[str, str]:
        """The header that tells an application the trace context of the call."""
        return {"traceparent": self.traceparent} if self.trace is not None else {}

    @property
    def parties(self) -> dict[str, Any]:
        names = ("direction", "caller", "callee", "sip_call_id", "headers", "uri_parameters")
        return {name: getattr(self, name) for name in names} | {"trunk": self.trunk or UNSET}
