"""The ports that RTP is sent from."""

import socket
from collections import deque

from cc_tts.errors import CapacityExceeded


class RtpPorts:
    """Even ports of a range, the one that is free longest first."""

    def __init__(self, host: str, ports: range) -> None:
        self._host = host
        self._ports = deque(ports)

    def open(self) -> socket.socket:
        """A socket at one of them. Raises ``CapacityExceeded`` if all are taken."""
        for _ in range(len(self._ports)):
            port = self._ports[0]
            self._ports.rotate(-1)
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                sock.bind((self._host, port))
            except OSError:
                sock.close()
                continue
            return sock
        raise CapacityExceeded("all ports of mrcp.rtp_port_min to mrcp.rtp_port_max are in use")
