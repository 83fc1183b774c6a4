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


async def started(name: str, server: Server, folder: Path) -> Child:
    """A script of ``docs/tutorials/``, following the events of the server."""
    script = ROOT / "docs/tutorials" / f"{name}.py"
    child = await Child.start([sys.executable, str(script), server.url], log_path=folder / f"{name}.log")
    await until(lambda: "ready" in child.log, START_TIMEOUT_S)
    return child


async def test_the_ivr_speaks_the_balance_and_hangs_up(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    ivr = await started("ivr", server, tmp_path)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started", timeout_s=30)
        await phone.dtmf("1")
        await log.wait("speak.complete", completion_cause="barge_in")
        await log.several("speak.started", 2)
        await asyncio.sleep(2.0)  # the balance comes first, the menu after it
        await phone.dtmf("9")
        ended = await log.wait("call.terminated", timeout_s=20)
        _, balance, goodbye = of_kind(log.events, "speak.complete")
    assert balance["data"]["spoken_text"].startswith("Your balance is not known to us.")
    assert (goodbye["data"]["completion_cause"], goodbye["data"]["spoken_text"]) == ("normal", "Thank you. Goodbye.")
    assert ended["data"]["ending"]["reason"] == "prompt_finished"
    await until(lambda: "prompt_finished" in ivr.log, 5)


async def test_the_voice_agent_keeps_what_was_heard(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    agent = await started("voice_agent", server, tmp_path)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.several("speak.started", 2, timeout_s=30)
        await asyncio.sleep(1.0)
        await phone.dtmf("5")
        await log.wait("speak.complete", spoken_text="Hang up when you are done.", timeout_s=30)
        await phone.hangup()
        await log.wait("call.terminated")
    await until(lambda: "when you are done" in agent.log, 5)
    history = agent.log.splitlines()[1:]
    assert history[0] == "('assistant', 'Good morning.')"
    pressed = history.index("('user', 'pressed 5')")
    assert history[1].startswith("('assistant', 'I can read you")
    assert pressed == 2
    assert history[pressed + 1] == "('assistant', 'You pressed a key.')"
