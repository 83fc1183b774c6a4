"""The HTTP of the pool and a server's link to it: a real aiohttp application on loopback, with hosts that a test sets."""

import asyncio
import contextlib
import dataclasses
import hashlib
import sys
import types
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from aiohttp import web

from cc_tts import startup
from cc_tts.clock import MonotonicClock
from cc_tts.cluster import leases as leases_module
from cc_tts.cluster import link as link_module
from cc_tts.cluster import pool_client
from cc_tts.cluster.leases import TenantLeases
from cc_tts.cluster.link import PoolLink
from cc_tts.cluster.messages import Leases, Node, NodeReport, TenantShare, TenantUse, Worker
from cc_tts.config.schema import ClusterConfig, Config, RemoteConfig, TenantConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.errors import ProcessFailed, QuotaExceeded
from cc_tts.metrics import Metrics
from cc_tts.pool import state as state_module
from cc_tts.pool import voices
from cc_tts.pool.app import build_app
from cc_tts.pool.hosts import HostStatus, WorkerNotFound
from cc_tts.pool.ray_hosts import RayHosts
from cc_tts.pool.state import PoolState
from cc_tts.pool.voices import VoiceFile, VoiceFiles, VoiceFolder
from cc_tts.tenants.quotas import TenantQuotas
from lab.ports import free_ports
from lab.waiting import until
from tests.fakes.running_api import make_config, running_api
from tests.support.served_app import served_app

pytestmark = pytest.mark.integration

TOKEN = "a-token-of-the-cluster"
ACME = TenantConfig(max_calls=10)
WITHIN_S = 20.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "LOOK_INTERVAL_S", 0.05)
    monkeypatch.setattr(state_module, "VOICES_INTERVAL_S", 0.0)
    monkeypatch.setattr(link_module, "BACKOFF_MAX_S", 0.5)


class SetHosts:
    def __init__(self, *names: str) -> None:
        self.statuses = {name: self.ready(name) for name in names}
        self.asked: list[tuple[str, str]] = []
        self.is_lost = False

    @staticmethod
    def ready(name: str) -> HostStatus:
        address = f"grpc://127.0.0.1:{7400 + int(name.rpartition('-')[2])}"
        return HostStatus(id=name, address=address, host="a", device="cpu", state="ready", generation="1")

    async def poll(self) -> Sequence[HostStatus]:
        if self.is_lost:
            raise ProcessFailed("the cluster is lost")
        return list(self.statuses.values())

    async def drain(self, worker: str) -> None:
        self._note(worker, "drain", state="drained")

    async def start(self, worker: str) -> None:
        self._note(worker, "start", state="ready")

    async def take_voices(self, worker: str) -> None:
        self._note(worker, "voices")

    def _note(self, worker: str, what: str, **change: Any) -> None:
        if worker not in self.statuses:
            raise WorkerNotFound(f"no worker is called {worker}")
        self.asked.append((what, worker))
        self.statuses[worker] = msgspec.structs.replace(self.statuses[worker], **change)


class Pool:
    """A pool that can be stopped and started again at its port."""

    def __init__(self, hosts: SetHosts, folder: VoiceFolder | None, token: str) -> None:
        self.hosts, self.folder, self.token = hosts, folder, token
        self.port = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.runner: web.AppRunner | None = None
        self.state: PoolState | None = None

    async def start(self) -> None:
        self.state = PoolState(
            cast("Any", self.hosts),
            clock=MonotonicClock(),
            first_audio_target_ms=300.0,
            voice_folder=self.folder,
            leases=TenantLeases({"acme": ACME}, clock=MonotonicClock()),
        )
        self.runner = web.AppRunner(build_app(self.state, token=self.token), access_log=None, shutdown_timeout=1.0)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()
        self.state.start()

    async def stop(self) -> None:
        if self.runner is not None and self.state is not None:
            await self.state.stop()
            await self.runner.cleanup()
            self.runner = None

    async def ask(self, method: str, path: str, *, token: str | None = None) -> tuple[int, Any]:
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, self.url + path, headers=headers) as answer,
        ):
            return answer.status, msgspec.json.decode(await answer.read() or b"null")


@contextlib.asynccontextmanager
async def a_pool(*names: str, folder: VoiceFolder | None = None, token: str = TOKEN) -> AsyncIterator[Pool]:
    pool = Pool(SetHosts(*names), folder, token)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


class Told:
    def __init__(self, url: str, name: str = "line-1", token: str = TOKEN) -> None:
        self.node = Node(name=name, base_url=f"http://{name}:8080", max_calls=100)
        self.addresses: list[list[str]] = []
        self.leases: list[Leases] = []
        self.link = PoolLink(
            url,
            remote=RemoteConfig(token=token),
            clock=MonotonicClock(),
            node=lambda: self.node,
            tenants=lambda: {"acme": TenantUse(calls=3, held=TenantShare(calls=5))},
            on_workers=lambda found: self.addresses.append([worker.address for worker in found]),
            on_leases=self.leases.append,
        )


@contextlib.asynccontextmanager
async def linked(pool: Pool, name: str = "line-1") -> AsyncIterator[Told]:
    told = Told(pool.url, name)
    told.link.start()
    try:
        yield told
    finally:
        await told.link.stop()


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with a_pool("h-0") as made:
        await until(lambda: made.state is not None and made.state.not_ready_because is None)
        yield made


async def test_a_pool_without_a_ready_worker_is_not_ready(pool: Pool) -> None:
    assert (await pool.ask("GET", "/readyz", token=""))[0] == 200
    for state in ("starting", "restarting", "drained"):
        reason = f"no worker is ready: 1 {state}"
        pool.hosts.statuses = {"h-0": msgspec.structs.replace(SetHosts.ready("h-0"), state=state)}
        await until(partial(is_because, pool, reason))
        status, answer = await pool.ask("GET", "/readyz", token="")
        assert (status, answer["detail"]) == (503, reason)
    pool.hosts.statuses = {}
    await until(partial(is_because, pool, "no worker is ready: there is none"))
    assert (await pool.ask("GET", "/readyz", token=""))[1]["detail"] == "no worker is ready: there is none"


def is_because(pool: Pool, reason: str) -> bool:
    return pool.state is not None and pool.state.not_ready_because == reason


def of_pool(pool: Pool, **tts: Any) -> Config:
    address = f"pool:127.0.0.1:{pool.port}"
    return Config(tts=TtsConfig(engine="onnx", devices=(), workers=(address,), **tts), remote=RemoteConfig(token=TOKEN))


async def test_a_command_waits_for_a_worker_of_the_pool(pool: Pool) -> None:
    starting = msgspec.structs.replace(SetHosts.ready("h-0"), state="starting")
    pool.hosts.statuses = {"h-0": starting}
    await until(partial(is_because, pool, "no worker is ready: 1 starting"))
    told: list[str] = []
    waiting = asyncio.create_task(startup.wait_for_pool(of_pool(pool), told.append))
    await until(lambda: len(told) > 1)
    assert told[0] == f"the pool at {pool.url} is not ready: no worker is ready: 1 starting"
    assert not waiting.done()
    pool.hosts.statuses = {"h-0": SetHosts.ready("h-0")}
    await asyncio.wait_for(waiting, WITHIN_S)


async def test_a_command_that_has_waited_long_enough_names_the_cause(pool: Pool) -> None:
    pool.hosts.statuses = {}
    await until(partial(is_because, pool, "no worker is ready: there is none"))
    with pytest.raises(ProcessFailed, match="is not ready: no worker is ready: there is none"):
        await startup.wait_for_pool(of_pool(pool, worker_start_timeout_s=0.2), lambda _reason: None)
    await pool.stop()
    with pytest.raises(ProcessFailed, match="cannot be asked: Connection refused"):
        await startup.wait_for_pool(of_pool(pool), lambda _reason: None)


async def test_a_server_is_told_of_workers_nodes_and_shares() -> None:
    async with a_pool("worker-0", "worker-1") as pool, linked(pool) as one, linked(pool, "line-2") as two:
        await until(lambda: len(one.link.workers) == 2 and len(one.link.nodes) == 2 and len(two.link.nodes) == 2)
        assert [worker.address for worker in one.link.workers] == ["grpc://127.0.0.1:7400", "grpc://127.0.0.1:7401"]
        assert {node.name for node in one.link.nodes} == {"line-1", "line-2"}
        await until(lambda: one.leases)
        await until(lambda: two.leases)
        assert one.leases[0].tenants["acme"].calls == 5
        assert two.leases[0].tenants["acme"].calls == 5


async def test_a_limit_is_for_two_nodes_together_and_outlives_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "TTL_S", 3.0)
    monkeypatch.setattr(link_module, "REPORT_INTERVAL_S", 0.1)
    monkeypatch.setattr(link_module, "LOOK_INTERVAL_S", 0.02)
    async with a_pool() as pool:
        books = [TenantQuotas({"acme": ACME}, node=number, num_nodes=2) for number in range(2)]
        links = [link_of(pool, f"line-{number}", book) for number, book in enumerate(books)]
        assert [book.limit("acme", "calls") for book in books] == [5, 5]
        for link in links:
            link.start()
        for _ in range(5):
            books[0].hold("acme", "calls")
        with pytest.raises(QuotaExceeded):
            books[0].hold("acme", "calls")
        await until(lambda: (books[0].limit("acme", "calls") or 0) > 7)
        for _ in range(3):
            books[0].hold("acme", "calls")
        await until(lambda: sum(book.limit("acme", "calls") or 0 for book in books) == 10)
        assert (books[1].limit("acme", "calls") or 0) >= 1
        books[1].hold("acme", "calls")
        await pool.stop()
        await until(lambda: not any(link.is_connected for link in links))
        shares = [book.limit("acme", "calls") for book in books]
        assert sum(share or 0 for share in shares) == 10
        for link in links:
            await link.stop()


def link_of(pool: Pool, name: str, book: TenantQuotas) -> PoolLink:
    return PoolLink(
        pool.url,
        remote=RemoteConfig(token=TOKEN),
        clock=MonotonicClock(),
        node=lambda: Node(name=name),
        tenants=book.use,
        on_leases=book.on_leases,
    )


async def test_a_node_that_drains_is_told_of_at_once() -> None:
    async with a_pool() as pool, linked(pool) as one, linked(pool, "line-2") as two:
        await until(lambda: len(two.link.nodes) == 2)
        one.node = msgspec.structs.replace(one.node, draining=True)
        await until(lambda: any(node.draining for node in two.link.nodes))


async def test_a_pool_that_is_lost_leaves_what_it_said_in_force_and_is_found_again() -> None:
    async with a_pool("worker-0") as pool, linked(pool) as told:
        await until(lambda: told.link.workers)
        assert told.link.age_s == 0.0
        await pool.stop()
        await until(lambda: not told.link.is_connected)
        assert len(told.link.workers) == 1
        assert told.addresses[-1] == ["grpc://127.0.0.1:7400"]
        assert told.link.age_s is not None
        pool.hosts.statuses["worker-1"] = SetHosts.ready("worker-1")
        await pool.start()
        await until(lambda: len(told.link.workers) == 2)
        assert told.link.is_connected
        assert [] not in told.addresses[1:]


async def test_a_new_pool_that_has_not_looked_yet_takes_no_workers_away() -> None:
    async with a_pool("worker-0") as pool:
        gate, look = asyncio.Event(), pool.hosts.poll

        async def slow_look() -> Sequence[HostStatus]:
            await gate.wait()
            return await look()

        pool.hosts.poll = slow_look  # type: ignore[method-assign]
        await pool.stop()
        await pool.start()
        async with linked(pool) as told:
            await until(lambda: told.leases)
            assert told.addresses == []
            gate.set()
            await until(lambda: told.addresses == [["grpc://127.0.0.1:7400"]])


async def test_a_wrong_token_is_refused_and_the_reason_says_what_to_do() -> None:
    async with a_pool() as pool:
        told = Told(pool.url, token="another-token")
        told.link.start()
        await until(lambda: "remote.token" in told.link.reason)
        await told.link.stop()
        assert told.link.age_s is None
        assert (await pool.ask("GET", "/v1/cluster", token=""))[0] == 401
        assert (await pool.ask("GET", "/healthz", token=""))[0] == 200
        with pytest.raises(ProcessFailed, match="401"):
            await pool_client.ask_workers(pool.url, RemoteConfig(token="another-token"))


@pytest.mark.parametrize(
    "bad",
    ["", "{}", "no json", '{"type":"node","node":{"name":"../x"}}', '{"type":"node","node":{"name":"a","calls":-1}}'],
)
async def test_what_is_no_report_ends_the_connection_of_its_sender_only(bad: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with a_pool("worker-0") as pool, linked(pool) as told, aiohttp.ClientSession(headers=headers) as client:
        await until(lambda: told.link.workers)
        async with client.ws_connect(pool.url + "/v1/watch") as socket:
            await socket.send_str(bad)
            async with asyncio.timeout(WITHIN_S):
                while (await socket.receive()).type is not aiohttp.WSMsgType.CLOSE:
                    pass
            assert socket.close_code == 1008
        assert told.link.is_connected


async def test_two_servers_of_one_name_are_not_both_listened_to() -> None:
    report = msgspec.json.encode(NodeReport(Node(name="line-1"))).decode()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        a_pool() as pool,
        aiohttp.ClientSession(headers=headers) as client,
        client.ws_connect(pool.url + "/v1/watch") as first,
        client.ws_connect(pool.url + "/v1/watch") as second,
    ):
        await first.send_str(report)
        async with asyncio.timeout(WITHIN_S):
            while "leases" not in (await first.receive()).data:
                pass
            await second.send_str(report)
            while (await first.receive()).type is not aiohttp.WSMsgType.CLOSE:
                pass
        assert first.close_code == 4000
        assert not second.closed


async def test_something_else_at_the_address_of_the_pool() -> None:
    async def nonsense(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str('{"type":"weather"}')
        await socket.receive()
        return socket

    async with served_app(web.get("/v1/watch", nonsense)) as port:
        told = Told(f"http://127.0.0.1:{port}")
        told.link.start()
        await until(lambda: "cannot be read" in told.link.reason)
        assert told.addresses == []
        await told.link.stop()


async def test_workers_that_the_pool_named_are_tried() -> None:
    tts = TtsConfig(engine="onnx", devices=(), workers=("pool:127.0.0.1:9",))
    workers = RemoteWorkers(Config(tts=tts), clock=MonotonicClock(), metrics=Metrics())
    workers.set_pool_workers([Worker(address="grpc://127.0.0.1:9"), Worker(address="no address of a worker")])
    assert [link.name for link in workers.links] == []
    faults = await workers.try_once()
    async with asyncio.timeout(WITHIN_S):
        await workers.stop()
    assert len(faults) == 1
    assert "grpc://127.0.0.1:9" in faults[0]


async def test_a_pool_whose_hosts_are_lost_for_good_ends() -> None:
    async with a_pool("worker-0") as pool:
        assert pool.state is not None
        pool.hosts.is_lost = True
        with pytest.raises(ProcessFailed, match="the cluster is lost"):
            async with asyncio.timeout(WITHIN_S):
                await pool.state.ended()


async def test_ray_is_not_asked_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(is_initialized=lambda: False))
    hosts = RayHosts(Config(), pool_url="", is_own=False, clock=MonotonicClock())
    for ask in (hosts.poll(), hosts.drain("worker-0"), hosts.start("worker-0"), hosts.take_voices("worker-0")):
        with pytest.raises(ProcessFailed, match="is lost"):
            await ask


async def test_drain_and_start_by_http() -> None:
    async with a_pool("worker-0", "worker-1") as pool, linked(pool) as told:
        await until(lambda: len(told.link.workers) == 2)
        assert (await pool.ask("POST", "/v1/workers/worker-0/drain"))[0] == 202
        await until(lambda: [worker.draining for worker in told.link.workers] == [True, False])
        assert (await pool.ask("POST", "/v1/workers/worker-0/start"))[0] == 202
        await until(lambda: not any(worker.draining for worker in told.link.workers))
        status, problem = await pool.ask("POST", "/v1/workers/worker-9/drain")
        assert (status, problem["code"]) == (404, "worker_not_found")
        status, cluster = await pool.ask("GET", "/v1/cluster")
        assert (cluster["wanted_workers"], [node["name"] for node in cluster["nodes"]]) == (2, ["line-1"])


async def test_voices_are_fetched_once_and_those_that_are_gone_are_removed(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "pool", VoiceFolder(tmp_path / "host")
    (ours / "features").mkdir(parents=True)
    theirs.folder.mkdir()
    (ours / "anna.voice.json").write_text("{}")
    (ours / "features" / "a.safetensors").write_bytes(bytes(200_000))
    (ours / "kokoro" / "styles").mkdir(parents=True)
    (ours / "kokoro" / "model.onnx").write_bytes(bytes(1000))
    (ours / "kokoro" / "styles" / "zf_a.bin").write_bytes(bytes(100))
    (ours / ".partial").mkdir()
    (ours / ".partial" / "model.onnx").write_bytes(bytes(10))
    (ours / ".hidden").write_text("no voice")
    (ours / "link").symlink_to("/etc/hostname")
    (theirs.folder / "old.voice.json").write_text("{}")
    async with a_pool(folder=VoiceFolder(ours)) as pool:
        remote = RemoteConfig(token=TOKEN)
        assert await voices.fetch(pool.url, remote, theirs)
        found = {path.relative_to(theirs.folder).as_posix() for path in theirs.folder.rglob("*") if path.is_file()}
        of_kokoro = {"kokoro/model.onnx", "kokoro/styles/zf_a.bin"}
        assert found == {"anna.voice.json", "features/a.safetensors", *of_kokoro}
        assert theirs.files() == VoiceFolder(ours).files()
        assert not await voices.fetch(pool.url, remote, theirs)
        assert (await pool.ask("GET", f"/v1/voices/{'0' * 64}"))[0] == 404


async def test_a_long_list_of_voices_is_read_whole(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "pool", VoiceFolder(tmp_path / "host")
    for folder in (ours, theirs.folder):
        folder.mkdir()
        for number in range(2000):
            (folder / f"{number:04}-{'long' * 20}.voice.json").write_text("{}")
    async with a_pool(folder=VoiceFolder(ours)) as pool:
        assert not await voices.fetch(pool.url, RemoteConfig(token=TOKEN), theirs)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("../outside", b"x"),
        ("features/../../outside", b"x"),
        ("kokoro/styles/../../../outside", b"x"),
        ("a", b"not what was announced"),
    ],
)
async def test_a_pool_that_lies_writes_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    listed = VoiceFiles((VoiceFile(name, hashlib.sha256(b"x").hexdigest(), 1),))
    voice_list, voice = _answering(msgspec.json.encode(listed)), _answering(content)
    host = tmp_path / "host"
    host.mkdir()
    async with served_app(web.get("/v1/voices", voice_list), web.get("/v1/voices/{hash}", voice)) as port:
        with pytest.raises(ProcessFailed):
            await voices.fetch(f"http://127.0.0.1:{port}", RemoteConfig(), VoiceFolder(host))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []  # noqa: ASYNC240 - a test


def _answering(body: bytes) -> Callable[[web.Request], Any]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body)

    return answer


async def test_hosts_get_new_voices_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "anna.voice.json").write_text("{}")
    async with a_pool("worker-0", "worker-1", folder=VoiceFolder(tmp_path)) as pool:
        await until(lambda: pool.hosts.asked)
        await asyncio.sleep(0.2)
        assert {worker for _, worker in pool.hosts.asked} == {"worker-0"}
        digest = VoiceFolder(tmp_path).files().digest
        restarting = msgspec.structs.replace(pool.hosts.statuses["worker-0"], voices=digest, state="restarting")
        pool.hosts.statuses["worker-0"] = restarting
        await asyncio.sleep(0.2)
        assert {worker for _, worker in pool.hosts.asked} == {"worker-0"}
        pool.hosts.statuses["worker-0"] = msgspec.structs.replace(restarting, state="ready")
        await until(lambda: ("voices", "worker-1") in pool.hosts.asked)


async def test_the_cluster_in_the_api_of_a_server() -> None:
    config = make_config()
    named = dataclasses.replace(config, cluster=ClusterConfig(nodes={"line-9": "http://10.0.0.9:8080"}))
    async with running_api(named) as api:
        answered = await api.ask("GET", "/v1/cluster")
        assert answered.status == 200
        assert answered.json["pool"] is None
        assert [(node["name"], node["base_url"]) for node in answered.json["nodes"]] == [
            ("line-9", "http://10.0.0.9:8080")
        ]
        assert answered.json["node"]["max_calls"] == 8


async def test_workers_that_no_pool_has_named_are_shown_too() -> None:
    config = make_config()
    worker = Worker(address="grpc://10.0.0.1:7400", generation="0.2.0", device="cuda:0")
    async with running_api(config, workers=lambda: [worker]) as api:
        answered = await api.ask("GET", "/v1/cluster")
        assert answered.json["workers"] == [msgspec.to_builtins(worker)]
