"""The contract of hosts, which place workers for the pool."""

from collections.abc import Sequence
from typing import Literal, Protocol

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
    """One worker and its host, as the host says. ``voices``: digest of those that it has of the pool."""

    id: str
    address: str
    host: str
    device: str
    state: HostState
    generation: str = ""
    reason: str = ""
    """Why it is not ready, or was not before."""
    num_restarts: int = 0
    pid: int = 0
    voices: str = ""
    num_streams: int = 0
    utilisation: float = 0.0
    first_audio_ms: float = 0.0
    is_refusing: bool = False


class Hosts(Protocol):
    """Those who place workers and look after them."""

    async def poll(self) -> Sequence[HostStatus]:
        """Every host that is heard of; makes one for each device that has none. Raises ``ProcessFailed`` if no host will be
        heard of again.
        """

    async def drain(self, worker: str) -> None:
        """Have a worker speak to the end and stay away until :meth:`start`. Raises ``WorkerNotFound``."""

    async def start(self, worker: str) -> None:
        """Start a drained worker again, with the pool's configuration of now. Raises ``WorkerNotFound``."""

    async def take_voices(self, worker: str) -> None:
        """Have a host fetch the voices that it lacks, and start its worker anew with them. Raises ``WorkerNotFound``."""
