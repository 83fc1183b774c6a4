"""Serves the files of the console, which run in the browser. They hold no secret: the user enters a token."""

import asyncio
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Final

from aiohttp import web

from cc_tts.api.context import CONTEXT
from cc_tts.api.http.route import RouteTable
from cc_tts.errors import NotFound

PAGE: Final = "index.html"
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
"""No inline script or style, nothing from other origins, no frame around the page, and no guessing of content types."""

ROUTES: Final = RouteTable("Console")


@ROUTES.add("GET", "/", scope=None, status=302, content_types=(), errors=(NotFound,), operation_id="openRoot")
@ROUTES.add("GET", "/console", scope=None, status=302, content_types=(), errors=(NotFound,))
async def open_console(request: web.Request) -> web.Response:
    """Redirect to the console, if http.console is on."""
    _check_on(request)
    return web.Response(status=302, headers={"Location": "console/"})  # relative: a proxy may put a path before it


@ROUTES.add("GET", "/console/", scope=None, content_types=("text/html",), errors=(NotFound,))
async def get_console(request: web.Request) -> web.Response:
    """Get the page of the console."""
    return await _sent(request, PAGE)


@ROUTES.add("GET", "/console/{file}", scope=None, content_types=tuple(TYPES.values()), errors=(NotFound,))
async def get_console_file(request: web.Request) -> web.Response:
    """Get a file of the console: a script, its style, its texts."""
    return await _sent(request, request.match_info["file"])


async def _sent(request: web.Request, name: str) -> web.Response:
    _check_on(request)
    files = await asyncio.to_thread(_files)
    if name not in files:
        raise NotFound("the console has no such file")
    return web.Response(body=files[name], content_type=TYPES[PurePath(name).suffix], charset="utf-8", headers=HEADERS)


def _check_on(request: web.Request) -> None:
    if not request.app[CONTEXT].config.http.console:
        raise NotFound("the console is off: http.console")


@cache
def _files() -> dict[str, bytes]:
    folder = resources.files(__package__).joinpath("files")
    return {each.name: each.read_bytes() for each in folder.iterdir() if PurePath(each.name).suffix in TYPES}
