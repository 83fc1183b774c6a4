"""The package cartesia for Python."""

import base64
from pathlib import Path

import pytest

from lab.server_under_test import Server
from tests.e2e.clients.test_frameworks import seen_by

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


async def test_cartesia_for_python(server: Server, clients: Path, tmp_path: Path) -> None:
    seen = await seen_by(clients, "cartesia_client.py", server.url, log_path=tmp_path / "cartesia.log")
    assert seen["floats"]["bytes"] > 64_000
    assert base64.b64decode(seen["wav"]["head"]) == b"RIFF"
    assert seen["socket"]["bytes"] == pytest.approx(seen["floats"]["bytes"], rel=0.1)
    assert seen["socket"]["words"] == "Your order has been shipped."
    assert seen["interrupted"]["last"] == "done"
    assert seen["interrupted"]["chunks"] < 300
    assert "en-us" in seen["voices"]["ids"]
    assert seen["error"]["status"] == 422
    assert "no voice is called 'nobody'" in seen["error"]["shown"]
