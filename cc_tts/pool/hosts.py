"""The messages between the pool and the hosts of workers."""

from typing import Literal

import msgspec

from cc_tts.config.schema import Config
from cc_tts.errors import NotFound

HostState = Literal["starting", "ready", "restarting", "draining", "drained"]


class WorkerNotFound(NotFound, code="worker_not_found", title="No such worker"):
    """The pool has no worker of this name."""


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which a host runs its worker. ``config``: the sections that a worker reads, and no secret of others.
    ``ships_voices``: the voices come from the pool, at ``pool_url``. ``generation``: as of ``cc-tts worker``.
    """

    config: Config
    pool_url: str
    ships_voices: bool
    generation: str = ""


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker and its host, as the host reports. ``voices``: the digest of the voices that it has from the pool."""

    id: str
    address: str
    host: str
    device: str
    state: HostState
    generation: str = ""
    reason: str = ""
    """Why it is not ready, or was not before the last success."""
    num_restarts: int = 0
    pid: int = 0
    voices: str = ""
    num_streams: int = 0
    utilisation: float = 0.0
    first_audio_ms: float = 0.0
    is_refusing: bool = False
