"""Admission by the media clock: a UA process that gets no processor time takes no new calls until it does again."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from cc_tts.processes.tasks import cancel_all
from lab.configured import logged, server_with, ua_pid
from lab.raw_sip import Answer, RawCaller, RtpEar, invite_once, options
from lab.server_under_test import Server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

MAX_LATENESS_MS = 150
STOPPED_S = 0.25
RUNNING_S = 0.05
"""In five seconds 16 of a call's 250 frames come 250 ms late: more than the 1 % and the ten that are asked about."""
CHANGE_TIMEOUT_S = 40.0


async def starve(pid: int) -> None:
    """Let the process run for moments only, as one whose processor is taken by others."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(STOPPED_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(RUNNING_S)


async def until_answered(server: Server, wanted: Callable[[Answer], bool]) -> Answer:
    async with asyncio.timeout(CHANGE_TIMEOUT_S):
        while True:
            answer = await options(server.sip_port)
            if wanted(answer):
                return answer
            await asyncio.sleep(0.1)


async def gauges(server: Server) -> dict[str, float]:
    lines = (await server.get_text("/metrics"))[1].splitlines()
    pairs = [line.split() for line in lines if line.startswith(("cctts_ua_media_late", "cctts_ua_refusing"))]
    return {name: float(value) for name, value in pairs}


async def test_no_new_calls_while_the_media_clock_is_late(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path, sip__max_media_lateness_ms=str(MAX_LATENESS_MS)) as server,
        RtpEar() as ear,
        RawCaller("silent", server.sip_port) as caller,
    ):
        assert (await options(server.sip_port)).status == 200
        pid = ua_pid(server)
        await caller.establish(rtp_port=ear.port)
        starving = asyncio.create_task(starve(pid))
        try:
            refused = await until_answered(server, lambda answer: answer.status == 503)
            assert refused.header("Retry-After") == "7"
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                while (await invite_once("silent", server.sip_port)).status != 503:
                    pass
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                while not (seen := await gauges(server))["cctts_ua_refusing_for_lateness"]:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)
            assert seen["cctts_ua_media_lateness_seconds"] > MAX_LATENESS_MS / 1000
        finally:
            await cancel_all(starving)
        heard = len(ear.packets)
        await until_answered(server, lambda answer: answer.status == 200)
        assert (await invite_once("silent", server.sip_port)).status == 200
        assert len(ear.packets) > heard, "the call in progress goes on"
        assert (await caller.bye()).status == 200
        assert ua_pid(server) == pid
        assert [entry["new_calls"] for entry in logged(server, "media_lateness")][:2] == ["503", "welcome"]
