"""``GET /v1/calls/{id}/media``: the audio of a call, to and from a client, over a WebSocket."""

from typing import Any, Final, cast, get_args

from aiohttp import web

from cc_tts import logs
from cc_tts.api.calls import ON_A_CALL, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.events import websocket
from cc_tts.api.http import auth
from cc_tts.api.http.connections import abort
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.media import twilio
from cc_tts.api.media.connection import MediaConnection, MediaOutbox
from cc_tts.api.media.dialect import Dialect, OwnDialect
from cc_tts.calls.audio.messages import MediaDirection
from cc_tts.calls.audio.stream import MediaStream
from cc_tts.calls.call import Call
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

log = logs.get(__name__)


@ROUTES.add(
    "GET",
    "/v1/calls/{id}/media",
    scope="listen",
    status=101,
    content_types=(),
    query=QUERY,
    errors=(*ON_A_CALL, UpgradeRequired, CapacityExceeded, Unprocessable, QuotaExceeded),
    streams=True,
)
async def stream_media(request: web.Request) -> web.StreamResponse:
    """The audio of a call over a WebSocket."""
    call, direction = call_of(request), cast("MediaDirection", _DIRECTION.choice(request, default="in"))
    dialect = _dialect(request)
    clears = _ON_CLOSE.choice(request, default="end") == "clear"
    if direction == "talk":
        request.app[auth.AUTHENTICATOR].authenticate(request, "talk")
    with request.app[CONTEXT].tenants.hold_listener(auth.current_tenant()):
        return await _serve(request, call, direction, dialect, clears=clears)


async def _serve(
    request: web.Request, call: Call, direction: MediaDirection, dialect: Dialect, *, clears: bool
) -> web.StreamResponse:
    context = request.app[CONTEXT]
    media = context.config.media
    socket = websocket.new_socket(max_frame_bytes=media.max_frame_bytes, autoping=False)
    if not socket.can_prepare(request):
        raise UpgradeRequired("open this path with a WebSocket handshake (RFC 6455 §4.1)")
    outbox = MediaOutbox(media.max_queued_ms, context.metrics.call_audio_dropped.labels(where="client"))
    stream = MediaStream(
        call,
        outbox,
        direction=direction,
        rate_hz=dialect.rate_hz,
        interleaves=dialect.interleaves,
        barge_in_dtmf=dialect.barge_in_dtmf,
    )
    try:
        await socket.prepare(request)
        request.app[websocket.OPEN_SOCKETS].add(socket)
        log.info("media_stream_opened", call_id=call.id, direction=direction)
        await MediaConnection(cast("Any", socket), dialect, outbox, stream.talk, abort=lambda: abort(request)).run()
    except ConnectionError:
        log.debug("media_stream_client_gone", call_id=call.id)
    except Exception:  # the handshake is answered: there is no status left to give
        log.exception("media_stream_failed", call_id=call.id)
        abort(request)
    finally:
        outbox.close()
        stream.close(clears=clears)
        log.info("media_stream_closed", call_id=call.id)
    return socket


def _dialect(request: web.Request) -> Dialect:
    rate_hz = int(_RATE.choice(request, default="8000"))
    if _DIALECT.choice(request, default="cc-tts") == "cc-tts":
        return OwnDialect(rate_hz)
    if rate_hz != twilio.RATE_HZ:
        raise Unprocessable(f"dialect=twilio has {twilio.RATE_HZ} Hz")
    return twilio.TwilioDialect()
