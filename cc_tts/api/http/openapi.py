"""``GET /v1/openapi.json``: OpenAPI 3.1, made from the route table and the types that validate requests."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from cc_tts import __version__
from cc_tts.api.http import problems
from cc_tts.api.http.bodies import JSON
from cc_tts.api.http.route import Route, RouteTable
from cc_tts.errors import (
    BodyTooLarge,
    CcTtsError,
    Forbidden,
    IdempotencyMismatch,
    MalformedRequest,
    Unauthorized,
    Unprocessable,
    UnsupportedMediaType,
)

ROUTES: Final = RouteTable("Operations")
DOCUMENT: Final = web.AppKey("openapi", bytes)
REF: Final = "#/components/schemas/{name}"
_PATH_NAME: Final = re.compile(r"\{(\w+)\}")
_SWITCHING_PROTOCOLS: Final = 101
_DESCRIPTION: Final = (
    "Errors are application/problem+json (RFC 9457) with a stable `code` and, for a bad body, `errors` with JSON "
    "pointers. Times of day are seconds since the Unix epoch. Every response carries `X-Request-Id`."
)
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
}
_LOCATION: Final = {
    "Location": {"description": "The same path and query at that node.", "schema": {"type": "string"}},
}


@ROUTES.add("GET", "/v1/openapi.json", scope=None, summary="This document")
async def get_open_api(request: web.Request) -> web.Response:
    """Send the document that was made when the application was built."""
    return web.Response(body=request.app[DOCUMENT], content_type=JSON)


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of ``routes``."""
    refs, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.method.lower()] = _operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "cc-tts control API", "version": __version__, "description": _DESCRIPTION},
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": dict(paths),
        "components": {
            "schemas": plain(components),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(routes: Sequence[Route]) -> tuple[dict[type[Any], dict[str, Any]], dict[str, Any]]:
    """References to the schemas of the bodies and responses, and the schemas."""
    types = {kind for route in routes for kind in (route.body, route.response) if kind is not None}
    ordered = sorted(types | {problems.Problem}, key=lambda kind: (kind.__name__, kind.__module__))
    schemas, components = msgspec.json.schema_components(ordered, ref_template=REF)
    for kind in ordered:
        if names := getattr(kind, "exactly_one", ()):
            components[kind.__name__]["oneOf"] = [{"required": [name]} for name in names]
    return dict(zip(ordered, schemas, strict=True)), components


def _operation(route: Route, refs: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "responses": _responses(route, refs),
    }
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.scope is not None:
        operation["security"] = [{"bearer": []}]
        operation["description"] = f"Needs the scope `{route.scope}` where tokens are configured."
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_is_optional,
            "content": {JSON: {"schema": refs[route.body]}} | _contents(route.other_bodies),
        }
        if route.examples:
            examples = {name: {"value": value} for name, value in route.examples.items()}
            operation["requestBody"]["content"][JSON]["examples"] = examples
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_NAME.findall(route.path)
    ]
    parameters += [
        {"name": query.name, "in": "query", "description": query.description, "schema": query.schema}
        for query in route.query
    ]
    if route.method == "POST":
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "The same key and body return the first response again.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            }
        )
    return parameters


def _responses(route: Route, refs: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    responses = _done(route, refs)
    by_status: dict[int, list[type[CcTtsError]]] = defaultdict(list)
    possible: list[type[CcTtsError]] = [*_guards(route), *route.errors, CcTtsError]
    for error in dict.fromkeys(possible):
        by_status[error.http_status].append(error)
    for status, errors in sorted(by_status.items()):
        documented: dict[str, Any] = {
            "description": "; ".join(f"{error.title} (`{error.code}`)" for error in errors),
            "content": {problems.CONTENT_TYPE: {"schema": refs[problems.Problem]}},
        }
        if status in problems.RETRYABLE:
            documented["headers"] = _RETRY_AFTER
        if problems.OtherNode in errors:
            documented["headers"] = _LOCATION
        responses[str(status)] = documented
    return responses


def _done(route: Route, refs: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    """The responses of a request that was served."""
    if route.status == _SWITCHING_PROTOCOLS:
        switching = {"101": {"description": "Switching to WebSocket"}}
        plain_http = {"200": {"description": route.summary, "content": _contents(route.content_types)}}
        return switching | (plain_http if route.content_types else {})
    done: dict[str, Any] = {"description": route.summary, "content": _contents(route.content_types)}
    if route.response is not None:
        done = {"description": _first_sentence(route.response), "content": {JSON: {"schema": refs[route.response]}}}
    if route.location:
        done["headers"] = {"Location": {"description": "Path of what was made.", "schema": {"type": "string"}}}
    return {str(route.status): done}


def _contents(media_types: Iterable[str]) -> dict[str, Any]:
    return {name: _content(name) for name in media_types}


def _content(media_type: str) -> dict[str, Any]:
    """The schema of a body or response of this type: JSON of some shape, bytes, or text."""
    if media_type == JSON:
        return {"schema": {"type": "object"}}
    is_binary = media_type.startswith("audio/")
    return {"schema": {"type": "string", "format": "binary"} if is_binary else {"type": "string"}}


def _first_sentence(kind: type[Any]) -> str:
    words = " ".join((inspect.getdoc(kind) or "").replace("``", "`").split())
    return words.partition(". ")[0].removesuffix(".") + "."


def _guards(route: Route) -> Iterable[type[CcTtsError]]:
    """The errors that the layers around a handler may respond with."""
    if route.scope is not None:
        yield from (Unauthorized, Forbidden)
    if route.names_call:
        yield problems.OtherNode
    if route.query:
        yield MalformedRequest
    if route.body is not None:
        yield from (MalformedRequest, BodyTooLarge, UnsupportedMediaType, Unprocessable, problems.RequestTimeout)
        yield problems.DeadlineExceeded
    if route.method == "POST":
        yield IdempotencyMismatch


def plain(node: Any) -> Any:
    """Docstrings as Markdown, and patterns without the part that only Python needs."""
    match node:
        case dict():
            return {key: plain(value) for key, value in node.items()}
        case list() | tuple():
            return [plain(value) for value in node]
        case str():
            return node.replace("``", "`").removesuffix(r"(?!\n)")
    return node
