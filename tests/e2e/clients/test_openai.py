"""The package openai for Python."""

import base64
import json
from pathlib import Path

import pytest

from lab.children import Child
from lab.server_under_test import Server
from tests.e2e.clients.server_state import until_no_stream_runs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HEADS = {"opus": b"OggS", "flac": b"fLaC", "wav": b"RIFF"}
CONTENT_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=24000",
}


async def test_openai_for_python(server: Server, clients: Path, tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("openai_client.py"))
    child = await Child.start([str(clients), program, f"{server.url}/v1"], log_path=tmp_path / "openai.log")
    assert await child.wait() == 0, child.log
    seen = [json.loads(line) for line in child.log.splitlines() if line.startswith("{")]
    steps = {each["step"]: each for each in seen}
    assert is_mp3(base64.b64decode(steps["default"]["head"]))
    assert steps["default"]["bytes"] > 5000
    for kind, content_type in CONTENT_TYPES.items():
        head = base64.b64decode(steps[kind]["head"])
        assert steps[kind]["content_type"] == content_type
        assert head.startswith(HEADS.get(kind, b"")), kind
        assert steps[kind]["bytes"] > 5000, kind
    assert is_mp3(base64.b64decode(steps["mp3"]["head"]))
    assert steps["slow"]["speed"] == "0.5"
    assert steps["slow"]["bytes"] > 1.5 * steps["pcm"]["bytes"]
    assert steps["sse"]["bytes"] == pytest.approx(steps["pcm"]["bytes"], rel=0.1)
    assert steps["sse"]["deltas"] > 1
    assert steps["sse"]["last"] == "speech.audio.done"
    assert "tts-1" in steps["models"]["ids"]
    assert steps["interrupted"]["bytes"] > 0
    await until_no_stream_runs(server)
    voice, words, kind = (each for each in seen if each["step"] == "error")
    assert (voice["status"], voice["param"]) == (422, "voice")
    assert "no voice is called 'nobody'" in voice["shown"]
    assert "letter" in words["shown"]
    assert "'wma' is not one of mp3" in kind["shown"]


@pytest.mark.parametrize("page", ["README.md", "docs/plugs.md"])
async def test_the_lines_on_the_page(server: Server, clients: Path, tmp_path: Path, page: str) -> None:
    text = Path(__file__).parents[3].joinpath(page).read_text(encoding="utf-8")
    lines = text.partition("```python\n")[2].partition("```")[0].replace("http://127.0.0.1:8080", server.url)
    program = f"import os\nos.chdir({str(tmp_path)!r})\n{lines}"
    child = await Child.start([str(clients), "-c", program], log_path=tmp_path / "openai.log")
    assert await child.wait() == 0, child.log
    assert is_mp3((tmp_path / "balance.mp3").read_bytes())


def is_mp3(head: bytes) -> bool:
    """Whether a file begins with an ID3 tag or a frame of MPEG audio, layer III."""
    return head[:3] == b"ID3" or (head[0] == 0xFF and head[1] & 0xE6 == 0xE2)
