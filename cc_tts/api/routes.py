"""Every route of the API, and the hints for unknown paths."""

import difflib
import re
from typing import Final

from cc_tts.api import calls, health, lexicons, speech, text_stream, voices
from cc_tts.api.admin import routes as admin
from cc_tts.api.admin import trace
from cc_tts.api.console import handlers as console
from cc_tts.api.events import asyncapi, stream
from cc_tts.api.http import openapi
from cc_tts.api.media import stream as media
from cc_tts.api.plugs import cartesia, cosyvoice, links, models, openai
from cc_tts.api.plugs.deepgram import aura, flux
from cc_tts.api.plugs.elevenlabs import http as elevenlabs
from cc_tts.api.plugs.elevenlabs import socket as elevenlabs_socket
from cc_tts.api.plugs.platforms import jambonz, vapi
from cc_tts.api.prompts import handlers as prompts
from cc_tts.api.recordings import handlers as recordings
from cc_tts.api.relay import handlers as relay
from cc_tts.api.reports import handlers as reports
from cc_tts.api.transfers import bridge, refer, transfer
from cc_tts.api.webhooks import routes as webhooks
from cc_tts.errors import MAX_COMPARED_CHARS

ROUTES: Final = (
    *calls.ROUTES,
    *trace.ROUTES,
    *transfer.ROUTES,
    *refer.ROUTES,
    *bridge.ROUTES,
    *speech.ROUTES,
    *text_stream.ROUTES,
    *media.ROUTES,
    *relay.ROUTES,
    *recordings.ROUTES,
    *reports.ROUTES,
    *models.ROUTES,
    *openai.ROUTES,
    *links.ROUTES,
    *cartesia.ROUTES,
    *aura.ROUTES,
    *flux.ROUTES,
    *jambonz.ROUTES,
    *vapi.ROUTES,
    *cosyvoice.ROUTES,
    *elevenlabs.ROUTES,
    *elevenlabs_socket.ROUTES,
    *voices.ROUTES,
    *lexicons.ROUTES,
    *webhooks.ROUTES,
    *prompts.ROUTES,
    *stream.ROUTES,
    *health.ROUTES,
    *admin.ROUTES,
    *openapi.ROUTES,
    *asyncapi.ROUTES,
    *console.ROUTES,
)
OTHER_NAMES: Final = {
    **dict.fromkeys(("say", "talk", "tts", "announce"), "speak"),
    **dict.fromkeys(("end", "bye", "terminate", "disconnect"), "hangup"),
    **dict.fromkeys(("accept", "pickup"), "answer"),
    **dict.fromkeys(("digits", "keys", "send_dtmf"), "dtmf"),
    **dict.fromkeys(("collect", "input"), "gather"),
    **dict.fromkeys(("listen", "audio"), "media"),
    **dict.fromkeys(("recording", "recordings"), "record"),
    "tokens": "stream",
    **dict.fromkeys(("connect", "join"), "bridge"),
    "cancel": "stop",
    "retrieve": "unhold",
}
"""The names that other control APIs give to our commands on a call."""
MIN_LIKENESS: Final = 0.7  # unmeasured
"""Two path segments are similar from this ratio on (difflib): a typing error leaves more, two different words of one length
about 0.5.
"""


def about_unknown_path(path: str) -> str:
    path = path.rstrip("/")
    meant = (path, f"/v1{path}", re.sub("^/[^/]*", "/v1", path), re.sub("^/v1/", "/v1/admin/", path))
    near = next(filter(None, map(_nearest_route, meant)), None)
    return "there is nothing at this path" + (
        f", did you mean {near}?" if near else "; GET /v1/openapi.json lists what there is"
    )


def _nearest_route(path: str) -> str | None:
    """Return the path of a route that differs from ``path`` in at most one segment, which is similar or a synonym."""
    known: dict[str, str] = {_filled(route.path, path): route.path for route in ROUTES}
    if path in known:
        return known[path]
    *before, last = path[:MAX_COMPARED_CHARS].split("/")
    if (same := "/".join([*before, OTHER_NAMES.get(last.lower(), last)])) in known:
        return known[same]
    asked = path[:MAX_COMPARED_CHARS].split("/")
    alike: dict[str, float] = {}
    for filled, route in known.items():
        segments = filled.split("/")
        differ = [(a, b) for a, b in zip(asked, segments, strict=False) if a != b]
        if len(segments) == len(asked) and len(differ) == 1:
            alike[route] = difflib.SequenceMatcher(None, *differ[0]).ratio()
    best = max(alike, key=lambda route: alike[route], default=None)
    return best if best is not None and alike[best] >= MIN_LIKENESS else None


def _filled(template: str, path: str) -> str:
    """Fill the segments of ``path`` into the names of ``template``, if both have the same number of segments."""
    asked, wanted = path[:MAX_COMPARED_CHARS].split("/"), template.split("/")
    if len(asked) != len(wanted):
        return template
    return "/".join(a if w.startswith("{") else w for a, w in zip(asked, wanted, strict=True))
