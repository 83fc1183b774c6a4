"""The scripts of the tutorials against a server and the softphone."""

import asyncio
import sys
from pathlib import Path

import pytest

from bench.softphone import SoftphoneProcess
from tests.architecture.state_tables import ROOT
from tests.e2e.children import Child
from tests.e2e.configured import of_kind, until
from tests.e2e.server_under_test import Server

pytestmark = pytest.mark.e2e

START_TIMEOUT_S = 30.0


async def started(script: str, server: Server, folder: Path) -> Child:
    """A script of the tutorials, following the events of the server."""
    child = await Child.start([sys.executable, str(ROOT / script), server.url], log_path=folder / "script.log")
    await until(lambda: "ready" in child.log, START_TIMEOUT_S)
    return child


async def test_the_ivr_speaks_the_balance_and_hangs_up(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    ivr = await started("examples/ivr.py", server, tmp_path)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started", timeout_s=30)
        await phone.dtmf("4711")
        ended = await log.wait("call.terminated", timeout_s=30)
        question, balance = of_kind(log.events, "speak.complete")
    assert question["data"]["completion_cause"] == "barge_in"
    assert balance["data"]["spoken_text"] == "Your balance is $12.50. Thank you, and goodbye."
    assert ended["data"]["ending"]["reason"] == "prompt_finished"
    await until(lambda: "prompt_finished" in ivr.log, 5)


async def test_the_ivr_asks_again_and_survives_a_hangup(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    ivr = await started("examples/ivr.py", server, tmp_path)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started", timeout_s=30)
        await phone.dtmf("12#")
        await log.several("speak.started", 2, timeout_s=20)
        await phone.hangup()
        assert (await log.wait("call.gather_complete"))["data"]["result"] == "call_ended"
        await phone.dial(server.uri("silent"))
        await log.several("speak.started", 3, timeout_s=20)
        await phone.dtmf("9999")
        await until(lambda: "prompt_finished" in ivr.log, 30)
    assert of_kind(log.events, "speak.complete")[-1]["data"]["spoken_text"].startswith(
        "Your balance is not known to us."
    )


async def test_the_voice_agent_keeps_what_was_heard(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    answer = "You pressed a key. I stop here and listen. Hang up when you are done."
    agent = await started("docs/tutorials/voice_agent.py", server, tmp_path)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started", timeout_s=30)
        await asyncio.sleep(2.0)  # into the second sentence
        await phone.dtmf("5")
        await log.wait("speak.complete", spoken_text=answer, timeout_s=30)
        await phone.hangup()
        await log.wait("call.terminated")
    await until(lambda: "when you are done" in agent.log, 5)
    heard, key, answered = agent.log.splitlines()[1:]
    assert heard.startswith("('assistant', 'Good morning. I can read")
    assert "tomorrow" not in heard
    assert key == "('user', 'pressed 5')"
    assert answered == f"('assistant', '{answer}')"
