"""The server build of pjsua2 (``make pjsua2``): more calls than the PyPI wheel takes, and the softphone with it."""

import sys
from pathlib import Path

import pytest

from lab import load
from lab.children import Child
from lab.peers import require
from lab.server_under_test import Server

pytestmark = pytest.mark.e2e

NUM_CALLS = 24
PROMPT = "routes.load.greeting=" + '"' + load.SENTENCE * 3 + '"'


@pytest.mark.timeout(90)
@pytest.mark.usefixtures("server_build")
async def test_more_calls_than_the_wheel_takes() -> None:
    require("sipp")
    settings = ("log.level=info", f"rtp.port_max={65_000}", PROMPT)
    async with await Server.with_settings(*settings) as server:
        seen = await load.level(server, NUM_CALLS, rate=12, window_s=2.0, idle_kib=0)
        left = await load.counter(server, "cctts_calls_active")
        log = server.log
    assert seen["signalling"]["succeeded"] == NUM_CALLS
    assert seen["signalling"]["failed"] == 0
    assert seen["calls_active"] == NUM_CALLS
    assert seen["heard"]["legs_heard"] == NUM_CALLS
    assert seen["heard"]["lost"] == 0
    assert seen["heard"]["speech_share"] > 0.5
    assert left == 0
    assert '"server build"' in log
    assert "try_out_build" not in log


@pytest.mark.usefixtures("server_build")
async def test_the_softphone_runs_the_chosen_build_too(server: Server, tmp_path: Path) -> None:
    """As in the image. PJSIP 2.17 offers real-time text besides audio unless it is told not to."""
    argv = [sys.executable, "-m", "cc_tts.softphone", server.uri("greet"), "--duration", "2", "--quiet"]
    child = await Child.start(argv, log_path=tmp_path / "softphone.log")
    assert await child.wait() == 0, child.log
    assert "200 to first speech" in child.log
