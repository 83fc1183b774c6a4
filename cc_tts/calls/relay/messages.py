"""The messages of ConversationRelay, one struct a type, with the names that Twilio and Telnyx use. Unknown fields of an
application are ignored, since it may be written for another version.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from cc_tts.config.sections.relay import Interruptible
from cc_tts.egress.hosts import MAX_URL_CHARS

MAX_HANDOFF_CHARS: Final = 16_384  # unmeasured
Tag = Annotated[str, Meta(max_length=35)]


class ToApplication(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", rename="camel"):
    """Base of the messages to the application."""


class Setup(ToApplication, frozen=True, kw_only=True, tag="setup"):
    """The parties of the call; the first message of each connection. ``transcription_provider`` is ours: nothing here
    recognises speech, so no ``prompt`` follows.
    """

    session_id: str
    account_sid: str
    parent_call_sid: str = ""
    call_sid: str
    from_: str = msgspec.field(name="from")
    to: str
    forwarded_from: str = ""
    call_type: Literal["SIP"] = "SIP"
    caller_name: str = ""
    direction: Literal["inbound", "outbound"]
    call_status: Literal["RINGING", "IN-PROGRESS"]
    custom_parameters: Mapping[str, str]
    transcription_provider: Literal["none"] = "none"


class Dtmf(ToApplication, frozen=True, kw_only=True, tag="dtmf"):
    """The caller has pressed a key."""

    digit: str


class Interrupt(ToApplication, frozen=True, kw_only=True, tag="interrupt"):
    """The caller has interrupted the prompt, and has heard this part of it."""

    utterance_until_interrupt: str
    duration_until_interrupt_ms: int


class Error(ToApplication, frozen=True, kw_only=True, tag="error"):
    """A message could not be followed, or what it asked for could not be said."""

    description: str


class FromApplication(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", rename="camel"):
    """Base of the messages from the application."""


class Heard(FromApplication, frozen=True, kw_only=True):
    """Base of the messages that the caller hears and may interrupt. ``preemptible``: the application's next message cuts it
    off.
    """

    interruptible: bool | Interruptible | None = None
    preemptible: bool = False

    def interrupted_by(self, of_relay: Interruptible) -> Interruptible:
        """Return what interrupts it: keys or speech. Without a value of its own the relay decides."""
        if isinstance(self.interruptible, str):
            return self.interruptible
        if self.interruptible is None:
            return of_relay
        return "none" if not self.interruptible else "any" if of_relay == "none" else of_relay


class Text(Heard, frozen=True, kw_only=True, tag="text"):
    """Words to append to the answer; ``last`` ends it. The language and the interruption settings of its first token hold
    for the whole answer.
    """

    token: str
    last: bool = False
    lang: Tag | None = None


class Play(Heard, frozen=True, kw_only=True, tag="play"):
    """An audio file to play; ``loop`` 0 repeats it without end."""

    source: Annotated[str, Meta(min_length=1, max_length=MAX_URL_CHARS)]
    loop: Annotated[int, Meta(ge=0, le=1000)] = 1


class SendDigits(FromApplication, frozen=True, kw_only=True, tag="sendDigits"):
    """Keys to send to the far side; ``w`` is a pause of half a second."""

    digits: Annotated[str, Meta(pattern=r"^[0-9A-D*#wW]{1,64}$(?!\n)")]


class Language(FromApplication, frozen=True, kw_only=True, tag="language"):
    """The language of later answers."""

    tts_language: Tag | None = None
    transcription_language: Tag | None = None


class End(FromApplication, frozen=True, kw_only=True, tag="end"):
    """The application has finished with the call."""

    handoff_data: Annotated[str, Meta(max_length=MAX_HANDOFF_CHARS)] = ""


Message = Text | Play | SendDigits | Language | End
"""The messages that an application sends."""
