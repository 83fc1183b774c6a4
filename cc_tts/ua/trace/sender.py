"""Sends HEP packets over UDP without waiting: packets that the socket does not take at once are dropped and counted.

Runs on: the SIP thread; names are looked up on a thread of their own.
"""

import socket
import threading
from typing import Final

from cc_tts import logs
from cc_tts.ua.trace.hep import Address

LOOK_UP_INTERVAL_S: Final = 300.0
"""The interval of looking up the name again, since its address may change (unmeasured)."""
RETRY_INTERVAL_S: Final = 10.0
"""The interval of looking up a name that has no address (unmeasured)."""
SEND_BUFFER_BYTES: Final = 1 << 20
"""The send buffer of the socket (unmeasured)."""

log = logs.get(__name__)


class HepSender:
    """The sender for one capture server."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._socket: socket.socket | None = None
        self._num_sent = self._num_dropped = 0
        self._closing = threading.Event()
        if not self._connect_to(target, flags=socket.AI_NUMERICHOST):
            threading.Thread(target=self._look_up, name="look up sip.hep", daemon=True).start()

    def send(self, packet: bytes | None) -> None:
        """Send a packet, or drop it; ``None`` stands for one that is too long."""
        connected = self._socket
        if packet is None or connected is None:
            self._num_dropped += 1
            return
        try:
            connected.send(packet)
            self._num_sent += 1
        except OSError:  # full, or an ICMP error of a packet before
            self._num_dropped += 1

    def take_counts(self) -> tuple[int, int]:
        """Return how many packets were sent and dropped since the last time."""
        counts, self._num_sent, self._num_dropped = (self._num_sent, self._num_dropped), 0, 0
        return counts

    def close(self) -> None:
        self._closing.set()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _look_up(self) -> None:
        """Runs on: its own thread."""
        wait_s = 0.0
        while not self._closing.wait(wait_s):
            wait_s = LOOK_UP_INTERVAL_S
            if not self._connect_to(self._target):
                wait_s = RETRY_INTERVAL_S
                log.warning("hep_unreachable", detail=f"{self._target[0]} has no address", consequence="no copies")

    def _connect_to(self, target: Address, *, flags: int = 0) -> bool:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM, flags=flags)[0]
            connected = self._socket
            if connected is None or connected.family != family:
                connected = socket.socket(family, kind, protocol)
                connected.setblocking(False)  # noqa: FBT003 - its name in socket
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            connected.connect(address)  # again, since the name may have another address now
        except OSError:
            return False
        self._socket = connected
        return True
