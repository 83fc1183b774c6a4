"""Handlers for staged prompts: texts that are synthesised in advance, and recorded announcements."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta

from cc_tts.api import schemas, views
from cc_tts.api.calls import OF_TEXT, fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import current_tenant
from cc_tts.api.http.forms import MULTIPART, fields_of, text_of
from cc_tts.api.http.route import WAS_THERE, Query, RouteTable
from cc_tts.errors import (
    AudioUnreadable,
    EngineOverloaded,
    FieldError,
    MalformedRequest,
    PromptNotFound,
    PromptNotStored,
    PromptsFull,
    Unprocessable,
)
from cc_tts.media import synthetic_label
from cc_tts.speech.staged.prompts import StagedPrompt, StagedPrompts, StagedText

AUDIO_TYPES: Final = (
    "audio/wav",
    "audio/x-wav",
    "audio/wave",
    "audio/vnd.wave",
    "audio/mpeg",
    "audio/mp3",
    "audio/flac",
    "audio/x-flac",
    "audio/ogg",
    "application/ogg",
    "application/octet-stream",
)
"""The media types that clients use for audio files. libsndfile decides by the content."""
WAIT_SHARE: Final = 0.8
"""A request waits for the audio for this share of ``http.request_timeout_s`` (unmeasured); the audio is made in any case."""
_WAIT: Final = Query("wait", "false: answer before the audio is made.", ("true", "false"))
_RANDOM_BYTES: Final = 8
_FILE_FIELDS: Final = ("file", "audio")
_BESIDE_A_FILE: Final = ("prompt_id", "ttl_s")

ROUTES: Final = RouteTable("Prompts")

TimeToLive = Annotated[
    float, Meta(gt=0, le=31_536_000, description="It is forgotten after this many seconds; left out: never.")
]


class StagePrompt(schemas.Words, frozen=True):
    """A prompt to stage. The audio is made at once, and kept."""

    prompt_id: (
        Annotated[
            schemas.PromptId,
            Meta(description="One is made if it is left out, unless the same words are staged already."),
        ]
        | None
    ) = None
    ttl_s: TimeToLive | None = None
    pin: Annotated[bool, Meta(description="Its audio never makes room for that of others.")] = False

    def words(self) -> StagedText:
        """Return the words; raises as :meth:`Speak.prompt`."""
        self.content()
        style = {name: getattr(self, name) for name in schemas.STYLE}
        return StagedText(text=self.text or "", ssml=self.ssml or "", **style)


class StageAudio(StagePrompt, frozen=True):
    """A recorded announcement: the bytes of its file, and the fields of a form beside it."""

    audio: bytes = b""


def _file(body: bytes, _content_type: str) -> StageAudio:
    return StageAudio(audio=body)


def _form(body: bytes, content_type: str) -> StageAudio:
    """Return a form with a file in the field ``file``, and ``prompt_id`` and ``ttl_s``."""
    fields = fields_of(body, content_type)
    audio = next((fields.pop(name) for name in _FILE_FIELDS if name in fields), None)
    if audio is None:
        raise MalformedRequest("the form has no field called file")
    other = sorted(fields.keys() - set(_BESIDE_A_FILE))
    if other:
        detail = f"a file has {' and '.join(_BESIDE_A_FILE)} beside it"
        raise MalformedRequest.about(*(FieldError(bodies.pointer_to(name), detail) for name in other))
    values: dict[str, Any] = {name: text_of(name, value) for name, value in fields.items()}
    if "ttl_s" in values:
        try:
            values["ttl_s"] = float(values["ttl_s"])
        except ValueError:
            raise Unprocessable.about(FieldError("/ttl_s", "a number of seconds")) from None
    return bodies.shaped({**values, "audio": audio}, StageAudio)


_OTHER_BODIES: Final[dict[str, Callable[[bytes, str], Any]]] = {MULTIPART: _form} | dict.fromkeys(AUDIO_TYPES, _file)
_ERRORS: Final = (*OF_TEXT, AudioUnreadable, PromptsFull, PromptNotStored, EngineOverloaded)
_EXAMPLES: Final = {
    "text": {"prompt_id": "welcome", "text": "Welcome to Example Bank."},
    "ssml": {"ssml": "<speak>All our lines are busy.<break time='1s'/></speak>", "pin": True},
}
_STAGES: Final[dict[str, Any]] = {
    "query": (_WAIT,),
    "errors": _ERRORS,
    "other_bodies": _OTHER_BODIES,
    "takes_files": True,
    "examples": _EXAMPLES,
    "for_tenants": True,
}
"""The options that both staging routes share."""


@ROUTES.add(
    "POST",
    "/v1/prompts",
    scope="call",
    status=201,
    location="/v1/prompts/",
    may_be_there="The same words are staged already, and prompt_id was left out.",
    **_STAGES,
)
async def stage_prompt(request: web.Request, body: StagePrompt) -> views.StagedPrompt:
    """Stage a text, or an audio file, to be spoken by its id."""
    return await _stage(request, body.prompt_id or f"prompt-{secrets.token_hex(_RANDOM_BYTES)}", body)


@ROUTES.add(
    "PUT",
    "/v1/prompts/{prompt_id}",
    scope="call",
    status=201,
    may_be_there="There was a prompt of this id, which is replaced.",
    **_STAGES,
)
async def put_prompt(request: web.Request, body: StagePrompt) -> views.StagedPrompt:
    """Stage a prompt in place of what has this id."""
    prompt_id = bodies.shaped(request.match_info["prompt_id"], schemas.PromptId)
    if body.prompt_id not in (None, prompt_id):
        raise Unprocessable.about(FieldError("/prompt_id", "is not that of the path"))
    request[WAS_THERE] = any(each.id == prompt_id for each in _staged(request).all_of(current_tenant()))
    return await _stage(request, prompt_id, body)


async def _stage(request: web.Request, prompt_id: str, body: StagePrompt) -> views.StagedPrompt:
    waits = _WAIT.choice(request) == "true"
    context, tenant, staged = request.app[CONTEXT], current_tenant(), _staged(request)
    if isinstance(body, StageAudio):
        return views.StagedPrompt.of(await staged.put_audio(prompt_id, body.audio, tenant=tenant, ttl_s=body.ttl_s))
    words = body.words()
    content = words.content()
    with bodies.located(fields_of_text("/ssml" if words.ssml else "/text")):
        context.services.source.check(content)
    await context.services.source.match_lexicons(content)
    prompt = None if body.prompt_id or request.method == "PUT" else staged.same_as(words, tenant)
    if prompt is not None:
        request[WAS_THERE] = True
    else:
        prompt = await staged.put_text(prompt_id, words, tenant=tenant, pin=body.pin, ttl_s=body.ttl_s)
    if waits:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(prompt.made.wait(), WAIT_SHARE * context.config.http.request_timeout_s)
    return views.StagedPrompt.of(prompt)


@ROUTES.add("GET", "/v1/prompts", scope="read", for_tenants=True)
async def list_prompts(request: web.Request) -> views.StagedPrompts:
    """List the staged prompts."""
    return views.StagedPrompts([views.StagedPrompt.of(each) for each in _staged(request).all_of(current_tenant())])


@ROUTES.add("GET", "/v1/prompts/{prompt_id}", scope="read", errors=(PromptNotFound,), for_tenants=True)
async def get_prompt(request: web.Request) -> views.StagedPrompt:
    """Show one staged prompt."""
    return views.StagedPrompt.of(_own(request))


@ROUTES.add(
    "GET",
    "/v1/prompts/{prompt_id}/audio",
    scope="read",
    errors=(PromptNotFound,),
    content_types=("audio/wav",),
    for_tenants=True,
    is_synthetic=True,
)
async def get_prompt_audio(request: web.Request) -> web.Response:
    """Get the audio of a staged prompt as a WAV file."""
    prompt = _own(request)
    if not prompt.cached:
        raise PromptNotFound("the audio of this prompt is not in memory")
    wav = await asyncio.to_thread(_staged(request).wav, prompt)
    headers = synthetic_label.HEADERS if prompt.words else {}
    return web.Response(body=wav, content_type="audio/wav", headers=headers)


@ROUTES.add(
    "DELETE", "/v1/prompts/{prompt_id}", scope="call", errors=(PromptNotFound, PromptNotStored), for_tenants=True
)
async def delete_prompt(request: web.Request) -> views.StagedPrompt:
    """Delete a staged prompt; calls that play it continue."""
    return views.StagedPrompt.of(await _staged(request).delete(request.match_info["prompt_id"], current_tenant()))


def _staged(request: web.Request) -> StagedPrompts:
    return request.app[CONTEXT].services.staged


def _own(request: web.Request) -> StagedPrompt:
    return _staged(request).own(request.match_info["prompt_id"], current_tenant())
