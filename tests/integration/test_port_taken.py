"""A server whose port is taken says by whom."""

import json
import os
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

TIMEOUT_S = 120


def refused_start(*settings: str) -> str:
    argv = [sys.executable, "-m", "cc_tts.cli", "serve", *(part for each in settings for part in ("--set", each))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    return "\n".join(line["detail"] for line in lines if line["event"] in ("cannot_start", "ua_cannot_start"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("key", ["http.port", "sip.port"])
def test_the_process_that_holds_the_port_is_named(key: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"http.port": free_port(), "sip.port": free_port(), key: taken.getsockname()[1]}
        detail = refused_start('sip.transports=["tcp"]', *(f"{name}={port}" for name, port in ports.items()))
    assert f"pid {os.getpid()}" in detail
    assert str(ports[key]) in detail
