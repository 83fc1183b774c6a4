import contextlib
import inspect
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cc_tts.ua import pjsua2_build
from lab import needs
from lab.asterisk import Asterisk
from lab.children import Child
from lab.configured import Lend, renew_speech
from lab.server_under_test import SMALL_MAX_CALLS, Server
from lab.settings import in_environment, is_reloadable
from lab.softphone import SoftphoneProcess

os.environ.setdefault("CC_TTS_SIP__MAX_MEDIA_LATENESS_MS", "0")
"""A machine that is busy with other tests shall not refuse the calls of this one."""

Environment = tuple[tuple[str, str], ...]
"""Configuration in environment variables, and who shares it."""
MAX_IDLE_SERVERS = 2
"""A server has four processes, and each process of the tests has servers of its own."""


SHARED = ("server", "small_server", "fresh_server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder run on one event loop, so that servers can outlive a test. Those that share a server run one
    after another, so that it is started once.
    """
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    others = [item for item in items if Path(__file__).parent not in item.path.parents]
    items[:] = sorted(here, key=_shared_server) + others


def _shared_server(item: pytest.Item) -> int:
    fixtures = getattr(item, "fixturenames", ())
    return next((place for place, name in enumerate(SHARED) if name in fixtures), len(SHARED))


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def nothing_is_left_running() -> AsyncIterator[None]:
    yield
    await Child.end_all()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shared_phones(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, SoftphoneProcess]]:
    """Softphones that no test is using, by their build of pjsua2. Each must end by itself and without complaint."""
    phones: dict[str, SoftphoneProcess] = {}
    yield phones
    for phone in phones.values():
        assert await phone.close() == 0


@pytest_asyncio.fixture(loop_scope="session")
async def phone(
    shared_phones: dict[str, SoftphoneProcess], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SoftphoneProcess]:
    """The softphone in its own process, without calls."""
    build = os.environ.get(pjsua2_build.VARIABLE, "")
    process = shared_phones.pop(build, None)
    if process is None:
        process = await SoftphoneProcess.start(log_path=tmp_path_factory.mktemp("softphone") / "softphone.log")
    try:
        yield process
        await process.hang_up_all()
    except BaseException:
        await process.close()
        raise
    shared_phones[build] = process


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shared_servers() -> AsyncIterator[dict[Environment, Server]]:
    """Servers that no test is using, the one that was used last at the end. SIGTERM must end each with status 0."""
    servers: dict[Environment, Server] = {}
    yield servers
    for server in servers.values():
        assert await server.end() == 0, server.whole_log[-4000:]


@pytest_asyncio.fixture(loop_scope="session")
async def lend(
    shared_servers: dict[Environment, Server], tmp_path_factory: pytest.TempPathFactory, nothing_is_left_running: None
) -> Lend:
    """``async with lend(section__key="value") as server``: as ``server_with``, but the next test that wants these settings
    gets the same server if this test leaves it as it was. What a running server can take over may differ. ``group`` keeps
    it for the tests that say the same.
    """

    @contextlib.asynccontextmanager
    async def lent(*, group: str = "", **settings: str) -> AsyncIterator[Server]:
        own = {name: value for name, value in os.environ.items() if name.startswith("CC_TTS_")}
        taken_over = {name: value for name, value in settings.items() if is_reloadable(name)}
        fixed = {name: value for name, value in settings.items() if name not in taken_over}
        key = (("group", group), *sorted((own | in_environment(fixed)).items()))
        server = shared_servers.pop(key, None)
        if server is None:
            server = await Server.start(tmp_path_factory.mktemp("server"), fixed, in_file=taken_over)
            server.share()
        try:
            await server.take_over(taken_over)
            await server.begin()
        except BaseException:
            await server.end()
            raise
        is_reusable = False
        try:
            yield server
            is_reusable = await server.is_as_new()
        finally:
            if is_reusable:
                shared_servers[key] = server
            else:
                code = await server.end()
        assert is_reusable or code == 0, server.log[-4000:]
        while len(shared_servers) > MAX_IDLE_SERVERS:
            oldest = shared_servers.pop(next(iter(shared_servers)))
            assert await oldest.end() == 0, oldest.whole_log[-4000:]

    return lent


@pytest_asyncio.fixture(loop_scope="session")
async def server(lend: Lend) -> AsyncIterator[Server]:
    """A server with the routes of ``server_config``."""
    async with lend() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def fresh_server(lend: Lend) -> AsyncIterator[Server]:
    """One whose espeak-ng has said nothing yet."""
    async with lend(cache__enabled="false") as running:
        await renew_speech(running)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def small_server(lend: Lend) -> AsyncIterator[Server]:
    """One with ``SMALL_MAX_CALLS`` lines."""
    async with lend(sip__max_calls=str(SMALL_MAX_CALLS)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def first(both: tuple[Server, Asterisk], nothing_is_left_running: None) -> Server:
    """The node of a module whose tests share ``both`` a node and Asterisk; its espeak-ng has said nothing yet."""
    server, _ = both
    await renew_speech(server)
    await server.begin()
    return server


@pytest_asyncio.fixture(loop_scope="session")
async def pbx(both: tuple[Server, Asterisk], first: Server) -> Asterisk:
    """The Asterisk of such a module, without a call."""
    _, running = both
    await running.begin()
    await running.until_contact(1, "Avail")  # an OPTIONS while espeak-ng was started anew has had 503
    return running


@pytest.fixture(scope="session")
def built() -> None:
    if not pjsua2_build.is_built():
        needs.missing("server-build", "the server build of pjsua2 is not here: make pjsua2")


@pytest.fixture
def server_build(built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pjsua2_build.VARIABLE, "server")
