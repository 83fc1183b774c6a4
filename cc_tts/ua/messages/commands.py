"""The messages from the server to the UA process."""

from typing import Literal

from cc_tts.processes.channel import Message
from cc_tts.recorder.info import Ending, RecordingPlan
from cc_tts.ua.messages.settings import UaSettings


class Command(Message, frozen=True):
    """A message from the server to the UA process."""


class CallCommand(Command, frozen=True):
    """A command on one call, which is not carried out if the call is over."""

    call_id: str


# --- signalling ---------------------------------------------------------------------------------------


class SetAccepting(Command, frozen=True):
    """Whether INVITE and OPTIONS outside a dialog are accepted; if not they get 503 with Retry-After.
    Answered with :class:`AcceptingSet`.
    """

    accepting: bool
    retry_after_s: int


class ApplySettings(Command, frozen=True):
    """Apply the settings that ``config.RELOADABLE`` names. The answer is :class:`SettingsApplied`. ``renew_tls``: files of
    ``tls`` have changed, so the listener must read them again.
    """

    settings: UaSettings
    renew_tls: bool


class SendTrace(Command, frozen=True):
    """Send the messages of a live or ended call, as :class:`CallTrace` with this serial."""

    call_id: str
    sip_call_id: str
    serial: int


class KeepRecord(CallCommand, frozen=True):
    """Keep this record for the server that adopts the call. The UA process does not read it."""

    record: bytes


class EndNoted(CallCommand, frozen=True):
    """The end of the call is accounted for: no other server needs to be told."""


class Ring(CallCommand, frozen=True):
    """Send 180, or 183 with SDP so that media can flow before the answer; prompts are then heard at once, after
    ``lead_in_ms`` of silence.
    """

    early_media: bool = False
    lead_in_ms: int = 0


class Answer(CallCommand, frozen=True):
    """Send 200. The leg plays nothing before the ACK, and ``lead_in_ms`` of silence after it."""

    lead_in_ms: int = 0


class Hangup(CallCommand, frozen=True):
    """End the call: BYE with ``cause``, CANCEL, or a final refusal with ``sip_code`` if it is not answered. ``tail_ms``:
    silence that is sent first. ``digits``: the caller's keys, for the BYE; ``transfer_result``: the outcome of a transfer.
    """

    sip_code: int = 0
    reason: str = ""
    retry_after_s: int = 0
    cause: str = "local_hangup"
    tail_ms: int = 0
    digits: str = ""
    transfer_result: str = ""


class SetHold(CallCommand, frozen=True):
    """Send a re-INVITE to hold (sendonly) or to resume."""

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
    """Accept REFERs of the far side to ``targets``, which are patterns; without this each is declined."""

    targets: tuple[str, ...]


class TellReferrer(CallCommand, frozen=True):
    """Report the progress of the far side's REFER by NOTIFY; 100: its call is being placed. A final status ends it."""

    refer_id: str
    sip_code: int


OnHangup = Literal["end", "keep"]


class Bridge(Command, frozen=True):
    """Let the far sides of two calls hear each other and get each other's keys. ``on_hangup``: what happens to the other
    call when one of them ends.
    """

    call_id: str
    other_call_id: str
    bridge_id: str
    on_hangup: OnHangup = "end"


class Unbridge(Command, frozen=True):
    """End the bridge that the call is part of."""

    call_id: str


class WithholdKeys(CallCommand, frozen=True):
    """Whether the keys of this call are withheld from the other call of its bridge."""

    withheld: bool


class Originate(Command, frozen=True):
    """Place a call. Refusals and timeouts come back as :class:`CallEnded`."""

    call_id: str
    to: str
    from_: str
    headers: dict[str, str]
    display_name: str = ""
    trunk: str = ""
    """The trunk whose account places it; empty for that of ``[registration]``."""


# --- media ---------------------------------------------------------------------------------------------


class BeginUtterance(CallCommand, frozen=True):
    """Queue an utterance. It starts at its threshold or when it is finished, and not before the call can be heard: the ACK,
    or early media that we offer, opens the leg's buffer.
    """

    utterance_id: str
    start_threshold_ms: int


class Audio(CallCommand, frozen=True):
    """PCM of an utterance at the leg's clock rate (the payload)."""

    utterance_id: str


class ExpectUnderrun(CallCommand, frozen=True):
    """No audio follows until more of the text comes: if the buffer runs dry, that is no underrun."""

    utterance_id: str


class FinishUtterance(CallCommand, frozen=True):
    """No more audio will come for the utterance."""

    utterance_id: str


class CutUtterance(CallCommand, frozen=True):
    """Silence an utterance within one frame. ``utterance_id`` ``None``: everything on the leg."""

    utterance_id: str | None = None


class SetPaused(CallCommand, frozen=True):
    """Stop the prompt's clock, for a client or for the caller's speech. ``from_ms``: the place in the audio of the prompt
    ``utterance_id`` at which it resumes, if that was played a moment ago.
    """

    paused: bool
    by: Literal["request", "speech"] = "request"
    utterance_id: str = ""
    from_ms: float = 0.0


AudioDirection = Literal["in", "out"]
"""``in``: from the caller; ``out``: what we send."""


class SetListening(CallCommand, frozen=True):
    """Send :class:`CallAudio` of these directions from now on, and of no others."""

    directions: tuple[AudioDirection, ...]


class MeasureLevels(CallCommand, frozen=True):
    """Report how loud the call is, for the next seconds."""


class StartRecording(CallCommand, frozen=True):
    """Record the call from now on, or from its first frame on; ``is_paused``: record silence until it is resumed."""

    plan: RecordingPlan
    is_paused: bool = False


class SetRecordingPaused(CallCommand, frozen=True):
    """Pause the recording, or resume it after ``delay_ms``. ``skips``: the pause is left out of the file, else it is
    silence.
    """

    paused: bool
    skips: bool = False
    delay_ms: int = 0


class StopRecording(CallCommand, frozen=True):
    """Complete the recording of the call."""

    reason: Ending
