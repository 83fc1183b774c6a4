"""The relays of all calls: who may begin one, and how they continue after a restart of the server.

Runs on: the event loop.
"""

import secrets
from collections.abc import Callable
from typing import Any

from cc_tts import logs
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.relay.relay import Relay, go_on, tell_end
from cc_tts.calls.relay.request import RelayRequest
from cc_tts.calls.services import CallServices
from cc_tts.config.sections.relay import RelaySettings, relay_url
from cc_tts.egress.hosts import AllowedHosts
from cc_tts.errors import CcTtsError, RelayActive, RelayNotAllowed, RelayNotFound

log = logs.get(__name__)


def _nobody(_relay: Relay) -> None:
    """Connect nothing; used where no connector is configured."""


class Relays:
    """Begins and ends relays. ``connect`` connects one to its application."""

    def __init__(self, services: CallServices) -> None:
        self._services = services
        self._allowed = AllowedHosts(services.config.relay.allowed_hosts)
        self.connect: Callable[[Relay], None] = _nobody

    def begin(
        self,
        call: Call,
        settings: RelaySettings,
        *,
        relay_id: str | None = None,
        client_state: str | None = None,
        is_guarded: bool = False,
    ) -> RelayRequest:
        """Have an application talk with the far side of a call; ``call.relay_ended`` follows once.

        Raises:
            RelayNotAllowed: a client may not name this host.
            RelayActive: the call has a relay.
            WrongState, CapacityExceeded, SpeechNotHeard: as :class:`Relay`.
        """
        url = relay_url(settings.url)
        if is_guarded and (url is None or not self._allowed.has(url.raw_host or "")):
            raise RelayNotAllowed("the host of the URL is not in relay.allowed_hosts: add it to the configuration")
        if _relay_of(call) is not None:
            raise RelayActive(f"call {call.id} has a relay: DELETE /v1/calls/{call.id}/relay ends it")
        fields: dict[str, Any] = {name: getattr(settings, name) for name in RelaySettings.__struct_fields__}
        request = RelayRequest(
            **fields,
            id=relay_id or f"relay_{secrets.token_hex(8)}",
            sid=f"VX{secrets.token_hex(16)}",
            is_guarded=is_guarded,
            client_state=client_state,
        )
        self._run(call, request)
        return request

    def stop(self, call: Call) -> RelayRequest:
        """End the relay of a call, with ``stopped``; the client takes the call on.

        Raises:
            RelayNotFound: the call has none.
        """
        if (relay := _relay_of(call)) is None:
            raise RelayNotFound(f"call {call.id} has no relay")
        relay.stop()
        return relay.request

    def resume(self, call: Call) -> None:
        """Reconnect the relay of an adopted call, if it has one. It starts again if the call still has to be answered, and
        fails if it cannot continue.
        """
        if (request := call.relay_request) is None:
            return
        call.relay_request = None
        is_inbound = call.direction == "inbound"
        is_answered = call.state is CallState.ESTABLISHED or (is_inbound and not call.waits_for_answer)
        try:
            if is_answered:
                self._run(call, request, resumed=True)
                return
        except CcTtsError as error:
            log.warning("relay_not_resumed", call_id=call.id, code=error.code)
        tell_end(call, request, "server_restarted")
        if is_answered:
            go_on(call, request, "server_restarted")

    def _run(self, call: Call, request: RelayRequest, *, resumed: bool = False) -> None:
        relay = Relay(call, request, resumed=resumed)
        call.keep()
        self.connect(relay)


def _relay_of(call: Call) -> Relay | None:
    return next((each for each in call.followers if isinstance(each, Relay)), None)
