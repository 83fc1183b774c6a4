"""The package elevenlabs for Python."""

import base64
import json
from pathlib import Path

import pytest

from lab.children import Child
from lab.server_under_test import Server
from tests.e2e.clients.test_openai import is_mp3

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TEXT = "Your order has been shipped. It will arrive on Friday."


async def test_elevenlabs_for_python(server: Server, clients: Path, tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("elevenlabs_client.py"))
    child = await Child.start([str(clients), program, server.url], log_path=tmp_path / "elevenlabs.log")
    assert await child.wait(60) == 0, child.log
    seen = {each["step"]: each for each in map(json.loads, child.log.splitlines())}
    assert is_mp3(base64.b64decode(seen["default"]["head"]))
    length_s = seen["pcm"]["bytes"] / 32_000
    assert length_s > 2
    assert seen["slow"]["bytes"] > 1.2 * seen["pcm"]["bytes"]
    for step in ("timed", "timed stream"):
        assert seen[step]["text"] == TEXT
        assert seen[step]["bytes"] == pytest.approx(seen["pcm"]["bytes"], rel=0.1)
    assert seen["timed"]["end_s"] == pytest.approx(seen["timed"]["bytes"] / 32_000, abs=0.05)
    starts_s = seen["timed stream"]["starts_s"]
    assert len(starts_s) > 1
    assert starts_s == sorted(starts_s)
    assert "en-us" in seen["voices"]["ids"]
    assert "en-us" in seen["search"]["ids"]
    assert seen["voice"]["name"] == "en-us"
    assert seen["models"]["ids"] == ["cc-tts"]
    assert seen["error"]["status"] == 422
    assert "voice_not_found" in seen["error"]["shown"]
