"""`cc-tts pool` on a Ray cluster of two nodes: three processes of Ray a node, a worker each, on this machine.

The tests follow one another on one cluster, which takes half a minute to start.
"""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from cc_tts.clock import MonotonicClock
from cc_tts.cluster.link import PoolLink
from cc_tts.cluster.messages import Node
from cc_tts.config.schema import Config, RemoteConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import make_engine
from cc_tts.engines.worker.client import WorkerEngine
from lab import needs
from lab.ports import free_ports
from lab.waiting import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.ray,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),  # of Ray
]

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-the-cluster"
START_S = 150.0
WITHIN_S = 60.0
RAY_TOKEN = "0123456789abcdef" * 4
VOICE = "hibari-heart"


class Cluster:
    """Ray's head without a device, and two nodes with one each."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self.folder = folder
        client_port = free_ports(1)
        head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": client_port}
        self._ray = RayCluster(initialize_head=True, head_node_args=head)
        self.address = str(self._ray.address)
        self.client_address = f"ray://127.0.0.1:{client_port}"
        self.nodes = [self.add_node(), self.add_node()]

    def add_node(self) -> Any:
        return self._ray.add_node(num_cpus=1, resources={"tts": 1})

    def lose(self, node: Any) -> None:
        self._ray.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        end: Callable[[], None] = self._ray.shutdown
        end()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if importlib.util.find_spec("ray") is None:  # it reads the environment when it is imported
        needs.missing("ray", "ray is not installed: pip install -r requirements/ray.txt")
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # a short path: sockets are below it
    (folder / "ray").mkdir()
    ours = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": RAY_TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(folder),
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    environment = pytest.MonkeyPatch()
    for name, value in ours.items():
        environment.setenv(name, value)
    with contextlib.ExitStack() as ending:
        ending.callback(environment.undo)
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        made = Cluster(folder)
        ending.callback(made.end)
        yield made


class Pool:
    def __init__(self, cluster: Cluster, voices: Path, port: int, ray_address: str = "") -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._argv = [sys.executable, "-m", "cc_tts.cli", "pool"]
        self._listen = ["--listen", f"127.0.0.1:{port}"]
        self._settings = [
            f"pool.ray_address={ray_address or cluster.address}",
            f"pool.first_port={free_ports(1)}",
            f"remote.token={TOKEN}",
            "tts.engine=onnx",
            "tts.num_threads=1",
            "tts.first_audio_target_ms=60000",
            f"tts.voices_dir={voices}",
        ]
        self.voices = voices
        self.process: asyncio.subprocess.Process | None = None
        self.log = cluster.folder / f"pool-{port}.log"

    async def run(self, *what: str) -> asyncio.subprocess.Process:
        argv = [*self._argv, *what]
        for setting in self._settings:
            argv += ["--set", setting]
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(*argv, stderr=log, cwd=ROOT)

    async def start(self) -> None:
        self.process = await self.run(*self._listen)

    async def keep_started(self) -> None:
        """As systemd or Kubernetes does: the process that Ray starts for a client may end at once, and the pool with it."""
        while True:
            await self.start()
            assert self.process is not None
            await self.process.wait()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        await asyncio.wait_for(self.process.wait(), WITHIN_S)

    async def ask(self, method: str, path: str) -> Any:
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client,
            client.request(method, self.url + path) as answer,
        ):
            assert answer.ok, await answer.text()
            return msgspec.json.decode(await answer.read())

    async def workers(self) -> dict[str, dict[str, Any]]:
        try:
            return {worker["id"]: worker for worker in (await self.ask("GET", "/v1/cluster"))["workers"]}
        except (aiohttp.ClientError, OSError):
            return {}

    async def until(self, holds: Callable[[dict[str, dict[str, Any]]], object], within_s: float = WITHIN_S) -> Any:
        workers: dict[str, dict[str, Any]] = {}
        try:
            async with asyncio.timeout(within_s):
                while not holds(workers := await self.workers()):  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{workers}\n{self.log.read_text()[-3000:]}") from None
        return workers


def all_ready(number: int) -> Callable[[dict[str, dict[str, Any]]], object]:
    return lambda workers: [worker["state"] for worker in workers.values()] == ["ready"] * number


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(cluster: Cluster) -> AsyncIterator[Pool]:
    voices = cluster.folder / "voices"
    voices.mkdir()
    (voices / "note-1.txt").write_text("not a voice that Piper reads, but a file of the folder")
    made = Pool(cluster, voices, free_ports(1))
    await made.start()
    try:
        yield made
    finally:
        if made.process is not None and made.process.returncode is None:
            await made.kill()


class Server:
    """What a server has of the cluster: its link, and an engine whose workers the pool names."""

    def __init__(self, url: str) -> None:
        remote = RemoteConfig(token=TOKEN)
        workers = (f"pool:{url.removeprefix('http://')}",)
        tts = TtsConfig(engine="onnx", devices=(), workers=workers, worker_start_timeout_s=WITHIN_S)
        self.engine: WorkerEngine = make_engine(Config(tts=tts, remote=remote))
        self.links = self.engine.elsewhere
        self.told: list[int] = []

        def name(found: Any) -> None:
            self.told.append(len(found))
            self.links.set_pool_workers(found)

        self.link = PoolLink(
            url, remote=remote, clock=MonotonicClock(), node=lambda: Node(name="line-1"), on_workers=name
        )

    def ready(self) -> set[str]:
        return {link.name for link in self.links.links if link.is_ready and not link.is_leaving}

    async def until(self, holds: Callable[[], object]) -> None:
        try:
            await until(holds, WITHIN_S)
        except TimeoutError:
            raise AssertionError((self.ready(), self.links.faults, self.link.reason)) from None

    async def speak(self) -> int:
        stream = self.engine.open(VOICE)
        stream.push("Please hold the line.", text_chunk_index=0)
        stream.end()
        async with asyncio.timeout(WITHIN_S):
            return sum([len(chunk.data) async for chunk in stream])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(pool: Pool) -> AsyncIterator[Server]:
    await pool.until(all_ready(2), START_S)
    made = Server(pool.url)
    made.link.start()
    await made.engine.start()
    try:
        yield made
    finally:
        await made.link.stop()
        await made.engine.stop()


async def test_a_worker_on_each_node_and_speech_through_both(pool: Pool, server: Server) -> None:
    await server.until(lambda: len(server.ready()) == 2)
    addresses = {worker["address"] for worker in (await pool.workers()).values()}
    assert server.ready() == addresses
    await asyncio.gather(*(server.speak() for _ in range(8)))
    assert await server.speak() > 8000


async def test_a_pool_on_a_machine_without_ray_finds_the_workers(pool: Pool, cluster: Cluster) -> None:
    before = await pool.until(all_ready(2), START_S)
    elsewhere = Pool(cluster, pool.voices, free_ports(1), cluster.client_address)
    starting = asyncio.create_task(elsewhere.keep_started())
    try:
        after = await elsewhere.until(all_ready(2), START_S)
    finally:
        starting.cancel()
        await elsewhere.kill(signal.SIGTERM)
    assert {worker["pid"] for worker in after.values()} == {worker["pid"] for worker in before.values()}


async def test_a_configuration_with_a_pool_is_checked_against_its_workers(pool: Pool, server: Server) -> None:
    await server.until(lambda: len(server.ready()) == 2)
    settings = (f"tts.workers=['pool:{pool.url.removeprefix('http://')}']", "tts.devices=[]", "tts.engine=onnx")
    argv = [sys.executable, "-m", "cc_tts.cli", "check-config"]
    for setting in (*settings, f"remote.token={TOKEN}", "sip.port=0", "http.port=0"):
        argv += ["--set", setting]
    checking = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)
    assert await asyncio.wait_for(checking.wait(), WITHIN_S) == 0


async def test_the_files_of_voices_are_on_every_host(pool: Pool, server: Server, cluster: Cluster) -> None:
    def copies(name: str) -> int:
        return len(list((cluster.folder / "cache").rglob(name)))

    assert copies("note-1.txt") == 2
    before = {worker["pid"] for worker in (await pool.workers()).values()}
    (pool.voices / "note-2.txt").write_text("another")
    await server.until(lambda: copies("note-2.txt") == 2)
    await pool.until(lambda workers: all_ready(2)(workers) and not before & {each["pid"] for each in workers.values()})
    await server.until(lambda: len(server.ready()) == 2)
    assert await server.speak() > 8000


async def test_a_worker_that_is_killed_is_started_again_by_its_host(pool: Pool, server: Server) -> None:
    before = await pool.workers()
    name, victim = next(iter(before.items()))
    os.kill(victim["pid"], signal.SIGKILL)
    assert await server.speak() > 8000
    after = await pool.until(lambda workers: workers[name]["pid"] not in (0, victim["pid"]) and all_ready(2)(workers))
    assert after[name]["address"] == victim["address"]
    assert after[name]["num_restarts"] == victim["num_restarts"] + 1
    await server.until(lambda: len(server.ready()) == 2)


async def test_a_drained_worker_is_left_and_comes_back(pool: Pool, server: Server) -> None:
    name, worker = next(iter((await pool.workers()).items()))
    await pool.ask("POST", f"/v1/workers/{name}/drain")
    await pool.until(lambda workers: workers[name]["state"] == "drained")
    await server.until(lambda: server.ready() and worker["address"] not in server.ready())
    assert await server.speak() > 8000
    await pool.ask("POST", f"/v1/workers/{name}/start")
    await pool.until(all_ready(2))
    await server.until(lambda: len(server.ready()) == 2)


async def test_a_pool_that_is_killed_changes_nothing_and_finds_its_workers(pool: Pool, server: Server) -> None:
    before, num_told = await pool.workers(), len(server.told)
    await pool.kill()
    await server.until(lambda: not server.link.is_connected)
    assert await server.speak() > 8000
    await pool.start()
    after = await pool.until(all_ready(2), START_S)
    assert {name: worker["pid"] for name, worker in after.items()} == {
        name: worker["pid"] for name, worker in before.items()
    }
    await server.until(lambda: server.link.is_connected)
    assert set(server.told[num_told:]) <= {2}
    assert len(server.ready()) == 2


async def test_a_lost_node_takes_its_worker_away_and_a_new_one_gets_it(
    pool: Pool, server: Server, cluster: Cluster
) -> None:
    before = await pool.workers()
    cluster.lose(cluster.nodes.pop())
    await pool.until(all_ready(1))
    assert await server.speak() > 8000
    cluster.add_node()  # on this thread, since Ray sets signal handlers
    after = await pool.until(all_ready(2), START_S)
    assert len({worker["pid"] for worker in before.values()} & {worker["pid"] for worker in after.values()}) == 1
    await server.until(lambda: len(server.ready()) == 2)


async def test_down_ends_every_worker(pool: Pool) -> None:
    pids = [worker["pid"] for worker in (await pool.workers()).values()]
    await pool.kill(signal.SIGTERM)
    for pid in pids:
        os.kill(pid, 0)  # they live on without the pool
    down = await pool.run("--down")
    assert await asyncio.wait_for(down.wait(), START_S) == 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            pytest.fail(f"worker {pid} lives")
