import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.softphone import SoftphoneProcess
from cc_tts.ua import pjsua2_build
from tests.e2e.children import Child
from tests.e2e.configured import server_with
from tests.e2e.server_under_test import SMALL_MAX_CALLS, Server
from tests.support import needs

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
    async with server_with(tmp_path) as running:
        yield running


@pytest.fixture
async def small_server(tmp_path: Path, nothing_is_left_running: None) -> AsyncIterator[Server]:
    """The same with ``SMALL_MAX_CALLS`` lines."""
    async with server_with(tmp_path, sip__max_calls=str(SMALL_MAX_CALLS)) as running:
        yield running


@pytest.fixture
def server_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the server build."""
    if not pjsua2_build.is_built():
        needs.missing("server-build", "the server build of pjsua2 is not here: make pjsua2")
    monkeypatch.setenv(pjsua2_build.VARIABLE, "server")
