"""Tenants on real calls: a tenant at its limit, beside others; the limit changed by SIGHUP; the accounting of all of it."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.cluster.leases import TenantLeases
from cc_tts.config.schema import TenantConfig
from cc_tts.pool.app import build_app
from cc_tts.pool.hosts import HostStatus, WorkerNotFound
from cc_tts.pool.state import PoolState
from lab.configured import logged, server_with
from lab.ports import HOST
from lab.raw_sip import RawCaller, invite_once
from lab.server_under_test import GREETING
from lab.waiting import until
from tests.e2e.test_reload import change, reload
from tests.support.served_app import served

pytestmark = pytest.mark.e2e

OPERATOR, ACME = "the-operators-token", "token-of-acme"
WITHIN_S = 100.0
SETTINGS = {
    "tenants__acme__max_calls": "1",
    "routes__greet__tenant": "acme",
    "routes__greet__then": "hangup",
    "routes__long__tenant": "acme",
}


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in file.read_text().splitlines(keepends=True) if each.endswith("\n")]


async def test_a_tenant_at_its_limit_keeps_nobody_else_out(tmp_path: Path) -> None:
    file = tmp_path / "accounting.jsonl"
    async with server_with(tmp_path, accounting__file=str(file), **SETTINGS) as server:
        async with (
            RawCaller("long", server.sip_port) as first,
            RawCaller("long", server.sip_port) as second,
            RawCaller("silent", server.sip_port) as other,
        ):
            for caller in (first, second, other):
                caller.invite()
            answers = [await caller.final(WITHIN_S) for caller in (first, second, other)]
            for caller in (first, second, other):
                caller.ack()
            assert sorted(answer.status for answer in answers[:2]) == [200, 480]
            assert answers[2].status == 200
            (refused,) = (answer for answer in answers if answer.status == 480)
            assert int(refused.header("Retry-After") or 0) >= 1
            assert "max_calls of this tenant is 1" in refused.text
            for caller, answer in zip((first, second, other), answers, strict=True):
                if answer.status == 200:
                    caller.send("BYE")
                    assert (await caller.final(WITHIN_S)).status == 200
        await server.until_all_terminated(WITHIN_S)
        async with RawCaller("greet", server.sip_port) as again:
            again.invite()
            assert (await again.final(WITHIN_S)).status == 200
            again.ack()
            await again.request("BYE", WITHIN_S)
            await until(lambda: sum(line["type"] == "call" for line in lines_of(file)) == 4, WITHIN_S)
        found = lines_of(file)
    calls = [(line["tenant"], line["result"], line["reason"]) for line in found if line["type"] == "call"]
    assert sorted(calls) == [
        ("", "completed", "remote_hangup"),
        ("acme", "completed", "prompt_finished"),
        ("acme", "completed", "remote_hangup"),
        ("acme", "rejected", "quota_exceeded"),
    ]
    (greeting,) = (line for line in found if line["type"] == "utterance" and line["reason"] == "normal")
    assert (greeting["tenant"], greeting["characters"], greeting["engine"]) == ("acme", len(GREETING), "espeak")
    assert greeting["played_ms"] > 1000
    (call,) = (line for line in found if line["type"] == "call" and line["call_id"] == greeting["call_id"])
    assert call["duration_ms"] >= greeting["played_ms"]
    assert "answered by a machine" not in file.read_text()
    assert "raw" not in {value for line in found for value in map(str, line.values())}


class NoHosts:
    async def poll(self) -> Sequence[HostStatus]:
        return ()

    async def drain(self, worker: str) -> None:
        raise WorkerNotFound(worker)

    start = take_voices = drain


@contextlib.asynccontextmanager
async def a_pool(tenants: Mapping[str, TenantConfig]) -> AsyncIterator[str]:
    clock = MonotonicClock()
    leases = TenantLeases(tenants, clock=clock)
    state = PoolState(cast("Any", NoHosts()), clock=clock, first_audio_target_ms=300.0, leases=leases)
    async with served(build_app(state, token="")) as port:
        state.start()
        try:
            yield f"http://{HOST}:{port}"
        finally:
            await state.stop()


async def test_a_node_keeps_to_its_share_when_the_pool_is_away(tmp_path: Path) -> None:
    settings = SETTINGS | {"tenants__acme__max_calls": "5", "server__node": "line-1"}
    async with contextlib.AsyncExitStack() as pool:
        url = await pool.enter_async_context(a_pool({"acme": TenantConfig(max_calls=1)}))
        async with (
            server_with(tmp_path, cluster__pool_url=url, **settings) as server,
            RawCaller("long", server.sip_port) as first,
        ):
            first.invite()
            assert (await first.final(WITHIN_S)).status == 200
            first.ack()
            answer = await invite_once("long", server.sip_port)
            while answer.status == 200:  # until the first lease is there
                answer = await invite_once("long", server.sip_port)
            await pool.aclose()
            await until(lambda: logged(server, "pool_not_reached"), WITHIN_S)
            for _ in range(2):
                assert answer.status == 480
                assert "max_calls of this tenant is 5, 1 of them at this node" in answer.text
                answer = await invite_once("long", server.sip_port)
            await first.bye()


async def test_limits_and_tokens_of_tenants_are_reloaded(tmp_path: Path) -> None:
    tokens = json.dumps([OPERATOR]).replace('"', "'")
    async with server_with(tmp_path) as server:
        text = server.config.read_text()
        server.config.write_text(text + "\n[tenants.acme]\nmax_calls = 1\n")
        change(server, "[routes.long]", '[routes.long]\ntenant = "acme"')
        line = await reload(server)
        assert set(line["changed"]) == {"tenants.acme", "routes.long"}, line
        async with RawCaller("long", server.sip_port) as first, RawCaller("long", server.sip_port) as second:
            first.invite()
            assert (await first.final(WITHIN_S)).status == 200
            first.ack()
            second.invite()
            assert (await second.final(WITHIN_S)).status == 480
            second.ack()
            change(server, "max_calls = 1", "max_calls = 2")
            change(server, "[http]", f"[http]\ntokens = [{tokens[1:-1]}, {{token = '{ACME}', tenant = 'acme'}}]")
            assert set((await reload(server))["changed"]) == {"tenants.acme", "http.tokens"}
            async with RawCaller("long", server.sip_port) as third:
                third.invite()
                assert (await third.final(WITHIN_S)).status == 200
                third.ack()
                third.send("BYE")
                await third.final(WITHIN_S)
            first.send("BYE")
            await first.final(WITHIN_S)
