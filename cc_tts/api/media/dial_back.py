"""Media streams that the server opens to the application of a route when a call comes in.

The call is answered once the application has taken the connection. It ends when the application closes, after what that has
sent was played; and the end of the call closes the connection. The URL is the operator's: nothing of a call goes into it. No
redirect is followed.
"""

from collections.abc import Callable
from contextlib import closing, suppress

from yarl import URL

from cc_tts import logs
from cc_tts.api.media.client_socket import STOP_TIMEOUT_S, ClientSocket, dial
from cc_tts.api.media.dialect import Dialect
from cc_tts.api.media.media_connection import MediaConnection
from cc_tts.api.media.twilio import TwilioDialect
from cc_tts.calls.call import Call
from cc_tts.config.schema import Config, MediaDialect
from cc_tts.egress.http import GuardedClient
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
        self._http = GuardedClient("routes.media_url", None, socket_class=ClientSocket)
        self._tasks = TaskSet()

    def dial(self, call: Call, url: str, dialect: MediaDialect, on_failed: Callable[[], None]) -> None:
        """Connect, answer the call if that is still needed, and serve it. ``on_failed`` is called if nobody accepts the
        connection in time.
        """
        spoken = TwilioDialect() if dialect == "twilio" else Dialect(self._line_rate_hz)
        self._tasks.begin(self._serve(call, URL(url), spoken, on_failed), f"media {call.id}")

    async def stop(self) -> None:
        """End the connections; the calls are over."""
        await self._tasks.stop(STOP_TIMEOUT_S)
        await self._http.close()

    async def _serve(self, call: Call, url: URL, dialect: Dialect, on_failed: Callable[[], None]) -> None:
        is_reached = True
        try:
            socket = await self._connect(call, url)
            is_reached = socket is not None
            if socket is not None:
                async with socket:
                    with (
                        closing(MediaConnection(call, dialect, hangs_up=True)) as connection,
                        suppress(ConnectionError),
                    ):
                        call.accept()
                        await connection.run(socket)
        except CcTtsError as error:  # the call ended meanwhile, or has as many streams as it may
            log.info("media_dial_back_failed", call_id=call.id, code=error.code)
        except Exception:
            log.exception("media_dial_back_failed", call_id=call.id)
        if call.waits_for_answer or not is_reached:
            on_failed()

    async def _connect(self, call: Call, url: URL) -> ClientSocket | None:
        socket = await dial(
            self._http,
            url,
            timeout_s=self._media.connect_timeout_s,
            max_frame_bytes=self._media.max_frame_bytes,
            headers=call.trace_headers,
            event="media_unreachable",
            call_id=call.id,
        )
        self._metrics.media_connections.labels(result="failed" if socket is None else "connected").inc()
        return socket
