"""Free ports of this machine, for what a test or a bench starts."""

import os
import random
import socket

HOST = "127.0.0.1"
FIRST_PORT, END_OF_PORTS = 20_000, 32_000
"""Below the ephemeral ports of Linux, above those that cc-tts takes for RTP unless it is told otherwise."""


def _is_free(port: int, count: int) -> bool:
    for each in range(port, port + count):
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(socket.AF_INET, kind) as sock:
                try:
                    sock.bind((HOST, each))
                except OSError:
                    return False
    return True


_next_port = [0]


def free_ports(count: int = 1) -> int:
    """First of ``count`` ports in a row, free for UDP and TCP; even, and below the ephemeral range of Linux.

    They are not given again before all others were: who asked may not listen yet.
    """
    first, last = _ports_of_this_worker()
    for _ in range(200):
        port = _next_port[0] or random.randrange(first, last, 2)
        if port + count > last:
            port = first
        _next_port[0] = port + count + count % 2
        if _is_free(port, count):
            return port
    raise RuntimeError(f"no {count} free ports in a row on {HOST}")


def _ports_of_this_worker() -> tuple[int, int]:
    """A range of its own for each process of pytest-xdist: two could find the same port free."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = (END_OF_PORTS - FIRST_PORT) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) // 2 * 2
    return FIRST_PORT + number * share, FIRST_PORT + (number + 1) * share
