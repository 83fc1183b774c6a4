"""The fields of each type of event, one struct a type. The API's documents are made of these structs.

To add a type, write its struct; ``type`` is the word that clients see, the docstring is what they read about it.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cc_tts.calls.call_state import CallState
from cc_tts.calls.dtmf.gather import GatherResult, TimedOut
from cc_tts.calls.ending import Ending
from cc_tts.calls.prompts.utterance import CompletionCause, Interrupter
from cc_tts.calls.relay.request import RelayCause
from cc_tts.media.quality import Quality
from cc_tts.recorder.info import Consent, Gap
from cc_tts.ua.messages import OnHangup, UnbridgedBecause
from cc_tts.vad.answering.settings import AmdCause, AmdResult, EarlySound, GreetingEnd

Milliseconds = Annotated[float, Meta(description="Milliseconds.")]
ClientState = Annotated[
    str | UnsetType, Meta(description="As the client gave it with the command; left out if it gave none.")
]


class EventData(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all: the member ``data`` of an event."""

    type: ClassVar[str]


class CallData(EventData, frozen=True, kw_only=True):
    """Base of what happens to a call; both fields are those of the call."""

    client_state: Annotated[
        str | UnsetType, Meta(description="Of the last command on the call that gave one; left out if none did.")
    ] = UNSET
    metadata: Annotated[
        Mapping[str, str] | UnsetType, Meta(description="Of the call; left out while there is none.")
    ] = UNSET


class SpeakData(EventData, frozen=True, kw_only=True):
    """Base of what happens to an utterance; ``client_state`` is that of the command that asked for it."""

    utterance_id: str
    client_state: ClientState = UNSET


class _Parties(CallData, frozen=True, kw_only=True):
    direction: Literal["inbound", "outbound"]
    caller: str
    callee: str
    sip_call_id: Annotated[str, Meta(description="Empty for a call that we place, until the far side responds.")]
    headers: Annotated[
        Mapping[str, str], Meta(description="X-* and User-to-User of the INVITE, and identities of trusted peers.")
    ]
    uri_parameters: Annotated[Mapping[str, str], Meta(description="Of the Request-URI, from trusted peers only.")]
    trunk: Annotated[str | UnsetType, Meta(description="It is placed by this one or came by it.")] = UNSET


class CallIncoming(_Parties, frozen=True, kw_only=True):
    """An INVITE came in."""

    type: ClassVar[str] = "call.incoming"
    source: Annotated[str, Meta(description="The address it came from.")]


class Referral(msgspec.Struct, frozen=True, kw_only=True):
    """The call whose far side asked for another one, and the REFER by which it did."""

    call_id: str
    refer_id: str


def referral_of(names: tuple[str, str] | None) -> Referral | UnsetType:
    return UNSET if names is None else Referral(call_id=names[0], refer_id=names[1])


class CallOutgoing(_Parties, frozen=True, kw_only=True):
    """A call is being placed."""

    type: ClassVar[str] = "call.outgoing"
    referral: Annotated[
        Referral | UnsetType, Meta(description="The far side of another call of ours asked for it, by REFER.")
    ] = UNSET


class CallTrunkFailed(CallData, frozen=True, kw_only=True):
    """A trunk did not take the call that we place, and another one is tried: the id of the call stays the same."""

    type: ClassVar[str] = "call.trunk_failed"
    trunk: str
    sip_code: Annotated[int, Meta(description="0: the trunk could not be reached.")]
    next: Annotated[str, Meta(description="The trunk that is tried now.")]


class CallEarly(CallData, frozen=True, kw_only=True):
    """It rings: a provisional response went out or came in."""

    type: ClassVar[str] = "call.early"
    sip_code: int


class CallEstablished(CallData, frozen=True, kw_only=True):
    """The call is answered and acknowledged."""

    type: ClassVar[str] = "call.established"
    codec: str | None
    clock_rate_hz: int | None


class CallHeld(CallData, frozen=True, kw_only=True):
    """The call was put on hold."""

    type: ClassVar[str] = "call.held"
    by: Annotated[Literal["local", "remote"], Meta(description="Which side holds it.")]


class CallUnheld(CallData, frozen=True, kw_only=True):
    """The call was taken off hold."""

    type: ClassVar[str] = "call.unheld"


class CallDtmf(CallData, frozen=True, kw_only=True):
    """The caller pressed a key; sent when it goes up."""

    type: ClassVar[str] = "call.dtmf"
    digit: Annotated[str, Meta(description="`x` while a sensitive gather runs.")]
    duration_ms: Annotated[int, Meta(description="Milliseconds; 0 if the sender gave none.")]
    method: Literal["rfc4733", "sip_info", "line"]
    gather_id: Annotated[str | UnsetType, Meta(description="Of the gather that runs; left out if none does.")] = UNSET


class CallSpeechStarted(CallData, frozen=True, kw_only=True):
    """The caller speaks, on a call whose prompts speech may interrupt."""

    type: ClassVar[str] = "call.speech_started"
    speech_id: str
    during: Annotated[str | None, Meta(description="The utterance that was heard then; null if none was.")]
    at_ms: Annotated[float, Meta(description="When it began, milliseconds since the call was established.")]


class CallSpeechStopped(CallData, frozen=True, kw_only=True):
    """The caller stopped speaking; sent after `vad.silence_ms` of silence."""

    type: ClassVar[str] = "call.speech_stopped"
    speech_id: str
    duration_ms: Annotated[float, Meta(description="Of the speech without that silence, milliseconds.")]


class CallEarlyMedia(CallData, frozen=True, kw_only=True):
    """The network plays another sound before the answer, on a call that was placed with `amd`."""

    type: ClassVar[str] = "call.early_media"
    sound: Annotated[
        EarlySound, Meta(description="information_tone: three rising tones, which come before an announcement.")
    ]


class CallMachineDetected(CallData, frozen=True, kw_only=True):
    """Who answered: exactly one for each call that was placed with `amd`, also if it ends before."""

    type: ClassVar[str] = "call.machine_detected"
    result: Annotated[
        AmdResult,
        Meta(
            description="ivr: music or ringing after the answer; unavailable: busy or an announcement of the network."
        ),
    ]
    cause: Annotated[AmdCause, Meta(description="What decided it.")]
    after_ms: Annotated[float, Meta(description="Since the answer, milliseconds.")]
    words: Annotated[int, Meta(description="Words heard until then.")]
    greeting_ms: Annotated[float, Meta(description="From the first word to the end of the last until then.")]


class CallMachineGreetingEnded(CallData, frozen=True, kw_only=True):
    """An answering machine records from now on; once after the result `machine`, unless the call ends before."""

    type: ClassVar[str] = "call.machine_greeting_ended"
    by: Annotated[
        GreetingEnd, Meta(description="timeout: neither a beep nor silence came within amd.greeting_timeout_ms.")
    ]
    at_ms: Annotated[float, Meta(description="Since the answer, milliseconds.")]


class CallGatherComplete(CallData, frozen=True, kw_only=True):
    """A gather is over. `client_state` is that of the gather, if it has one."""

    type: ClassVar[str] = "call.gather_complete"
    gather_id: str
    result: Annotated[GatherResult, Meta(description="What ended it.")]
    valid: Annotated[bool, Meta(description="Whether the digits are usable: enough, and all of `valid_digits`.")]
    digits: Annotated[
        str,
        Meta(description="Of the last try, without the finish key; `x` for each that is withheld from this reader."),
    ]
    digits_withheld: Annotated[
        bool | UnsetType,
        Meta(
            description="`true` where the gather is sensitive and this reader is neither named by `digits_to` nor has the "
            "scope `digits`; left out otherwise."
        ),
    ] = UNSET
    terminator: Annotated[str | None, Meta(description="The finish key that was pressed.")]
    timed_out: Annotated[TimedOut | None, Meta(description="Which time ran out, with the result `timeout`.")]
    tries: int
    prompt_error: Annotated[
        str | None,
        Meta(description="The code of the error of the last prompt: the caller may not have heard the question."),
    ]
    duration_ms: Milliseconds


TransferMode = Literal["blind", "attended", "warm"]
TransferState = Literal["requested", "accepted", "trying", "ringing", "answered", "succeeded", "failed"]
TransferReason = Literal["rejected", "busy", "no_answer", "timeout", "not_supported", "call_ended", "unknown"]


class CallDisclosed(CallData, frozen=True, kw_only=True):
    """The caller has heard the disclosure, whole: that a machine speaks. Once, before the first synthetic words."""

    type: ClassVar[str] = "call.disclosed"
    utterance_id: str
    played_ms: Milliseconds


class CallDisclosureFailed(CallData, frozen=True, kw_only=True):
    """The disclosure could not be spoken. The synthetic words behind it are not heard: they complete with the error
    `disclosure_failed`. It is tried again before the next ones.
    """

    type: ClassVar[str] = "call.disclosure_failed"
    utterance_id: str
    error: Annotated[str, Meta(description="The code of what failed.")]


class CallTransfer(CallData, frozen=True, kw_only=True):
    """How far a transfer is. Its last state is `succeeded` or `failed`, once. `client_state` is that of the transfer, if it
    has one.
    """

    type: ClassVar[str] = "call.transfer"
    transfer_id: str
    mode: TransferMode
    state: TransferState
    sip_code: Annotated[int | None, Meta(description="What the far side said of it, in an answer or a NOTIFY.")]
    reason: Annotated[
        TransferReason | None,
        Meta(
            description="Why it failed; `unknown` with `succeeded`: the far side hung up and did not say how it went."
        ),
    ] = None
    confirmed: Annotated[
        bool | UnsetType, Meta(description="With `succeeded`: whether the far side has said so itself.")
    ] = UNSET
    agent_call_id: Annotated[str | UnsetType, Meta(description="Mode warm: the call to the agent.")] = UNSET


ReferResult = Literal["succeeded", "failed", "refused", "timeout"]


class CallReferRequested(CallData, frozen=True, kw_only=True):
    """The far side asks us to call somebody else (REFER), on a route that does not refuse that. `call.refer_complete`
    follows once.
    """

    type: ClassVar[str] = "call.refer_requested"
    refer_id: str
    to: Annotated[str, Meta(description="The SIP URI that is to be called; transfer.allowed takes it.")]
    headers: Annotated[Mapping[str, str], Meta(description="X-*, User-to-User and Replaces for the new call.")]
    referred_by: Annotated[str | None, Meta(description="The URI of the referrer; null if it names none.")]
    replaces: Annotated[bool, Meta(description="Whether the new call takes the place of another one (attended).")]
    answer_within_ms: Annotated[
        int | None,
        Meta(description="How long the application has to accept or refuse it; null: the route has decided."),
    ]


class CallReferComplete(CallData, frozen=True, kw_only=True):
    """The outcome of a REFER of the far side, which has been told. After `succeeded` this call ends, and the new one stays
    up.
    """

    type: ClassVar[str] = "call.refer_complete"
    refer_id: str
    result: Annotated[ReferResult, Meta(description="`timeout`: nobody has decided in time.")]
    sip_code: Annotated[int, Meta(description="The far side was told this.")]
    new_call_id: Annotated[str | UnsetType, Meta(description="The call that was placed, if one was.")] = UNSET


BridgeId = Annotated[str, Meta(description="The same for both calls.")]


class CallBridged(CallData, frozen=True, kw_only=True):
    """The far side of this call and that of another one hear each other. Each of the two calls has this event.
    `client_state` is that of the bridge, if it has one.
    """

    type: ClassVar[str] = "call.bridged"
    bridge_id: BridgeId
    other_call_id: str
    on_hangup: Annotated[OnHangup, Meta(description="What becomes of this call when the other one ends.")]


class CallUnbridged(CallData, frozen=True, kw_only=True):
    """A bridge is over, or could not be made. It is the last event of the bridge, and comes once for each of the two calls.
    The call itself stays up unless its own end follows. `client_state` is that of the bridge, if it has one.
    """

    type: ClassVar[str] = "call.unbridged"
    bridge_id: BridgeId
    other_call_id: str
    reason: Annotated[
        UnbridgedBecause,
        Meta(
            description="`requested`: by `unbridge`; `call_ended`: one of the two is over; `failed`: it was not made."
        ),
    ]


class CallRelayStarted(CallData, frozen=True, kw_only=True):
    """The application of a relay has taken the call. `client_state` is that of the relay, if it has one."""

    type: ClassVar[str] = "call.relay_started"
    relay_id: str


class CallRelayEnded(CallData, frozen=True, kw_only=True):
    """A relay is over. It is the last event of the relay, and comes once. What `then` of the relay says follows: the end of
    the call, or nothing. `client_state` is that of the relay, if it has one.
    """

    type: ClassVar[str] = "call.relay_ended"
    relay_id: str
    cause: Annotated[
        RelayCause,
        Meta(
            description="`completed`: the application sent `end`; `closed`: it closed the connection; `unreachable`: it "
            "did not take the connection; `lost`: the connection broke; `silent`: it said nothing; `stopped`: by DELETE; "
            "`call_ended`; `server_restarted`: before the call was answered, or it could not go on."
        ),
    ]
    handoff_data: Annotated[
        str | UnsetType, Meta(description="What the application sent with `end`; left out if nothing.")
    ] = UNSET


class CallRecording(CallData, frozen=True, kw_only=True):
    """The state of a recording has changed. The last one is `saved` or `failed`, and may come after `call.terminated`.
    `client_state` is that of the recording, if it has one.
    """

    type: ClassVar[str] = "call.recording"
    recording_id: str
    state: Annotated[
        Literal["waiting", "started", "paused", "resumed", "saved", "failed"],
        Meta(description="`waiting`: for consent, nothing is recorded before it is given."),
    ]
    reason: Annotated[
        str | None,
        Meta(
            description="Of `paused` and `resumed` what did it, `request` or `gather` (a sensitive one); of the last state "
            "`stopped`, `key`, `max_duration`, `silence`, `call_ended`, `user_agent_died`, `recovered` (completed after "
            "a crash), `consent_refused`, `no_consent`, `disk_full`, `storage_error`."
        ),
    ]
    consent: Annotated[Consent, Meta(description="Whether the caller has agreed, as far as the client said.")]
    duration_ms: Annotated[int | UnsetType, Meta(description="Of the file; with the last state.")] = UNSET
    bytes: Annotated[int | UnsetType, Meta(description="Of the file; with the last state.")] = UNSET
    lost_ms: Annotated[
        int | UnsetType,
        Meta(description="Silence in place of audio that the disk was too slow for; with the last state."),
    ] = UNSET
    gaps: Annotated[
        tuple[Gap, ...] | UnsetType, Meta(description="Where that silence is in the file; with the last state.")
    ] = UNSET


class CallRecordingDelivered(CallData, frozen=True, kw_only=True):
    """A recording was handed on, to `upload_url` or to the command of `record.on_saved`, or could not be."""

    type: ClassVar[str] = "call.recording_delivered"
    recording_id: str
    to: Literal["upload", "command"]
    result: Literal["delivered", "failed"]
    attempts: int
    detail: Annotated[str, Meta(description="Why it failed; empty if it did not.")] = ""


class CallCommandFailed(CallData, frozen=True, kw_only=True):
    """A command that was accepted could not be carried out. A call that cannot be answered ends; any other stays up."""

    type: ClassVar[str] = "call.command_failed"
    command: str
    detail: str


class CallAdopted(_Parties, frozen=True, kw_only=True):
    """The server was restarted under the call and has taken it up: prompts are accepted again. What was said or gathered
    has ended with `server_restarted`, which may come before this; media and text streams are to be opened again. An
    incoming call that waits for its answer follows as `call.incoming`.
    """

    type: ClassVar[str] = "call.adopted"
    state: CallState


class CallTerminated(CallData, frozen=True, kw_only=True):
    """The call is over; its last event."""

    type: ClassVar[str] = "call.terminated"
    ending: Ending
    quality: Quality


class SpeakQueued(SpeakData, frozen=True, kw_only=True):
    """A prompt was accepted."""

    type: ClassVar[str] = "speak.queued"
    text_chars: Annotated[
        int, Meta(description="Characters of its text; 0 for tones, silence and text that is still to come.")
    ]


class SpeakStarted(SpeakData, frozen=True, kw_only=True):
    """The first frame that carries speech was sent."""

    type: ClassVar[str] = "speak.started"
    time_to_first_audio_ms: Milliseconds | None
    time_to_first_pcm_ms: Milliseconds | None


class SpeakMark(SpeakData, frozen=True, kw_only=True):
    """A mark of SSML was reached."""

    type: ClassVar[str] = "speak.mark"
    name: str
    played_ms: Annotated[float, Meta(description="Its place in the audio of the utterance, milliseconds.")]


class SpeakPaused(SpeakData, frozen=True, kw_only=True):
    """The caller's speech holds the prompt until it is clear whether the caller keeps speaking."""

    type: ClassVar[str] = "speak.paused"
    by: Literal["speech"] = "speech"
    speech_id: str
    played_ms: Milliseconds


class SpeakResumed(SpeakData, frozen=True, kw_only=True):
    """A prompt that speech held is resumed."""

    type: ClassVar[str] = "speak.resumed"
    played_ms: Annotated[float, Meta(description="The place in its audio from which it is resumed, milliseconds.")]


RecoveryReason = Literal["worker_lost", "runaway"]


class SpeakRecovered(SpeakData, frozen=True, kw_only=True):
    """The speech worker was lost, or the voice ran away (repeated itself or did not end) and was stopped, and another worker
    or the fallback engine says what is left of the utterance. The caller may hear a gap and miss some words, or hear some
    twice.
    """

    type: ClassVar[str] = "speak.recovered"
    reason: RecoveryReason = "worker_lost"
    text_chunk: Annotated[int, Meta(description="The number of the part of its text from which it continues, from 0.")]
    char_start: Annotated[int, Meta(description="Where that part begins in its text, characters.")]


class SpeakRefused(SpeakData, frozen=True, kw_only=True):
    """Part of a text that arrives while it is spoken is not heard, since no voice speaks it. The rest is spoken, and the
    utterance completes with the cause `error`.
    """

    type: ClassVar[str] = "speak.refused"
    error: Annotated[str, Meta(description="The code of the error.")]
    detail: str
    text: Annotated[str, Meta(description="The words that are not heard.")]
    char_start: Annotated[int, Meta(description="Where they begin in the text, characters.")]


class SpeakComplete(SpeakData, frozen=True, kw_only=True):
    """Nothing more will be heard of the utterance; its last event."""

    type: ClassVar[str] = "speak.complete"
    completion_cause: CompletionCause
    interrupted_by: Annotated[Interrupter | None, Meta(description="What broke it off; null if nothing did.")] = None
    speech_id: Annotated[
        str | UnsetType, Meta(description="Of the speech that broke it off; left out if none did.")
    ] = UNSET
    played_ms: Milliseconds
    text_chars: Annotated[int, Meta(description="Characters of its text, all that came of a stream among them.")]
    spoken_text: Annotated[str, Meta(description="What the caller heard, in the words that were sent.")]
    underruns: int
    time_to_first_audio_ms: Milliseconds | None
    error: Annotated[str | None, Meta(description="The code of what failed, with the cause `error`.")]


class PromptReady(EventData, frozen=True, kw_only=True):
    """A staged prompt was made, or could not be made."""

    type: ClassVar[str] = "prompt.ready"
    prompt_id: str
    state: Literal["ready", "failed"]
    duration_ms: Annotated[int, Meta(description="Of its audio; 0 if none is kept.")]
    error: Annotated[str | UnsetType, Meta(description="The code of what failed; left out while nothing did.")] = UNSET


class ServerDraining(EventData, frozen=True, kw_only=True):
    """The server takes no new calls and exits when the last one has ended."""

    type: ClassVar[str] = "server.draining"
    calls: Annotated[int, Meta(description="Calls that are up.")]


class ServerOverloaded(EventData, frozen=True, kw_only=True):
    """A call was refused since all lines are taken; at most one event a second."""

    type: ClassVar[str] = "server.overloaded"
    calls: Annotated[int, Meta(description="Calls that are up.")]
    draining: bool


class WebhookTest(EventData, frozen=True, kw_only=True):
    """`POST /v1/admin/webhooks/{name}/test` was asked for. Only the endpoint of that name gets it, with the `seq` 0."""

    type: ClassVar[str] = "webhook.test"
    webhook: Annotated[str, Meta(description="The name of the endpoint.")]


EVENTS: Final[Mapping[str, type[EventData]]] = {
    each.type: each
    for each in tuple(vars().values())
    if isinstance(each, type) and issubclass(each, EventData) and hasattr(each, "type")
}
"""Every type of event of this module, in the order in which documents list them."""
