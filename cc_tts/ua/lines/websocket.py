"""Calls that Asterisk brings by its channel ``WebSocket`` (chan_websocket, control messages as JSON). Asterisk is the
client.

::

    ◂ upgrade, MEDIA_START   ▸ frames, MARK_MEDIA, FLUSH_MEDIA, ANSWER, HANGUP
    ◂ frames, DTMF_END, MEDIA_MARK_PROCESSED, MEDIA_XOFF, MEDIA_XON

Runs on: the thread of the loop.
"""

import asyncio
import base64
import binascii
import contextlib
import functools
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from cc_tts import logs
from cc_tts.config.sections.asterisk import AsteriskConfig
from cc_tts.config.wording import check_keys
from cc_tts.errors import UNREADABLE, MalformedRequest
from cc_tts.ua.lines.codec import FORMATS, LineCodec
from cc_tts.ua.lines.invite import incoming_call, variables_of
from cc_tts.ua.lines.line import Line
from cc_tts.ua.lines.playout import QueueSink
from cc_tts.ua.lines.switchboard import SETUP_TIMEOUT_S, Malformed, Switchboard
from cc_tts.ua.messages import EndedBy

TRANSPORT: Final = "asterisk_ws"
MAX_MESSAGE_BYTES: Final = 1 << 18
"""A MEDIA_START with the longest text is shorter; unmeasured."""
MAX_PIECE_BYTES: Final = 65_500
"""Asterisk closes a connection that sends it a longer message."""
MAX_EARLY_BYTES: Final = 32_000
"""The audio before MEDIA_START that is kept, a second of the widest format; unmeasured."""
LAST_MESSAGES_TIMEOUT_S: Final = 1.0
"""The time that the last messages may take; unmeasured."""
_CREDENTIALS: Final = frozenset({"user", "token"})
"""Parameters of the address that are meant for us, and must not be shown."""
_SILENT: Final = logging.getLogger("cc_tts.ua.lines.protocol")
"""The logger for aiohttp's errors about unreadable requests. They quote header lines, which may hold a password, so nothing
is written.
"""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

log = logs.get(__name__)


class _Event(msgspec.Struct):
    """A message of Asterisk, with the fields that we read of any."""

    event: str
    channel_id: str = ""
    format: str = ""
    channel_variables: dict[str, Any] = {}
    digit: str = ""
    correlation_id: str = ""


_DECODER: Final = msgspec.json.Decoder(_Event)


class WebSocketLink:
    """One connection, and the line that it carries."""

    transport = TRANSPORT

    def __init__(
        self, board: Switchboard, socket: web.WebSocketResponse, source: str, query: Mapping[str, str]
    ) -> None:
        self._board = board
        self._socket = socket
        self._source = source
        self._query = query
        self._outbox: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._codec: LineCodec | None = None
        self._line: Line | None = None
        self._early = bytearray()
        self._is_closed = False
        self.encoding = ""
        self.queue: QueueSink | None = self

    async def run(self) -> None:
        """Run the line until either side ends it."""
        sending = asyncio.create_task(self._send_all())
        ended_by: EndedBy = "remote"
        try:
            async with asyncio.timeout(SETUP_TIMEOUT_S) as deadline:
                async for message in self._socket:
                    self._take(message)
                    if self._line is not None:
                        deadline.reschedule(None)
        except TimeoutError:
            log.warning("line_without_start", source=self._source, waited_s=SETUP_TIMEOUT_S)
        except Malformed as error:
            log.warning("line_malformed", source=self._source, detail=str(error))
            ended_by = "not_acceptable"
            self._lose(ended_by)
            await self._socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=str(error).encode()[:120])
        finally:
            self._lose(ended_by)
            self._outbox.put_nowait(None)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(sending, LAST_MESSAGES_TIMEOUT_S)

    def _lose(self, ended_by: EndedBy) -> None:
        self._is_closed = True
        if self._line is not None:
            self._line.lost(ended_by)

    async def _send_all(self) -> None:
        """Send the items of the outbox; ``None`` ends this and the connection."""
        with contextlib.suppress(ConnectionError, RuntimeError):  # the client is gone, which run() notices
            while (item := await self._outbox.get()) is not None:
                await (self._socket.send_str(item) if isinstance(item, str) else self._socket.send_bytes(item))
        await self._socket.close()

    # --- what Asterisk sends -----------------------------------------------------------------------------------------------

    def _take(self, message: Any) -> None:
        if self._line is not None:
            self._line.heard_ns = self._board.clock.now_ns()
        if message.type is WSMsgType.BINARY:
            self._take_audio(message.data)
        elif message.type is WSMsgType.TEXT:
            self._take_event(message.data)

    def _take_audio(self, data: bytes) -> None:
        if self._codec is None or self._line is None:
            self._early += data
            del self._early[:-MAX_EARLY_BYTES]
        else:
            self._line.media.receive(self._codec.decode(data))

    def _take_event(self, text: str) -> None:
        try:
            event = _DECODER.decode(text)
            check_keys(text)
        except (MalformedRequest, *UNREADABLE) as error:
            raise Malformed(f"a message is not one of chan_websocket with f(json): {error}") from None
        if event.event == "MEDIA_START":
            self._start(event)
            return
        line = self._line
        if line is None:
            return
        match event.event:
            case "DTMF_END":
                line.key(event.digit)
            case "MEDIA_MARK_PROCESSED" if event.correlation_id.isdecimal():
                line.media.confirm(int(event.correlation_id[:18]), self._board.clock.now_ns())
            case "MEDIA_XOFF" | "MEDIA_XON" if line.media.credit is not None:
                line.media.credit.is_full = event.event == "MEDIA_XOFF"
            case "ERROR":
                log.warning("asterisk_error", call_id=line.call_id)

    def _start(self, event: _Event) -> None:
        if self._line is not None:
            raise Malformed("MEDIA_START comes twice")
        if event.format not in FORMATS:
            raise Malformed(f"format {event.format[:16]!r} is not one of {', '.join(FORMATS)}")
        if not event.channel_id:
            raise Malformed("MEDIA_START has no channel_id")
        codec = LineCodec(event.format, self._board.settings.rtp.clock_rate_hz)
        self._codec, self.encoding = codec, codec.encoding
        variables = variables_of(self._query) | variables_of(event.channel_variables)
        invite = incoming_call(
            self._board.new_call_id(),
            channel_id=event.channel_id[:256],
            source=self._source,
            transport=TRANSPORT,
            default_route=self._board.config.route,
            variables=variables,
            parameters={name: each for name, each in self._query.items() if not _is_ours(name)},
        )
        self._line = self._board.take(self, invite)
        if self._line is not None:
            self._line.media.receive(codec.decode(bytes(self._early)))
        self._early.clear()

    # --- what the line sends -----------------------------------------------------------------------------------------------

    def send(self, pcm: bytes) -> None:
        if not self._is_closed and self._codec is not None:
            data = self._codec.encode(pcm)
            for start in range(0, len(data), MAX_PIECE_BYTES):
                self._outbox.put_nowait(data[start : start + MAX_PIECE_BYTES])

    def mark(self, number: int) -> None:
        self._command("MARK_MEDIA", correlation_id=str(number))

    def flush(self) -> None:
        self._command("FLUSH_MEDIA")

    def answer(self) -> None:
        self._command("ANSWER")

    def hang_up(self) -> None:
        self._command("HANGUP")
        self._is_closed = True
        self._outbox.put_nowait(None)

    def _command(self, command: str, **more: str) -> None:
        if not self._is_closed:
            self._outbox.put_nowait(msgspec.json.encode({"command": command, **more}).decode())


async def listen(board: Switchboard) -> Callable[[], Awaitable[None]]:
    """Listen for Asterisk; return the function that ends it. Raises ``OSError`` if the port is taken."""
    config = board.config
    served = web.Server(functools.partial(_handle, board), access_log=None, logger=_SILENT)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(board, served), config.host, config.websocket_port)

    async def stop() -> None:
        server.close()
        await served.shutdown(LAST_MESSAGES_TIMEOUT_S)

    return stop


async def _handle(board: Switchboard, request: web.BaseRequest) -> web.StreamResponse:
    connection = request.protocol
    assert isinstance(connection, _Connection)
    connection.request_came()
    if (refusal := _refusal(board, request)) is not None:
        return refusal
    offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if each.strip()]
    socket = web.WebSocketResponse(protocols=offered[:1], max_msg_size=MAX_MESSAGE_BYTES, compress=False)
    await socket.prepare(request)
    await WebSocketLink(board, socket, connection.source, dict(request.query)).run()
    return socket


def _refusal(board: Switchboard, request: web.BaseRequest) -> web.Response | None:
    if not _is_known(board.config, request):
        log.warning("line_refused", source=request.remote, reason="credentials")
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="cc-tts"'})
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return web.Response(status=426, headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    if (retry_after_s := board.refusal(request.remote or "")) is not None:
        return web.Response(status=503, headers={"Retry-After": str(retry_after_s)})
    return None


def _is_known(config: AsteriskConfig, request: web.BaseRequest) -> bool:
    """Whether the request has the password: as a user's, as a bearer token, or as ``token`` in the query."""
    if not config.password:
        return True
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    user, password = config.username, request.query.get("token", "")
    if scheme.lower() == "bearer":
        password = credentials.strip()
    elif scheme.lower() == "basic":
        user, password = _basic(credentials)
    is_user = not config.username or hmac.compare_digest(user.encode(), config.username.encode())
    return hmac.compare_digest(password.encode(), config.password.encode()) and is_user


def _is_ours(name: str) -> bool:
    """Whether a parameter of the address is not for the application: a variable, or a secret."""
    return name in _CREDENTIALS or bool(variables_of({name: "a value"}))


def _basic(credentials: str) -> tuple[str, str]:
    """Return the user and the password of RFC 7617; empty if they cannot be read."""
    try:
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return "", ""
    return user, password


class _Connection(web.RequestHandler):
    """A connection from an allowed address, which must send a request soon."""

    __slots__ = ("_board", "_timer", "source")

    def __init__(self, board: Switchboard, server: web.Server) -> None:
        options: dict[str, Any] = {"access_log": None, "logger": _SILENT}
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._board = board
        self._timer: asyncio.TimerHandle | None = None
        self.source = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.source = self._board.connected(transport)
        if not self.source:
            self._drop()
            return
        self._timer = asyncio.get_running_loop().call_later(SETUP_TIMEOUT_S, self._drop)

    def request_came(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.request_came()
        self._board.disconnected(self.source)
        super().connection_lost(exc)

    def _drop(self) -> None:
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()
