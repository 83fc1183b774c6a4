"""These messages cross the boundary between the server process and the UA process. Instants are CLOCK_MONOTONIC, ns.

``call_id`` is the server's name of a call: the UA process makes it up for an incoming call, the server for an outgoing one.
"""

import dataclasses
import hashlib
from typing import Final, Literal

import msgspec

from cc_tts.config.load import RELOADABLE
from cc_tts.config.schema import AuthConfig, LogConfig, RegistrationConfig, RtpConfig, SipConfig, TlsConfig
from cc_tts.media.playout_events import PlayoutEvent
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import Message, kinds_of
from cc_tts.recorder.info import Ending, RecordingInfo, RecordingPlan
from cc_tts.ua.sip.reason import RemoteReason
from cc_tts.ua.sip.uri import with_transport

# --- configuration: written to the child's standard input as JSON --------------------------------------------------


class UaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The UA process needs this at its start: sections of the configuration, with the values that depend on the machine
    filled in (``sip.nameservers``, ``tls.ca_file``).
    """

    sip: SipConfig
    rtp: RtpConfig
    registration: RegistrationConfig
    auth: AuthConfig
    log: LogConfig
    tls: TlsConfig | None = None
    """``None``: SIP is not spoken over TLS, and the password of the key is not handed on."""
    playout_max_buffered_ms: int
    dispatcher_port: int = 0
    """``sip.port`` of the configuration where a dispatcher listens on it, 0 without one. ``sip.port`` is our own."""
    registers: bool = True
    """Whether this is the process that registers, if any does."""
    call_id_prefix: str = "call_"
    """The ids of incoming calls begin with this."""
    orphan_grace_ms: int = 0
    """Calls are kept this long when the server is gone."""
    adoption_socket: str = ""
    """The process waits here for the next server then."""

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
        return hashlib.sha256(msgspec.json.encode(fixed, order="deterministic")).hexdigest()

    @property
    def own_host(self) -> str:
        return self.sip.public_address or self.sip.local_address

    @property
    def local_uri(self) -> str:
        """The address of record of calls by address."""
        return f"sip:cc-tts@{self.own_host}:{self.public_port}"

    @property
    def public_port(self) -> int:
        """Where calls to us come in."""
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


class Command(Message, frozen=True):
    """A message from the server to the UA process."""


class CallCommand(Command, frozen=True):
    """A command that is about one call."""

    call_id: str


class Report(Message, frozen=True):
    """A message from the UA process to the server."""


class CallReport(Report, frozen=True):
    """A report that is about one call."""

    call_id: str


# --- server → UA: signalling ---------------------------------------------------------------------------------------


class SetAccepting(Command, frozen=True):
    """Whether INVITE and OPTIONS outside a dialog are accepted; if not they get 503 with Retry-After."""

    accepting: bool
    retry_after_s: int


class ApplySettings(Command, frozen=True):
    """Take over those of the settings that ``config.RELOADABLE`` names. Answered with :class:`SettingsApplied`.

    ``renew_tls``: files of ``tls`` have changed, so that the listener reads them again.
    """

    settings: UaSettings
    renew_tls: bool


class KeepRecord(CallCommand, frozen=True):
    """Keep this for the server that adopts the call: what the UA process does not know of it, and need not read."""

    record: bytes


class EndNoted(CallCommand, frozen=True):
    """The end of the call is accounted for: no other server has to be told of it."""


class Ring(CallCommand, frozen=True):
    """Send 180, or 183 with SDP so that media can flow before the answer: then prompts are heard at once, after a silence of
    ``lead_in_ms``.
    """

    early_media: bool = False
    lead_in_ms: int = 0


class Answer(CallCommand, frozen=True):
    """Send 200. The leg plays nothing before the ACK, and ``lead_in_ms`` of silence after it."""

    lead_in_ms: int = 0


class Hangup(CallCommand, frozen=True):
    """End the call: BYE with ``cause``, CANCEL, or a final refusal with ``sip_code`` if it is not answered. ``tail_ms``: let
    silence be sent this long before. ``digits``: what the caller pressed, for the BYE.
    """

    sip_code: int = 0
    reason: str = ""
    retry_after_s: int = 0
    cause: str = "local_hangup"
    tail_ms: int = 0
    digits: str = ""


class SetHold(CallCommand, frozen=True):
    """Re-INVITE to hold (sendonly) or to take back."""

    hold: bool


class SendDtmf(CallCommand, frozen=True):
    """Send digits, by the method of :class:`MediaActive`."""

    digits: str
    duration_ms: int


class Transfer(CallCommand, frozen=True):
    """Send REFER: the far side is to call ``to``, with these ``headers``. ``referred_by`` empty: our own address in it."""

    to: str
    headers: dict[str, str]
    referred_by: str = ""


class Originate(CallCommand, frozen=True):
    """Place a call. Refusals and timeouts come back as :class:`CallEnded`."""

    to: str
    from_: str
    headers: dict[str, str]
    display_name: str = ""


# --- server → UA: media ---------------------------------------------------------------------------------------------


class BeginUtterance(CallCommand, frozen=True):
    """Queue an utterance behind those present. It starts at its threshold or when it is finished, and not before the call
    can be heard: the ACK, or early media that we offer, opens the leg's buffer.
    """

    utterance_id: str
    start_threshold_ms: int


class Audio(CallCommand, frozen=True):
    """PCM of an utterance at the leg's clock rate (the payload)."""

    utterance_id: str


class ExpectUnderrun(CallCommand, frozen=True):
    """No audio of an utterance follows until more of its text comes: that its buffer runs dry is no underrun."""

    utterance_id: str


class FinishUtterance(CallCommand, frozen=True):
    """No more audio will come for it."""

    utterance_id: str


class CutUtterance(CallCommand, frozen=True):
    """Silence within one frame. ``utterance_id`` ``None``: everything on the leg."""

    utterance_id: str | None = None


class SetPaused(CallCommand, frozen=True):
    """Stop the prompt's clock while the client or the caller's speech wants it. ``from_ms``: where the audio of the prompt
    ``utterance_id`` goes on, if that was played a moment ago.
    """

    paused: bool
    by: Literal["request", "speech"] = "request"
    utterance_id: str = ""
    from_ms: float = 0.0


AudioDirection = Literal["in", "out"]
"""``in``: from the caller; ``out``: what we send."""


class SetListening(CallCommand, frozen=True):
    """Send :class:`CallAudio` of these directions from now on, and of no other."""

    directions: tuple[AudioDirection, ...]


class StartRecording(CallCommand, frozen=True):
    """Record the call from now on, or from its first frame on."""

    plan: RecordingPlan


class SetRecordingPaused(CallCommand, frozen=True):
    """Record nothing, or go on after ``delay_ms``. ``skips``: the pause is left out of the file, else silence is in its
    place.
    """

    paused: bool
    skips: bool = False
    delay_ms: int = 0


class StopRecording(CallCommand, frozen=True):
    """Complete the recording of the call."""

    reason: Ending


# --- UA → server: signalling -----------------------------------------------------------------------------------------


class IncomingCall(CallReport, frozen=True):
    """An INVITE outside a dialog. ``source`` is the address it came from, without port; ``identity`` is what it asserts of
    the caller, to be believed only of trusted peers.
    """

    sip_call_id: str
    caller: str
    callee: str
    request_uri: str
    source: str
    headers: dict[str, str]
    transport: str = ""
    identity: dict[str, str] = msgspec.field(default_factory=dict)


class CallPlaced(CallReport, frozen=True):
    """The INVITE of an outgoing call is on its way."""

    sip_call_id: str


class CallRinging(CallReport, frozen=True):
    """A provisional response above 100 went out or came in."""

    sip_call_id: str
    sip_code: int


class CallEstablished(CallReport, frozen=True):
    """ACK received (inbound) or sent (outbound)."""

    sip_call_id: str
    at_ns: int
    transport: str = ""
    tags: tuple[str, str] = ("", "")
    """Ours and the far side's (RFC 3261 §12)."""


DtmfMethod = Literal["rfc4733", "sip_info"]


class MediaActive(CallReport, frozen=True):
    """The leg has a codec and the playout buffer is connected. Sent again when one of these changes.

    ``dtmf``: how keys can be sent, ``None`` if the far side takes neither telephone events nor INFO.
    """

    codec: str
    clock_rate_hz: int
    srtp: bool = False
    dtmf: DtmfMethod | None = "rfc4733"


HeldBy = Literal["local", "remote", "none"]


class HoldChanged(CallReport, frozen=True):
    """The media direction changed: who holds."""

    by: HeldBy


class DtmfBegan(CallReport, frozen=True):
    """A key went down; :class:`DtmfReceived` follows with the same ``at_ns`` when it goes up. Not sent for SIP INFO."""

    at_ns: int


class DtmfReceived(CallReport, frozen=True):
    """One digit (RFC 4733 event or SIP INFO), when its length is known. ``at_ns``: when the key went down.

    ``duration_ms`` 0: the sender gave none.
    """

    digit: str
    duration_ms: int
    method: DtmfMethod
    at_ns: int


class QualityReport(CallReport, frozen=True):
    """Sent every second for each leg."""

    quality: Quality


EndedBy = Literal["local", "remote", "rtp_inactivity", "failure", "not_acceptable", "unreachable"]
"""``not_acceptable``: there was no media to agree on, by us. ``unreachable``: the INVITE could not be sent."""


class CallEnded(CallReport, frozen=True):
    """The last report of a call. ``contacts`` are those of a redirection that was not followed; ``remote_reasons`` what the
    far side's BYE, CANCEL or refusal gave for a reason. ``at_ns`` 0: now.
    """

    sip_code: int
    ended_by: EndedBy
    quality: Quality
    contacts: tuple[str, ...] = ()
    at_ns: int = 0
    remote_reasons: tuple[RemoteReason, ...] = ()


ToldBy = Literal["answer", "notify"]


class TransferProgress(CallReport, frozen=True):
    """The REFER was answered, or a NOTIFY came of it, whose body names this status; 0: it names none. ``is_last``: nothing
    follows by this way.
    """

    by: ToldBy
    sip_code: int
    is_last: bool


class CommandFailed(CallReport, frozen=True):
    """PJSIP refused a command on a call; the call goes on."""

    command: str
    detail: str


class CallSnapshot(CallReport, frozen=True):
    """Server that adopts: a call as it is, or was before the :class:`CallEnded` that follows. Playout reports follow of the
    utterances that were over meanwhile.

    ``state`` is that of the leg. ``sip_code`` is the last provisional response above 100, 0 if there was none.
    ``utterances`` are those in the playout buffer or over since the server went, with what was played of each, ms.
    ``invite`` is there for an incoming call. ``established_ns``: when the ACK was received or sent.
    """

    record: bytes
    state: Literal["invited", "answered", "established"]
    sip_call_id: str
    sip_code: int
    established_ns: int
    transport: str
    held_by: HeldBy
    media: MediaActive | None
    invite: IncomingCall | None
    utterances: tuple[tuple[str, float], ...]
    transfer: tuple[TransferProgress, ...] = ()
    """These were told of the last REFER."""
    tags: tuple[str, str] = ("", "")


class SnapshotComplete(Report, frozen=True):
    """A :class:`CallSnapshot` was sent for each call."""


class ActivePjsuaCalls(Report, frozen=True):
    """How many calls PJSUA has, whenever it changes. PJSUA keeps one longer than the leg while it still waits for an answer,
    as after a CANCEL that nobody confirms (RFC 3261 §9.1: up to 64·T1).
    """

    count: int


class MediaLateness(Report, frozen=True):
    """How late frames have been asked for in the last seconds (99th percentile), and whether new calls get 503 for that.
    Sent when it changes, once a second at most.
    """

    p99_ms: float
    refusing: bool


class InviteRefused(Report, frozen=True):
    """An INVITE got 503 from the request filter, before it became a call."""


RefusedCause = Literal["peer", "rate", "credentials", "attempts", "malformed", "too_long", "unsolicited_challenge"]
"""A request was refused before it could become a call: not an allowed peer, too many, wrong password, too many wrong
passwords, unreadable credentials, a message that exceeds PJSIP's buffer, a 401 or 407 in a call that we did not place.
"""


class RequestsRefused(Report, frozen=True):
    """How many requests were refused for each cause since the last of these, once a second at most."""

    counts: dict[RefusedCause, int]


class SettingsApplied(Report, frozen=True):
    """Settings were taken over, but for those in ``refused``: the key, and why."""

    refused: dict[str, str]


class AssertionsFailed(Report, frozen=True):
    """How many assertions of PJSIP failed since the last of these, once a second at most. The first ends the PyPI wheel."""

    count: int


class RegistrationChanged(Report, frozen=True):
    """The registrar has answered, or has not."""

    registered: bool
    sip_code: int


# --- UA → server: media ------------------------------------------------------------------------------------------------


class PlayoutReport(CallReport, frozen=True):
    """A leg's playout buffer reports something."""

    event: PlayoutEvent


class CallAudio(CallReport, frozen=True):
    """Frames of 20 ms at the leg's clock rate (the payload), in order. ``at_ns``: when the media clock handled the first.

    ``num_dropped``: frames lost before the first one, since the server did not take them in time.
    """

    direction: AudioDirection
    at_ns: int
    num_dropped: int = 0


class RecordingStarted(Report, frozen=True):
    """The file of a recording is there."""

    recording_id: str


class RecordingOver(Report, frozen=True):
    """A recording is complete, or could not be made. Not sent where the process that wrote it died."""

    info: RecordingInfo


class RecorderLost(Report, frozen=True):
    """The recorder process died; what is on the disk of its recordings is to be completed."""

    recording_ids: tuple[str, ...]


class SetFreeCalls(Message, frozen=True):
    """Server → dispatcher: how many more calls each UA process takes; ``dispatcher.DOWN`` if it is not ready."""

    free_calls: tuple[int, ...]


class AssignCalls(Message, frozen=True):
    """Server → dispatcher, when that is ready: the Call-IDs of the calls that came in to a UA process before."""

    process: int
    sip_call_ids: tuple[str, ...]


TO_UA: Final = kinds_of(Command)
FROM_UA: Final = kinds_of(Report)
