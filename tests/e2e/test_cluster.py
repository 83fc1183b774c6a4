"""Two line nodes and two speech workers behind Kamailio, as one service."""

import asyncio
import json
import re
import sys
from pathlib import Path

import aiohttp
import pytest

from lab.children import Child
from lab.cluster import Cluster
from lab.kamailio import require_kamailio
from lab.server_under_test import Server

pytest.importorskip("grpc")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NUM_CALLS = 4
DEMO_TIMEOUT_S = 240.0
EMPTY_TIMEOUT_S = 20.0
HEARD_TIMEOUT_S = 10.0


@pytest.mark.slow
async def test_one_of_each_is_killed_and_no_call_ends_but_those_of_the_node(tmp_path: Path) -> None:
    require_kamailio()
    argv = [sys.executable, "-m", "bench.cluster_demo", "--calls", str(NUM_CALLS)]
    demo = await Child.start(argv, log_path=tmp_path / "demo.log", env={"PYTHONUNBUFFERED": "1"})
    assert await demo.wait(DEMO_TIMEOUT_S) == 0, demo.log
    assert "no call ended but those of line-1" in demo.log
    assert re.search(r"prompts of the killed worker: ([1-9]\d*); said on by the other one: \1\n", demo.log)
    assert "at line-2: 307 to line-1, 200 there" in demo.log


async def until_ended(server: Server) -> int:
    return await server.ended(EMPTY_TIMEOUT_S)


async def test_any_node_is_asked_and_a_drained_one_empties(tmp_path: Path) -> None:
    require_kamailio()
    async with Cluster.of(tmp_path, NUM_CALLS) as cluster:
        first, second = cluster.nodes.values()
        async with first.events() as events:
            calls = await cluster.dial(NUM_CALLS)
            assert [call.status for call in calls] == [200] * NUM_CALLS
            of_first = [call for call in calls if call.node == "line-1"]
            assert len(of_first) == NUM_CALLS // 2
            established = await events.wait("call.established")
        assert (established["node"], established["api"]) == ("line-1", first.url)
        call_id = await first.call_id(of_first[0].caller.call_id)
        assert call_id.startswith("call_line-1_")

        await second.patch(f"/v1/calls/{call_id}", {"metadata": {"asked": "the other node"}})
        assert (await first.read(f"/v1/calls/{call_id}"))["metadata"] == {"asked": "the other node"}
        (utterance_id,) = (await second.read(f"/v1/calls/{call_id}"))["utterances"]
        assert utterance_id.startswith("utt_line-1_")
        assert (await second.read(f"/v1/utterances/{utterance_id}"))["state"] == "in_progress"
        listening = f"{second.url}/v1/calls/{call_id}/media?direction=out"
        async with second.http.ws_connect(listening, timeout=aiohttp.ClientWSTimeout(ws_close=5)) as socket:
            start = json.loads((await socket.receive()).data)
            assert (start["type"], start["call_id"], start["api"]) == ("start", call_id, first.url)
            assert (await socket.receive()).type is aiohttp.WSMsgType.BINARY

        assert (await first.ask("/v1/admin/drain"))["draining"]
        more = await cluster.dial(2)
        assert [(call.status, call.node) for call in more] == [(200, "line-2")] * 2
        await asyncio.sleep(1.5)
        assert not any(call.has_bye for call in cluster.calls), "a drain ends no call"
        async with asyncio.timeout(HEARD_TIMEOUT_S):  # on a busy machine speech comes in bursts
            while not all([call.is_up(await cluster.listen()) for call in cluster.calls]):  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.1)
        assert await cluster.hang_up(of_first) == len(of_first)
        assert await until_ended(first) == 0
        async with second.http.get(f"{second.url}/v1/calls/{call_id}", allow_redirects=False) as response:
            assert response.status == 307, "known from the configuration: whether it is there is found out there"
        await cluster.listen()
        rest = [call for call in cluster.calls if call not in of_first]
        assert await cluster.hang_up(rest) == len(rest)
