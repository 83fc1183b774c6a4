"""Every route of the API, and what is said about paths that are none."""

from typing import Final

from cc_tts.api import audio_speech, calls, health, lexicons, speech, text_stream
from cc_tts.api.events import asyncapi, stream
from cc_tts.api.http import openapi
from cc_tts.api.media import stream as media
from cc_tts.errors import MAX_COMPARED_CHARS, nearest

ROUTES: Final = (
    *calls.ROUTES,
    *speech.ROUTES,
    *text_stream.ROUTES,
    *media.ROUTES,
    *audio_speech.ROUTES,
    *lexicons.ROUTES,
    *stream.ROUTES,
    *health.ROUTES,
    *openapi.ROUTES,
    *asyncapi.ROUTES,
)
NOT_IN_THIS_VERSION: Final = (
    "/v1/calls/{id}/transfer",
    "/v1/calls/{id}/record",
    "/v1/calls/{id}/recording",
    "/v1/prompts",
    "/v1/prompts/{id}",
    "/v1/voices/{id}",
)
"""Reserved paths of version 1 of the API, which get 404."""


def about_unknown_path(path: str) -> str:
    """The 404 detail for an unknown path: the nearest route, or that the path is not in this version."""
    if any(_filled(known, path) == path for known in NOT_IN_THIS_VERSION):
        return "not in this version"
    known = {_filled(route.path, path): route.path for route in ROUTES}
    near = nearest(path, known)
    return "there is nothing at this path" + (
        f", did you mean {known[near]}?" if near else "; GET /v1/openapi.json lists what there is"
    )


def _filled(template: str, path: str) -> str:
    """``template`` with the segments of ``path`` in place of its names, if both have as many."""
    asked, wanted = path[:MAX_COMPARED_CHARS].split("/"), template.split("/")
    if len(asked) != len(wanted):
        return template
    return "/".join(a if w.startswith("{") else w for a, w in zip(asked, wanted, strict=True))
