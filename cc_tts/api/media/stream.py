"""``GET /v1/calls/{id}/media``: the audio of a call, to and from a client, over a WebSocket."""

from typing import Any, Final, TypeVar, cast, get_args

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
from cc_tts.api.media.dialect import Dialect, OwnDialect
from cc_tts.api.media.serving import Outbox, Serving
from cc_tts.calls.audio.messages import MediaDirection
from cc_tts.calls.audio.stream import MediaStream
from cc_tts.config.schema import MediaDialect
from cc_tts.errors import CapacityExceeded, Unprocessable

T = TypeVar("T", bound=str)

RATES: Final = ("8000", "16000")
DIALECTS: Final[tuple[MediaDialect, ...]] = get_args(MediaDialect)
DIRECTIONS: Final[tuple[MediaDirection, ...]] = get_args(MediaDirection)
QUERY: Final = (
    Query(
        name="direction",
        description="in: the caller; out: what we send; both: the two as channels; talk: in, and what the client sends is "
        "played, for which the token needs the scope talk besides listen.",
        schema={"type": "string", "enum": list(DIRECTIONS), "default": "in"},
    ),
    Query(
        name="rate",
        description="Hz, of both ways.",
        schema={"type": "string", "enum": list(RATES), "default": "8000"},
    ),
    Query(
        name="dialect",
        description="twilio: the messages are those of Twilio Media Streams, at 8000 Hz.",
        schema={"type": "string", "enum": list(DIALECTS), "default": "cc-tts"},
    ),
    Query(
        name="on_close",
        description="When the socket closes, what was not played is played (end), or dropped (clear).",
        schema={"type": "string", "enum": ["end", "clear"], "default": "end"},
    ),
)

ROUTES: Final = RouteTable("Calls")

log = logs.get(__name__)


@ROUTES.add(
    "GET",
    "/v1/calls/{id}/media",
    scope="listen",
    operation_id="streamMedia",
    status=101,
    content_types=(),
    query=QUERY,
    errors=(*ON_A_CALL, UpgradeRequired, CapacityExceeded, Unprocessable),
    streams=True,
)
async def media_stream(request: web.Request) -> web.StreamResponse:
    """The audio of a call over a WebSocket."""
    context, call = request.app[CONTEXT], call_of(request)
    direction = _choice(request, "direction", DIRECTIONS)
    dialect = _dialect(request)
    clears = _choice(request, "on_close", ("end", "clear")) == "clear"
    if direction == "talk":
        request.app[auth.AUTHENTICATOR].authenticate(request, "talk")
    media = context.config.media
    socket = web.WebSocketResponse(
        autoping=False,
        timeout=websocket.CLOSE_TIMEOUT_S,
        max_msg_size=media.max_frame_bytes,
        compress=False,
        writer_limit=websocket.WRITE_BUFFER_BYTES,
    )
    if not socket.can_prepare(request):
        raise UpgradeRequired("open this path with a WebSocket handshake (RFC 6455 §4.1)")
    outbox = Outbox(media.max_queued_ms, context.metrics.call_audio_dropped.labels(where="client"))
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
        await Serving(cast("Any", socket), dialect, outbox, stream.talk, abort=lambda: abort(request)).run()
    except ConnectionError:
        log.debug("media_stream_client_gone", call_id=call.id)
    except Exception:  # the handshake is answered: there is no status left to give
        log.exception("media_stream_failed", call_id=call.id)
        abort(request)
    finally:
        outbox.end()
        stream.close(clears=clears)
        log.info("media_stream_closed", call_id=call.id)
    return socket


def _dialect(request: web.Request) -> Dialect:
    rate_hz = int(_choice(request, "rate", RATES))
    if _choice(request, "dialect", DIALECTS) == "cc-tts":
        return OwnDialect(rate_hz)
    if rate_hz != twilio.RATE_HZ:
        raise Unprocessable(f"dialect=twilio has {twilio.RATE_HZ} Hz")
    return twilio.TwilioDialect()


def _choice(request: web.Request, name: str, choices: tuple[T, ...]) -> T:
    """A query parameter; the first choice if it is left out."""
    asked = request.query.get(name, choices[0])
    for choice in choices:
        if choice == asked:
            return choice
    raise Unprocessable(f"{name} is {', '.join(choices[:-1])} or {choices[-1]}")
