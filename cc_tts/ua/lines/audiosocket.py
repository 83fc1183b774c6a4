"""Calls that Asterisk brings by AudioSocket: a TCP connection for each, with a UUID that names the call. Asterisk is the
client.

A message is its kind, the length of its content in two octets, high one first, and the content. Samples are in the order of
the machine, low octet first, at 8 kHz from the dialplan's application. Runs on: the thread of the loop.
"""

import asyncio
import contextlib
import functools
import socket
import struct
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from cc_tts import logs
from cc_tts.ua.lines.codec import LineCodec
from cc_tts.ua.lines.invite import incoming_call
from cc_tts.ua.lines.line import Line
from cc_tts.ua.lines.playout import QueueSink
from cc_tts.ua.lines.switchboard import SETUP_TIMEOUT_S, Malformed, Switchboard
from cc_tts.ua.messages import EndedBy

TRANSPORT: Final = "audiosocket"
HANGUP: Final = 0x00
UUID: Final = 0x01
DTMF: Final = 0x03
AUDIO: Final = 0x10
ERROR: Final = 0xFF
"""The kinds of messages."""
UUID_BYTES: Final = 16
MAX_BACKLOG_BYTES: Final = 16_000
"""One second of audio that Asterisk has not taken; more is dropped, so that audio is not late for ever."""
_HEADER: Final = struct.Struct(">BH")

log = logs.get(__name__)


class AudioSocketLink:
    """One connection, and the line that it carries."""

    transport = TRANSPORT

    def __init__(
        self, board: Switchboard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str
    ) -> None:
        self._board = board
        self._reader = reader
        self._writer = writer
        self._source = source
        self._codec = LineCodec("slin", board.settings.rtp.clock_rate_hz)
        self._line: Line | None = None
        self._is_closed = False
        self.encoding = self._codec.encoding
        self.queue: QueueSink | None = None

    async def run(self) -> None:
        """Run the line until either side ends it."""
        ended_by: EndedBy = "remote"
        try:
            async with asyncio.timeout(SETUP_TIMEOUT_S):
                self._start(*await self._message())
            while self._line is not None and await self._take(self._line):
                pass
        except TimeoutError:
            log.warning("line_without_start", source=self._source, waited_s=SETUP_TIMEOUT_S)
        except Malformed as error:
            log.warning("line_malformed", source=self._source, detail=str(error))
            ended_by = "not_acceptable"
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # Asterisk closes without a word when its caller hangs up
        finally:
            if self._line is not None:
                self._line.lost(ended_by)
            self.hang_up()

    async def _message(self) -> tuple[int, bytes]:
        kind, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        return kind, await self._reader.readexactly(length)

    def _start(self, kind: int, content: bytes) -> None:
        if kind != UUID or len(content) != UUID_BYTES:
            raise Malformed("the first message is no UUID")
        name = uuid.UUID(bytes=content)
        invite = incoming_call(
            self._board.new_call_id(name.hex),
            channel_id=str(name),
            source=self._source,
            transport=TRANSPORT,
            default_route=self._board.config.route,
            variables={},
            parameters={},
        )
        self._line = self._board.take(self, invite)

    async def _take(self, line: Line) -> bool:
        """Handle a message; return whether another may follow."""
        kind, content = await self._message()
        line.heard_ns = self._board.clock.now_ns()
        match kind:
            case _ if kind == AUDIO:
                line.media.receive(self._codec.decode(content))
            case _ if kind == DTMF:
                line.key(content.decode("latin-1"))
            case _ if kind == HANGUP:
                return False
            case _ if kind == ERROR:
                log.warning("asterisk_error", call_id=line.call_id, code=content[:1].hex())
                return False
            case _:
                raise Malformed(f"a message of kind 0x{kind:02x}")
        return True

    # --- what the line sends -----------------------------------------------------------------------------------------------

    def answer(self) -> None:
        """Nothing to do: Asterisk has answered its caller before it connected."""

    def send(self, pcm: bytes) -> None:
        transport = self._writer.transport
        if self._is_closed or transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            if self._line is not None:
                self._line.media.num_late += 1
            return
        data = self._codec.encode(pcm)
        self._writer.write(_HEADER.pack(AUDIO, len(data)) + data)

    def hang_up(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write(_HEADER.pack(HANGUP, 0))
            self._writer.close()


async def listen(board: Switchboard) -> Callable[[], Awaitable[None]]:
    """Listen for Asterisk; return the function that ends it. Raises ``OSError`` if the port is taken."""
    config = board.config
    server = await asyncio.start_server(functools.partial(_connected, board), config.host, config.audiosocket_port)

    async def stop() -> None:
        server.close()

    return stop


async def _connected(board: Switchboard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    source = board.connected(writer.transport)
    if not source or board.refusal(source) is not None:
        board.disconnected(source)
        writer.transport.abort()
        return
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        await AudioSocketLink(board, reader, writer, source).run()
    finally:
        board.disconnected(source)
