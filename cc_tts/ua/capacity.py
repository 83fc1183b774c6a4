"""How many calls this process takes, and whether it takes another one now. Runs on: the SIP thread."""

import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.ua.messages import UaSettings
from cc_tts.ua.pjsua2_build import Pjsua2Build
from cc_tts.ua.rtp.port_cooldown import MAX_PAIRS, PortCooldown

SOCKET_CLOSING_NS: Final = 600_000_000
"""PJLIB keeps the slot of a closed socket this long (PJ_IOQUEUE_KEY_FREE_DELAY, 500 ms, and some), and the PyPI wheel
aborts the process when PJ_IOQUEUE_MAX_HANDLES are taken; a call takes two.
"""
SPARE_HANDLES: Final = 16
"""The socket handles of a build that are reserved for everything but RTP and RTCP; unmeasured."""
MIN_CLOSING_CALLS: Final = 20
"""In the PyPI wheel this many ended calls may still have sockets in PJLIB's table before new ones get 503; unmeasured."""
SPARE_FILES: Final = 64
"""The open files that are reserved for everything but RTP and RTCP; unmeasured."""

log = logs.get(__name__)


class CallCapacity:
    """The limits of the configuration, the build and the machine, minus the sockets of ended calls that are still closing.

    ``build_limit`` is how many calls PJSUA was compiled for, ``num_pjsua_calls`` says how many it has: it keeps one longer
    than we do.
    """

    def __init__(
        self,
        settings: UaSettings,
        build: Pjsua2Build,
        *,
        build_limit: int,
        num_pjsua_calls: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._build = build
        self._build_limit = build_limit
        self._num_pjsua_calls = num_pjsua_calls
        self._clock = clock
        self._closing: deque[int] = deque()
        self._max_cooling = 0
        if settings.rtp.port_cooldown_s:
            self._max_cooling = min(MAX_PAIRS, settings.rtp.num_pairs, build.max_handles // 2)
        self.max_calls = self._most_calls(settings)
        if self.max_calls < 1:
            raise RuntimeError(
                "not one call is possible: too few files may be open (`ulimit -n`) or too few ports are in rtp"
            )
        max_closing = max(MIN_CLOSING_CALLS, (build.max_handles - SPARE_HANDLES) // 2 - build_limit)
        self._max_sockets = self.max_calls + max_closing
        self._port_cooldown = PortCooldown(
            host=settings.sip.host, rtp=settings.rtp, max_pairs=self._max_cooling, clock=clock
        )

    def tick(self) -> int:
        """Release the ports that the next call needs; return how many calls PJSUA has."""
        num_calls = self._num_pjsua_calls()
        self._port_cooldown.tick(num_calls)
        return num_calls

    def cool(self, rtp_ports: Iterable[int]) -> None:
        """Keep the ports of an ended call away from the next call for a while."""
        self._port_cooldown.take(rtp_ports)

    def note_closing(self) -> None:
        """PJLIB is closing the sockets of a call."""
        self._closing.append(self._clock.now_ns())

    def is_crowded(self, num_legs: int) -> bool:
        """Whether the sockets of ``num_legs`` and the closing ones leave none for another call."""
        while self._closing and self._clock.now_ns() - self._closing[0] > SOCKET_CLOSING_NS:
            self._closing.popleft()
        return num_legs + len(self._closing) >= self._max_sockets

    def is_full(self, num_calls: int, *, incoming: int = 0) -> bool:
        """Whether ``num_calls`` is the limit, or PJSUA has no free slot. ``incoming`` of its slots belong to calls that are
        not counted yet.
        """
        return num_calls >= self.max_calls or self.is_pjsua_full(incoming=incoming)

    def is_pjsua_full(self, *, incoming: int = 0) -> bool:
        return self._num_pjsua_calls() - incoming >= self._build_limit

    def _most_calls(self, settings: UaSettings) -> int:
        """Return how many calls at a time the configuration, the build, the RTP ports and the open files allow."""
        wanted = min(settings.sip.max_calls or self._build_limit, self._build_limit)
        pairs = settings.rtp.num_pairs
        if pairs < wanted:
            log.warning("few_rtp_ports", pairs=pairs, consequence=f"{pairs} calls at once")
            wanted = pairs
        return min(wanted, self._open_files(wanted))

    def _open_files(self, wanted_calls: int) -> int:
        """Raise the limit of open files to what PJLIB's table of sockets holds: PJLIB closes new connections when the table
        is full, but PJSIP never accepts one again once files have run out. Returns for how many calls there are files; calls
        come before ports in cooldown.
        """
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
        needed = 2 * (wanted_calls + self._max_cooling) + SPARE_FILES
        most = max(needed, self._build.max_handles + SPARE_FILES)
        if soft < most:
            soft = min(most, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limits[1]))
        if soft >= needed:
            return wanted_calls
        pairs = max(0, (soft - SPARE_FILES) // 2)
        self._max_cooling = max(0, min(self._max_cooling, pairs - wanted_calls))
        if pairs < wanted_calls:
            log.warning("few_open_files", allowed=soft, needed=needed, consequence="fewer calls at once")
        return pairs
