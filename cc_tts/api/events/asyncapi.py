"""``GET /v1/asyncapi.json``: AsyncAPI 3.0 of the events and of the text stream, made from the structs that are sent."""

import inspect
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
    """The AsyncAPI document of all types of events."""
    kinds = list(EVENTS.values())
    (envelope,), components = msgspec.json.schema_components([Event], ref_template=REF)
    schemas, found = msgspec.json.schema_components(kinds, ref_template=REF)
    components |= found
    envelope = components.pop(Event.__name__)
    components.pop(EventData.__name__)
    messages = {kind.type: _message(kind, envelope, schema) for kind, schema in zip(kinds, schemas, strict=True)}
    channel = {
        "address": "/v1/events",
        "description": "A WebSocket, one event in each text frame, or server-sent events.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {
            "ws": {
                "method": "GET",
                "query": {"type": "object", "properties": {each.name: _query(each) for each in QUERY}},
                "bindingVersion": "0.1.0",
            }
        },
    }
    operation = {
        "action": "send",
        "summary": "The server sends events to whoever is connected.",
        "channel": {"$ref": "#/channels/events"},
        "security": [{"$ref": "#/components/securitySchemes/bearer"}],
        "messages": [{"$ref": f"#/channels/events/messages/{name}"} for name in messages],
    }
    stream_channel, stream_operations, stream_messages, stream_schemas = _text_stream()
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "cc-tts events", "version": __version__, "description": _DESCRIPTION},
        "defaultContentType": JSON,
        "channels": {"events": channel, "textStream": stream_channel},
        "operations": {"sendEvents": operation} | stream_operations,
        "components": {
            "messages": messages | stream_messages,
            "schemas": plain(components | stream_schemas),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _text_stream() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The text stream of a call: its channel, operations, messages and the schemas of these."""
    sent, received = text_stream_messages.MESSAGES, text_stream.FRAMES
    schemas, components = msgspec.json.schema_components([*sent, *received], ref_template=REF)
    messages: dict[str, Any] = {}
    for kind, schema in zip((*sent, *received), schemas, strict=True):
        summary = " ".join((inspect.getdoc(kind) or "").split())
        described = {"name": kind.__struct_config__.tag, "title": kind.__name__, "summary": summary, "payload": schema}
        messages[f"stream.{kind.__name__}"] = plain(described)
    refs = {name: {"$ref": f"#/components/messages/{name}"} for name in messages}
    queries = {each.name: _query(each) for each in text_stream.QUERY}
    channel = {
        "address": "/v1/calls/{id}/stream",
        "description": "A WebSocket, one message in each text frame: text of a language model in, what becomes of it out.",
        "parameters": {"id": {"description": "The id of the call."}},
        "messages": refs,
        "bindings": {
            "ws": {
                "method": "GET",
                "query": {"type": "object", "properties": queries},
                "bindingVersion": "0.1.0",
            }
        },
    }
    operations = {
        name: {
            "action": action,
            "summary": summary,
            "channel": {"$ref": "#/channels/textStream"},
            "security": [{"$ref": "#/components/securitySchemes/bearer"}],
            "messages": [{"$ref": f"#/channels/textStream/messages/stream.{kind.__name__}"} for kind in kinds],
        }
        for name, action, kinds, summary in (
            ("receiveText", "receive", received, "Clients send text and say how it is to be spoken."),
            ("sendProgress", "send", sent, "The server says what becomes of the text."),
        )
    }
    return channel, operations, messages, components


def _message(kind: type[EventData], envelope: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    payload = envelope | {
        "title": kind.__name__ + "Event",
        "properties": envelope["properties"] | {"type": {"const": kind.type}, "data": data},
        "required": [*envelope["properties"]],
    }
    summary = " ".join((inspect.getdoc(kind) or "").split())
    message: dict[str, Any] = plain({"name": kind.type, "title": kind.__name__, "summary": summary, "payload": payload})
    return message


def _query(query: Query) -> dict[str, Any]:
    return query.schema | {"description": query.description}
