"""The package deepgram-sdk for Python."""

from pathlib import Path

import pytest

from lab.server_under_test import Server
from tests.e2e.clients.test_frameworks import seen_by

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


async def test_deepgram_for_python(server: Server, clients: Path, tmp_path: Path) -> None:
    seen = await seen_by(clients, "deepgram_client.py", server.url, log_path=tmp_path / "deepgram.log")
    assert seen["default"]["bytes"] > 5000
    assert seen["mulaw"]["bytes"] > 8000
    assert seen["socket"]["bytes"] == pytest.approx(seen["mulaw"]["bytes"], rel=0.1)
    assert seen["socket"]["kinds"] == ["Metadata", "Flushed"]
    assert seen["interrupted"]["last"] == "Cleared"
    assert seen["turn"]["bytes"] == pytest.approx(seen["mulaw"]["bytes"], rel=0.1)
    assert seen["turn"]["kinds"] == ["Connected", "SpeechStarted", "SpeechMetadata", "Flushed", "SpeechInterrupted"]
    assert seen["turn"]["spoken"]
    assert seen["turn"]["spoken"] + seen["turn"]["rest"] == "Your order has been shipped."
    assert "en-us" in seen["models"]["names"]
    assert seen["turn error"]["status"] == 422
    assert seen["error"]["status"] == 422
    assert "no voice is called 'nobody'" in seen["error"]["shown"]
