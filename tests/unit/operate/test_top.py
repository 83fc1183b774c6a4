"""How ``cc-tts top`` ends."""

import asyncio
import os
import signal
from typing import Any

import aiohttp
import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.operate.servers import RunningServer
from cc_tts.operate.top import top
from lab.waiting import PATIENCE_S

pytestmark = pytest.mark.unit


async def test_a_signal_ends_it_while_a_server_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    async def ask(_server: RunningServer) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    async with aiohttp.ClientSession() as client, asyncio.timeout(PATIENCE_S):
        await top([RunningServer("http://a", client, ())], ask, interval_s=1.0, clock=MonotonicClock())
    assert capsys.readouterr().out.endswith("\x1b[?1049l")
