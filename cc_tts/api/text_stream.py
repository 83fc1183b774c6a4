"""``GET /v1/calls/{id}/stream``: text of an LLM is spoken on a call while it is generated, over a WebSocket.

JSON text frames both ways; :mod:`cc_tts.calls.input.text_messages` has those to the client.
"""

import json
import re
from typing import Annotated, Final, assert_never, get_args

import msgspec
from aiohttp import WSMessage, WSMsgType, web
from msgspec import UNSET, Meta, UnsetType

from cc_tts.api.calls import ON_A_CALL, call_of
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.media.connection import Frame, StreamConnection, serve
from cc_tts.api.schemas import StyledPrompt, check_text, style_of
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.follower import CallView
from cc_tts.calls.input.text import TextStream
from cc_tts.calls.input.text_messages import StreamError, StreamId, StreamMessage
from cc_tts.config.wording import check_keys
from cc_tts.errors import UNREADABLE, CapacityExceeded, CcTtsError, MalformedRequest
from cc_tts.speech.prompt import Prompt

MAX_FRAME_IN_BYTES: Final = 65_536  # unmeasured
MAX_QUEUED_OUT: Final = 2000  # unmeasured
"""The most messages that wait for a client that does not read."""
_WORDS: Final = Query("words", "true: each word is reported when it is heard.", ("false", "true"))
_ON_CLOSE: Final = Query(
    "on_close", "When the socket closes, what was not heard is spoken (end), or dropped (clear).", ("end", "clear")
)
QUERY: Final = (_WORDS, _ON_CLOSE)

ROUTES: Final = RouteTable("Speech")


class StartUtterance(StyledPrompt, frozen=True, tag_field="type", tag="start"):
    """Open an utterance; the one before ends. The fields are those of …/speak, the text comes with ``tokens``."""

    def prompt(self) -> Prompt:
        """Return the prompt, whose text follows; raises ``Unprocessable`` for an option that this version lacks."""
        return self.to_prompt(style_of(self))


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
"""The client's messages, in the order in which the documents list them."""
FRAMES: Final = get_args(FromClient)
_DECODER: Final = msgspec.json.Decoder(FromClient)
_HALF: Final = re.compile("[\ud800-\udfff]")
_HALF_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")


class _Identified(msgspec.Struct):
    """The id of a message that cannot be carried out, so that the client knows which one it is."""

    id: StreamId | UnsetType = UNSET


@ROUTES.add(
    "GET",
    "/v1/calls/{id}/stream",
    scope="call",
    status=101,
    content_types=(),
    query=QUERY,
    errors=(*ON_A_CALL, UpgradeRequired, CapacityExceeded),
    streams=True,
)
async def stream_text(request: web.Request) -> web.StreamResponse:
    """Text that is spoken as it arrives, over a WebSocket."""
    call = call_of(request)
    has_words = _WORDS.choice(request) == "true"
    clears = _ON_CLOSE.choice(request) == "clear"
    return await serve(
        request, lambda: TextConnection(call, has_words=has_words, clears=clears), max_frame_bytes=MAX_FRAME_IN_BYTES
    )


class TextConnection(StreamConnection[StreamMessage]):
    """One client of text. ``clears``: what was not heard when it goes is dropped.

    Raises:
        WrongState, CapacityExceeded: as :class:`cc_tts.calls.input.text.TextStream`.
    """

    frames = FromClient

    def __init__(self, call: CallView, *, has_words: bool, clears: bool) -> None:
        super().__init__(Outbox(MAX_QUEUED_OUT), kind="text", call_id=call.id)
        self._stream = TextStream(call, send=self.outbox.put, on_call_ended=self.outbox.close, has_words=has_words)
        self._clears = clears
        self._message_id: StreamId | UnsetType = UNSET
        """The id of the current message."""
        self._half = ""
        """The first half of a surrogate pair; the other half begins the next tokens."""

    def follow(self, message: WSMessage) -> None:
        self._message_id = UNSET
        if message.type is WSMsgType.BINARY:
            raise MalformedRequest("messages are JSON in text frames")
        try:
            frame = _decoded(message.data)
            check_keys(message.data)
        except (MalformedRequest, *UNREADABLE):
            self._message_id = _id_in(message.data)
            raise
        if isinstance(frame, Tokens):
            self._message_id = frame.id
        else:
            self._half = ""
        self._execute(frame)

    def refuse(self, error: CcTtsError) -> None:
        self.outbox.put(StreamError(code=error.code, detail=error.detail, id=self._message_id))

    def close(self) -> None:
        if self._clears:
            self._stream.clear()
        self._stream.close()

    def _whole(self, text: str) -> str:
        """Return the text with the half pair from the tokens before; other unpaired surrogates become U+FFFD."""
        text, self._half = self._half + text, ""
        if _HALF.search(text) is None:
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _execute(self, frame: FromClient) -> None:
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


def _decoded(data: str) -> FromClient:
    """Decode a message. JavaScript may cut strings inside surrogate pairs, which is no error.

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
    except ValueError as error:  # also raised by a number of thousands of digits
        raise msgspec.DecodeError(str(error)) from None
    if isinstance(tokens.id, str) and _HALF.search(tokens.id) is not None:
        raise msgspec.DecodeError("half of a character in an id")
    return tokens


def _id_in(data: str) -> StreamId | UnsetType:
    """Return the ``id`` of a message that cannot be carried out, if it can be read."""
    try:
        return msgspec.json.decode(data, type=_Identified).id
    except UNREADABLE:
        return UNSET
