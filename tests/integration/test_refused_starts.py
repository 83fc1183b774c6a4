"""A start that is refused says why: a port that is taken by whom, and open files that are too few for one call."""

import json
import os
import resource
import socket
import subprocess
import sys
from typing import Any

import pytest

from lab.ports import free_ports

pytestmark = pytest.mark.integration

TIMEOUT_S = 120


def refused_start(*settings: str, **how: Any) -> str:
    argv = [sys.executable, "-m", "cc_tts.cli", "serve", *(part for each in settings for part in ("--set", each))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **how)
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert "serving" not in [line["event"] for line in lines]
    return "\n".join(line["detail"] for line in lines if line["event"] in ("cannot_start", "ua_cannot_start"))


@pytest.mark.parametrize("key", ["http.port", "sip.port"])
def test_the_process_that_holds_the_port_is_named(key: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"http.port": free_ports(), "sip.port": free_ports(), key: taken.getsockname()[1]}
        detail = refused_start('sip.transports=["tcp"]', *(f"{name}={port}" for name, port in ports.items()))
    assert f"pid {os.getpid()}" in detail
    assert str(ports[key]) in detail


def test_a_start_without_files_for_a_line_is_refused() -> None:
    settings = (f"sip.port={free_ports()}", f"http.port={free_ports()}", "tts.engine=espeak")
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))}
    assert "too few files may be open (`ulimit -n`)" in refused_start(*settings, **few)
