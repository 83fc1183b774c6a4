import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cc_tts.ua.softphone_driver import SoftphoneProcess
from tests.e2e.children import Child
from tests.e2e.server_under_test import Server

os.environ.setdefault("CC_TTS_SIP__MAX_MEDIA_LATENESS_MS", "0")
"""A machine that is busy with other tests shall not refuse the calls of this one."""


@pytest.fixture(autouse=True)
async def nothing_is_left_running() -> AsyncIterator[None]:
    yield
    await Child.end_all()


@pytest.fixture
async def phone(tmp_path: Path, nothing_is_left_running: None) -> AsyncIterator[SoftphoneProcess]:
    """The softphone in its own process. It must end by itself and without complaint."""
    process = await SoftphoneProcess.start(log_path=tmp_path / "softphone.log")
    try:
        yield process
    finally:
        code = await process.close()
    assert code == 0, (tmp_path / "softphone.log").read_text()


@pytest.fixture
async def server(tmp_path: Path, nothing_is_left_running: None) -> AsyncIterator[Server]:
    """The server with the routes of ``server_config``. SIGTERM must end it with status 0."""
    running = await Server.start(tmp_path)
    try:
        yield running
    finally:
        code = await running.end()
    assert code == 0, running.log[-4000:]
