"""Handlers for lexicons: the pronunciations of names and terms."""

import asyncio

from aiohttp import web

from cc_tts.api import views
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.route import WAS_THERE, RouteTable
from cc_tts.errors import LexiconMalformed, LexiconNotFound, LexiconNotStored
from cc_tts.text.pronunciation.lexicon import Lexicon, read_pls

PLS = "application/pls+xml"
ROUTES = RouteTable("Lexicons")


@ROUTES.add("GET", "/v1/lexicons", scope="read", for_tenants=True)
async def list_lexicons(request: web.Request) -> views.Lexicons:
    """List all the lexicons."""
    lexicons = request.app[CONTEXT].services.source.lexicons
    return views.Lexicons([_summary(name, lexicons.get(name)) for name in lexicons.names()])


@ROUTES.add("GET", "/v1/lexicons/{name}", scope="read", errors=(LexiconNotFound,), for_tenants=True)
async def get_lexicon(request: web.Request) -> Lexicon:
    """One lexicon with its entries."""
    return request.app[CONTEXT].services.source.lexicons.get(request.match_info["name"])


@ROUTES.add(
    "PUT",
    "/v1/lexicons/{name}",
    scope="admin",
    status=201,
    may_be_there="There was a lexicon of this name, which is replaced.",
    errors=(LexiconMalformed, LexiconNotStored),
    other_bodies={PLS: lambda body, _: read_pls(body)},
    examples={"names": {"language": "en", "entries": [{"grapheme": "Mobivox", "alias": "mo bee vox"}]}},
)
async def put_lexicon(request: web.Request, body: Lexicon) -> views.LexiconSummary:
    """Add or replace a lexicon; prompts that are accepted from now on use it."""
    name, lexicons = request.match_info["name"], request.app[CONTEXT].services.source.lexicons
    request[WAS_THERE] = name in lexicons.names()
    await asyncio.to_thread(lexicons.put, name, body)
    return _summary(name, body)


@ROUTES.add(
    "DELETE", "/v1/lexicons/{name}", scope="admin", errors=(LexiconNotFound, LexiconMalformed, LexiconNotStored)
)
async def delete_lexicon(request: web.Request) -> views.LexiconSummary:
    """Delete one of the lexicons."""
    name = request.match_info["name"]
    deleted = await asyncio.to_thread(request.app[CONTEXT].services.source.lexicons.delete, name)
    return _summary(name, deleted)


def _summary(name: str, lexicon: Lexicon) -> views.LexiconSummary:
    return views.LexiconSummary(name, lexicon.language, lexicon.voices, len(lexicon.entries))
