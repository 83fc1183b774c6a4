"""Vapi's custom voice: a sentence at a time as PCM without a header, which Vapi plays as it comes."""

from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.http.route import RouteTable
from cc_tts.api.plugs.encoder import AudioFileFormat, Output
from cc_tts.api.plugs.response import RESPONSE_ROUTE, respond
from cc_tts.speech.prompt import TextContent

RAW: Final = AudioFileFormat("application/octet-stream")
"""PCM with the media type that Vapi documents."""

ROUTES: Final = RouteTable("Vapi")


class VoiceRequest(msgspec.Struct, frozen=True):
    """The text to say. Unknown fields have no effect."""

    text: schemas.Text
    sample_rate_hz: Annotated[Literal[8000, 16000, 22050, 24000], Meta(description="Of the response.")] = msgspec.field(
        name="sampleRate"
    )
    type: Literal["voice-request"] = "voice-request"


class VapiMessage(msgspec.Struct, frozen=True):
    """A message of Vapi's server."""

    message: VoiceRequest


@ROUTES.add(
    "POST",
    "/vapi/{voice}",
    content_types=(RAW.content_type,),
    examples={"text": {"message": {"type": "voice-request", "text": "One moment please.", "sampleRate": 24000}}},
    **RESPONSE_ROUTE,
)
async def speak_for_vapi(request: web.Request, body: VapiMessage) -> web.StreamResponse:
    """Speech of a text as a custom voice of Vapi: 16-bit mono at its sampleRate, without a header."""
    said = body.message
    style = TextContent("", request.match_info["voice"])
    content = schemas.words(said.text, UNSET, style, pointer="/message", text_field="text")
    return await respond(request, content, Output(RAW, said.sample_rate_hz), pointers=fields_of_text("/message/text"))
