"""The functions around every handler.

::

    observe       X-Request-Id · problem+json for every error · request metrics · one debug line · origin of web pages
     └─ guarded   token and scope ▸ node of the call ▸ Idempotency-Key ▸ body (bytes and time bounded) ▸ decode
                   ▸ handler (time bounded)

No thread, no executor, no waiting between the last byte of a body and the handler's first line.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from cc_tts import logs
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import auth, bodies, problems
from cc_tts.api.http.connections import SERVER, HttpConnection, abort, is_gone
from cc_tts.api.http.idempotency import IdempotencyStore, ResponseKey, StoredResponse, check_key
from cc_tts.api.http.route import CALL_ID, WAS_THERE, Route
from cc_tts.api.routes import about_unknown_path
from cc_tts.clock import ms_between
from cc_tts.errors import CcTtsError, Forbidden, MalformedRequest, NotFound, Unauthorized, did_you_mean
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.span import CURRENT, Span, Value

MAX_REQUEST_ID_CHARS: Final = 128  # unmeasured
UNMATCHED: Final = "unmatched"
"""The label ``route`` of requests for unknown paths."""
UPLOAD_TIMEOUT_S: Final = 300.0
"""The time for a body with a file and for processing it: 32 MB at 1 Mbit/s (unmeasured)."""
CLIENT_GONE_STATUS: Final = 499
"""The label ``status`` of requests whose client disconnected before the response."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_GIVEN_AGAIN: Final = ("Content-Type", "Location", "Retry-After", "WWW-Authenticate")
"""The headers that are stored with a response for its Idempotency-Key."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

IDEMPOTENCY: Final = web.AppKey("idempotency", IdempotencyStore)
STRANGERS: Final = web.AppKey("strangers", logs.RepeatLimit)
"""Limits the log lines of requests without a valid token."""

_request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the current request. aiohttp runs each request in a task of its own."""

log = logs.get(__name__)


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost layer: every outcome becomes a response, a metric and a log line."""
    context = request.app[CONTEXT]
    started_ns = context.services.clock.now_ns()
    connection = request.protocol if isinstance(request.protocol, HttpConnection) else None
    if connection is not None:
        connection.request_began()
    _request_id.set(_id_of(request))
    resource = request.match_info.route.resource
    route = UNMATCHED if resource is None else resource.canonical
    method = request.method if request.method in _METHODS else "other"
    span = _begin_span(request, method, route)
    logs.bind(request_id=_request_id.get(), **_trace_ids(request, span))
    status = str(CLIENT_GONE_STATUS)
    streamed = False
    try:
        response = await respond(request, handler)
        status, streamed = str(response.status), response.prepared
    finally:
        if connection is not None:
            connection.request_ended()
        if span is not None:
            span.attributes["http.response.status_code"] = int(status)
            span.end(error=status if int(status) >= HTTPStatus.INTERNAL_SERVER_ERROR else "")
            span.trace.close()
        elapsed_ms = ms_between(started_ns, context.services.clock.now_ns())
        context.services.metrics.http_requests.labels(method=method, route=route, status=status).inc()
        if not streamed:
            context.services.metrics.http_request_duration.labels(route=route).observe(elapsed_ms / 1000)
        log.debug("http_request", method=method, route=route, status=status, ms=elapsed_ms)
    return response


@web.middleware
async def same_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests of web pages of other origins while there are no tokens."""
    request.app[auth.AUTHENTICATOR].check_origin(request)
    return await handler(request)


async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return the handler's response, or the problem document of its error. Raises nothing but cancellation."""
    code = ""
    asked = problems.Asked(
        request.path, _request_id.get(), has_elevenlabs_key=auth.ELEVENLABS_HEADER in request.headers
    )
    try:
        return await handler(request)
    except CcTtsError as error:
        code, response = error.code, problems.response_for(error, asked)
    except web.HTTPNotFound:
        code = NotFound.code
        response = problems.response_for(NotFound(about_unknown_path(request.path)), asked)
    except web.HTTPException as error:
        response = problems.response_for_http(error, asked, method=request.method)
    except Exception as error:  # the outermost layer
        if isinstance(error, ConnectionError) and is_gone(request):
            abort(request)
            return web.Response(status=CLIENT_GONE_STATUS)
        log.exception("http_handler_failed", method=request.method)
        response = problems.internal_error(asked)
    _log_refusal(request, response.status, code)
    if (challenge := auth.challenge(request, response.status)) is not None:
        response.headers["WWW-Authenticate"] = challenge
    if request.body_exists and not request.content.is_eof():
        response.force_close()  # the rest of the body is not read
    return response


def _log_refusal(request: web.Request, status: int, code: str) -> None:
    """Log a refused request, for someone who later asks why a caller heard nothing. Only some requests without a valid token
    are logged, and without their own data. Readiness probes and redirects to other nodes are not logged.
    """
    is_probe = request.method == "GET" and status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if status < HTTPStatus.BAD_REQUEST or is_probe:
        return
    resource = request.match_info.route.resource
    line: dict[str, Any] = {
        "method": request.method if request.method in _METHODS else "other",
        "route": UNMATCHED if resource is None else resource.canonical,
        "code": code or None,
        "status": status,
    }
    if not _is_stranger(request):
        line["id"] = request.match_info.get("id", "")[:MAX_REQUEST_ID_CHARS]
    elif not request.app[STRANGERS].admit("warning", {"event": "request_refused"})[0]:
        return
    log.info("request_refused", **line)


def _is_stranger(request: web.Request) -> bool:
    """Whether a token is needed and the request has no valid one."""
    try:
        request.app[auth.AUTHENTICATOR].authenticate(request, "read")
    except Unauthorized:
        return True
    except Forbidden:
        return False
    return False


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """The signal ``on_response_prepare``: adds headers to every response, including streamed ones."""
    response.headers["Server"] = SERVER
    response.headers["X-Request-Id"] = _request_id.get() or _id_of(request)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"


async def defer_continue(_request: web.Request) -> None:
    """The hook for ``Expect``: 100 Continue is sent when the body is read, not before (RFC 9110 §10.1.1)."""


def guarded(route: Route) -> Handler:
    """Return the route's handler behind the checks of token, body and time."""

    async def handle(request: web.Request) -> web.StreamResponse:
        http = request.app[CONTEXT].config.http
        holder = _holder(request, route)
        if holder.tenant and not (route.names_call or route.for_tenants):
            raise Forbidden("this path is for tokens of the operator, and this one is of a tenant")
        auth.HOLDER.set(holder)
        if route.scope == "admin" and (route.method != "GET" or route.body is not None):
            log.info("administered", method=route.method, route=route.path, source=request.remote, by=holder.shown)
        if route.names_call:
            _check_node(request)
        _check_query(request, route)
        values = request.headers.getall("Idempotency-Key", []) if route.method == "POST" else []
        key = ResponseKey(holder.key, route.method, request.path, check_key(values)) if values else None
        body = b""
        is_file = route.takes_files and request.content_type in route.other_bodies
        timeout_s = UPLOAD_TIMEOUT_S if is_file else http.request_timeout_s
        if route.body is not None:
            body = await bodies.read(
                request,
                max_bytes=request.app[CONTEXT].config.prompts.max_upload_bytes if is_file else http.max_body_bytes,
                timeout_s=timeout_s,
                key="prompts.max_upload_bytes" if is_file else "http.max_body_bytes",
                other_types=route.other_bodies,
            )

        async def work(_request: web.Request) -> web.StreamResponse:
            arguments = []
            if route.body is not None:
                if body and (decode := route.other_bodies.get(request.content_type)) is not None:
                    arguments.append(await asyncio.to_thread(decode, body, request.headers["Content-Type"]))
                else:
                    empty = b"{}" if route.body_is_optional else b""
                    arguments.append(bodies.decode(body or empty, route.body))
            return await _call(route, request, arguments, limit_s=None if route.streams else timeout_s)

        if key is None or route.streams:
            return await work(request)
        return await _once(request, key, body, work)

    return handle


def _holder(request: web.Request, route: Route) -> auth.Holder:
    """Return the sender of a request; raises ``Unauthorized`` and ``Forbidden``."""
    if route.scope is None:
        return auth.ANYBODY
    authenticator = request.app[auth.AUTHENTICATOR]
    if route.token_may_follow and authenticator.lacks_token(request):
        return auth.NOBODY
    return authenticator.authenticate(request, route.scope)


def _check_node(request: web.Request) -> None:
    """Redirect a request about a call or an utterance of another node to that node, if it is known."""
    context = request.app[CONTEXT]
    id_ = request.match_info.get("id") or request.query.get(CALL_ID, "")
    owner = context.services.nodes.owner(id_)
    if owner is not None and not context.registry.has(id_):
        raise problems.OtherNode(*owner, request.rel_url.raw_path_qs)


def _check_query(request: web.Request, route: Route) -> None:
    """Refuse unknown and repeated query parameters. Probes and browsers, which send no token, add some of their own."""
    if route.ignores_unknown_query or route.scope is None:
        return
    known = [query.name for query in route.query]
    for name in request.query:
        if name not in known:
            hint = f"known here: {', '.join(known)}{did_you_mean(name, known)}" if known else "this path takes none"
            raise MalformedRequest(f"no query parameter {name[:40]!r}; {hint}")
        if len(request.query.getall(name)) > 1:
            raise MalformedRequest(f"the query parameter {name} comes twice")


async def _call(
    route: Route, request: web.Request, arguments: Sequence[Any], *, limit_s: float | None
) -> web.StreamResponse:
    try:
        async with asyncio.timeout(limit_s) as deadline:
            result: Any = await route.handler(request, *arguments)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise problems.DeadlineExceeded(f"not done within {limit_s:g} s") from None
    if isinstance(result, web.StreamResponse):
        return result
    headers = {"Location": route.location + quote(result.id, safe="")} if route.location else None
    status = HTTPStatus.OK if request.get(WAS_THERE) else route.status
    return bodies.response(result, status=status, headers=headers)


async def _once(request: web.Request, key: ResponseKey, body: bytes, work: Handler) -> web.Response:
    store = request.app[IDEMPOTENCY]

    async def make() -> StoredResponse:
        response = await respond(request, work)
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes | None)
        headers = tuple((name, response.headers[name]) for name in _GIVEN_AGAIN if name in response.headers)
        return StoredResponse(response.status, headers, response.body or b"")

    stored, is_replayed = await store.run_once(key, hashlib.sha256(body).digest(), make)
    response = web.Response(body=stored.body, status=stored.status, headers=stored.headers)
    if is_replayed:
        _log_refusal(request, stored.status, "")
        response.headers["Idempotency-Replayed"] = "true"
    return response


def _id_of(request: web.Request) -> str:
    """Return the client's own request id if it can be echoed safely, else a new one."""
    given = request.headers.get("X-Request-Id", "")
    if 0 < len(given) <= MAX_REQUEST_ID_CHARS and given.isascii() and given.isprintable():
        return given
    return f"req_{secrets.token_hex(8)}"


def _trace_of(request: web.Request) -> TraceContext | None:
    """Return the client's trace; ``None`` if it sends no valid trace context."""
    found = request.headers.getall("traceparent", ())
    return TraceContext.parse(found[0]) if len(found) == 1 else None


def _begin_span(request: web.Request, method: str, route: str) -> Span | None:
    """Begin the span of a request that may change something, or that the client traces. Requests without a valid token get
    none.
    """
    tracer = request.app[CONTEXT].services.tracer
    if not tracer.is_on:
        return None
    parent = _trace_of(request)
    if (parent is None and method in ("GET", "HEAD")) or _is_stranger(request):
        return None
    attributes: dict[str, Value] = {"http.request.method": method, "http.route": route}
    span = tracer.begin(f"{method} {route}", kind="server", parent=parent, attributes=attributes)
    CURRENT.set(span)
    return span


def _trace_ids(request: web.Request, span: Span | None) -> dict[str, str]:
    trace = _trace_of(request) if span is None else span.context
    return {} if trace is None else {"trace_id": trace.trace_id, "span_id": trace.span_id}
