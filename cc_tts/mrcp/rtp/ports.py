"""The local ports of RTP."""

import socket
from collections import deque

from cc_tts.errors import CapacityExceeded


class RtpPorts:
    """The even ports of a range; the one that has been free longest is used first."""

    def __init__(self, host: str, ports: range) -> None:
        self._host = host
        self._ports = deque(ports)

    def open(self) -> socket.socket:
        """Open a socket on one of them. Raises ``CapacityExceeded`` if all are in use."""
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
