"""Routes are declared beside their handlers. A route has what the router, the guards and the OpenAPI document need."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import msgspec
from aiohttp import web

from cc_tts.config.schema import Scope
from cc_tts.errors import CcTtsError, Unprocessable

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[..., Awaitable[msgspec.Struct | web.StreamResponse]]
"""Takes the request and, if it has a second parameter, the decoded body. A struct that it returns is sent as JSON."""

CALL_ID: Final = "call_id"
"""The query parameter with the id of a call."""

WAS_THERE: Final = web.RequestKey("was_there", bool)
"""A handler sets this key of its request if the object existed already: the status is then 200."""

CARTESIA: Final = "/cartesia"
DEEPGRAM: Final = "/deepgram"
ELEVENLABS: Final = "/elevenlabs"
OPENAI: Final = "/openai"
"""The path prefixes below which the routes of other services are served as well."""

H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter: any text, or one of ``choices``."""

    name: str
    description: str
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": self.choices} if self.choices else {"type": "string"}

    def choice(self, request: web.Request) -> str:
        """Return the choice of a request; the first one if it makes none.

        Raises:
            Unprocessable: it is none of the choices.
        """
        chosen = request.query.get(self.name, self.choices[0])
        if chosen not in self.choices:
            raise Unprocessable(f"{self.name} is {' or '.join(self.choices)}")
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path with names in braces, and what is behind them.

    ``tag`` is the group it is shown in, ``operation_id`` the name that generated clients give it, ``examples`` are bodies
    by their names. ``scope`` ``None``: needs no token. ``body`` is what a request's JSON is decoded into, ``response`` what
    the response is made of; ``other_bodies`` decode bodies of other media types, each with its Content-Type;
    if it ``takes_files``, these may have prompts.max_upload_bytes; ``content_types`` is for
    responses that are not JSON; with status 101 they come with 200, to clients that ask for no WebSocket. ``location``
    begins the path of what was made; its id follows. ``may_be_there`` says when the response is that of what was there
    already, with status 200 (:data:`WAS_THERE`). A route that ``streams`` has no time limit of its own and stores no
    response for an Idempotency-Key. One that ``is_synthetic`` responds with synthetic speech. One that ``is_file`` responds
    with a whole file, and to HEAD as well.
    ``errors`` are those of the handler; those of the guards are added. ``for_tenants``: the tokens of tenants may be used;
    on routes that name a call they always may, and find their own calls only. A route that ``ignores_unknown_query`` is for
    clients of other services, which send more than has a meaning here; such clients may have a base URL with a path, which
    is one of ``mounts``. ``token_may_follow``: in a message, if a request has none.
    """

    method: Method
    path: str
    handler: Handler
    summary: str
    tag: str
    operation_id: str
    scope: Scope | None
    status: int = 200
    location: str = ""
    may_be_there: str = ""
    body: type[Any] | None = None
    other_bodies: Mapping[str, Callable[[bytes, str], Any]] = field(default_factory=dict)
    takes_files: bool = False
    response: type[Any] | None = None
    content_types: tuple[str, ...] = ("application/json",)
    query: tuple[Query, ...] = ()
    errors: tuple[type[CcTtsError], ...] = ()
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    streams: bool = False
    is_synthetic: bool = False
    is_file: bool = False
    for_tenants: bool = False
    ignores_unknown_query: bool = False
    mounts: tuple[str, ...] = ()
    token_may_follow: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *(mount + self.path for mount in self.mounts))

    @property
    def names_call(self) -> bool:
        """Whether its path names a call or an utterance, which may belong to another node."""
        return "{id}" in self.path or any(query.name == CALL_ID for query in self.query)

    @property
    def body_is_optional(self) -> bool:
        """Whether the request may have no body, which then counts as an empty object."""
        return bool(getattr(self.body, "may_be_left_out", False))


class RouteTable(list[Route]):
    """The routes of one module. The OpenAPI document shows them under one tag."""

    def __init__(self, tag: str, *mounts: str) -> None:
        super().__init__()
        self.tag = tag
        self._mounts = mounts

    def add(self, method: Method, path: str, *, scope: Scope | None, **options: Any) -> Callable[[H], H]:
        """Decorate a handler. Its docstring is the summary, its name in camel case the operation id, and its annotations the
        types of body and response. ``options`` are the other fields of :class:`Route`.
        """

        def declare(handler: H) -> H:
            signature = inspect.signature(handler)
            _, *body = (parameter.annotation for parameter in signature.parameters.values())
            response = signature.return_annotation
            known: dict[str, Any] = {
                "summary": " ".join((handler.__doc__ or "").split()).removesuffix("."),
                "tag": self.tag,
                "mounts": self._mounts,
                "operation_id": camel_case(handler.__name__),
                "body": body[0] if body else None,
                "response": response if issubclass(response, msgspec.Struct) else None,
            }
            self.append(Route(method=method, path=path, handler=handler, scope=scope, **(known | options)))
            return handler

        return declare


def camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)
