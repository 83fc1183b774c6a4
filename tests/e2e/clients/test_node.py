"""Client packages for Node.js."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from lab.children import Child
from lab.server_under_test import Server
from tests.e2e.clients.server_state import until_no_stream_runs
from tests.e2e.clients.test_openai import is_mp3

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TEXT = "Your order has been shipped. It will arrive on Friday."


async def seen_by(node: tuple[str, str], program: str, *arguments: str, folder: Path) -> dict[str, Any]:
    command, packages = node
    path = str(Path(__file__).with_name(program))
    child = await Child.start([command, path, packages, *arguments], log_path=folder / "node.log", cwd=folder)
    assert await child.wait() == 0, child.log
    return {each["step"]: each for each in map(json.loads, child.log.splitlines())}


async def test_openai(server: Server, node: tuple[str, str], tmp_path: Path) -> None:
    seen = await seen_by(node, "openai_client.cjs", f"{server.url}/openai/v1", folder=tmp_path)
    assert is_mp3(base64.b64decode(seen["default"]["head"]))
    assert seen["default"]["bytes"] > 5000
    assert seen["pcm"]["content_type"] == "audio/pcm;rate=24000"
    assert seen["pcm"]["bytes"] > 48_000
    assert seen["interrupted"]["bytes"] > 0
    assert "tts-1" in seen["models"]["ids"]
    assert (seen["voice"]["status"], seen["voice"]["param"]) == (422, "voice")
    assert "no voice is called 'nobody'" in seen["voice"]["shown"]
    assert "letter" in seen["input"]["shown"]
    await until_no_stream_runs(server)


@pytest.mark.parametrize("package", ["@elevenlabs/elevenlabs-js", "elevenlabs"])
async def test_elevenlabs(server: Server, node: tuple[str, str], tmp_path: Path, package: str) -> None:
    seen = await seen_by(node, "elevenlabs_client.cjs", server.url, package, folder=tmp_path)
    assert is_mp3(base64.b64decode(seen["default"]["head"]))
    assert seen["pcm"]["bytes"] > 2 * 32_000
    assert seen["timed"]["text"] == TEXT
    assert seen["timed"]["bytes"] == pytest.approx(seen["pcm"]["bytes"], rel=0.1)
    assert seen["interrupted"]["bytes"] > 0
    assert "en-us" in seen["voices"]["ids"]
    assert seen["voice"]["name"] == "en-us"
    assert seen["models"]["ids"] == ["cc-tts"]
    assert seen["error"]["status"] == 422
    # the package that was given up reads no body of an error of a stream
    assert "voice_not_found" in seen["error"]["shown"] or package == "elevenlabs"
    await until_no_stream_runs(server)


@pytest.mark.usefixtures("jambonz")
async def test_jambonz(server: Server, node: tuple[str, str], tmp_path: Path) -> None:
    seen = await seen_by(node, "jambonz_client.cjs", server.url, folder=tmp_path)
    for step in ("text", "ssml"):
        assert seen[step]["path"].endswith(".r8")
        assert seen[step]["bytes"] > 8000
    assert seen["again"]["servedFromCache"]
    assert seen["error"]["status"] == 422
    assert "no voice is called 'nobody'" in seen["error"]["shown"]
