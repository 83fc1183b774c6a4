"""Pipecat's services and LiveKit's plugins for other speech services."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.children import Child
from lab.server_under_test import Server
from tests.e2e.clients.server_state import until_no_stream_runs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TEXT = "Your order has been shipped. It will arrive on Friday."


async def seen_by(clients: Path, program: str, *arguments: str, log_path: Path) -> dict[str, Any]:
    child = await Child.start([str(clients), str(Path(__file__).with_name(program)), *arguments], log_path=log_path)
    assert await child.wait() == 0, child.log
    lines = [line for line in child.log.splitlines() if line.startswith('{"step"')]
    return {each["step"]: each for each in map(json.loads, lines)}


@pytest.mark.parametrize("service", ["elevenlabs", "deepgram", "flux", "cartesia"])
async def test_pipecat(server: Server, clients: Path, tmp_path: Path, service: str) -> None:
    url = server.url.replace("http", "ws", 1)
    seen = await seen_by(clients, "pipecat_speech.py", url, service, log_path=tmp_path / "pipecat.log")
    assert seen["whole"]["bytes"] > 2 * 16_000
    assert seen["whole"]["words"].split() == TEXT.split()
    assert seen["interrupted"]["bytes"] > 0
    assert seen["interrupted"]["later"] == 0
    assert seen["afterwards"]["bytes"] > 0.3 * 16_000
    assert seen["error"]["shown"]


@pytest.mark.parametrize("plugin", ["elevenlabs", "deepgram", "flux", "cartesia", "openai"])
async def test_livekit(server: Server, clients: Path, tmp_path: Path, plugin: str) -> None:
    url = server.url if plugin == "flux" else f"{server.url}/{plugin}"  # a base URL may have a path
    seen = await seen_by(clients, "livekit_speech.py", url, plugin, log_path=tmp_path / "livekit.log")
    if plugin != "openai":
        assert seen["streamed"]["length_s"] > 2
        assert seen["after an interruption"]["length_s"] == pytest.approx(seen["streamed"]["length_s"], rel=0.1)
    if plugin in ("elevenlabs", "cartesia"):
        assert seen["streamed"]["words"] == TEXT.split()
        assert seen["streamed"]["has_times"]
    assert seen["whole"]["length_s"] > 0.3
    await until_no_stream_runs(server)
    assert "422" in seen["error"]["shown"] or "nobody" in seen["error"]["shown"]
