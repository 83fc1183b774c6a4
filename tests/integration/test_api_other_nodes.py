"""Requests about calls of other nodes: 307 to the node that the id names, and to nowhere else."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from cc_tts.calls.events.types import CallEarly
from cc_tts.cluster.messages import Node
from cc_tts.config.schema import ClusterConfig, Config, ServerConfig, TokenConfig
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

OWNER = "http://127.0.0.1:9"
PREFIXED = f"{OWNER}/tts"
THEIRS = "call_line-2_0123456789abcdef"
OURS = "call_line-1_0123456789abcdef"
TOKEN = "the-word-that-nobody-knows"


def config_of(url: str = OWNER, **http: Any) -> Config:
    return replace(
        make_config(**http),
        server=ServerConfig(node="line-1"),
        cluster=ClusterConfig(nodes={"line-2": url}, base_url="http://127.0.0.1:8"),
    )


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api(config_of()) as running:
        yield running


async def redirected(api: RunningApi, method: str, path: str, body: object = None, **headers: str) -> str:
    data = None if body is None else json.dumps(body).encode()
    async with api.session.request(
        method, path, data=data, headers={"Content-Type": "application/json", **headers}, allow_redirects=False
    ) as response:
        assert response.status == 307, await response.text()
        if method != "HEAD":
            problem = json.loads(await response.read())
            assert response.content_type == "application/problem+json"
            assert (problem["code"], problem["api"]) == ("other_node", OWNER)
            assert "line-2" in problem["detail"]
        assert response.headers["Cache-Control"] == "no-store"
        return response.headers["Location"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/v1/calls/{THEIRS}", None),
        ("HEAD", f"/v1/calls/{THEIRS}", None),
        ("PATCH", f"/v1/calls/{THEIRS}", {"voice": "x"}),
        ("DELETE", f"/v1/calls/{THEIRS}", None),
        ("POST", f"/v1/calls/{THEIRS}/speak", {"text": "Hello."}),
        ("POST", f"/v1/calls/{THEIRS}/speak", {"wrong": 1}),  # for the owner to refuse
        ("POST", f"/v1/calls/{THEIRS}/hangup", None),
        ("GET", f"/v1/calls/{THEIRS}/gather", None),
        ("GET", f"/v1/calls/{THEIRS}/stream?words=true", None),
        ("GET", f"/v1/calls/{THEIRS}/media?direction=both&rate=8000", None),
        ("GET", f"/v1/events?call_id={THEIRS}&types=call.dtmf,speak.mark", None),
        ("GET", "/v1/utterances/utt_line-2_0123456789abcdef?words=true", None),
    ],
)
async def test_the_same_path_and_query_at_the_owner(api: RunningApi, method: str, path: str, body: object) -> None:
    assert await redirected(api, method, path, body) == OWNER + path


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/calls/{OURS}",
        "/v1/calls/call_line-3_0123456789abcdef",
        "/v1/calls/call_0123456789abcdef",
        "/v1/calls/call_127.0.0.1_0123456789abcdef",
    ],
)
async def test_unknown_calls_of_ours_and_of_unknown_nodes(api: RunningApi, path: str) -> None:
    (await api.ask("GET", path)).check_problem(404, "call_not_found")


async def test_a_call_that_is_here_is_here_whatever_its_id_says(api: RunningApi) -> None:
    api.registry.add(THEIRS, answered=True)
    assert (await api.ask("GET", f"/v1/calls/{THEIRS}")).json["id"] == THEIRS


async def test_a_path_before_that_of_the_api_is_kept() -> None:
    path = f"/v1/calls/{THEIRS}"
    async with (
        running_api(config_of(f"{PREFIXED}/")) as api,
        api.session.get(path, allow_redirects=False) as response,
    ):
        assert response.headers["Location"] == PREFIXED + path


async def test_a_node_of_the_pool(api: RunningApi) -> None:
    path = "/v1/calls/call_line-3_0123456789abcdef"
    api.context.services.nodes.set_reported([Node(name="line-3", base_url="http://127.0.0.1:10")])
    async with api.session.get(path, allow_redirects=False) as response:
        assert response.headers["Location"] == f"http://127.0.0.1:10{path}"


async def test_the_host_is_never_one_of_the_client(api: RunningApi) -> None:
    """In absolute form, by the Host header, and with a line break."""
    for target, host in (
        (f"http://evil.example/v1/calls/{THEIRS}?a=%0d%0aX-Evil:1", "127.0.0.1"),
        (f"/v1/calls/{THEIRS}?a=%0d%0aX-Evil:1", "localhost"),
    ):
        async with api.connect() as (reader, writer):
            writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            head = (await reader.read()).partition(b"\r\n\r\n")[0].decode()
        assert head.startswith("HTTP/1.1 307 "), head
        (location,) = (line for line in head.split("\r\n") if line.startswith("Location: "))
        assert location.startswith(f"Location: {OWNER}/v1/calls/{THEIRS}?a=")
        assert "\r\nX-Evil" not in head


async def test_the_token_comes_first() -> None:
    path = f"/v1/calls/{THEIRS}"
    async with running_api(config_of(tokens=(TokenConfig(token=TOKEN, scopes=("read",)),))) as api:
        (await api.ask("GET", path)).check_problem(401, "unauthorized")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        (await api.ask("DELETE", path, headers=headers)).check_problem(403, "forbidden")
        assert await redirected(api, "GET", path, **headers) == OWNER + path


async def test_a_query_reaches_no_log(api: RunningApi) -> None:
    with capture_logs() as lines:
        path = f"/v1/calls/{THEIRS}?token={TOKEN}"
        assert await redirected(api, "GET", path) == OWNER + path
    assert lines
    assert TOKEN not in repr(lines)


async def test_a_client_that_follows_arrives() -> None:
    """A call is created, asked for, spoken to and listened to by way of the node that does not have it."""
    async with running_api() as owner:
        owner.registry.add(THEIRS, answered=True)
        async with running_api(config_of(f"http://127.0.0.1:{owner.port}")) as api:
            async with api.session.post(f"/v1/calls/{THEIRS}/speak", json={"text": "Hello."}) as response:
                assert response.status == 201, await response.text()
                spoken = (await response.json())["id"]
            assert spoken in owner.registry.prompts
            path = f"/v1/events?call_id={THEIRS}"
            async with api.session.ws_connect(path, timeout=aiohttp.ClientWSTimeout(ws_close=1)) as socket:
                owner.registry.services.events.publish(CallEarly(sip_code=180), call_id=THEIRS)
                assert json.loads((await socket.receive()).data)["call_id"] == THEIRS
