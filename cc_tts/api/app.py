"""Builds the aiohttp application of the control API from an :class:`ApiContext`."""

import asyncio
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from aiohttp import WSCloseCode, web

from cc_tts import logs
from cc_tts.api.context import CONTEXT, ApiContext
from cc_tts.api.events import server_sent, stream, websocket
from cc_tts.api.http import auth, middlewares, openapi
from cc_tts.api.http.idempotency import IdempotencyStore
from cc_tts.api.plugs.cosyvoice import PROMPT_VOICES, PromptVoices
from cc_tts.api.plugs.links import LINKS, SpeechLinks
from cc_tts.api.plugs.speech_context import STREAMS
from cc_tts.api.routes import ROUTES
from cc_tts.config.schema import TokenConfig

_open_api: Final[Callable[[], bytes]] = functools.cache(lambda: msgspec.json.encode(openapi.document(ROUTES)))


def build_app(context: ApiContext) -> web.Application:
    """Return the application. A :class:`cc_tts.api.http.connections.HttpListener` serves it."""
    http = context.config.http
    app = web.Application(
        middlewares=[middlewares.observe, middlewares.same_origin], client_max_size=http.max_body_bytes
    )
    app[CONTEXT] = context
    app[auth.AUTHENTICATOR] = auth.TokenAuthenticator(http.tokens)
    app[middlewares.IDEMPOTENCY] = IdempotencyStore(
        context.services.clock, ttl_s=http.idempotency_ttl_s, max_keys=http.max_idempotency_keys
    )
    app[middlewares.STRANGERS] = logs.RepeatLimit(context.services.clock)
    app[LINKS] = SpeechLinks()
    app[PROMPT_VOICES] = PromptVoices()
    app[STREAMS] = asyncio.Semaphore(http.max_speech_streams)
    app[websocket.OPEN_SOCKETS] = weakref.WeakSet()
    app[server_sent.OPEN_STREAMS] = set()
    app[openapi.ENCODED] = _open_api
    for route in ROUTES:
        handler = middlewares.guarded(route)
        for resource in map(app.router.add_resource, route.paths):
            resource.add_route(route.method, handler, expect_handler=middlewares.defer_continue)
            if route.method == "GET" and (route.is_file or not route.streams):
                resource.add_route("HEAD", handler, expect_handler=middlewares.defer_continue)
    app.on_response_prepare.append(middlewares.add_headers)
    app.on_shutdown.append(stream.close_all)
    app.on_cleanup.append(_close_store)
    return app


async def set_tokens(app: web.Application, tokens: Sequence[TokenConfig]) -> None:
    """Accept these tokens from now on, and no others. Event streams must reconnect with one of them."""
    app[auth.AUTHENTICATOR].set_tokens(tokens)
    await stream.close_all(app, WSCloseCode.SERVICE_RESTART, b"the tokens have changed: connect again")


async def _close_store(app: web.Application) -> None:
    await app[middlewares.IDEMPOTENCY].close()
