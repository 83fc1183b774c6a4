r"""Request bodies: the types that validate them and from which the OpenAPI document is generated.

Patterns end in ``$(?!\n)``: in Python a bare ``$`` would let a trailing line feed through.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cc_tts.api import sip_fields
from cc_tts.calls.dtmf import gather as dtmf
from cc_tts.calls.dtmf.gather import DEFAULT_TIMEOUT_MS, MAX_DIGITS, MAX_TIMEOUT_MS, MAX_TRIES, GatherRequest
from cc_tts.config.schema import SpeechBargeIn
from cc_tts.config.sections.models import MAX_INSTRUCTION_CHARS
from cc_tts.config.sip_uri import MAX_URI_CHARS
from cc_tts.config.wording import form
from cc_tts.egress.hosts import MAX_URL_CHARS, usable_url
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import FieldError, MalformedRequest, Unprocessable
from cc_tts.media.tones import MAX_TONE_MS
from cc_tts.speech.prompt import (
    FOREVER,
    Content,
    Prompt,
    PromptDefaults,
    Queueing,
    SequenceContent,
    SilenceContent,
    StagedContent,
    TextContent,
    Then,
    ToneContent,
    UrlContent,
)
from cc_tts.speech.ssml import MAX_BYTES, MAX_ELEMENTS, from_ssml

MAX_METADATA: Final = 16  # unmeasured
"""The most names in the metadata of a call."""

Id = Annotated[
    str,
    Meta(
        pattern=form(
            r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$(?!\n)",
            "an id of 1 to 128 letters, digits and . _ : ~ - that begins with a letter or digit",
        ),
        description="Chosen by the client: 1 to 128 letters, digits and . _ : ~ -; must not be taken.",
    ),
]
PromptId = Annotated[
    str,
    Meta(
        pattern=form(
            r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$(?!\n)",
            "an id of 1 to 64 letters, digits and _ - that begins with a letter or digit",
        ),
        description="An id of GET /v1/prompts.",
    ),
]
VoiceId = Annotated[str, Meta(min_length=1, max_length=128, description="An id of GET /v1/voices.")]
Language = Annotated[
    str,
    Meta(
        max_length=35,
        pattern=form(r"^[A-Za-z]{1,8}([-_][A-Za-z0-9]{1,8})*$(?!\n)", "a BCP 47 tag, such as en-GB or zh,"),
        description="A BCP 47 tag, as in en-GB or cmn.",
    ),
]
Speed = Annotated[float, Meta(ge=MIN_SPEED, le=MAX_SPEED, description="Factor on the voice's natural rate.")]
Instructions = Annotated[
    str,
    Meta(
        max_length=MAX_INSTRUCTION_CHARS,
        pattern=form(r"^(?![^\x00]*<\|)[^\x00]*$(?!\n)", "text without NUL and without <|"),
        description='How to speak, in words, as in "speak calmly": never said. For the voices of GET /v1/voices whose '
        "takes_instructions is true; others ignore it.",
    ),
]
Uri = Annotated[str, Meta(min_length=1, max_length=MAX_URI_CHARS, description="A sip: or sips: URI.")]
Target = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_URI_CHARS,
        description="A sip: or sips: URI, or a number that a trunk has a prefix of.",
    ),
]
TrunkName = Annotated[
    str, Meta(min_length=1, max_length=64, description="A trunk of [trunks]. Left out: a number's prefix chooses it.")
]
Text = Annotated[str, Meta(description="Text to speak; at most tts.max_text_chars characters, no NUL.")]
Ssml = Annotated[
    str,
    Meta(
        description=f"An SSML 1.1 document with the root speak, at most {MAX_BYTES} bytes and {MAX_ELEMENTS} elements, "
        "without document type: break, p, s, sub, say-as, phoneme, prosody rate and volume, emphasis, cc:sound, voice, "
        "lang, mark."
    ),
]
LexiconNames = Annotated[
    tuple[Annotated[str, Meta(max_length=64)], ...],
    Meta(max_length=10, description="Asked in this order, before those of the voice and of the config."),
]
DtmfKeys = Annotated[str, Meta(pattern=form(r"^[0-9A-D*#]{1,16}$(?!\n)", "1 to 16 of the keys 0-9, A-D, * and #"))]
FinishKeys = Annotated[str, Meta(pattern=form(r"^[0-9A-D*#]{0,16}$(?!\n)", "at most 16 of the keys 0-9, A-D, * and #"))]
GatherMs = Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)]
ToneMs = Annotated[int, Meta(ge=1, le=MAX_TONE_MS)]
ToneDuration = Annotated[
    ToneMs, Meta(description="Of a tone; left out: it is played once through, a part without a length for 1000 ms.")
]
Tone = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1000,
        description="A name (beep, dial, busy, ringback, congestion, sit), dtmf:DIGITS, or a cadence "
        "as in 440+480/2000,0/4000.",
    ),
]
ReaderName = Annotated[
    str, Meta(pattern=form(r"^[A-Za-z0-9._-]{1,64}$(?!\n)", "a name of 1 to 64 letters, digits and . _ -"))
]
Headers = Annotated[
    dict[str, str],
    Meta(
        description=f"X-* and User-to-User for the INVITE: printable ASCII, at most {sip_fields.MAX_HEADERS} "
        f"headers and {sip_fields.MAX_HEADERS_CHARS} characters in all."
    ),
]
RingTimeout = Annotated[
    float, Meta(ge=1, le=3600, description="How long it may ring; config: calls.originate_timeout_s.")
]
DisplayName = Annotated[str, Meta(min_length=1, max_length=128, description="The caller's name in From; printable.")]
Identity = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_URI_CHARS,
        description="P-Asserted-Identity (RFC 3325): a sip:, sips: or tel: URI. Only for calls to an address in "
        "sip.trusted_peers or to the host of registration.registrar.",
    ),
]
Reason = Annotated[
    str,
    Meta(
        max_length=sip_fields.MAX_REASON_CHARS,
        pattern=form(r"^[\x20-\x7e]*$(?!\n)", "printable ASCII"),
        description="Printable ASCII.",
    ),
]
ClientState = Annotated[
    str,
    Meta(max_length=1024, description="The client's own; returned in every event and view of what this asks for."),
]
MetadataName = Annotated[
    str, Meta(pattern=form(r"^[A-Za-z0-9_.-]{1,64}$(?!\n)", "a name of 1 to 64 letters, digits and _ . -"))
]
MetadataValue = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[
    dict[MetadataName, MetadataValue],
    Meta(max_length=MAX_METADATA, description="The client's own; in the call and in each of its call.* events."),
]
AudioUrl = Annotated[
    str,
    Meta(min_length=1, max_length=MAX_URL_CHARS, description="An audio file at a host of prompts.allowed_hosts."),
]


class Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all bodies: unknown fields are refused. ``exactly_one``: fields of which one is needed and no other taken."""

    may_be_left_out: ClassVar = False
    exactly_one: ClassVar[tuple[str, ...]] = ()


class OptionalBody(Body, frozen=True):
    """Base of the bodies that may be left out."""

    may_be_left_out: ClassVar = True


class Empty(OptionalBody, frozen=True):
    """No fields; the body may be left out."""


class Command(OptionalBody, frozen=True):
    """A command on a call; the body may be left out. ``client_state`` becomes that of the call."""

    client_state: ClientState | None = None


class BargeIn(Body, frozen=True):
    """These interrupt a prompt. Left out or null: as the call says, else calls.barge_in_dtmf and calls.barge_in_speech of
    the config.
    """

    dtmf: bool | None = None
    speech: Annotated[
        bool | SpeechBargeIn | None,
        Meta(description="true: with the defaults of SpeechBargeIn; what an object leaves out is as there, too."),
    ] = None


STYLE: Final = ("voice", "language", "speed", "instructions", "lexicons")
"""The fields that say how words are spoken."""


class Words(Body, frozen=True):
    """Words to speak, one of ``text`` and ``ssml``, and how."""

    exactly_one: ClassVar[tuple[str, ...]] = ("text", "ssml")
    text: Text | UnsetType = UNSET
    ssml: Ssml | UnsetType = UNSET
    voice: VoiceId | None = None
    language: Language | None = None
    speed: Speed | None = None
    instructions: Instructions | None = None
    lexicons: LexiconNames = ()

    def content(self) -> TextContent | SequenceContent:
        """Return the words as a prompt; raises as :func:`words`."""
        style = style_of(self)
        return words(self.text, self.ssml, style, text_field="text")


class PromptFields(Body, frozen=True):
    """How a prompt is queued and what ends it."""

    queue: Annotated[Queueing, Meta(description="replace cancels the current prompt and the queued ones.")] = "append"
    utterance_id: Id | None = None
    barge_in: BargeIn = BargeIn()
    then: Then = "stay"
    client_state: ClientState | None = None

    def to_prompt(self, content: Content, *faults: FieldError) -> Prompt:
        """Return the prompt for ``content``; raises ``Unprocessable`` for ``faults``."""
        if faults:
            raise Unprocessable.about(*faults)
        return Prompt(
            content=content,
            queue=self.queue,
            utterance_id=self.utterance_id,
            barge_in_dtmf=self.barge_in.dtmf,
            barge_in_speech=self.barge_in.speech,
            then=self.then,
            client_state=self.client_state,
        )


class StyledPrompt(PromptFields, frozen=True):
    """How the words of a prompt are spoken, besides how it is queued."""

    voice: VoiceId | None = None
    language: Language | None = None
    speed: Speed | None = None
    instructions: Instructions | None = None
    lexicons: LexiconNames = ()


class Speak(StyledPrompt, frozen=True):
    """Words to speak on a call: one of ``text``, ``ssml`` and ``prompt_id``. A staged prompt is spoken as it was staged."""

    exactly_one: ClassVar[tuple[str, ...]] = ("text", "ssml", "prompt_id")
    text: Text | UnsetType = UNSET
    ssml: Ssml | UnsetType = UNSET
    prompt_id: PromptId | UnsetType = UNSET
    cache: Literal["auto", "no"] = "auto"

    def prompt(self, *, pointer: str = "", voice: str | None = None) -> Prompt:
        """Return the prompt. ``pointer`` is the place of this body in the request; ``voice`` is used if the body names none.

        Raises:
            Unprocessable: text with NUL, or a staged prompt with options of its own.
            SsmlMalformed: an SSML document that cannot be read.
            MalformedRequest: not exactly one of text, ssml and prompt_id.
        """
        if self.prompt_id is not UNSET:
            return self.to_prompt(self._staged(self.prompt_id, pointer))
        style = dataclasses.replace(style_of(self), voice=self.voice or voice, may_cache=self.cache != "no")
        return self.to_prompt(words(self.text, self.ssml, style, pointer=pointer, text_field="text"))

    def _staged(self, prompt_id: str, pointer: str) -> StagedContent:
        if self.text is not UNSET or self.ssml is not UNSET:
            raise MalformedRequest.about(FieldError(pointer, "exactly one of text, ssml and prompt_id is needed"))
        for name in STYLE:
            refuse(f"{pointer}/{name}", "is that of the staged prompt", when=bool(getattr(self, name)))
        return StagedContent(prompt_id)


class Play(PromptFields, frozen=True):
    """A staged prompt, an audio file, a tone or silence: one of ``prompt_id``, ``url``, ``tone`` and ``silence_ms``."""

    exactly_one: ClassVar[tuple[str, ...]] = ("prompt_id", "url", "tone", "silence_ms")
    prompt_id: PromptId | UnsetType = UNSET
    url: AudioUrl | UnsetType = UNSET
    tone: Tone | UnsetType = UNSET
    silence_ms: ToneMs | UnsetType = UNSET
    duration_ms: ToneDuration | None = None
    loop: Annotated[bool, Meta(description="Again and again, until it is stopped or max_duration_ms is over.")] = False
    max_duration_ms: (
        Annotated[int, Meta(ge=1, le=86_400_000, description="It ends after this time at the latest.")] | None
    ) = None
    volume_db: Annotated[
        float, Meta(ge=-60, le=20, description="Louder or, below 0, softer; for a prompt_id or url.")
    ] = 0.0

    def prompt(self, *, pointer: str = "") -> Prompt:
        """Return the prompt. ``pointer`` is the place of this body in the request.

        Raises:
            Unprocessable: what is no URL, or an option that does not go with what is played.
            MalformedRequest: not exactly one thing to play.
        """
        given = [name for name in self.exactly_one if getattr(self, name) is not UNSET]
        if len(given) != 1:
            raise MalformedRequest.about(FieldError(pointer, f"exactly one of {', '.join(self.exactly_one)} is needed"))
        faults = []
        if self.duration_ms is not None and self.tone is UNSET:
            faults.append(FieldError(f"{pointer}/duration_ms", "goes with tone; silence has silence_ms"))
        if self.volume_db and self.prompt_id is UNSET and self.url is UNSET:
            faults.append(FieldError(f"{pointer}/volume_db", "goes with prompt_id and url"))
        if self.url is not UNSET and usable_url(self.url, "http", "https") is None:
            faults.append(FieldError(f"{pointer}/url", "an http or https URL without user, password and fragment"))
        prompt = self.to_prompt(self._content(), *faults)
        repeat = FOREVER if self.loop else 1
        return dataclasses.replace(prompt, repeat=repeat, max_duration_ms=self.max_duration_ms)

    def _content(self) -> Content:
        if self.prompt_id is not UNSET:
            return StagedContent(self.prompt_id, self.volume_db)
        if self.url is not UNSET:
            return UrlContent(self.url, self.volume_db)
        if self.silence_ms is not UNSET:
            return SilenceContent(self.silence_ms)
        return ToneContent(str(self.tone), self.duration_ms)


class CallUpdate(Body, frozen=True):
    """Changes of a call, as a merge patch (RFC 7396): what is left out stays, null takes it back. Prompts that
    are accepted from now on fall back to ``voice``, ``language``, ``speed``, ``instructions``, ``lexicons`` and
    ``barge_in``.
    """

    voice: VoiceId | UnsetType | None = UNSET
    language: Language | UnsetType | None = UNSET
    speed: Speed | UnsetType | None = UNSET
    instructions: Instructions | UnsetType | None = UNSET
    lexicons: LexiconNames | UnsetType | None = UNSET
    barge_in: BargeIn | UnsetType | None = UNSET
    metadata: (
        Annotated[
            dict[MetadataName, MetadataValue | None] | None,
            Meta(description=f"null takes a name away; at most {MAX_METADATA} names in all."),
        ]
        | UnsetType
    ) = UNSET
    client_state: ClientState | UnsetType | None = UNSET

    def merged_defaults(self, defaults: PromptDefaults) -> PromptDefaults:
        names = ("voice", "language", "speed", "instructions")
        changed: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not UNSET}
        if self.lexicons is not UNSET:
            changed["lexicons"] = self.lexicons or ()
        if self.barge_in is not UNSET:
            barge_in = self.barge_in or BargeIn()
            changed |= {"barge_in_dtmf": barge_in.dtmf, "barge_in_speech": barge_in.speech}
        return dataclasses.replace(defaults, **changed)

    def merged_metadata(self, metadata: Mapping[str, str]) -> Mapping[str, str]:
        """Return the metadata with these changes.

        Raises:
            Unprocessable: too much.
        """
        if self.metadata is UNSET:
            return metadata
        changed = {} if self.metadata is None else {**metadata, **self.metadata}
        merged = {name: value for name, value in changed.items() if value is not None}
        refuse("/metadata", f"at most {MAX_METADATA} names in all", when=len(merged) > MAX_METADATA)
        return merged


class GatherPrompt(Speak, frozen=True):
    """The prompt before keys are collected: as for …/speak, or a file, a tone or silence as for …/play."""

    exactly_one: ClassVar[tuple[str, ...]] = ("text", "ssml", "prompt_id", "url", "tone", "silence_ms")
    url: AudioUrl | UnsetType = UNSET
    tone: Tone | UnsetType = UNSET
    silence_ms: ToneMs | UnsetType = UNSET
    duration_ms: ToneDuration | None = None

    def to_gather(self, pointer: str, barge_in: BargeIn) -> Prompt:
        """Return the prompt. ``barge_in`` is the gather's, unless the prompt has its own.

        Raises:
            Unprocessable, SsmlMalformed, MalformedRequest: as :meth:`Speak.prompt` and :meth:`Play.prompt`.
        """
        refuse(f"{pointer}/then", "a prompt of a gather does not end the call", when=self.then != "stay")
        if self.url is UNSET and self.tone is UNSET and self.silence_ms is UNSET:
            prompt = self.prompt(pointer=pointer)
        else:
            if self.text is not UNSET or self.ssml is not UNSET:
                raise MalformedRequest.about(FieldError(pointer, "either words, or a file, a tone or silence"))
            played = {name: getattr(self, name) for name in Play.__struct_fields__ if name in self.__struct_fields__}
            prompt = Play(**played).prompt(pointer=pointer)
        dtmf = barge_in.dtmf if self.barge_in.dtmf is None else self.barge_in.dtmf
        speech = barge_in.speech if self.barge_in.speech is None else self.barge_in.speech
        return dataclasses.replace(prompt, barge_in_dtmf=dtmf, barge_in_speech=speech)


class DigitsTo(Body, frozen=True):
    """Who gets the digits of a sensitive gather besides tokens with the scope ``digits``."""

    exactly_one: ClassVar[tuple[str, ...]] = ("connection", "webhook")
    connection: Annotated[
        ReaderName | UnsetType,
        Meta(description="A reader of /v1/events?connection=NAME with the token of this request."),
    ] = UNSET
    webhook: Annotated[
        ReaderName | UnsetType, Meta(description="One of [[webhooks]]; `call`: that of the call itself.")
    ] = UNSET

    def destination(self) -> dtmf.DigitsTo:
        """Return the destination for the calls layer, with the connection by the client's name; raises
        ``MalformedRequest``.
        """
        if (self.connection is UNSET) == (self.webhook is UNSET):
            raise MalformedRequest.about(FieldError("/digits_to", "exactly one of connection and webhook is needed"))
        return dtmf.DigitsTo(connection=self.connection or "", webhook=self.webhook or "")


class Gather(OptionalBody, frozen=True):
    """Keys to collect from the caller. A timeout that is null never ends it."""

    gather_id: Id | None = None
    min_digits: Annotated[int, Meta(ge=0, le=MAX_DIGITS)] = 1
    max_digits: Annotated[int, Meta(ge=1, le=MAX_DIGITS)] = MAX_DIGITS
    finish_on_key: Annotated[FinishKeys, Meta(description="Keys that end it and are no part of the digits.")] = "#"
    valid_digits: Annotated[DtmfKeys, Meta(description="With any other key the digits are not valid.")] = "0123456789*#"
    initial_timeout_ms: Annotated[GatherMs | None, Meta(description="Up to the first key.")] = DEFAULT_TIMEOUT_MS
    inter_digit_timeout_ms: Annotated[GatherMs | None, Meta(description="Up to each later key.")] = DEFAULT_TIMEOUT_MS
    timeout_ms: Annotated[GatherMs | None, Meta(description="For the whole, from the end of the prompt on.")] = None
    prompt: GatherPrompt | None = None
    invalid_prompt: Annotated[
        GatherPrompt | None, Meta(description="Said before another try; left out: prompt again.")
    ] = None
    max_tries: Annotated[int, Meta(ge=1, le=MAX_TRIES)] = 1
    flush_buffer: Annotated[bool, Meta(description="Drop the keys that were pressed before.")] = False
    barge_in: BargeIn = BargeIn()
    sensitive: Annotated[
        bool, Meta(description="call.dtmf says x for each key; only `digits_to` and the scope `digits` get the digits.")
    ] = False
    digits_to: DigitsTo | UnsetType = UNSET
    client_state: ClientState | None = None

    def request(self) -> GatherRequest:
        """Return the request for the calls layer.

        Raises:
            Unprocessable, SsmlMalformed, MalformedRequest: a prompt cannot be used, or the bounds exclude each other.
        """
        refuse("/min_digits", "more than max_digits", when=self.min_digits > self.max_digits)
        is_told = self.digits_to is not UNSET
        refuse(
            "/digits_to",
            "goes with sensitive; otherwise every reader gets the digits",
            when=is_told and not self.sensitive,
        )
        other = ("barge_in", "prompt", "digits_to")
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in other}
        prompts = {
            name: None if body is None else body.to_gather(f"/{name}", self.barge_in)
            for name, body in (("prompt", self.prompt), ("invalid_prompt", self.invalid_prompt))
        }
        digits_to = dtmf.DigitsTo() if self.digits_to is UNSET else self.digits_to.destination()
        return GatherRequest(**(fields | prompts), digits_to=digits_to)


class Ring(Command, frozen=True):
    """Send 180; with ``early_media`` 183 and media."""

    early_media: bool = False


class Hangup(Command, frozen=True):
    """How to end a call. ``sip_code`` and ``reason`` refuse an unanswered call; else they go into the Reason header."""

    sip_code: Annotated[int, Meta(ge=300, le=699)] | None = None
    reason: Reason | None = None


class Dtmf(Body, frozen=True):
    """Digits to send as RFC 4733 telephone events, or by SIP INFO."""

    digits: Annotated[str, Meta(pattern=form(r"^[0-9A-D*#]{1,32}$(?!\n)", "1 to 32 of the keys 0-9, A-D, * and #"))]
    duration_ms: Annotated[int, Meta(ge=40, le=2000, description="Of each digit.")] = 160
    client_state: ClientState | None = None


class Stop(OptionalBody, frozen=True):
    """The prompts to stop."""

    scope: Literal["current", "all"] = "current"


def style_of(body: Body) -> TextContent:
    """Return the style of a body's words, as a prompt without text."""
    return TextContent("", **{name: getattr(body, name) for name in STYLE})


def words(
    text: str | UnsetType,
    ssml: str | UnsetType,
    style: TextContent,
    *,
    text_field: str,
    ssml_field: str = "ssml",
    pointer: str = "",
) -> TextContent | SequenceContent:
    """Return words to speak in this ``style``, from ``text_field`` or ``ssml_field`` below ``pointer``.

    Raises:
        Unprocessable: text with NUL.
        SsmlMalformed: an SSML document that cannot be read.
        MalformedRequest: not exactly one of the two.
    """
    if isinstance(text, str) and ssml is UNSET:
        check_text(text, f"{pointer}/{text_field}")
        return dataclasses.replace(style, text=text)
    if isinstance(ssml, str) and text is UNSET:
        return from_ssml(ssml, style, pointer=f"{pointer}/{ssml_field}")
    where = f"{pointer}/{text_field}" if text is ssml else pointer
    raise MalformedRequest.about(FieldError(where, f"exactly one of {text_field} and {ssml_field} is needed"))


def check_text(text: str, pointer: str) -> None:
    """Refuse characters that no engine may get, before the calls layer checks the text; raises ``Unprocessable``."""
    refuse(pointer, "NUL (U+0000) cannot be spoken", when="\0" in text)


def refuse(pointer: str, detail: str, *, when: bool) -> None:
    if when:
        raise Unprocessable.about(FieldError(pointer, detail))
