"""The messages from the UA process to the server. Instants are CLOCK_MONOTONIC, ns."""

from typing import Final, Literal

import msgspec

from cc_tts.media.playout_events import PlayoutEvent
from cc_tts.media.quality import Levels, Quality
from cc_tts.processes.channel import Message
from cc_tts.recorder.info import RecordingInfo
from cc_tts.ua.messages.commands import AudioDirection
from cc_tts.ua.sip.reason import RemoteReason


class Report(Message, frozen=True):
    """A message from the UA process to the server."""


class CallReport(Report, frozen=True):
    """A report that is about one call."""

    call_id: str


# --- signalling -----------------------------------------------------------------------------------------


LINES_WITHOUT_SIP: Final = ("asterisk_ws", "audiosocket")
"""The transports of calls from Asterisk without SIP."""


class IncomingCall(CallReport, frozen=True):
    """An INVITE outside a dialog, or a call without SIP. ``source`` is its source address without port; ``identity`` are its
    assertions about the caller, to be believed only of trusted peers.
    """

    sip_call_id: str
    caller: str
    callee: str
    request_uri: str
    source: str
    headers: dict[str, str]
    contradicting: tuple[str, ...] = ()
    """The ``X-TTS-*`` headers that come more than once, with different values."""
    transport: str = ""
    identity: dict[str, str] = msgspec.field(default_factory=dict)
    trunk: str = ""
    """The trunk whose account the call is for."""
    is_trusted: bool = False
    """Whether it came by a line without SIP, whose far side has authenticated itself."""


class CallPlaced(CallReport, frozen=True):
    """The INVITE of an outgoing call is on its way."""

    sip_call_id: str


class CallRinging(CallReport, frozen=True):
    """A provisional response above 100 went out or came in."""

    sip_call_id: str
    sip_code: int


class CallEstablished(CallReport, frozen=True):
    """The ACK was received (inbound) or sent (outbound)."""

    sip_call_id: str
    at_ns: int
    transport: str = ""
    tags: tuple[str, str] = ("", "")
    """Our tag and the far side's (RFC 3261 §12)."""


DtmfMethod = Literal["rfc4733", "sip_info"]
KeyMethod = DtmfMethod | Literal["line"]
"""``line``: a line without SIP, which reports keys itself."""


class MediaActive(CallReport, frozen=True):
    """The leg has a codec and its playout buffer is connected. Sent again when one of these changes. ``dtmf``: how keys can
    be sent, ``None`` if the far side takes neither telephone events nor INFO.
    """

    codec: str
    clock_rate_hz: int
    srtp: bool = False
    dtmf: DtmfMethod | None = "rfc4733"


HeldBy = Literal["local", "remote", "none"]


class HoldChanged(CallReport, frozen=True):
    """The media direction has changed; ``by`` is the side that holds."""

    by: HeldBy


class DtmfBegan(CallReport, frozen=True):
    """A key went down; :class:`DtmfReceived` follows with the same ``at_ns`` when it goes up. Not sent for SIP INFO."""

    at_ns: int


class DtmfReceived(CallReport, frozen=True):
    """One digit (RFC 4733 event, SIP INFO or a line without SIP), once its length is known. ``at_ns``: when the key went
    down. ``duration_ms`` 0: the sender gave none.
    """

    digit: str
    duration_ms: int
    method: KeyMethod
    at_ns: int


class QualityReport(CallReport, frozen=True):
    """Sent every second for each leg. ``levels`` are set for some seconds after :class:`MeasureLevels`."""

    quality: Quality
    levels: Levels | None = None


EndedBy = Literal["local", "bridge", "remote", "rtp_inactivity", "failure", "not_acceptable", "unreachable", "full"]
"""``bridge``: by us, since the other call of its bridge is over. ``not_acceptable``: by us, since there is no common media.
``unreachable``: the INVITE could not be sent. ``full``: it was not sent, as this process takes no more calls.
"""


class CallEnded(CallReport, frozen=True):
    """The last report of a call. ``contacts``: those of a redirection that was not followed; ``remote_reasons``: the reasons
    in the far side's BYE, CANCEL or refusal. ``at_ns`` 0: now.
    """

    sip_code: int
    ended_by: EndedBy
    quality: Quality
    contacts: tuple[str, ...] = ()
    at_ns: int = 0
    remote_reasons: tuple[RemoteReason, ...] = ()


ToldBy = Literal["answer", "notify"]


class TransferProgress(CallReport, frozen=True):
    """The REFER was answered, or a NOTIFY about it has this status; 0 if its body names none. ``is_last``: no more will
    follow.
    """

    by: ToldBy
    sip_code: int
    is_last: bool


class ReferRequested(CallReport, frozen=True):
    """A REFER to an allowed target has arrived and was accepted; :class:`TellReferrer` follows. ``headers`` are for the new
    call.
    """

    refer_id: str
    to: str
    headers: dict[str, str]
    referred_by: str = ""


class Bridged(CallReport, frozen=True):
    """The two calls hear each other. Sent for each of them."""

    bridge_id: str


UnbridgedBecause = Literal["requested", "call_ended", "failed"]


class Unbridged(CallReport, frozen=True):
    """The bridge has ended, or was never made. Sent for each of the two calls."""

    bridge_id: str
    because: UnbridgedBecause


class CommandFailed(CallReport, frozen=True):
    """PJSIP refused a command on a call; the call continues."""

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
    """The reports about the last REFER."""
    tags: tuple[str, str] = ("", "")
    bridge_id: str = ""


class SnapshotComplete(Report, frozen=True):
    """A :class:`CallSnapshot` of every call has been sent."""


class ActivePjsuaCalls(Report, frozen=True):
    """How many calls PJSUA has, whenever it changes. PJSUA keeps one longer than the leg while it still waits for an answer,
    as after a CANCEL that nobody confirms (RFC 3261 §9.1: up to 64·T1).
    """

    count: int


class MediaLateness(Report, frozen=True):
    """How late frames were requested in the last seconds (99th percentile), and whether new calls get 503 because of that.
    Sent when it changes, once a second at most.
    """

    p99_ms: float
    refusing: bool


class InviteRefused(Report, frozen=True):
    """The request filter refused an INVITE with 503, before it became a call."""


RefusedCause = Literal[
    "peer", "rate", "credentials", "attempts", "malformed", "too_long", "unsolicited_challenge", "connections"
]
"""A request was refused before it could become a call: not an allowed peer, too many, wrong password, too many wrong
passwords, unreadable credentials, a message that exceeds PJSIP's buffer, a 401 or 407 in a call that we did not place, or a
TCP connection more than the build takes.
"""


class RequestsRefused(Report, frozen=True):
    """The number of requests refused for each cause since the last report, once a second at most."""

    counts: dict[RefusedCause, int]


class AcceptingSet(Report, frozen=True):
    """:class:`SetAccepting` was read: from now on new calls are let in, or refused."""

    accepting: bool


class SettingsApplied(Report, frozen=True):
    """The settings were applied, except those in ``refused``: the key, and why."""

    refused: dict[str, str]


class AssertionsFailed(Report, frozen=True):
    """The number of PJSIP's assertions that failed since the last report, once a second at most. The first one ends the PyPI
    wheel.
    """

    count: int


class RegistrationChanged(Report, frozen=True):
    """The registrar has answered, or has failed to answer."""

    registered: bool
    sip_code: int
    trunk: str = ""
    """The trunk of the registrar; empty for that of ``[registration]``."""


class TracedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A SIP message that was received or sent, and when, ns since the Unix epoch. Addresses are host and port."""

    at_ns: int
    is_sent: bool
    transport: str
    local: tuple[str, int]
    remote: tuple[str, int]
    text: bytes


class CallTrace(CallReport, frozen=True):
    """The SIP messages of a call that are kept, without their secrets; ``is_on``: whether any are kept at all."""

    serial: int
    messages: tuple[TracedMessage, ...]
    is_on: bool


class HepCounts(Report, frozen=True):
    """The packets that went to the capture server and those that were dropped, since the last report."""

    sent: int
    dropped: int


PublishResult = Literal["accepted", "refused", "unanswered", "dropped"]


class ReportsPublished(Report, frozen=True):
    """The reports of calls sent to ``quality.collector`` since the last of these, by result; ``dropped``: too
    many waited.
    """

    counts: dict[PublishResult, int]


# --- media ------------------------------------------------------------------------------------------------


class PlayoutReport(CallReport, frozen=True):
    """A leg's playout buffer reports something."""

    event: PlayoutEvent


class CallAudio(CallReport, frozen=True):
    """Frames of 20 ms at the leg's clock rate (the payload), in order. ``at_ns``: when the media clock handled the first.
    ``num_dropped``: frames lost before the first one, since the server was too slow.
    """

    direction: AudioDirection
    at_ns: int
    num_dropped: int = 0


class RecordingStarted(Report, frozen=True):
    """The file of a recording has been created."""

    recording_id: str


class RecordingOver(Report, frozen=True):
    """A recording is complete, or could not be made. Not sent if the process that wrote it died."""

    info: RecordingInfo


class RecorderLost(Report, frozen=True):
    """The recorder process died; its recordings on the disk must be completed."""

    recording_ids: tuple[str, ...]
