"""``GET /v1/asyncapi.json``: AsyncAPI 3.0 of the events and of the streams of calls, made from what is sent."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
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
from cc_tts.api.media import dialect
from cc_tts.api.media import stream as media_stream
from cc_tts.calls.audio import messages as media_messages
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


@ROUTES.add(
    "GET",
    "/v1/asyncapi.json",
    scope=None,
    summary="The events and the streams of a call as an AsyncAPI document",
    operation_id="getAsyncApi",
    content_types=(JSON,),
)
async def asyncapi_json(request: web.Request) -> web.Response:
    """Send the document that was made when the application was built."""
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
    channels: dict[str, Any] = {"events": channel}
    operations: dict[str, Any] = {"sendEvents": operation}
    for socket in _CALL_SOCKETS:
        channels[socket.channel], more_operations, more_messages, more_schemas = _call_socket(socket)
        operations |= more_operations
        messages |= more_messages
        components |= more_schemas
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "cc-tts events", "version": __version__, "description": _DESCRIPTION},
        "defaultContentType": JSON,
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": plain(components),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallSocket:
    """A WebSocket of a call. ``sent`` and ``received`` are the messages of each way, after the operation's name and summary;
    ``prefix`` is before their names.
    """

    channel: str
    prefix: str
    address: str
    description: str
    query: Sequence[Query]
    received: tuple[str, str, Sequence[type[msgspec.Struct]]]
    sent: tuple[str, str, Sequence[type[msgspec.Struct]]]


_CALL_SOCKETS: Final = (
    _CallSocket(
        channel="textStream",
        prefix="stream",
        address="/v1/calls/{id}/stream",
        description="A WebSocket, one message in each text frame: text of a language model in, what becomes of it out.",
        query=text_stream.QUERY,
        received=("receiveText", "Clients send text and say how it is to be spoken.", text_stream.FRAMES),
        sent=("sendProgress", "The server says what becomes of the text.", text_stream_messages.MESSAGES),
    ),
    _CallSocket(
        channel="mediaStream",
        prefix="media",
        address="/v1/calls/{id}/media",
        description="A WebSocket: PCM in binary messages, both ways, and these messages in text frames. With "
        "dialect=twilio the messages are those of Twilio Media Streams.",
        query=media_stream.QUERY,
        received=(
            "receiveAudio",
            "Clients send PCM in binary messages, and say how it is to be played.",
            dialect.FRAMES,
        ),
        sent=(
            "sendAudio",
            "The server sends PCM in binary messages, and what happens besides.",
            media_messages.MESSAGES,
        ),
    ),
)


def _call_socket(socket: _CallSocket) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Its channel, operations, messages and the schemas of these."""
    kinds = (*socket.sent[2], *socket.received[2])
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    messages: dict[str, Any] = {}
    for kind, schema in zip(kinds, schemas, strict=True):
        summary = " ".join((inspect.getdoc(kind) or "").split())
        described = {"name": kind.__struct_config__.tag, "title": kind.__name__, "summary": summary, "payload": schema}
        messages[f"{socket.prefix}.{kind.__name__}"] = plain(described)
    channel = {
        "address": socket.address,
        "description": socket.description,
        "parameters": {"id": {"description": "The id of the call."}},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {
            "ws": {
                "method": "GET",
                "query": {"type": "object", "properties": {each.name: _query(each) for each in socket.query}},
                "bindingVersion": "0.1.0",
            }
        },
    }
    operations = {
        name: {
            "action": action,
            "summary": summary,
            "channel": {"$ref": f"#/channels/{socket.channel}"},
            "security": [{"$ref": "#/components/securitySchemes/bearer"}],
            "messages": [
                {"$ref": f"#/channels/{socket.channel}/messages/{socket.prefix}.{kind.__name__}"} for kind in kinds
            ],
        }
        for action, (name, summary, kinds) in (("receive", socket.received), ("send", socket.sent))
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
