"""``GET /v1/models``, which clients of OpenAI, ElevenLabs and Deepgram request, each in its own shape."""

from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import ELEVENLABS_HEADER
from cc_tts.api.http.route import DEEPGRAM, ELEVENLABS, OPENAI, RouteTable
from cc_tts.errors import ModelNotFound

MODELS: Final = ("cc-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""The names of OpenAI's models, listed for clients that look for theirs; ``model`` has no effect."""
OWNER: Final = "cc-tts"
ELEVENLABS_MODELS: Final[list[dict[str, Any]]] = [
    {
        "model_id": "cc-tts",
        "name": "cc-tts",
        "can_do_text_to_speech": True,
        "can_do_voice_conversion": False,
        "languages": [],
    }
]

ROUTES: Final = RouteTable("Speech", OPENAI, ELEVENLABS, DEEPGRAM)


class Model(msgspec.Struct, frozen=True):
    """A model, as OpenAI's API lists it."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = OWNER


class Models(msgspec.Struct, frozen=True):
    """The names that ``model`` may have. Any other is taken as well."""

    data: tuple[Model, ...] = tuple(map(Model, MODELS))
    object: Literal["list"] = "list"


@ROUTES.add("GET", "/v1/models", scope="read", response=Models, for_tenants=True, ignores_unknown_query=True)
async def list_models(request: web.Request) -> web.Response:
    """List the values of model that clients look for; in the shape of the service below its name."""
    if request.path.startswith(DEEPGRAM):
        return bodies.response(_as_deepgram(request))
    is_elevenlabs = ELEVENLABS_HEADER in request.headers or request.path.startswith(ELEVENLABS)
    return bodies.response(ELEVENLABS_MODELS if is_elevenlabs else Models())


@ROUTES.add(
    "GET", "/v1/models/{model}", scope="read", errors=(ModelNotFound,), for_tenants=True, ignores_unknown_query=True
)
async def get_model(request: web.Request) -> Model:
    """Show one of the models."""
    if (name := request.match_info["model"]) not in MODELS:
        raise ModelNotFound.named(name)
    return Model(name)


def _as_deepgram(request: web.Request) -> dict[str, Any]:
    voices = request.app[CONTEXT].services.source.engine.voices()
    return {
        "stt": [],
        "tts": [{"name": each.id, "canonical_name": each.id, "languages": [each.language]} for each in voices],
    }
