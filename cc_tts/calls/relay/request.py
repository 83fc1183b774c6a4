"""A relay that was asked for, as it is kept for a server that adopts the call."""

from typing import Literal

from cc_tts.config.sections.relay import RelaySettings

RelayCause = Literal[
    "completed", "closed", "unreachable", "lost", "silent", "stopped", "call_ended", "server_restarted"
]
"""Why a relay is over."""
FAILURES: tuple[RelayCause, ...] = ("unreachable", "lost", "silent", "server_restarted")
"""The application did not do its part, or we ours, so that the caller hears the fallback."""


class RelayRequest(RelaySettings, frozen=True, kw_only=True):
    """``sid``: the application knows the relay by it. ``is_guarded``: a client chose the URL, which must be at a host of
    ``relay.allowed_hosts``.
    """

    id: str
    sid: str
    is_guarded: bool = False
    client_state: str | None = None
