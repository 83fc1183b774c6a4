"""The facts of one call: who talks, by which leg, and how it ended; and its timer. Runs on: the event loop."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.ending import Ending, ending_of
from cc_tts.calls.events import types
from cc_tts.calls.recording.recording import RecordingStamp
from cc_tts.calls.relay.request import RelayRequest
from cc_tts.config.schema import CallWebhook, MediaDialect
from cc_tts.errors import CcTtsError, LineUnsupported
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
    """The facts of a call. The API, the log and the accounting file read them; the call alone changes them."""

    id: str
    direction: Direction
    caller: str
    callee: str
    sip_call_id: str
    headers: dict[str, str]
    tags: tuple[str, str] = ("", "")
    """Those of the dialog, ours and the far side's; empty until it is answered."""
    uri_parameters: dict[str, str] = field(default_factory=dict)
    tenant: str = ""
    """The tenant whose call it is; empty: the operator's."""
    trunk: str = ""
    """The trunk that it is placed by, or that it came by."""
    route: str = ""
    """The key of ``[routes]`` that takes an incoming call."""
    peer: str = ""
    """The address an INVITE came from, or the host that ours is for."""
    defaults: PromptDefaults = field(default_factory=PromptDefaults)
    metadata: Mapping[str, str] = field(default_factory=dict)
    client_state: str | None = None
    """The client's own words, from the last command that gave some. They and ``metadata`` are in every event of the call."""
    webhook: CallWebhook | None = None
    """The endpoint that its events go to besides those of the configuration."""
    created_at_s: float = 0.0
    answered_at_s: float | None = None
    ended_at_s: float | None = None
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
    """How loud it is, while somebody looks."""
    local_reason: str | None = None
    """Why we end the call, once we do."""
    end_in_gap: str | None = None
    """The reason of its end if the UA process ends the call of itself, as it does while it has no server."""
    hangup_cause: str = ""
    """The cause that our BYE gives."""
    lead_in_ms: int = 0
    disclosure: Disclosure | None = None
    """Words that its first synthetic ones follow."""
    disclosed_at_s: float | None = None
    """When that was heard, on the wall clock."""
    media_route: tuple[str, MediaDialect] | None = None
    """The application that the call's route has it connect to, and the dialect that it speaks."""
    relay_request: RelayRequest | None = None
    """The relay that it has."""
    amd_stage: AmdStage = ""
    """The detection still has to find who answers, or when a machine's greeting is over."""
    referral: tuple[str, str] | None = None
    """The call whose far side asked for this one by REFER, and that REFER."""
    recordings: tuple[RecordingStamp, ...] = ()
    """Those that were made of it, or asked for."""
    invite: messages.Originate | None = None
    """The UA process was asked to place this; the next trunk gets it, too, if the first does not take it."""
    traceparent: str = ""
    """The trace that it belongs to, as the INVITE or the request that placed it says; the call itself once it is traced."""
    no_answer_at_s: float | None = None
    """When an outgoing call is given up that is not answered, on the wall clock."""

    def check_sip(self, command: str, *, instead: str = ": have Asterisk do that with the caller's channel") -> None:
        """Raise ``LineUnsupported`` if the call came by a line without SIP."""
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
        """How the call ended, by what the UA process says of it."""
        return ending_of(
            ended,
            was_established=self.answered_at_s is not None,
            local_reason=self.local_reason or self.end_in_gap,
            direction=self.direction,
        )

    def stamped(self, data: types.CallData) -> types.CallData:
        """An event of what happens to the call itself, with the metadata and the client state."""
        client_state = self.client_state if data.client_state is UNSET else data.client_state
        return msgspec.structs.replace(
            data, client_state=UNSET if client_state is None else client_state, metadata=self.metadata or UNSET
        )

    @property
    def remote_uri(self) -> str:
        """The address of record of the far side."""
        return sip_message.uri_of(self.caller if self.direction == "inbound" else self.callee)

    @property
    def trace(self) -> TraceContext | None:
        """The trace that it belongs to; ``None`` if there is none."""
        return TraceContext.parse(self.traceparent) if self.traceparent else None

    @property
    def trace_headers(self) -> dict[str, str]:
        """The header that tells an application which trace the call belongs to."""
        return {"traceparent": self.traceparent} if self.trace is not None else {}

    @property
    def of_events(self) -> dict[str, Any]:
        return {"call_id": self.id, "tenant": self.tenant, "webhook": self.webhook, "trace": self.trace}

    @property
    def parties(self) -> dict[str, Any]:
        names = ("direction", "caller", "callee", "sip_call_id", "headers", "uri_parameters")
        return {name: getattr(self, name) for name in names} | {"trunk": self.trunk or UNSET}


class CallTimer:
    """One action of a call that is to run later. What it raises is logged."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether an action is still to run."""
        return self._handle is not None

    def set(self, delay_s: float, action: Callable[[], object]) -> None:
        """Run ``action`` after this time, in place of what was to run."""
        self.cancel()
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._run, action)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self, action: Callable[[], object]) -> None:
        self._handle = None
        try:
            action()
        except CcTtsError as error:
            log.warning("timer_failed", call_id=self._call_id, code=error.code, detail=error.detail)
