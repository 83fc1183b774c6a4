"""``GET /v1/calls/{id}/media``: the audio of a call, to and from a client, over a WebSocket."""

from typing import Final, cast, get_args

from aiohttp import web

from cc_tts.api.calls import ON_A_CALL, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import auth
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.media import twilio
from cc_tts.api.media.connection import serve
from cc_tts.api.media.dialect import Dialect
from cc_tts.api.media.media_connection import MediaConnection
from cc_tts.calls.audio.messages import MediaDirection
from cc_tts.config.schema import MediaDialect
from cc_tts.errors import CapacityExceeded, QuotaExceeded, Unprocessable

_DIRECTION: Final = Query(
    "direction",
    "in: the caller; out: what we send; both: the two as channels; talk: in, and what the client sends is played, for which "
    "the token needs the scope talk besides listen.",
    get_args(MediaDirection),
)
_RATE: Final = Query("rate", "Hz, of both ways.", ("8000", "16000"))
_DIALECT: Final = Query(
    "dialect", "twilio: the messages are those of Twilio Media Streams, at 8000 Hz.", get_args(MediaDialect)
)
_ON_CLOSE: Final = Query(
    "on_close", "When the socket closes, what was not played is played (end), or dropped (clear).", ("end", "clear")
)
QUERY: Final = (_DIRECTION, _RATE, _DIALECT, _ON_CLOSE)

ROUTES: Final = RouteTable("Calls")


@ROUTES.add(
    "GET",
    "/v1/calls/{id}/media",
    scope="listen",
    status=101,
    content_types=(),
    query=QUERY,
    errors=(*ON_A_CALL, UpgradeRequired, CapacityExceeded, QuotaExceeded),
    streams=True,
)
async def stream_media(request: web.Request) -> web.StreamResponse:
    """The audio of a call over a WebSocket."""
    call, direction = call_of(request), cast("MediaDirection", _DIRECTION.choice(request))
    dialect = _dialect(request)
    clears = _ON_CLOSE.choice(request) == "clear"
    if direction == "talk":
        request.app[auth.AUTHENTICATOR].authenticate(request, "talk")
    with request.app[CONTEXT].services.tenants.hold(auth.current_tenant(), "listeners"):
        return await serve(
            request,
            lambda: MediaConnection(call, dialect, direction=direction, clears=clears),
            max_frame_bytes=request.app[CONTEXT].config.media.max_frame_bytes,
        )


def _dialect(request: web.Request) -> Dialect:
    rate_hz = int(_RATE.choice(request))
    if _DIALECT.choice(request) == "cc-tts":
        return Dialect(rate_hz)
    if rate_hz != twilio.RATE_HZ:
        raise Unprocessable(f"dialect=twilio has {twilio.RATE_HZ} Hz")
    return twilio.TwilioDialect()
