"""The connections of relays to their applications. A lost connection is made again if the relay still needs it.

The handshake has the headers of Standard Webhooks, with the id of the relay; what is signed has an empty body. A URL that a
client chose is reached at the hosts of ``relay.allowed_hosts`` alone. An application that closes with 1000, or without a
status, has finished; anything else is a loss.
"""

import asyncio
from contextlib import closing, suppress
from typing import Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType

from cc_tts import logs
from cc_tts.api.http import bodies
from cc_tts.api.media.client_socket import STOP_TIMEOUT_S, ClientSocket, dial
from cc_tts.api.media.connection import StreamConnection
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.relay import messages
from cc_tts.calls.relay.relay import MAX_KEPT, Relay
from cc_tts.clock import Clock
from cc_tts.config.schema import Config
from cc_tts.config.sections.relay import relay_url
from cc_tts.config.webhooks import key_of
from cc_tts.egress.hosts import AllowedHosts
from cc_tts.egress.http import GuardedClient
from cc_tts.errors import CcTtsError, MalformedRequest
from cc_tts.processes.backoff import Backoff
from cc_tts.processes.tasks import TaskSet
from cc_tts.webhooks import signing

MAX_FRAME_BYTES: Final = 65_536  # unmeasured
FIRST_RETRY_S: Final = 0.5  # unmeasured
MAX_RETRY_S: Final = 5.0  # unmeasured
_FINISHED: Final = (WSCloseCode.OK, 0)
"""The close statuses by which an application ends the relay; 0 stands for none."""
_OUR_REFUSALS: Final = (WSCloseCode.POLICY_VIOLATION, WSCloseCode.MESSAGE_TOO_BIG)
"""Our own close statuses for faulty messages. A new connection would get the same, so none is made."""

log = logs.get(__name__)


class RelayConnection(StreamConnection[messages.ToApplication]):
    end = (WSCloseCode.OK, b"the relay is over")
    frames = messages.Message

    def __init__(self, relay: Relay) -> None:
        super().__init__(Outbox(2 * MAX_KEPT), kind="relay", call_id=relay.call.id, relay_id=relay.request.id)
        self._relay = relay
        relay.connected(self.outbox)

    def follow(self, message: WSMessage) -> None:
        if message.type is WSMsgType.BINARY:
            raise MalformedRequest("messages are JSON in text frames")
        self._relay.take(bodies.parsed(message.data, self.frames))

    def refuse(self, error: CcTtsError) -> None:
        self._relay.refuse(error)

    def close(self) -> None:
        self._relay.disconnected()


class RelayConnector:
    """Makes the connections of all relays. Runs on: the event loop."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config.relay
        self._clock = clock
        allowed = AllowedHosts(config.relay.allowed_hosts)
        self._clients = {
            False: GuardedClient("routes.relay", None, socket_class=ClientSocket),
            True: GuardedClient("relay.allowed_hosts", lambda: allowed, socket_class=ClientSocket),
        }
        self._tasks = TaskSet()

    def connect(self, relay: Relay) -> None:
        self._tasks.begin(self._serve(relay), f"relay {relay.call.id}")

    async def stop(self) -> None:
        """End the connections; the calls are over."""
        await self._tasks.stop(STOP_TIMEOUT_S)
        for client in self._clients.values():
            await client.close()

    async def _serve(self, relay: Relay) -> None:
        backoff = Backoff(self._clock, min_s=FIRST_RETRY_S, max_s=MAX_RETRY_S)
        try:
            while relay.wants_connection:
                is_first = not relay.was_connected
                socket = await (self._dial(relay) if is_first else self._dial_again(relay, backoff))
                if socket is None:
                    relay.conclude("unreachable" if is_first else "lost")
                    return
                await self._converse(relay, socket)
        except Exception:
            log.exception("relay_failed", call_id=relay.call.id)
            relay.conclude("lost")

    async def _converse(self, relay: Relay, socket: ClientSocket) -> None:
        async with socket:
            if not relay.wants_connection:
                return
            with closing(RelayConnection(relay)) as connection, suppress(ConnectionError):
                await connection.run(socket)
        if socket.their_code in _FINISHED:
            relay.conclude("closed")
        elif relay.wants_connection:
            log.warning("relay_lost", call_id=relay.call.id, relay_id=relay.request.id, code=socket.their_code)
            if not relay.request.application_reconnect or socket.our_code in _OUR_REFUSALS:
                relay.conclude("lost")

    async def _dial_again(self, relay: Relay, backoff: Backoff) -> ClientSocket | None:
        """Return the next connection, or ``None`` if nobody accepts one for as long as it is tried."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._config.reconnect_timeout_s
        while relay.wants_connection and loop.time() < deadline_s:
            await asyncio.sleep(backoff.delay_s())
            backoff.begin()
            if (socket := await self._dial(relay)) is not None:
                return socket
        return None

    async def _dial(self, relay: Relay) -> ClientSocket | None:
        request, url = relay.request, relay_url(relay.request.url)
        if url is None:
            return None
        keys = (key_of(request.secret),) if request.secret else ()
        signed = signing.headers(keys, event_id=request.id, at_s=int(self._clock.wall_s()), body=b"")
        return await dial(
            self._clients[request.is_guarded],
            url,
            timeout_s=self._config.connect_timeout_s,
            max_frame_bytes=MAX_FRAME_BYTES,
            headers=signed | relay.call.trace_headers,
            event="relay_unreachable",
            call_id=relay.call.id,
            relay_id=request.id,
        )
