"""Processes that stop without ending: a frozen container, a hung server, a hung user agent, a hung engine worker."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from cc_tts.processes.supervisor import HEARTBEAT_TIMEOUT_S
from lab.configured import logged, ua_pid, until_readyz
from lab.raw_sip import RawCaller, options
from lab.server_under_test import Server, entries
from lab.softphone import SoftphoneProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NOTICE_TIMEOUT_S = 60.0
NUM_CALLS = 4
CHINESE = "您好，您的账户余额是12345元，请在2026年11月20日前缴费。"


@contextlib.contextmanager
def paused(*pids: int) -> Iterator[None]:
    """These processes stand still in the context."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):  # the server has replaced it
                os.kill(pid, signal.SIGCONT)


async def until_options(server: Server, status: int) -> None:
    async with asyncio.timeout(NOTICE_TIMEOUT_S):
        while (await options(server.sip_port)).status != status:  # noqa: ASYNC110 - it is asked until it answers so
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("whole_container", [False, True], ids=["server alone", "whole container"])
async def test_a_pause_of_the_server_ends_no_call(
    server: Server, phone: SoftphoneProcess, *, whole_container: bool
) -> None:
    async with server.events() as log:
        ua = ua_pid(server)
        call_id = await phone.establish(server.uri("silent"), log)
        with paused(server.pid, *((ua,) if whole_container else ())):
            await asyncio.sleep(HEARTBEAT_TIMEOUT_S + 2)
        await server.create(f"/v1/calls/{call_id}/speak", {"text": "Still here."})
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        assert (await server.get(f"/v1/calls/{call_id}"))[1]["state"] == "established"
        assert ua_pid(server) == ua
        assert not logged(server, "child_down")
        await until_options(server, 200)
        await phone.hangup()


async def test_calls_are_refused_while_the_server_hangs(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as early:
        with paused(server.pid):
            early.invite()  # before anybody has noticed
            await until_options(server, 503)
            answer = await early.final()
            assert (answer.status, answer.header("Retry-After")) == (503, "7")
            async with RawCaller("silent", server.sip_port) as late:
                late.invite()
                answer = await late.final()
                assert (answer.status, answer.header("Retry-After")) == (503, "7")
                late.ack()
        await until_options(server, 200)
    async with RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        assert (await caller.bye()).status == 200
    await server.until_all_terminated()


async def test_readyz_watches_the_user_agent(server: Server) -> None:
    ua = ua_pid(server)
    with paused(ua):
        await until_readyz(server, 503, reason="does not answer")
        assert not logged(server, "child_down")
        status, problem = await server.post("/v1/calls", {"to": "sip:x@127.0.0.1:9"})
        assert (status, problem["code"]) == (503, "user_agent_unavailable")
    await until_readyz(server, 200)
    assert ua_pid(server) == ua


async def test_a_hung_user_agent_is_replaced(server: Server) -> None:
    ua = ua_pid(server)
    os.kill(ua, signal.SIGSTOP)
    await until_readyz(server, 503)
    await until_readyz(server, 200)
    assert ua_pid(server) != ua
    assert "no heartbeat" in logged(server, "child_down")[0]["reason"]


async def test_callers_hear_their_prompts_while_the_text_process_hangs(server: Server, phone: SoftphoneProcess) -> None:
    """Before anybody gives the process up, and in the same words."""
    async with server.events() as log:
        text = [entry["pid"] for entry in entries(server.whole_log, "child_ready") if entry["child"] == "text"][-1]
        calls = [str(number) for number in range(NUM_CALLS)]
        for call in calls:
            await phone.dial(server.uri("silent"), call=call)
        call_ids = [each["call_id"] for each in await log.several("call.established", NUM_CALLS)]
        with paused(text):
            for call_id in call_ids:
                await server.create(f"/v1/calls/{call_id}/speak", {"text": CHINESE})
            complete = await log.several("speak.complete", NUM_CALLS)
        assert {each["data"]["completion_cause"] for each in complete} == {"normal"}
        assert {each["data"]["spoken_text"] for each in complete} == {CHINESE}
        assert max(each["data"]["time_to_first_audio_ms"] for each in complete) < 1000 * HEARTBEAT_TIMEOUT_S
        for call in calls:
            assert (await phone.hangup(call=call))["talkspurts"]
