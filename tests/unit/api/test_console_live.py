"""The console, told of restarts, refusals and changes of the token by a made-up server, in Node.js."""

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from lab import needs

pytestmark = pytest.mark.unit


def played(scenario: str, folder: Path) -> Any:
    """Play a scenario of console_live.mjs; returns what it found."""
    node = shutil.which("node")
    if node is None:
        needs.missing("clients-npm", "Node.js is not installed: apt install nodejs")
    for name in ("api.js", "live.js"):
        text = resources.files("cc_tts.api.console").joinpath("files", name).read_text("utf-8")
        (folder / name).write_text(text, "utf-8")
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    script = folder / "console_live.mjs"
    script.write_text(Path(__file__).with_name("console_live.mjs").read_text("utf-8"), "utf-8")
    done = subprocess.run([node, script, scenario], capture_output=True, check=True, timeout=30)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("scenario", "found"),
    [
        ("a call that was not adopted", {}),  # it is no longer shown, or the scenario does not end
        ("a reading that fails after a restart", {"wasConnected": False}),
        ("figures that come after signing out", {"status": None, "samples": 0}),
        ("no room for another reader", {"first": "No room – 100 read already", "last": ""}),
    ],
)
def test_what_is_known(scenario: str, found: dict[str, Any], tmp_path: Path) -> None:
    assert played(scenario, tmp_path) == found
