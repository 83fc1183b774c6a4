"""Two nodes behind Kamailio's dispatcher, with the configuration that is shipped."""

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
import pytest_asyncio

from lab.configured import logged
from lab.kamailio import (
    ENDED_WITHIN_S,
    FINAL_WITHIN_S,
    MARKED_WITHIN_S,
    TRYING_S,
    Kamailio,
    ProxiedCaller,
    kill_node,
    require_kamailio,
    start_node,
)
from lab.ports import HOST
from lab.raw_sip import Answer, RawCaller, RawPeer, options
from lab.server_under_test import Json, Ports, Server
from lab.softphone import SoftphoneProcess
from lab.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e

NUM_CALLS = int(os.environ.get("CC_TTS_KAMAILIO_CALLS", "8"))
"""Calls at once in the test that kills a node: a multiple of 4; both nodes together take so many."""
NUM_LINES = 4
"""Lines of a node in the other tests: what the wheel of pjsua2 has."""


class Lab(NamedTuple):
    proxy: Kamailio
    a: Server
    b: Server


@contextlib.asynccontextmanager
async def lab(
    folder: Path, *, max_calls: int = NUM_LINES, statuses: tuple[int, int] = (0, 0), **settings: str
) -> AsyncIterator[Lab]:
    require_kamailio()
    ports = [Ports.free(4 * max_calls + 24) for _ in "ab"]
    settings = {"sip__max_calls": str(max_calls), "calls__drain_timeout_s": "1", **settings}
    nodes = await asyncio.gather(
        *(start_node(folder / name, each, **settings) for name, each in zip("ab", ports, strict=True))
    )
    try:
        num_lines = int(logged(nodes[0], "sip_ready")[-1]["max_calls"])
        assert num_lines == max_calls, f"this build of pjsua2 has {num_lines} lines, not {max_calls}: make pjsua2"
        proxy = await Kamailio.start(folder, [each.sip for each in ports])
        yield Lab(proxy, *nodes)
    finally:
        codes = await asyncio.gather(*(node.end() for node in nodes))
    assert tuple(codes) == statuses, [node.log[-2000:] for node in nodes]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def kept(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """For all tests that end no node."""
    async with lab(tmp_path_factory.mktemp("kamailio")) as found:
        for each in found:
            each.share()
        yield found
        await found.proxy.end()


@pytest_asyncio.fixture(loop_scope="session")
async def shared(kept: Lab, nothing_is_left_running: None) -> Lab:
    for node in (kept.a, kept.b):
        await node.take_over({})
        await node.begin()
        await kept.proxy.until_state(node, "AP")
    return kept


async def live(node: Server) -> list[Json]:
    return [call for call in await node.calls() if call["state"] != "terminated"]


async def until_empty(*nodes: Server, timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        for node in nodes:
            while await live(node):  # noqa: ASYNC110 - polled as a client would
                await asyncio.sleep(0.05)


async def until_held(node: Server, call_id: str, *, held: bool) -> None:
    """Wait until the node has heard of it from its UA process, which the caller may know earlier."""
    async with asyncio.timeout(PATIENCE_S):
        while (await node.get(f"/v1/calls/{call_id}"))[1]["held"] is not held:  # noqa: ASYNC110 - polled as a client would
            await asyncio.sleep(0.02)


async def test_calls_are_spread_and_requests_inside_them_find_their_node(shared: Lab, phone: SoftphoneProcess) -> None:
    proxy, a, b = shared
    for name in "1234":
        await phone.dial(proxy.uri("silent"), call=name, headers={"X-Name": name})
        await phone.wait_event("answered", call=name, timeout_s=FINAL_WITHIN_S)
    calls = {call["headers"]["X-Name"]: (node, call["id"]) for node in (a, b) for call in await live(node)}
    assert [len(await live(node)) for node in (a, b)] == [2, 2]
    for name in "12":  # one on each node
        await phone.hold(call=name)
        node, call_id = calls[name]
        await until_held(node, call_id, held=True)
        await phone.unhold(call=name)
        await until_held(node, call_id, held=False)
        async with node.events() as log:
            await phone.dtmf("5", call=name)
            await log.wait("call.dtmf", digit="5")
        async with node.events() as log:
            for verb, event in (("hold", "call.held"), ("unhold", "call.unheld")):
                status, answer = await node.post(f"/v1/calls/{call_id}/{verb}", {})
                assert status in (200, 202), answer
                await log.wait(event)
    for name in "13":  # the caller hangs up
        assert (await phone.hangup(call=name))["ending"]["by"] == "us"
    for name in "24":  # the node hangs up
        node, call_id = calls[name]
        assert (await node.post(f"/v1/calls/{call_id}/hangup", {}))[0] == 200
        report = await phone.report(call=name)
        assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
    await until_empty(a, b)
    ended = {call["headers"]["X-Name"]: call["ending"]["reason"] for node in (a, b) for call in await node.calls()}
    assert ended == {"1": "remote_hangup", "2": "local_hangup", "3": "remote_hangup", "4": "local_hangup"}


async def test_a_full_node_sends_the_call_to_the_next_one(shared: Lab) -> None:
    proxy, a, b = shared
    refusals, silences = proxy.refusals(a), proxy.silences(a) + proxy.silences(b)
    async with contextlib.AsyncExitStack() as stack:
        direct = [await stack.enter_async_context(RawCaller("silent", a.sip_port)) for _ in range(NUM_LINES)]
        for each in direct:
            await each.establish()
        await proxy.until_state(a, "IP")  # the probe has seen it
        refused = await options(a.sip_port)
        assert (refused.status, refused.header("Retry-After")) == (503, "7")
        callers = [await stack.enter_async_context(ProxiedCaller("silent", proxy.port)) for _ in range(NUM_LINES + 1)]
        await proxy.set_state(a, "ap")  # as if it had become full since the probe
        assert [await caller.dial() for caller in callers[:2]] == [200, 200]
        assert proxy.refusals(a) == refusals + 1, "in turn: one of the two was for it"
        assert proxy.silences(a) + proxy.silences(b) == silences, "nobody was waited for"
        assert [await caller.dial() for caller in callers[2:4]] == [200, 200]
        assert (len(await live(a)), len(await live(b))) == (NUM_LINES, NUM_LINES)
        for node in (a, b):
            await proxy.set_state(node, "ap")
        callers[4].invite()
        answer = await callers[4].final(FINAL_WITHIN_S)
        callers[4].ack(same_branch=True)
        assert (answer.status, answer.header("Retry-After")) == (503, "5"), (
            "and not 500, so that the PBX tries elsewhere"
        )
        for node in (a, b):
            await proxy.until_state(node, "IP")
        answer = await options(proxy.port)
        assert (answer.status, answer.header("Retry-After")) == (503, "5"), "no node takes calls: the proxy says so"
        assert [(await caller.bye()).status for caller in callers[:4]] == [200] * 4
        await proxy.until_state(b, "AP")
        assert (await options(proxy.port)).status == 200
        assert [(await each.bye()).status for each in direct] == [200] * NUM_LINES


async def test_a_drained_node_empties_without_losing_a_call(tmp_path: Path, phone: SoftphoneProcess) -> None:
    text = "This is said to its end although the node goes away. " * 2
    headers = {"X-TTS-Text": quote(text), "X-TTS-Then": "hangup"}
    async with (
        contextlib.AsyncExitStack() as stack,
        lab(tmp_path, calls__drain_timeout_s="30") as (proxy, a, b),
    ):
        await proxy.set_state(b, "ip")
        async with a.events() as log:
            await phone.dial(proxy.uri("silent"), headers=headers)
            await log.wait("speak.started")
            assert (await a.post("/v1/admin/drain", {}))[0] == 202
            assert (await a.get("/readyz"))[0] == 503
            await proxy.until_state(b, "AP")
            callers = [await stack.enter_async_context(ProxiedCaller("silent", proxy.port)) for _ in range(NUM_LINES)]
            assert [await caller.dial() for caller in callers[:2]] == [200, 200]  # before or after the probe
            await proxy.until_state(a, "IP")
            assert [await caller.dial() for caller in callers[2:]] == [200, 200]
            assert (len(await live(a)), len(await live(b))) == (1, NUM_LINES)
            complete = await log.wait("speak.complete")
            assert complete["data"]["completion_cause"] == "normal"
            ending = (await log.wait("call.terminated"))["data"]["ending"]
            assert (ending["result"], ending["reason"]) == ("completed", "prompt_finished")
        report = await phone.report()
        assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
        assert (report["rtp"]["lost"], len(report["talkspurts"]) > 0) == (0, True)
        assert await a.ended(10.0) == 0, "empty, it ends by itself"
        assert [(await caller.bye()).status for caller in callers] == [200] * NUM_LINES
        await until(lambda: "node down: sip:" in proxy.log)


async def until_bye(caller: ProxiedCaller, timeout_s: float) -> float:
    """Wait for a BYE; returns the loop's time at which it came."""
    await caller.request("BYE", timeout_s)
    return asyncio.get_running_loop().time()


@pytest.mark.slow
async def test_a_killed_node_ends_its_calls_and_the_other_takes_the_new_ones(tmp_path: Path) -> None:
    """About 50 s: Kamailio looks after a call every 30 s, not more often, and ends it 10 s after a look that failed."""
    assert NUM_CALLS % 4 == 0
    loop, lines = asyncio.get_running_loop(), NUM_CALLS // 2
    async with contextlib.AsyncExitStack() as stack, lab(tmp_path, max_calls=lines, statuses=(-9, 0)) as (proxy, a, b):

        async def caller() -> ProxiedCaller:
            return await stack.enter_async_context(ProxiedCaller("silent", proxy.port))

        callers = [await caller() for _ in range(NUM_CALLS)]
        for each in callers:
            assert await each.dial() == 200
            await asyncio.sleep(0.03)  # not faster than calls may come
        on_a = {call["sip_call_id"] for call in await live(a)}
        on_b = {call["sip_call_id"] for call in await live(b)}
        assert (len(on_a), len(on_b)) == (lines, lines)
        theirs = [each for each in callers if each.call_id in on_a]
        ours = [each for each in callers if each.call_id in on_b]
        await asyncio.gather(*(each.until_heard() for each in callers))
        for each in ours[: lines // 2]:  # room for new calls
            assert (await each.bye()).status == 200
        for node in (a, b):
            await proxy.set_state(node, "ap")

        burst = [await caller() for _ in range(lines)]  # twice the room
        dials = [asyncio.create_task(each.dial()) for each in burst[: lines // 2]]
        await kill_node(a)
        killed = loop.time()
        ends = [asyncio.create_task(until_bye(each, ENDED_WITHIN_S)) for each in theirs]
        dials += [asyncio.create_task(each.dial()) for each in burst[lines // 2 :]]
        statuses = await asyncio.gather(*dials)
        waited = sorted(each.final_after_s for each in burst)
        assert sorted(statuses) == [200] * (lines // 2) + [503] * (lines - lines // 2)
        assert len(await live(b)) == lines
        await asyncio.sleep(1.0)  # what was on its way, which this process reads late
        assert max(await asyncio.gather(*(each.hears() for each in theirs))) == 0
        await asyncio.gather(*(each.until_heard() for each in ours[lines // 2 :]))

        await proxy.until_state(a, "IP", MARKED_WITHIN_S)
        for each in burst:
            if each.status == 200:
                assert (await each.bye()).status == 200
        await proxy.until_state(b, "AP")  # it was full, and the probe had seen it
        new = [await caller() for _ in range(2)]
        silences = proxy.silences(a)
        assert [await each.dial() for each in new] == [200, 200]
        assert proxy.silences(a) == silences, "the dead node is not tried any more"
        assert {each.call_id for each in new} <= {call["sip_call_id"] for call in await live(b)}

        again = await start_node(tmp_path / "a", a.ports, sip__max_calls=str(lines))
        await proxy.until_state(again, "AP")
        back = [await caller() for _ in range(2)]
        assert [await each.dial() for each in back] == [200, 200]
        assert await live(again)
        ended = [at - killed for at in await asyncio.gather(*ends)]
        figures = (
            f"final answers after at most {waited[-1]:.2f} s, BYE {min(ended):.1f} to {max(ended):.1f} s after the kill"
        )
        print(f"{NUM_CALLS} calls: {figures}")  # noqa: T201 - to be written down
        kept = [*ours[lines // 2 :], *new, *back]
        await asyncio.gather(*(each.until_heard() for each in kept))  # looked after, and left alone
        assert [(await each.bye()).status for each in kept] == [200] * len(kept)
        assert await again.end() == 0


async def test_a_ringing_call_is_waited_for_and_cancelled(shared: Lab) -> None:
    proxy, a, b = shared
    silences = proxy.silences(a) + proxy.silences(b)
    async with ProxiedCaller("ring", proxy.port) as caller:
        caller.invite()
        await asyncio.sleep(TRYING_S + 1.5)  # a call that rings is not a node that hangs
        (call,) = [*await live(a), *await live(b)]
        assert proxy.silences(a) + proxy.silences(b) == silences
        caller.send("CANCEL", cseq=1)
        answers = [await caller.final(), await caller.final()]
        assert sorted((answer.status, answer.header("CSeq")) for answer in answers) == [
            (200, "1 CANCEL"),
            (487, "1 INVITE"),
        ]
        caller.ack(same_branch=True)
        await until_empty(a, b)
        ended = [each for node in (a, b) for each in await node.calls()]
        assert [(each["id"], each["ending"]["result"]) for each in ended] == [(call["id"], "unanswered")]


async def test_what_an_invite_says_arrives_unchanged(tmp_path: Path) -> None:
    require_kamailio()
    sent = (
        b"X-TTS-Text: %E4%BD%A0%E5%A5%BD%2C%20100%25\r\nX-TTS-Voice: cmn\r\n"
        b"X-TTS-Then: hangup\r\nX-Campaign: 4;2,=\xc3\xbc\r\nUser-to-User: 00a1;encoding=hex\r\n"
    )
    user = "annc;play=tts:One%20moment%3B%20please%2C%20100%25.;voice=en-gb;repeat=2;delay=500"
    async with RawPeer() as node:
        proxy = await Kamailio.start(tmp_path, [node.port])
        async with ProxiedCaller(user, proxy.port) as caller:
            caller.invite(headers=sent)
            invite = await node.expect("INVITE")
            node.answer("486 Busy Here")
            assert (await caller.final()).status == 486, "not 503: goes to the caller, to no other node"
            caller.ack(same_branch=True)
    assert invite.startswith(f"INVITE {caller.uri} SIP/2.0\r\n")
    assert sent.decode() in invite
    assert invite.count("Record-Route:") == 1


def has_tcp_connection(node: Server) -> bool:
    established = re.compile(rf"0100007F:{node.sip_port:04X} [0-9A-F]{{8}}:[0-9A-F]{{4}} 01")
    return established.search(Path("/proc/net/tcp").read_text()) is not None


async def test_a_long_prompt_goes_on_by_tcp(shared: Lab) -> None:
    text = "This is said. " * 100
    proxy, a, b = shared
    async with ProxiedCaller("silent", proxy.port) as caller:
        assert await caller.dial(headers=f"X-TTS-Text: {quote(text)}\r\n".encode()) == 200
        node = a if await live(a) else b
        (call,) = await live(node)
        assert call["utterances"]
        assert has_tcp_connection(node), "udp_mtu"
        assert (await caller.bye()).status == 200
        await until_empty(node)
        async with ProxiedCaller("silent", proxy.port) as longer:
            assert await longer.dial(headers=f"X-TTS-Text: {quote(text * 2)}\r\n".encode()) == 513


def stray_bye(proxy: Kamailio) -> Answer:
    """What a stranger gets for a request that looks as if it belonged to a call."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5.0)
        sock.bind(("127.0.0.8", 0))
        host, port = sock.getsockname()
        lines = (
            f"BYE sip:victim@{HOST}:9 SIP/2.0",
            f"Via: SIP/2.0/UDP {host}:{port};branch=z9hG4bKstray",
            f"Route: <{proxy.uri('x').replace('x@', '')};lr>",
            f"From: <sip:x@{host}>;tag=1",
            f"To: <sip:x@{HOST}>;tag=2",
            "Call-ID: stray",
            "CSeq: 2 BYE",
            "Max-Forwards: 70",
            "Content-Length: 0",
        )
        sock.sendto("\r\n".join((*lines, "", "")).encode(), (proxy.host, proxy.port))
        return Answer(sock.recv(65536).decode())


async def test_only_the_proxy_is_believed_and_it_admits_only_the_pbx(
    shared: Lab, tmp_path: Path, phone: SoftphoneProcess
) -> None:
    _, a, b = shared
    for node, peer in ((a, "127.0.0.9"), (b, "10.0.0.9")):
        await node.take_over({"sip__trusted_peers": f'["{peer}"]'})
    proxy = await Kamailio.start(tmp_path, [a.sip_port], host="127.0.0.9")
    announcement = ";play=tts:Hello.;voice=en-gb"

    async def announced(uri: str) -> tuple[str, int | None]:
        await phone.dial(uri)
        ending = (await phone.report())["ending"]
        return ending["result"], ending["sip_code"]

    assert await announced(proxy.uri("annc") + announcement) == ("completed", 200)
    (call,) = await a.calls()
    assert (await a.utterance(call))["voice"] == "en-gb"
    assert await announced(a.uri("annc") + announcement) == ("refused", 403), "past the proxy"

    await proxy.dispatch_to(b)
    assert await announced(proxy.uri("annc") + announcement) == ("refused", 403), "a node that does not know the proxy"
    await phone.dial(proxy.uri("silent"), headers={"X-TTS-Text": "never%20said"}, call="2")
    await phone.wait_event("answered", call="2")
    (call,) = await live(b)
    assert call["utterances"] == []
    await phone.hangup(call="2")

    await proxy.admit("10.0.0.2/32")
    assert await announced(proxy.uri("silent")) == ("refused", 403)
    await until(lambda: "refused INVITE from 127.0.0.1" in proxy.log)
    assert (await asyncio.to_thread(stray_bye, proxy)).status == 403, "nor is it a relay for others"
