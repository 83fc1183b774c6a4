"""CosyVoice's own HTTP server, as the client in its ``runtime/python/fastapi`` asks it.

A request is a form, by GET or POST, and the response is 16-bit PCM at 24 kHz without a header. A recording that comes with a
request becomes an enrolled voice, which is kept for the next request with the same recording.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Final, TypeVar

from aiohttp import web
from msgspec import UNSET, Meta, Struct

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.forms import MULTIPART, URLENCODED, fields_of, text_of, urlencoded_fields_of
from cc_tts.api.http.route import Handler, RouteTable, camel_case
from cc_tts.api.plugs.encoder import FORMATS, Output
from cc_tts.api.plugs.response import RESPONSE_ROUTE, respond
from cc_tts.api.plugs.speech_context import ERRORS, refuse_if_draining
from cc_tts.api.voices import OF_ENROLMENT
from cc_tts.config.sections.models import MAX_INSTRUCTION_CHARS
from cc_tts.engines.enrolment.own_voices import NewVoice, OwnVoices
from cc_tts.errors import CcTtsError, DuplicateId, UnknownVoice
from cc_tts.speech.prompt import TextContent
from cc_tts.text.language import detect_language
from cc_tts.voices.enrolment import MAX_TRANSCRIPT_CHARS
from cc_tts.voices.library import VoiceMode

RATE_HZ: Final = 24_000
"""The rate of CosyVoice2 and CosyVoice3."""
SPEAKERS: Final = {
    "中文女": "zh",
    "中文男": "zh",
    "日语男": "ja",
    "粤语女": "yue",
    "英文女": "en",
    "英文男": "en",
    "韩语女": "ko",
}
"""The speakers of CosyVoice-300M-SFT. A speaker that ``tts.voice_aliases`` does not map gets a voice of its language."""
MAX_PROMPT_VOICES: Final = 16
"""The most voices from recordings in requests. The least recently used one is deleted (unmeasured)."""
PREFIX: Final = "prompt-"
DIGEST_CHARS: Final = 16
_PROMPT_VOICE: Final = re.compile(f"{PREFIX}[0-9a-f]{{{DIGEST_CHARS}}}")
"""The form of the ids of such voices; an operator may have enrolled voices with the same prefix."""
END_OF_PROMPT: Final = "<|endofprompt|>"
"""Separates an instruction from the words in texts for CosyVoice2 and CosyVoice3."""

_FORM: Final = RESPONSE_ROUTE | {"content_types": ("audio/pcm",)}
_WITH_RECORDING: Final = _FORM | {
    "scope": "admin",
    "for_tenants": False,
    "takes_files": True,
    "errors": (*OF_ENROLMENT, *ERRORS),
}
"""The scope of requests with a recording: it becomes a voice, so only the operator may send it."""

H = TypeVar("H", bound=Handler)
Recording = Annotated[bytes, Meta(min_length=1, description="A WAV, FLAC or MP3 file of 1 to 30 s.")]
Transcript = Annotated[
    str, Meta(min_length=1, max_length=MAX_TRANSCRIPT_CHARS, description="What is said in the recording.")
]
Instruction = Annotated[str, Meta(min_length=1, max_length=MAX_INSTRUCTION_CHARS, description="How to speak.")]

ROUTES: Final = RouteTable("CosyVoice")


class SpeakerText(Struct, frozen=True):
    """The text to say, and who says it. Unknown fields have no effect."""

    tts_text: schemas.Text
    spk_id: str = ""


class ZeroShotText(Struct, frozen=True):
    """The text to say in the voice of a recording. Unknown fields have no effect."""

    tts_text: schemas.Text
    prompt_text: Transcript
    prompt_wav: Recording


class CrossLingualText(Struct, frozen=True):
    """The text to say in the voice of a recording whose words are not known. Unknown fields have no effect."""

    tts_text: schemas.Text
    prompt_wav: Recording


class InstructedText(Struct, frozen=True):
    """The text to say in the voice of a recording, and how. Unknown fields have no effect."""

    tts_text: schemas.Text
    instruct_text: Instruction
    prompt_wav: Recording


class PromptVoices:
    """The voices from recordings in requests. Runs on: the event loop."""

    def __init__(self) -> None:
        self._latest: dict[str, None] = {}
        """The ids of these voices, the most recently used last."""
        self._enrolling = asyncio.Lock()

    async def voice_of(self, own: OwnVoices, audio: bytes, mode: VoiceMode, *, language: str, words: str) -> str:
        """Return the id of the voice of a recording. ``words`` are its transcript.

        Raises:
            EnrolmentUnavailable, EnrolmentBusy, EnrolmentFailed, VoiceNotStored, Unprocessable: no voice comes of it.
        """
        voice_id = PREFIX + await asyncio.to_thread(_digest, f"{mode}\n{language}\n{words}\n".encode(), audio)
        new = NewVoice(
            voice_id=voice_id,
            language=language,
            description="the recording of a request",
            transcript=words,
            audio=audio,
            mode=mode,
        )
        if voice_id not in self._known(own):
            async with self._enrolling:
                if voice_id not in self._known(own):  # another request may have brought it meanwhile
                    await _enrol(own, new)
        self._latest.pop(voice_id, None)
        self._latest[voice_id] = None
        for oldest in self._known(own)[:-MAX_PROMPT_VOICES]:
            self._latest.pop(oldest, None)
            with suppress(CcTtsError):  # it is in the way of nobody
                await own.remove(oldest)
        return voice_id

    def _known(self, own: OwnVoices) -> list[str]:
        """Return the voices that can speak, first those that no request has used since the server started."""
        known = [each for each in own.ids if _PROMPT_VOICE.fullmatch(each)]
        return [each for each in known if each not in self._latest] + [each for each in self._latest if each in known]


PROMPT_VOICES: Final = web.AppKey("prompt_voices", PromptVoices)


def _digest(words: bytes, audio: bytes) -> str:
    """Return a digest that identifies a recording and its use. Runs on: a thread, as the recording may be long."""
    digest = hashlib.sha256(words)
    digest.update(audio)
    return digest.hexdigest()[:DIGEST_CHARS]


async def _enrol(own: OwnVoices, new: NewVoice) -> None:
    """Enrol a voice, unless it is in the folder already; another server may have put it there."""
    try:
        await own.enrol(new)
    except DuplicateId:
        await own.look_again()


def _by_get_and_post(path: str, body: type[Any], **options: Any) -> Callable[[H], H]:
    forms = {
        MULTIPART: lambda data, content_type: bodies.shaped(_values(fields_of(data, content_type), body), body),
        URLENCODED: lambda data, _content_type: bodies.shaped(_values(urlencoded_fields_of(data), body), body),
    }

    def declare(handler: H) -> H:
        ROUTES.add("GET", path, other_bodies=forms, operation_id=camel_case(handler.__name__) + "ByGet", **options)(
            handler
        )
        return ROUTES.add("POST", path, other_bodies=forms, **options)(handler)

    return declare


def _values(fields: dict[str, bytes], body: type[Any]) -> dict[str, Any]:
    """Return the values of the fields that we use. All are texts except the recording."""
    known = {name: value for name, value in fields.items() if name in body.__struct_fields__}
    return {name: value if name == "prompt_wav" else text_of(name, value) for name, value in known.items()}


@_by_get_and_post("/inference_sft", SpeakerText, **_FORM)
async def infer_with_speaker(request: web.Request, body: SpeakerText) -> web.StreamResponse:
    """Speech of a text by a speaker: a voice, or a name of tts.voice_aliases."""
    aliases = request.app[CONTEXT].config.tts.voice_aliases
    language = None if body.spk_id in aliases else SPEAKERS.get(body.spk_id)
    return await _respond(request, body.tts_text, None if language else body.spk_id or None, language)


@_by_get_and_post("/inference_zero_shot", ZeroShotText, **_WITH_RECORDING)
async def infer_zero_shot(request: web.Request, body: ZeroShotText) -> web.StreamResponse:
    """Speech of a text in the voice of a recording, whose words are in prompt_text."""
    words = body.prompt_text.rpartition(END_OF_PROMPT)[2].strip()
    schemas.refuse("/prompt_text", "the words of the recording are needed", when=not words)
    return await _respond_as(request, body.tts_text, body.prompt_wav, "zero_shot", words)


@_by_get_and_post("/inference_cross_lingual", CrossLingualText, **_WITH_RECORDING)
async def infer_cross_lingual(request: web.Request, body: CrossLingualText) -> web.StreamResponse:
    """Speech of a text in the voice of a recording in whatever language."""
    return await _respond_as(request, body.tts_text, body.prompt_wav, "cross_lingual", "")


@_by_get_and_post("/inference_instruct2", InstructedText, **_WITH_RECORDING)
async def infer_instructed(request: web.Request, body: InstructedText) -> web.StreamResponse:
    """Speech of a text in the voice of a recording, as instruct_text says."""
    instruction = body.instruct_text.partition(END_OF_PROMPT)[0].strip()
    schemas.refuse("/instruct_text", "an instruction is needed, as in 'Speak calmly.'", when=not instruction)
    schemas.refuse("/instruct_text", "text without <|", when="<|" in instruction)
    return await _respond_as(request, body.tts_text, body.prompt_wav, "cross_lingual", "", instruction)


async def _respond_as(
    request: web.Request, text: str, recording: bytes, mode: VoiceMode, words: str, instructions: str | None = None
) -> web.StreamResponse:
    """Respond with speech in the voice of a recording. The voice is enrolled only for a text that can be spoken."""
    text = text.rpartition(END_OF_PROMPT)[2]
    refuse_if_draining(request)
    with bodies.located(fields_of_text("/tts_text")):
        content = schemas.words(text, UNSET, TextContent(""), text_field="tts_text")
        request.app[CONTEXT].services.source.check_text(content)
    language = detect_language(words if mode == "zero_shot" else text)
    voices, own = request.app[PROMPT_VOICES], request.app[CONTEXT].own_voices
    voice = await voices.voice_of(own, recording, mode, language=language, words=words)
    return await _respond(request, text, voice, None, instructions)


async def _respond(
    request: web.Request, text: str, voice: str | None, language: str | None, instructions: str | None = None
) -> web.StreamResponse:
    style = TextContent("", voice, language, instructions=instructions)
    content = schemas.words(text, UNSET, style, text_field="tts_text")
    pointers = {**fields_of_text("/tts_text"), UnknownVoice: "/spk_id"}
    return await respond(request, content, Output(FORMATS["pcm"], RATE_HZ), pointers=pointers)
