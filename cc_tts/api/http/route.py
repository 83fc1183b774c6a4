"""One route: what the router, the guards and the OpenAPI document need to know of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

from cc_tts.config.schema import Scope
from cc_tts.errors import CcTtsError

Method = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query parameter. ``schema`` is its JSON Schema."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path with names in braces, and what is behind them.

    ``scope`` ``None``: needs no token. ``body`` is what a request's JSON is decoded into, ``response`` what the response is
    made of; ``content_types`` is for responses that are not JSON. A route that ``streams`` has no time limit of its own
    and stores no response for an Idempotency-Key. ``errors`` are those of the handler; those of the guards are added.
    """

    method: Method
    path: str
    handler: Callable[[web.Request, Any], Awaitable[web.StreamResponse]]
    summary: str
    scope: Scope | None
    status: int = 200
    body: type[Any] | None = None
    body_is_optional: bool = False
    response: type[Any] | None = None
    content_types: tuple[str, ...] = ("application/json",)
    query: tuple[Query, ...] = ()
    errors: tuple[type[CcTtsError], ...] = ()
    streams: bool = False
