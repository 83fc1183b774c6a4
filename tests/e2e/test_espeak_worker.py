"""The worker of espeak-ng is killed or stands still while it speaks: what the caller hears, and what becomes of the call."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from lab.configured import logged, server_with, until_readyz
from lab.raw_sip import options
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from lab.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LONG = "The library keeps its place in this sentence for as long as the caller wants to listen to it. " * 40
SHORT = "Thank you for waiting."
PLAYED_MS = 500.0
REPLACED_S = 40.0
"""The heartbeat is waited for 10 s, the end of the process as long; the rest is slack."""


async def until_played(server: Server, utterance_id: str, played_ms: float) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await server.get(f"/v1/utterances/{utterance_id}"))[1]["played_ms"] < played_ms:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.05)


def espeak_pid(server: Server) -> int:
    """Process id of the newest worker of espeak-ng."""
    pid: int = [entry for entry in logged(server, "child_ready") if entry["child"] == "espeak"][-1]["pid"]
    return pid


async def test_a_lost_worker_of_espeak_costs_a_prompt_and_no_call(phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with server_with(tmp_path, tts__stall_timeout_ms="1000", cache__enabled="false") as server:
        assert "libespeak" not in await asyncio.to_thread(Path(f"/proc/{server.pid}/maps").read_text)
        await phone.dial(server.uri("silent"), max_talk_s=120)
        await phone.wait_event("answered")
        call, played_ms = await server.only_call(), 0.0
        async with server.events() as log:
            for number in (signal.SIGKILL, signal.SIGSTOP):
                _, long = await server.post(f"/v1/calls/{call['id']}/speak", {"text": LONG})
                await until_played(server, long["id"], PLAYED_MS)
                pid = espeak_pid(server)
                os.kill(pid, number)
                lost = await log.wait("speak.complete", utterance_id=long["id"])
                assert lost["data"]["completion_cause"] == "error", lost
                assert lost["data"]["error"] == "engine_failed"
                assert lost["data"]["played_ms"] >= PLAYED_MS, "what was made before is heard to its end"
                await until_readyz(server, 200)
                assert (await options(server.sip_port)).status == 200, "a server that is ready takes calls"
                assert espeak_pid(server) != pid
                _, short = await server.post(f"/v1/calls/{call['id']}/speak", {"text": SHORT})
                said = await log.wait("speak.complete", utterance_id=short["id"])
                assert said["data"]["completion_cause"] == "normal", said
                played_ms += lost["data"]["played_ms"] + said["data"]["played_ms"]
        report = await phone.hangup()
        heard_ms = sum(spurt["end_at_ns"] - spurt["start_at_ns"] for spurt in report["talkspurts"]) / 1e6
        assert heard_ms > 0.8 * played_ms
        assert "Traceback" not in server.log


@pytest.mark.slow
async def test_a_worker_of_espeak_that_stands_still_is_replaced_before_anybody_asks_it(
    nothing_is_left_running: None, tmp_path: Path
) -> None:
    async with server_with(tmp_path) as server:
        pid = espeak_pid(server)
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: espeak_pid(server) != pid, REPLACED_S)
        await until_readyz(server, 200)
