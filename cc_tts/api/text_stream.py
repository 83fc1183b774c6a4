"""``GET /v1/calls/{id}/stream``: the text of an LLM into a call, as it is written, over a WebSocket.

JSON text frames both ways; :mod:`cc_tts.calls.input.text_messages` has those to the client. One that cannot be followed is
answered by ``error`` and the stream goes on; :data:`.MAX_FAULTS` of them in a row close it with 1008. The socket is
closed with 1000 when the call is over, with 1013 when the client does not read, and broken off when it answers no ping.

::

    frames ─▸ Receiver ─▸ TextStream ─▸ Outbox ─▸ frames
"""

import json
import re
from typing import Annotated, Final, assert_never, cast, get_args

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from msgspec import UNSET, Meta, UnsetType

from cc_tts import logs
from cc_tts.api.calls import ON_A_CALL, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.events import websocket
from cc_tts.api.http.connections import abort
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.receiver import Receiver, Socket
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.schemas import Language, LexiconNames, PromptFields, Speed, VoiceId, check_text
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.input.text import TextStream
from cc_tts.calls.input.text_messages import StreamError, StreamId, StreamMessage
from cc_tts.errors import UNREADABLE, CapacityExceeded, CcTtsError, MalformedRequest, Unprocessable
from cc_tts.speech.prompt import Prompt, TextContent

MAX_FRAME_IN_BYTES: Final = 65_536  # unmeasured
MAX_QUEUED_OUT: Final = 2000  # unmeasured
"""Messages that wait for a client that does not read."""
_WORDS: Final = Query("words", "true: each word is reported when it is heard.", ("true", "false"))
_ON_CLOSE: Final = Query(
    "on_close", "When the socket closes, what was not heard is spoken (end), or dropped (clear).", ("end", "clear")
)
QUERY: Final = (_WORDS, _ON_CLOSE)

ROUTES: Final = RouteTable("Speech")

log = logs.get(__name__)


class StartUtterance(PromptFields, frozen=True, tag_field="type", tag="start"):
    """Open an utterance; the one before ends. The fields are those of …/speak, the text comes with ``tokens``."""

    voice: VoiceId | None = None
    language: Language | None = None
    speed: Speed | None = None
    lexicons: LexiconNames = ()

    def prompt(self) -> Prompt:
        """The prompt, whose text is still to come; raises ``Unprocessable`` for an option that is not in this version."""
        return self.to_prompt(TextContent("", self.voice, self.language, self.speed, lexicons=self.lexicons))


class Frame(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="type"):
    """Base of the others."""


class Tokens(Frame, frozen=True, kw_only=True, tag="tokens"):
    """Text to append to the open utterance, or to begin one with. ``id`` comes back if the text is not taken."""

    text: str
    id: StreamId | UnsetType = UNSET


class Flush(Frame, frozen=True, kw_only=True, tag="flush"):
    """Speak what has come, without waiting for the end of a sentence."""


class Clear(Frame, frozen=True, kw_only=True, tag="clear"):
    """Drop what was not heard of this stream's utterances."""


class Mark(Frame, frozen=True, kw_only=True, tag="mark"):
    """Report when the line has come to this place in the text."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]


class End(Frame, frozen=True, kw_only=True, tag="end"):
    """No more text comes for the open utterance."""


FromClient = StartUtterance | Tokens | Flush | Mark | Clear | End
"""Clients send these, in the order in which documents list them."""
FRAMES: Final = get_args(FromClient)
_DECODER: Final = msgspec.json.Decoder(FromClient)
_HALF: Final = re.compile("[\ud800-\udfff]")
_HALF_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")


class _Identified(msgspec.Struct):
    """The id of a message that cannot be followed, so that the client knows which one that is."""

    id: StreamId | UnsetType = UNSET


@ROUTES.add(
    "GET",
    "/v1/calls/{id}/stream",
    scope="call",
    status=101,
    content_types=(),
    query=QUERY,
    errors=(*ON_A_CALL, UpgradeRequired, CapacityExceeded, Unprocessable),
    streams=True,
)
async def stream_text(request: web.Request) -> web.StreamResponse:
    """Text that is spoken as it arrives, over a WebSocket."""
    context, call = request.app[CONTEXT], call_of(request)
    has_words = _WORDS.choice(request, default="false") == "true"
    clears = _ON_CLOSE.choice(request, default="end") == "clear"
    socket = websocket.new_socket(max_frame_bytes=MAX_FRAME_IN_BYTES, autoping=False)
    if not socket.can_prepare(request):
        raise UpgradeRequired("open this path with a WebSocket handshake (RFC 6455 §4.1)")
    outbox = Outbox[StreamMessage](MAX_QUEUED_OUT)
    stream = TextStream(call, send=outbox.put, on_call_ended=outbox.close, has_words=has_words)
    context.metrics.text_streams.inc()
    try:
        await socket.prepare(request)
        log.info("text_stream_opened", call_id=call.id)
        request.app[websocket.OPEN_SOCKETS].add(socket)
        receiver = _Client(socket, stream, outbox).receiver
        await websocket.serve(
            cast("Socket", socket),
            outbox,
            receiver.receive_all(),
            receiver.ping_all(),
            end=(WSCloseCode.OK, b"the call is over"),
            on_too_slow=lambda: log.info("text_stream_client_too_slow"),
            abort=lambda: abort(request),
        )
    except ConnectionError:
        log.debug("text_stream_client_gone", call_id=call.id)
    except Exception:  # the handshake is answered: there is no status left to give
        log.exception("text_stream_failed", call_id=call.id)
        abort(request)
    finally:
        outbox.close()
        if clears:
            stream.clear()
        stream.close()
        context.metrics.text_streams.dec()
        log.info("text_stream_closed", call_id=call.id)
    return socket


class _Client:
    def __init__(self, socket: web.WebSocketResponse, stream: TextStream, outbox: Outbox[StreamMessage]) -> None:
        self._stream = stream
        self._outbox = outbox
        self._message_id: StreamId | UnsetType = UNSET
        """The id of the message that is being followed."""
        self._half = ""
        """The first half of a character whose other half begins the next tokens."""
        self.receiver = Receiver(cast("Socket", socket), follow=self._follow, refuse=self._refuse)

    def _follow(self, message: WSMessage) -> None:
        self._message_id = UNSET
        if message.type is WSMsgType.BINARY:
            raise MalformedRequest("messages are JSON in text frames")
        try:
            frame = _decoded(message.data)
        except UNREADABLE:
            self._message_id = _id_in(message.data)
            raise
        self._message_id = frame.id if isinstance(frame, Tokens) else UNSET
        if not isinstance(frame, Tokens):
            self._half = ""
        self._obey(frame)

    def _whole(self, text: str) -> str:
        """The text with the half of a character that ended the tokens before; other halves alone become U+FFFD."""
        text, self._half = self._half + text, ""
        if _HALF.search(text) is None:
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _obey(self, frame: FromClient) -> None:
        stream = self._stream
        match frame:
            case StartUtterance():
                stream.start(frame.prompt())
            case Tokens(text=text, id=message_id):
                check_text(text, "/text")
                stream.tokens(self._whole(text), None if message_id is UNSET else message_id)
            case Flush():
                stream.flush()
            case Clear():
                stream.clear()
            case Mark(name=name):
                stream.mark(name)
            case End():
                stream.end()
            case _:
                assert_never(frame)

    def _refuse(self, error: CcTtsError) -> None:
        self._outbox.put(StreamError(code=error.code, detail=error.detail, id=self._message_id))


def _decoded(data: str) -> FromClient:
    """A message; JavaScript cuts strings inside of characters, and such halves are no fault of tokens.

    Raises:
        msgspec.DecodeError: not JSON, or not of the right shape.
    """
    try:
        frame: FromClient = _DECODER.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if _HALF_ESCAPED.search(data) is None:
            raise
        return _tokens_with_halves(data)
    return frame


def _tokens_with_halves(data: str) -> Tokens:
    try:
        tokens = msgspec.convert(json.loads(data), Tokens)
    except json.JSONDecodeError as error:
        raise msgspec.DecodeError(str(error)) from None
    if isinstance(tokens.id, str) and _HALF.search(tokens.id) is not None:
        raise msgspec.DecodeError("half of a character in an id")
    return tokens


def _id_in(data: str) -> StreamId | UnsetType:
    """The ``id`` of a message that cannot be followed, where it can be read."""
    try:
        return msgspec.json.decode(data, type=_Identified).id
    except UNREADABLE:
        return UNSET
