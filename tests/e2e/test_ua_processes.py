"""Two UA processes behind one SIP port."""

import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab.configured import Lend, of_kind, server_with, until_readyz
from lab.ports import HOST
from lab.raw_sip import Answer, RawCaller, RawPeer, authorization, digest_response
from lab.server_under_test import Server, entries
from lab.softphone import SoftphoneProcess
from lab.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]

NUM_LINES = 6
TWO = {"ua__processes": "2", "sip__transports": '["udp"]', "sip__max_calls": str(NUM_LINES)}
FRIEND = "127.0.0.3"
PASSWORD = "open sesame"


async def until_both(server: Server) -> None:
    """Wait until both processes are up: calls are taken as soon as one is."""
    await until(lambda: {"ua-1", "ua-2"} < pids(server).keys())


@pytest_asyncio.fixture(loop_scope="session")
async def two(lend: Lend) -> AsyncIterator[Server]:
    async with lend(**TWO) as server:
        await until_both(server)
        yield server


@contextlib.asynccontextmanager
async def calls(server: Server, number: int, *, source: str = HOST) -> AsyncIterator[list[tuple[RawCaller, Answer]]]:
    """So many calls that are up, each with its 200."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for _ in range(number):
            caller = await stack.enter_async_context(RawCaller("silent", server.sip_port, source=source))
            answer = await caller.establish()
            made.append((caller, answer))
        yield made


async def hang_up(made: list[tuple[RawCaller, Answer]]) -> None:
    for caller, _ in made:
        assert (await caller.bye()).status == 200


def own_port(message: str) -> int:
    found = re.search(r"^Contact:\s*<sip:[^>]*?:(\d+)", message, re.MULTILINE)
    assert found is not None, message
    return int(found[1])


def pids(server: Server) -> dict[str, int]:
    return {entry["child"]: entry["pid"] for entry in entries(server.whole_log, "child_ready")}


async def test_a_call_with_keys_hold_and_a_hangup_of_ours(two: Server, phone: SoftphoneProcess) -> None:
    async with two.events() as log:
        await phone.dial(two.uri("greet"))
        await log.wait("speak.complete", completion_cause="normal")
        call_id = (await log.wait("call.established"))["call_id"]
        await phone.dtmf("5")
        assert (await log.wait("call.dtmf"))["data"]["digit"] == "5"
        assert (await two.post(f"/v1/calls/{call_id}/hold", {}))[0] < 300
        await log.wait("call.held")
        assert (await two.post(f"/v1/calls/{call_id}/hangup", {}))[0] < 300
        report = await phone.report()
    assert report["ending"]["by"] == "them"
    assert report["talkspurts"]


async def test_calls_are_spread_and_a_process_that_dies_takes_its_own_calls_only(two: Server) -> None:
    async with two.events() as log:
        async with calls(two, 4) as made:
            ports = Counter(own_port(answer.text) for _, answer in made)
            assert sorted(ports.values()) == [2, 2]
            assert two.sip_port not in ports
            for _ in made:
                await log.wait("call.established")
            died = pids(two)["ua-1"]
            os.kill(died, signal.SIGKILL)
            await until(lambda: len(of_kind(log.events, "call.terminated")) == 2)
            ended = [event["data"]["ending"]["reason"] for event in of_kind(log.events, "call.terminated")]
            assert ended == ["ua_process_died"] * 2
            assert (await two.get("/readyz"))[0] == 200, "the other process takes calls"
            lost = {event["call_id"] for event in of_kind(log.events, "call.terminated")}
            statuses = [(await caller.bye()).status for caller, _ in made]
            assert Counter(statuses) == {200: 2, 481: 2}
            assert len(lost) == 2
        await until(lambda: pids(two)["ua-1"] != died)
        async with calls(two, 2) as made:
            assert {own_port(answer.text) for _, answer in made} == set(ports)
            await hang_up(made)


async def test_calls_go_on_without_the_dispatcher_and_new_ones_come_when_it_is_back(
    two: Server, phone: SoftphoneProcess
) -> None:
    async with two.events() as log:
        await phone.dial(two.uri("silent"))
        await log.wait("call.established")
        died = pids(two)["dispatcher"]
        os.kill(died, signal.SIGKILL)
        await until(lambda: pids(two)["dispatcher"] != died)
        async with calls(two, 1) as made:
            await phone.dtmf("5")
            assert (await log.wait("call.dtmf"))["data"]["digit"] == "5"
            await hang_up(made)
        report = await phone.hangup()
    assert report["ending"]["result"] == "completed"
    assert 'cctts_process_restarts_total{process="dispatcher"} 1.0' in (await two.get_text("/metrics"))[1]


async def test_the_source_is_the_sender_and_the_process_that_asks_for_a_password_takes_it(lend: Lend) -> None:
    users = "[{username = 'pbx', password = '" + PASSWORD + "'}]"
    peers = {"sip__allowed_peers": f'["{FRIEND}"]', "sip__trusted_peers": "[]"}
    async with lend(**TWO, auth__users=users, **peers) as server:
        await until_both(server)
        async with server.events() as log:
            for _ in range(4):
                async with RawCaller("silent", server.sip_port, source=FRIEND) as caller:
                    nonce, *_ = await caller.challenges()
                    await caller.establish(headers=authorization(nonce, password=PASSWORD))
                    assert (await log.wait("call.incoming"))["data"]["source"] == FRIEND
                    assert (await caller.bye()).status == 200
        async with RawCaller("silent", server.sip_port) as stranger:
            stranger.invite()
            with pytest.raises(TimeoutError):
                await stranger.final(timeout_s=1)


async def test_over_the_limit_of_both_a_call_gets_503(two: Server) -> None:
    async with calls(two, NUM_LINES) as made:
        assert (await until_readyz(two, 503))["reason"] == f"all {NUM_LINES} lines are busy"
        async with RawCaller("silent", two.sip_port) as one_more:
            one_more.invite()
            refused = await one_more.final()
            assert (refused.status, refused.header("Retry-After")) == (503, "7")
        await hang_up(made)


async def test_one_binding_for_both_and_calls_that_are_placed_by_either(tmp_path: Path) -> None:
    async with RawPeer() as pbx:
        settings = {"registration__registrar": f"sip:{HOST}:{pbx.port}", "registration__username": "greet"}
        async with server_with(tmp_path, **TWO, **settings, registration__password=PASSWORD) as server:
            await until_both(server)
            binding = await pbx.expect("REGISTER")
            assert own_port(binding) == server.sip_port
            pbx.answer("200 OK", headers=f"Contact: <sip:greet@{HOST}:{server.sip_port}>;expires=60\r\n")
            await until_readyz(server, 200)
            ports = set()
            for _ in range(2):
                call = await server.create("/v1/calls", {"to": f"sip:bob@{HOST}:{pbx.port}"})
                invite = await pbx.expect("INVITE")
                ports.add(own_port(invite))
                challenge = 'Digest realm="pbx", nonce="abcdef", algorithm=MD5'
                pbx.answer("407 Proxy Authentication Required", headers=f"Proxy-Authenticate: {challenge}\r\n")
                answered = await pbx.expect("INVITE")
                given = re.search(r'response="([0-9a-f]+)"', answered)
                assert given is not None
                assert given[1] == digest_response(answered, method="INVITE", password=PASSWORD)
                pbx.answer("200 OK", formats="0 101")
                await pbx.expect("ACK")
            assert len(ports) == 2
            assert server.sip_port not in ports
            for call in await server.calls():
                assert (await server.post(f"/v1/calls/{call['id']}/hangup", {}))[0] < 300
                await pbx.take_bye()
            await server.until_all_terminated()


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with RawPeer() as holder:
        with pytest.raises(RuntimeError, match=rf"cannot listen on {HOST}:{holder.port}/udp: the port is taken by"):
            async with server_with(tmp_path, **TWO, sip__port=str(holder.port)):
                pass
