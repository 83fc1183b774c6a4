"""Media streams that the server opens to the application of a route when a call comes in.

The call is answered once the application has taken the connection. It ends when the application closes, after what that has
sent was played; and the end of the call closes the connection. The URL is the operator's: nothing of a call goes into it. No
redirect is followed.
"""

import contextlib
from collections.abc import Callable
from typing import cast

import aiohttp
from yarl import URL

from cc_tts import logs
from cc_tts.api.events.websocket import Socket
from cc_tts.api.media import client_socket
from cc_tts.api.media.dialect import Dialect, OwnDialect
from cc_tts.api.media.media_connection import MediaConnection
from cc_tts.api.media.twilio import TwilioDialect
from cc_tts.calls.call import Call
from cc_tts.config.schema import Config, MediaDialect
from cc_tts.errors import CcTtsError
from cc_tts.metrics import Metrics
from cc_tts.processes.tasks import TaskSet

log = logs.get(__name__)


class DialBack:
    """All such connections. Runs on: the event loop."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._media = config.media
        self._line_rate_hz = config.rtp.clock_rate_hz
        self._metrics = metrics
        self._http = client_socket.new_client("routes.media_url")
        self._tasks = TaskSet()

    def dial(self, call: Call, url: str, dialect: MediaDialect, on_failed: Callable[[], None]) -> None:
        """Connect, answer the call if that is still needed, and serve it. ``on_failed`` is called if nobody accepts the
        connection in time.
        """
        spoken = TwilioDialect() if dialect == "twilio" else OwnDialect(self._line_rate_hz)
        self._tasks.begin(self._serve(call, URL(url), spoken, on_failed), f"media {call.id}")

    async def stop(self) -> None:
        """End the connections; the calls are over."""
        await self._tasks.stop(client_socket.STOP_TIMEOUT_S)
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
        dialled = await client_socket.dial(
            self._http,
            url,
            timeout_s=self._media.connect_timeout_s,
            max_frame_bytes=self._media.max_frame_bytes,
            headers=call.trace_headers,
        )
        result = "failed" if isinstance(dialled, str) else "connected"
        self._metrics.media_connections.labels(result=result).inc()
        if isinstance(dialled, str):
            log.warning("media_unreachable", call_id=call.id, host=url.host, port=url.port, detail=dialled)
            return None
        return dialled

    async def _converse(self, call: Call, socket: aiohttp.ClientWebSocketResponse, dialect: Dialect) -> None:
        connection = MediaConnection(call, dialect, hangs_up=True)
        try:
            call.accept()
            with contextlib.suppress(ConnectionError):
                await connection.run(cast("Socket", socket), abort=lambda: None)
        finally:
            connection.close()
