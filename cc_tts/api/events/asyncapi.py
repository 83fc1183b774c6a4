"""``GET /v1/asyncapi.json``: AsyncAPI 3.0 of the events and of the streams of calls, generated from their types."""

import asyncio
import functools
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import UNSET

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
from cc_tts.calls.input import text_messages as text_stream_messages

ROUTES: Final = RouteTable("Events")
_DESCRIPTION: Final = (
    "Events of calls and of the server. `seq` counts up per call from 1 without gaps; `since` or `Last-Event-ID` with the "
    "id of the last event goes on after it, 410 if events in between are no longer kept. As server-sent events "
    f"(`Accept: {server_sent.CONTENT_TYPE}`) each event is the `data` of one block and its id the `id`; blocks without "
    "`data` have no event."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallSocket:
    """A WebSocket of a call: its channel, the prefix of the names of its messages, and the messages of each direction."""

    channel: str
    prefix: str
    address: str
    description: str
    query: Sequence[Query]
    receives: tuple[str, str]
    """The operation of the messages that the server receives, and its summary."""
    sends: tuple[str, str]
    received: Sequence[type[msgspec.Struct]]
    sent: Sequence[type[msgspec.Struct]]

    def name(self, kind: type[msgspec.Struct]) -> str:
        return f"{self.prefix}.{kind.__name__}"


_CALL_SOCKETS: Final = (
    _CallSocket(
        channel="textStream",
        prefix="stream",
        address="/v1/calls/{id}/stream",
        description="A WebSocket, one message in each text frame: text of a language model in, what becomes of it out.",
        query=text_stream.QUERY,
        receives=("receiveText", "Clients send text and say how it is to be spoken."),
        sends=("sendProgress", "The server says what becomes of the text."),
        received=text_stream.FRAMES,
        sent=text_stream_messages.MESSAGES,
    ),
    _CallSocket(
        channel="mediaStream",
        prefix="media",
        address="/v1/calls/{id}/media",
        description="A WebSocket: PCM in binary messages, both ways, and these messages in text frames. With "
        "dialect=twilio the messages are those of Twilio Media Streams.",
        query=media_stream.QUERY,
        receives=("receiveAudio", "Clients send PCM in binary messages, and say how it is to be played."),
        sends=("sendAudio", "The server sends PCM in binary messages, and what happens besides."),
        received=dialect.FRAMES,
        sent=media_messages.MESSAGES,
    ),
)


@ROUTES.add("GET", "/v1/asyncapi.json", scope=None)
async def get_async_api(_request: web.Request) -> web.Response:
    """The events and the streams of a call as an AsyncAPI document."""
    return web.Response(body=await asyncio.to_thread(_encoded), content_type=JSON)


@functools.cache
def _encoded() -> bytes:
    return msgspec.json.encode(document())


def document() -> dict[str, Any]:
    """The AsyncAPI document of all types of events and of the streams of calls."""
    kinds = list(EVENTS.values())
    _, components = msgspec.json.schema_components([Event], ref_template=REF)
    schemas, found = msgspec.json.schema_components(kinds, ref_template=REF)
    components |= found
    envelope = components.pop(Event.__name__)
    components.pop(EventData.__name__)
    events = messages = {
        kind.type: _message(kind, kind.type, _in_envelope(envelope, kind, schema))
        for kind, schema in zip(kinds, schemas, strict=True)
    }
    description = "A WebSocket, one event in each text frame, or server-sent events."
    channels = {"events": _channel("/v1/events", description, messages=events, query=QUERY)}
    summary = "The server sends events to every connected client."
    operations = {"sendEvents": _operation("send", summary, "events", events)}
    for socket in _CALL_SOCKETS:
        kinds_of_socket = (*socket.sent, *socket.received)
        schemas, found = msgspec.json.schema_components(kinds_of_socket, ref_template=REF)
        components |= found
        its_messages = {
            socket.name(kind): _message(kind, kind.__struct_config__.tag, schema)
            for kind, schema in zip(kinds_of_socket, schemas, strict=True)
        }
        messages = messages | its_messages
        channel = _channel(socket.address, socket.description, messages=its_messages, query=socket.query)
        channels[socket.channel] = channel | {"parameters": {"id": {"description": "The id of the call."}}}
        for action, (name, summary), some in (
            ("receive", socket.receives, socket.received),
            ("send", socket.sends, socket.sent),
        ):
            operations[name] = _operation(action, summary, socket.channel, map(socket.name, some))
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "cc-tts events", "version": __version__, "description": _DESCRIPTION},
        "defaultContentType": JSON,
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": plain(messages),
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
        "required": [each.encode_name for each in msgspec.structs.fields(Event) if each.default is not UNSET],
    }
