"""The server sends these to the UA process."""

from typing import Literal

from cc_tts.processes.channel import Message
from cc_tts.recorder.info import Ending, RecordingPlan
from cc_tts.ua.messages.settings import UaSettings


class Command(Message, frozen=True):
    """A message from the server to the UA process."""


class CallCommand(Command, frozen=True):
    """A command that is about one call."""

    call_id: str


# --- signalling ---------------------------------------------------------------------------------------


class SetAccepting(Command, frozen=True):
    """Whether INVITE and OPTIONS outside a dialog are accepted; if not they get 503 with Retry-After.
    Answered with :class:`AcceptingSet`.
    """

    accepting: bool
    retry_after_s: int


class ApplySettings(Command, frozen=True):
    """Take over those of the settings that ``config.RELOADABLE`` names. Answered with :class:`SettingsApplied`.

    ``renew_tls``: files of ``tls`` have changed, so that the listener reads them again.
    """

    settings: UaSettings
    renew_tls: bool


class SendTrace(CallCommand, frozen=True):
    """Send the messages of a call, which may be over, as :class:`CallTrace` with this serial."""

    sip_call_id: str
    serial: int


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
    silence be sent this long before. ``digits``: what the caller pressed, for the BYE; ``transfer_result``: how its transfer
    went.
    """

    sip_code: int = 0
    reason: str = ""
    retry_after_s: int = 0
    cause: str = "local_hangup"
    tail_ms: int = 0
    digits: str = ""
    transfer_result: str = ""


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


class AllowRefers(CallCommand, frozen=True):
    """Take REFERs of the far side to ``targets``, which are patterns; without this each is declined."""

    targets: tuple[str, ...]


class TellReferrer(CallCommand, frozen=True):
    """Tell the far side how its REFER goes, by NOTIFY; 100: its call is being placed. A final status ends it."""

    refer_id: str
    sip_code: int


OnHangup = Literal["end", "keep"]


class Bridge(CallCommand, frozen=True):
    """Have the far sides of two calls hear each other and get each other's keys. ``on_hangup``: what becomes of the other
    call when one of them ends.
    """

    other_call_id: str
    bridge_id: str
    on_hangup: OnHangup = "end"


class Unbridge(CallCommand, frozen=True):
    """End the bridge that the call is part of."""


class WithholdKeys(CallCommand, frozen=True):
    """Whether the keys of this call are kept from the one that it is bridged to."""

    withheld: bool


class Originate(CallCommand, frozen=True):
    """Place a call. Refusals and timeouts come back as :class:`CallEnded`."""

    to: str
    from_: str
    headers: dict[str, str]
    display_name: str = ""
    trunk: str = ""
    """The account of this trunk places it; empty: that of ``[registration]``."""


# --- media ---------------------------------------------------------------------------------------------


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


class MeasureLevels(CallCommand, frozen=True):
    """Report how loud the call is, for the next seconds."""


class StartRecording(CallCommand, frozen=True):
    """Record the call from now on, or from its first frame on; ``is_paused``: silence, until it goes on."""

    plan: RecordingPlan
    is_paused: bool = False


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
