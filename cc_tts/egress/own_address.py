"""The address of this machine on the way to another."""

import socket


def own_address_towards(host: str, port: int = 9) -> str:
    """Return the address of this machine from which a host is reached. No packet is sent. Raises ``OSError`` without a
    route.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])
