"""Keeps the RTP and RTCP ports of ended calls from the next call for a while.

The peer of an ended call may go on sending: its BYE is still on the way, a gateway empties its jitter buffer, RTCP comes
every five seconds. Such a packet must not reach another call. So we bind the freed ports ourselves: pjsua passes over
ports that are taken. The sockets are plain ones, outside PJLIB's poller and its table.

No call is refused for the cooldown: the ports that have been held longest are released until enough are free. Runs on: the
SIP thread.
"""

import contextlib
import errno
import socket
from collections.abc import Callable, Iterable
from typing import Final

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.config.schema import RtpConfig

MAX_PAIRS: Final = 1000
"""The most pairs of ports that are held; each takes two open files. At 100 calls a second this is ten
seconds; unmeasured.
"""
SPARE_PAIRS: Final = 2
"""The pairs that are left free for the next calls: the one being set up, and one that another process may have taken."""

log = logs.get(__name__)


def bind(host: str, port: int) -> Callable[[], None]:
    """Bind a UDP port, with the smallest buffer; return the function that releases it. Raises ``OSError``."""
    taken = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        taken.bind((host, port))
    except OSError:
        taken.close()
        raise
    return taken.close


class PortCooldown:
    """The pairs of ports that are held, oldest first, and those that could not be bound yet."""

    def __init__(
        self,
        *,
        host: str,
        rtp: RtpConfig,
        max_pairs: int,
        clock: Clock,
        bind: Callable[[str, int], Callable[[], None]] = bind,
    ) -> None:
        self._host = host
        self._num_pairs = rtp.num_pairs
        self._cooldown_ns = int(rtp.port_cooldown_s * NS_PER_S)
        self._max_pairs = max_pairs
        self._clock = clock
        self._bind = bind
        self._held: dict[int, tuple[int, contextlib.ExitStack]] = {}
        self._awaited: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, rtp_ports: Iterable[int]) -> None:
        """Hold the ports of an ended call, and the ports above them (RTCP, RFC 3550 §11)."""
        if not self._cooldown_ns:
            return
        until_ns = self._clock.now_ns() + self._cooldown_ns
        for port in rtp_ports:
            self._awaited[port] = until_ns
        self._take_awaited()

    def tick(self, num_calls: int) -> None:
        """Release the ports that were held long enough, or that the next calls need. Called in every turn and before each
        new call.
        """
        if not self._held and not self._awaited:
            return
        now_ns = self._clock.now_ns()
        self._awaited = {port: until_ns for port, until_ns in self._awaited.items() if until_ns > now_ns}
        self._take_awaited()
        allowed = min(self._max_pairs, self._num_pairs - num_calls - SPARE_PAIRS)
        while self._held:
            port, (until_ns, pair) = next(iter(self._held.items()))
            if until_ns > now_ns and len(self._held) <= allowed:
                break
            pair.close()
            del self._held[port]

    def _take_awaited(self) -> None:
        for port, until_ns in tuple(self._awaited.items()):
            try:
                self._held[port] = (until_ns, self._bind_pair(port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue  # PJLIB has not closed it yet, or another call was faster
                log.warning("no_port_cooldown", port=port, detail=str(error))
            del self._awaited[port]

    def _bind_pair(self, port: int) -> contextlib.ExitStack:
        with contextlib.ExitStack() as stack:
            stack.callback(self._bind(self._host, port))
            stack.callback(self._bind(self._host, port + 1))
            return stack.pop_all()
