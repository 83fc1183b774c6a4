"""Connects to the application of a route when a call comes in: a media stream that the server opens.

The call is answered once the application has taken the connection. It ends when the application closes, after what that has
sent was played; and the end of the call closes the connection. The URL is the operator's: nothing of a call goes into it. No
redirect is followed.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, cast

import aiohttp
from yarl import URL

from cc_tts import __version__, logs
from cc_tts.api.events.websocket import CLOSE_TIMEOUT_S, Socket, why_closed
from cc_tts.api.media.dialect import Dialect, OwnDialect
from cc_tts.api.media.media_connection import MediaConnection
from cc_tts.api.media.twilio import TwilioDialect
from cc_tts.calls.call import Call
from cc_tts.config.schema import Config, MediaDialect
from cc_tts.errors import CcTtsError
from cc_tts.metrics import Metrics

STOP_TIMEOUT_S: Final = 2.0  # unmeasured
"""How long the last messages may take when the server stops."""

_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)  # media.connect_timeout_s is around it

log = logs.get(__name__)


class _Redirected(aiohttp.ClientError):
    """The application answered with a redirect."""


class _ClientSocket(aiohttp.ClientWebSocketResponse):
    max_frame_bytes = 0

    async def close(self, *, code: int = aiohttp.WSCloseCode.OK, message: bytes = b"") -> bool:
        return await super().close(code=code, message=why_closed(code, message, self.max_frame_bytes))


class DialBack:
    """All such connections. Runs on: the event loop."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._media = config.media
        self._line_rate_hz = config.rtp.clock_rate_hz
        self._metrics = metrics
        self._http: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(self, call: Call, url: str, dialect: MediaDialect, *, on_failed: Callable[[], None]) -> None:
        """Connect, answer the call if it is not answered, serve it. ``on_failed``: nobody took the connection in time."""
        spoken = TwilioDialect() if dialect == "twilio" else OwnDialect(self._line_rate_hz)
        task = asyncio.create_task(self._serve(call, URL(url), spoken, on_failed), name=f"media {call.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End them. The calls are over."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_TIMEOUT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def _serve(self, call: Call, url: URL, dialect: Dialect, on_failed: Callable[[], None]) -> None:
        is_reached = True
        try:
            socket = await self._connect(call, url)
            is_reached = socket is not None
            if socket is not None:
                async with socket:
                    await self._converse(call, socket, dialect)
        except CcTtsError as error:  # the call ended meanwhile, or has as many streams as it may
            log.info("media_dial_back_failed", call_id=call.id, code=error.code)
        except Exception:
            log.exception("media_dial_back_failed", call_id=call.id)
        if call.waits_for_answer or not is_reached:
            on_failed()

    async def _connect(self, call: Call, url: URL) -> aiohttp.ClientWebSocketResponse | None:
        if self._http is None:
            tracing = aiohttp.TraceConfig()
            tracing.on_request_redirect.append(_refuse_redirect)
            self._http = aiohttp.ClientSession(
                headers={"User-Agent": f"cc-tts/{__version__}"},
                trace_configs=[tracing],
                timeout=_NO_TIMEOUT,
                ws_response_class=_ClientSocket,
            )
        try:
            async with asyncio.timeout(self._media.connect_timeout_s):
                socket = await self._http.ws_connect(
                    url,
                    autoping=False,
                    max_msg_size=self._media.max_frame_bytes,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = f"no answer within {self._media.connect_timeout_s:g} s" if isinstance(error, TimeoutError) else ""
            why = why or (f"status {error.status}" if isinstance(error, aiohttp.WSServerHandshakeError) else "")
            log.warning("media_unreachable", call_id=call.id, host=url.host, port=url.port, detail=why or _kind(error))
            self._metrics.media_connections.labels(result="failed").inc()
            return None
        self._metrics.media_connections.labels(result="connected").inc()
        assert isinstance(socket, _ClientSocket)
        socket.max_frame_bytes = self._media.max_frame_bytes
        return socket

    async def _converse(self, call: Call, socket: aiohttp.ClientWebSocketResponse, dialect: Dialect) -> None:
        connection = MediaConnection(call, dialect, hangs_up=True)
        try:
            call.accept()
            with contextlib.suppress(ConnectionError):
                await connection.run(cast("Socket", socket), abort=lambda: None)
        finally:
            connection.close()


async def _refuse_redirect(*_: Any) -> None:
    """A hook of aiohttp, which would follow it."""
    raise _Redirected


def _kind(error: Exception) -> str:
    """The kind of a failure, without the URL, which may hold a secret."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
