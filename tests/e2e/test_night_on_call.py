"""The commands for the person on call, with a real server and a real call."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from lab.children import Child
from lab.configured import logged, server_with
from lab.raw_sip import RawCaller
from lab.waiting import until

pytestmark = pytest.mark.e2e

TIMEOUT_S = 60.0


async def cc_tts(folder: Path, *arguments: str) -> str:
    """Run a command to its end; returns what it printed."""
    child = await Child.start([sys.executable, "-m", "cc_tts.cli", *arguments], log_path=folder / "command.log")
    assert await child.wait(TIMEOUT_S) == 0, child.log
    return child.log


async def test_a_night_on_call(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path, log__level="warning") as server,
        RawCaller("long", server.sip_port) as caller,
    ):
        config = ("--config", str(server.config))
        await caller.establish()
        await server.until_call(lambda call: call["state"] == "established")
        status = json.loads(await cc_tts(tmp_path, "status", "--json", *config))["servers"][0]
        assert (status["calls"], status["not_ready_because"]) == (1, None)
        assert {each["state"] for each in status["workers"]} == {"ready"}
        assert [each["pid"] for each in status["processes"] if each["name"] == "ua"] == [server.ua_pid()]
        said = await cc_tts(tmp_path, "say-to", caller.call_id, "Hello.", "--now", "--wait", *config)
        assert ": normal, " in said

        assert "debug, PJSIP 1" in await cc_tts(tmp_path, "loglevel", "debug", *config)
        await until(lambda: logged(server, "http_request"))
        reloaded = await cc_tts(tmp_path, "reload", *config)
        assert "changed: log.level" in reloaded

        hanging_up = asyncio.create_task(cc_tts(tmp_path, "hangup", caller.call_id, *config))
        await caller.request("BYE")
        assert "completed: local_hangup" in await hanging_up
