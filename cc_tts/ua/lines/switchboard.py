"""Shared by the listeners of lines without SIP: who may connect, and how many. Runs on: the thread of the loop."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.config.sections.asterisk import AsteriskConfig
from cc_tts.ua import messages
from cc_tts.ua.guard.limits import PeerList, host_of
from cc_tts.ua.lines.line import Line, LineLink

SETUP_TIMEOUT_S: Final = 5.0
"""A connection must name its call within this time; unmeasured."""
SPARE_CONNECTIONS: Final = 16
"""The most connections without a call; unmeasured."""

log = logs.get(__name__)


class Malformed(Exception):
    """The peer does not speak the protocol of this address."""


class Switchboard:
    """Accepts connections and makes lines of them. ``refusal`` is called for each call of an address and returns
    Retry-After, or ``None`` to accept; ``take`` is the agent's.
    """

    def __init__(
        self,
        settings: messages.UaSettings,
        config: AsteriskConfig,
        *,
        clock: Clock,
        refusal: Callable[[str], int | None],
        take: Callable[[LineLink, messages.IncomingCall], Line | None],
    ) -> None:
        self.settings = settings
        self.config = config
        self.clock = clock
        self.refusal = refusal
        self.take = take
        self._peers = PeerList(config.allowed_peers)
        self._num_connections = 0

    def connected(self, transport: asyncio.BaseTransport) -> str:
        """Count a connection; return its source address, empty if it must be closed."""
        peername = transport.get_extra_info("peername")
        source = host_of(f"{peername[0]}:0") if peername else ""
        if source not in self._peers:
            log.warning("line_refused", source=source, reason="asterisk.allowed_peers")
            return ""
        if self._num_connections >= self.config.max_calls + SPARE_CONNECTIONS:
            log.warning("line_refused", source=source, reason="too many connections")
            return ""
        self._num_connections += 1
        return source

    def disconnected(self, source: str) -> None:
        """A connection that :meth:`connected` has accepted is gone."""
        self._num_connections -= bool(source)

    def new_call_id(self, name: str = "") -> str:
        """Return an id for a call; ``name``: 32 hexadecimal digits that Asterisk has chosen."""
        return self.settings.call_id_prefix + (name or secrets.token_hex(8))
