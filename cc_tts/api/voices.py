"""Handlers that enrol a voice from a recording, and delete it again."""

from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta

from cc_tts.api import schemas, views
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.forms import MULTIPART, fields_of, text_of
from cc_tts.api.http.route import RouteTable
from cc_tts.config.wording import form
from cc_tts.engines.enrolment.own_voices import NewVoice
from cc_tts.errors import (
    AudioUnreadable,
    DuplicateId,
    EnrolmentBusy,
    EnrolmentFailed,
    EnrolmentUnavailable,
    Unprocessable,
    VoiceNeeded,
    VoiceNotFound,
    VoiceNotStored,
)
from cc_tts.voices.enrolment import MAX_TRANSCRIPT_CHARS, PromptUnusable
from cc_tts.voices.library import MAX_DESCRIPTION_CHARS

OF_ENROLMENT: Final = (
    EnrolmentUnavailable,
    EnrolmentBusy,
    EnrolmentFailed,
    VoiceNotStored,
    AudioUnreadable,
    PromptUnusable,
    Unprocessable,
)
"""The errors of a recording that is to become a voice."""

ROUTES: Final = RouteTable("Voices")

NewVoiceId = Annotated[
    str,
    Meta(
        pattern=form(
            r"^[a-z0-9][a-z0-9._-]{0,63}$(?!\n)",
            "an id of 1 to 64 of a-z, 0-9, dot, hyphen and underscore that begins with a letter or digit",
        )
    ),
]
LanguageTag = Annotated[
    str,
    Meta(
        pattern=form(r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,5}$(?!\n)", "a BCP 47 tag, such as en-GB or zh,"),
        description="What the voice speaks.",
    ),
]


class EnrolVoice(schemas.Body, frozen=True):
    """A recording of one person, and what is said in it, word for word."""

    file: Annotated[
        bytes, Meta(min_length=1, description="A WAV, FLAC or MP3 file of 1 to 30 s, best 3 to 8, at 16 kHz or more.")
    ]
    voice_id: NewVoiceId
    transcript: Annotated[str, Meta(min_length=1, max_length=MAX_TRANSCRIPT_CHARS)]
    language: LanguageTag
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION_CHARS)] = ""
    model: Annotated[
        str,
        Meta(max_length=32, description="The model that is to speak with it, a name of tts.models; empty: the first."),
    ] = ""


def _form(body: bytes, content_type: str) -> EnrolVoice:
    fields: dict[str, Any] = dict(fields_of(body, content_type))
    texts = {name: text_of(name, value) for name, value in fields.items() if name != "file"}
    return bodies.shaped(fields | texts, EnrolVoice)


@ROUTES.add(
    "POST",
    "/v1/voices",
    scope="admin",
    status=201,
    location="/v1/voices/",
    other_bodies={MULTIPART: _form},
    takes_files=True,
    errors=(DuplicateId, *OF_ENROLMENT),
)
async def enrol_voice(request: web.Request, body: EnrolVoice) -> views.EnrolledVoice:
    """Enrol a voice of your own: the response comes when it can speak."""
    enrolled = await request.app[CONTEXT].own_voices.enrol(
        NewVoice(
            voice_id=body.voice_id,
            language=body.language,
            description=body.description,
            transcript=body.transcript,
            audio=body.file,
            model=body.model,
        )
    )
    return views.EnrolledVoice.of(enrolled.voice, warnings=enrolled.warnings)


@ROUTES.add("DELETE", "/v1/voices/{voice}", scope="admin", errors=(VoiceNotFound, VoiceNeeded, VoiceNotStored))
async def delete_voice(request: web.Request) -> views.Voice:
    """Delete an enrolled voice; what it is saying it says to its end."""
    return views.Voice.of(await request.app[CONTEXT].own_voices.remove(request.match_info["voice"]))
