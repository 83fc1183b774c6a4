"""Builds the aiohttp application of the control API from an :class:`ApiContext`."""

import logging
import weakref
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from cc_tts.api import audio_speech, events
from cc_tts.api.context import CONTEXT, ApiContext
from cc_tts.api.http import auth, middlewares, openapi
from cc_tts.api.http.connections import Listener
from cc_tts.api.http.idempotency import IdempotencyStore
from cc_tts.api.routes import ROUTES
from cc_tts.config.schema import TokenConfig

__all__ = ["ApiContext", "Listener", "build_app", "connection_options", "runner_options", "set_tokens"]

IDLE_CONNECTION_TIMEOUT_S: Final = 75.0
"""A connection between two requests is closed after this, which is longer than reverse proxies keep theirs."""
LINGERING_TIMEOUT_S: Final = 1.0
"""How long the rest of a refused body is read before the connection is closed."""


def build_app(context: ApiContext) -> web.Application:
    """The application. Run it with :func:`runner_options`."""
    http = context.config.http
    app = web.Application(middlewares=[middlewares.observe], client_max_size=http.max_body_bytes)
    app[CONTEXT] = context
    app[middlewares.AUTHENTICATOR] = auth.TokenAuthenticator(http.tokens)
    app[middlewares.IDEMPOTENCY] = IdempotencyStore(
        context.clock, ttl_s=http.idempotency_ttl_s, max_keys=http.max_idempotency_keys
    )
    app[audio_speech.SLOTS] = audio_speech.StreamSlots(http.max_speech_streams, context.metrics.speech_streams)
    app[events.OPEN_SOCKETS] = weakref.WeakSet()
    app[openapi.DOCUMENT] = msgspec.json.encode(openapi.document(ROUTES))
    for route in ROUTES:
        handler = middlewares.guarded(route)
        resource = app.router.add_resource(route.path)
        resource.add_route(route.method, handler, expect_handler=middlewares.defer_continue)
        if route.method == "GET" and not route.streams:
            resource.add_route("HEAD", handler, expect_handler=middlewares.defer_continue)
    app.on_response_prepare.append(middlewares.add_headers)
    app.on_shutdown.append(events.close_all)
    app.on_cleanup.append(_close_store)
    return app


async def set_tokens(app: web.Application, tokens: Sequence[TokenConfig]) -> None:
    """Accept these tokens from now on, and no others."""
    app[middlewares.AUTHENTICATOR].set_tokens(tokens)
    await events.readmit_all(app)


def runner_options() -> dict[str, Any]:
    """Keyword arguments for ``web.AppRunner``.

    No cancellation of handlers when a client hangs up, so that a call is not left half placed.
    """
    return {"handler_cancellation": False, **connection_options()}


def connection_options() -> dict[str, Any]:
    """Keyword arguments for :class:`Listener`.

    No access log (``observe`` counts and logs); aiohttp's own log of unreadable requests is kept out of ours, because it
    quotes header lines, and a header may be a token.
    """
    silent = logging.getLogger("cc_tts.api.protocol")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return {
        "access_log": None,
        "keepalive_timeout": IDLE_CONNECTION_TIMEOUT_S,
        "lingering_time": LINGERING_TIMEOUT_S,
        "logger": silent,
    }


async def _close_store(app: web.Application) -> None:
    await app[middlewares.IDEMPOTENCY].close()
