"""Handler of ``/v1/calls/{id}/trace``: the SIP messages of a call."""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from cc_tts.api.admin.ladder import ladder, pcap
from cc_tts.api.calls import call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.views import EpochSeconds
from cc_tts.calls.call import Call
from cc_tts.clock import NS_PER_S
from cc_tts.errors import CallNotFound, LineUnsupported, TraceNotFound, UserAgentUnavailable
from cc_tts.ua.messages import TracedMessage

ROUTES: Final = RouteTable("Calls")
_FORMAT: Final = Query(
    "format",
    "ladder: a line for each message; text: with the messages behind; pcap: for Wireshark; json.",
    ("ladder", "text", "pcap", "json"),
)
_PLAIN: Final = "text/plain"
_PCAP: Final = "application/vnd.tcpdump.pcap"
_JSON: Final = "application/json"


class SipMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A SIP message of a call; texts to be spoken, credentials, keys and digits are asterisks."""

    at: EpochSeconds
    sent: Annotated[bool, Meta(description="By us; false: it came.")]
    transport: str
    local: str
    remote: str
    text: str

    @classmethod
    def of(cls, message: TracedMessage) -> "SipMessage":
        local, remote = (f"{host}:{port}" for host, port in (message.local, message.remote))
        text = message.text.decode("utf-8", "replace")
        return cls(
            at=message.at_ns / NS_PER_S,
            sent=message.is_sent,
            transport=message.transport,
            local=local,
            remote=remote,
            text=text,
        )


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The SIP messages of a call that are kept, oldest first."""

    call_id: str
    sip_call_id: str
    messages: list[SipMessage]


@ROUTES.add(
    "GET",
    "/v1/calls/{id}/trace",
    scope="read",
    query=(_FORMAT,),
    content_types=(_PLAIN, _PCAP, _JSON),
    errors=(CallNotFound, TraceNotFound, LineUnsupported, UserAgentUnavailable),
)
async def trace_call(request: web.Request) -> web.Response:
    """The SIP messages of a call, also of one that has ended lately, without texts, credentials, keys and digits."""
    wanted = _FORMAT.choice(request)
    call = call_of(request)
    found = await request.app[CONTEXT].registry.trace(call)
    if not found.is_on:
        raise TraceNotFound("no SIP messages are kept: sip.trace_messages is 0; a reload takes another number over")
    if not found.messages:
        raise TraceNotFound("the SIP messages of this call are not kept any more, or came before they were")
    return _RESPONSES[wanted](call, found.messages)


def _text(call: Call, messages: tuple[TracedMessage, ...], *, is_full: bool = False) -> web.Response:
    return web.Response(text=ladder(call.id, call.sip_call_id, messages, is_full=is_full), content_type=_PLAIN)


def _json(call: Call, messages: tuple[TracedMessage, ...]) -> web.Response:
    shown = [SipMessage.of(each) for each in messages]
    return bodies.response(Trace(call_id=call.id, sip_call_id=call.sip_call_id, messages=shown), status=200)


_RESPONSES: Final[dict[str, Callable[[Call, tuple[TracedMessage, ...]], web.Response]]] = {
    "ladder": _text,
    "text": lambda call, messages: _text(call, messages, is_full=True),
    "pcap": lambda _call, messages: web.Response(body=pcap(messages), content_type=_PCAP),
    "json": _json,
}
