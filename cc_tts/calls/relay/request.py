"""The request for a relay. It is also kept for a server that adopts the call."""

from typing import Literal

from cc_tts.config.sections.relay import RelaySettings

RelayCause = Literal[
    "completed", "closed", "unreachable", "lost", "silent", "stopped", "call_ended", "server_restarted"
]
"""Why a relay has ended."""
FAILURES: tuple[RelayCause, ...] = ("unreachable", "lost", "silent", "server_restarted")
"""Endings for which the application or we are at fault, so that the caller hears the fallback."""


class RelayRequest(RelaySettings, frozen=True, kw_only=True):
    """``sid``: the application's id of the relay. ``is_guarded``: a client chose the URL, so it must be at a host of
    ``relay.allowed_hosts``.
    """

    id: str
    sid: str
    is_guarded: bool = False
    client_state: str | None = None
