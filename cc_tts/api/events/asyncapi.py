"""``GET /v1/asyncapi.json``: AsyncAPI 3.0 of the events and of the text stream, made from the structs that are sent."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from cc_tts import __version__
from cc_tts.api import text_stream
from cc_tts.api.events import server_sent
from cc_tts.api.events.stream import QUERY
from cc_tts.api.http.bodies import JSON
from cc_tts.api.http.openapi import REF, plain
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.calls.events.bus import Event
from cc_tts.calls.events.types import EVENTS, EventData
from cc_tts.calls.text_stream import messages as text_stream_messages

ROUTES: Final = RouteTable("Events")
DOCUMENT: Final = web.AppKey("asyncapi", bytes)
_DESCRIPTION: Final = (
    "Events of calls and of the server. `seq` counts up per call from 1 without gaps; `since` or `Last-Event-ID` with the "
    "id of the last event goes on after it, 410 if events in between are no longer kept. As server-sent events "
    f"(`Accept: {server_sent.CONTENT_TYPE}`) each event is the `data` of one block and its id the `id`; blocks without "
    "`data` have no event."
)


@ROUTES.add("GET", "/v1/asyncapi.json", scope=None)
async def get_async_api(request: web.Request) -> web.Response:
    """The events and the text stream as an AsyncAPI document."""
    return web.Response(body=request.app[DOCUMENT], content_type=JSON)


def document() -> dict[str, Any]:
    """The AsyncAPI document of all types of events and of the text stream."""
    kinds = list(EVENTS.values())
    sent: Sequence[type[msgspec.Struct]] = text_stream_messages.MESSAGES
    received: Sequence[type[msgspec.Struct]] = text_stream.FRAMES
    _, components = msgspec.json.schema_components([Event], ref_template=REF)
    schemas, found = msgspec.json.schema_components(kinds, ref_template=REF)
    stream_schemas, stream_found = msgspec.json.schema_components([*sent, *received], ref_template=REF)
    components |= found | stream_found
    envelope = components.pop(Event.__name__)
    components.pop(EventData.__name__)
    events = {
        kind.type: _message(kind, kind.type, _in_envelope(envelope, kind, schema))
        for kind, schema in zip(kinds, schemas, strict=True)
    }
    stream = {
        f"stream.{kind.__name__}": _message(kind, kind.__struct_config__.tag, schema)
        for kind, schema in zip((*sent, *received), stream_schemas, strict=True)
    }
    text_stream_channel = _channel(
        "/v1/calls/{id}/stream",
        "A WebSocket, one message in each text frame: text of a language model in, what becomes of it out.",
        messages=stream,
        query=text_stream.QUERY,
    )
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "cc-tts events", "version": __version__, "description": _DESCRIPTION},
        "defaultContentType": JSON,
        "channels": {
            "events": _channel(
                "/v1/events",
                "A WebSocket, one event in each text frame, or server-sent events.",
                messages=events,
                query=QUERY,
            ),
            "textStream": text_stream_channel | {"parameters": {"id": {"description": "The id of the call."}}},
        },
        "operations": {
            "sendEvents": _operation("send", "The server sends events to whoever is connected.", "events", events),
            "receiveText": _operation(
                "receive",
                "Clients send text and say how it is to be spoken.",
                "textStream",
                [f"stream.{kind.__name__}" for kind in received],
            ),
            "sendProgress": _operation(
                "send",
                "The server says what becomes of the text.",
                "textStream",
                [f"stream.{kind.__name__}" for kind in sent],
            ),
        },
        "components": {
            "messages": plain(events | stream),
            "schemas": plain(components),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _channel(address: str, description: str, *, messages: Iterable[str], query: Iterable[Query]) -> dict[str, Any]:
    properties = {each.name: each.schema | {"description": each.description} for each in query}
    return {
        "address": address,
        "description": description,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {
            "ws": {
                "method": "GET",
                "query": {"type": "object", "properties": properties},
                "bindingVersion": "0.1.0",
            }
        },
    }


def _operation(action: str, summary: str, channel: str, messages: Iterable[str]) -> dict[str, Any]:
    return {
        "action": action,
        "summary": summary,
        "channel": {"$ref": f"#/channels/{channel}"},
        "security": [{"$ref": "#/components/securitySchemes/bearer"}],
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
    }


def _message(kind: type[msgspec.Struct], name: object, payload: dict[str, Any]) -> dict[str, Any]:
    summary = " ".join((inspect.getdoc(kind) or "").split())
    return {"name": name, "title": kind.__name__, "summary": summary, "payload": payload}


def _in_envelope(envelope: dict[str, Any], kind: type[EventData], data: dict[str, Any]) -> dict[str, Any]:
    return envelope | {
        "title": kind.__name__ + "Event",
        "properties": envelope["properties"] | {"type": {"const": kind.type}, "data": data},
        "required": [*envelope["properties"]],
    }
