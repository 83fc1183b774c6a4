"""OpenAI's speech API: ``/v1/audio/speech``, and the other routes that its client packages use.

Nothing is sent before the first chunk of audio is there, so that every refusal is an answer with ``error.message``.
"""

import base64
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.route import OPENAI, RouteTable
from cc_tts.api.plugs.alignment import AlignedAudio
from cc_tts.api.plugs.encoder import FORMATS, MEDIA_TYPES, AudioFileFormat, Output
from cc_tts.api.plugs.response import RESPONSE_ROUTE, SpeechResponse, respond
from cc_tts.api.plugs.speech_context import ClientSpeed
from cc_tts.config.sections.models import MAX_INSTRUCTION_CHARS
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.speech.prompt import SequenceContent, TextContent

DEFAULT_RATE_HZ: Final = 24_000
"""OpenAI's ``pcm`` has this rate."""
VOICES: Final = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
)
"""The voices of OpenAI's API reference. A name that ``tts.voice_aliases`` does not map gets the voice of the text's
language.
"""
EVENT_STREAM: Final = "text/event-stream"

SampleRate = Literal[8000, 16000, 22050, 24000, 44100, 48000]

ROUTES: Final = RouteTable("Speech", OPENAI)


class VoiceRef(msgspec.Struct, frozen=True):
    """A voice by its id, as newer clients send it."""

    id: schemas.VoiceId


class AudioSpeech(schemas.Body, frozen=True, forbid_unknown_fields=False):
    """Speech without a call, in OpenAI's shape, or with ``ssml`` for ``input``. Unknown fields have no effect."""

    exactly_one: ClassVar[tuple[str, ...]] = ("input", "ssml")
    input: schemas.Text | UnsetType = UNSET
    ssml: schemas.Ssml | UnsetType = UNSET
    model: Annotated[str, Meta(max_length=128, description="Has no effect.")] | None = None
    voice: schemas.VoiceId | VoiceRef | None = None
    language: schemas.Language | None = None
    response_format: Annotated[
        Literal["mp3", "opus", "aac", "flac", "wav", "pcm", "ulaw", "alaw"],
        Meta(
            description="opus: in Ogg; aac: ADTS; pcm: 16-bit little-endian mono without header; "
            "ulaw, alaw: G.711 at 8 kHz without header."
        ),
    ] = "mp3"
    sample_rate_hz: Annotated[
        SampleRate | None, Meta(description="24000 if left out. opus has no 22050 and 44100, ulaw and alaw 8000 only.")
    ] = None
    speed: Annotated[ClientSpeed | None, Meta(description="X-Speed says what is used instead.")] = None
    instructions: (
        Annotated[
            str,
            Meta(
                max_length=4096,
                description=f"How to speak, in words. A voice whose takes_instructions is true takes "
                f"{MAX_INSTRUCTION_CHARS} characters; no effect for others.",
            ),
        ]
        | None
    ) = None
    lexicons: schemas.LexiconNames = ()
    stream_format: Literal["audio", "sse"] = "audio"

    def content(self, aliases: Collection[str] = ()) -> TextContent | SequenceContent:
        """Return the text to say as a prompt. ``aliases`` are the configuration's names of voices.

        Raises:
            Unprocessable: text with NUL, or a sample rate that the format does not have.
            SsmlMalformed: an SSML document that cannot be read.
            MalformedRequest: not exactly one of input and ssml.
        """
        rates_hz = self.format.rates_hz
        schemas.refuse(
            "/sample_rate_hz",
            f"{self.response_format} is {' or '.join(map(str, sorted(rates_hz)))} Hz",
            when=bool(rates_hz) and self.sample_rate_hz not in (None, *rates_hz),
        )
        voice = self.voice.id if isinstance(self.voice, VoiceRef) else self.voice
        if voice in VOICES and voice not in aliases:
            voice = None
        style = replace(schemas.style_of(self), voice=voice, speed=self.speed_used)
        return schemas.words(self.input, self.ssml, style, text_field="input")

    @property
    def format(self) -> AudioFileFormat:
        return FORMATS[self.response_format]

    @property
    def rate_hz(self) -> int:
        return self.sample_rate_hz or next(iter(self.format.rates_hz), DEFAULT_RATE_HZ)

    @property
    def speed_used(self) -> float | None:
        """Return the speed within our limits; ``None`` for the configuration's."""
        return None if self.speed is None else min(max(self.speed, MIN_SPEED), MAX_SPEED)


class SpeechVoice(msgspec.Struct, frozen=True):
    """A voice in the shape that Open WebUI and similar clients read."""

    id: str
    name: str


class SpeechVoices(msgspec.Struct, frozen=True):
    """The values that ``voice`` may have."""

    voices: list[SpeechVoice]


@ROUTES.add(
    "POST",
    "/v1/audio/speech",
    content_types=(*MEDIA_TYPES, EVENT_STREAM),
    examples={
        "OpenAI's shape": {"model": "tts-1", "voice": "alloy", "input": "One moment please."},
        "wav": {"input": "One moment please.", "voice": "en-gb", "response_format": "wav"},
        "for a PBX": {"input": "One moment please.", "response_format": "ulaw"},
    },
    **RESPONSE_ROUTE,
)
async def create_speech(request: web.Request, body: AudioSpeech) -> web.StreamResponse:
    """Speech without a call, streamed during synthesis (Idempotency-Key has no effect)."""
    content = body.content(request.app[CONTEXT].config.tts.voice_aliases)
    pointers = fields_of_text("/input" if body.ssml is UNSET else "/ssml")
    headers = {} if body.speed_used == body.speed else {"X-Speed": str(body.speed_used)}
    kind = _Events if body.stream_format == "sse" else SpeechResponse
    output = Output(body.format, body.rate_hz)
    return await respond(request, content, output, pointers=pointers, headers=headers, kind=kind)


@ROUTES.add("GET", "/v1/audio/voices", scope="read", for_tenants=True, ignores_unknown_query=True)
async def list_speech_voices(request: web.Request) -> SpeechVoices:
    """List the values of voice: aliases, then voices."""
    context = request.app[CONTEXT]
    aliases = context.config.tts.voice_aliases
    voices = context.services.source.engine.voices()
    return SpeechVoices(
        [SpeechVoice(name, f"{name} ({voice})") for name, voice in aliases.items()]
        + [SpeechVoice(voice.id, voice.id) for voice in voices]
    )


class _Events(SpeechResponse):
    """Sends the audio in server-sent events."""

    content_type = EVENT_STREAM

    def part(self, audio: bytes, piece: AlignedAudio | None) -> bytes:  # noqa: ARG002
        return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()}) if audio else b""

    def last(self) -> bytes:
        usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        return _event({"type": "speech.audio.done", "usage": usage})


def _event(data: Mapping[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
