"""A server with so few open files that not one call is possible."""

import json
import resource
import subprocess
import sys

import pytest

from lab.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_a_start_without_a_line_is_refused() -> None:
    settings = (f"sip.port={free_ports()}", f"http.port={free_ports()}", "tts.engine=espeak")
    done = subprocess.run(
        [sys.executable, "-m", "cc_tts.cli", "serve", *(part for each in settings for part in ("--set", each))],
        capture_output=True,
        timeout=100,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert "serving" not in [line["event"] for line in lines]
    (refused,) = [line for line in lines if line["event"] == "cannot_start"]
    assert "too few files may be open (`ulimit -n`)" in refused["detail"]
