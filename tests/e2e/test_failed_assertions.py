"""Messages that once made assertions of PJSIP fail: each gets the protocol's own answer, and what is good goes on."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lab.configured import logged, ua_starts
from lab.ports import HOST
from lab.raw_sip import SDP, RawCaller, RawPeer
from lab.server_under_test import Json, Server

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(60)]

GOOD = SDP.format(port=9, formats="0 101")
UNUSABLE = {
    "another codec": SDP.format(port=9, formats="96").replace("101 telephone-event/8000", "96 opus/48000/2"),
    "media refused": SDP.format(port=0, formats="0"),
    "IPv6 that says IP4": GOOD.replace("c=IN IP4 127.0.0.1", "c=IN IP4 ::1"),
    "a name": GOOD.replace("c=IN IP4 127.0.0.1", "c=IN IP4 media.invalid"),
    "no address": GOOD.replace("c=IN IP4 127.0.0.1\r\n", ""),
    "no media": GOOD.partition("m=")[0],
    "no SDP": "hello\r\n",
}
"""Answers to our offer."""


@pytest_asyncio.fixture(loop_scope="session")
async def watched(server: Server) -> AsyncIterator[Server]:
    """The server; no assertion must fail, and no process be started again."""
    before = await failed_assertions(server)
    yield server
    assert not logged(server, "assertion_failed")
    assert await failed_assertions(server) == before
    assert len(ua_starts(server)) == 1


async def failed_assertions(server: Server) -> str:
    found = re.search(r"^cctts_ua_failed_assertions_total (.*)", (await server.get_text("/metrics"))[1], re.MULTILINE)
    assert found is not None
    return found[1]


async def place(server: Server, peer: RawPeer) -> Json:
    return await server.create("/v1/calls", {"to": f"sip:bob@{HOST}:{peer.port}"})


async def hang_up(server: Server, peer: RawPeer, call: Json) -> None:
    assert (await server.post(f"/v1/calls/{call['id']}/hangup", {}))[0] == 200
    await peer.take_bye()
    await server.until_terminated()


@pytest.mark.parametrize(("kind", "status"), [("IPv6 that says IP4", 400), ("a name", 488)])
async def test_an_offer_without_a_usable_address(watched: Server, kind: str, status: int) -> None:
    body = UNUSABLE[kind]
    async with RawCaller("silent", watched.sip_port) as caller:
        caller.send("INVITE", body=body)
        await caller.acknowledge(status)
    async with RawCaller("silent", watched.sip_port) as caller:
        await caller.establish()
        for version, method in enumerate(("INVITE", "UPDATE"), start=2):
            caller.send(method, body=body.replace("raw 1 1", f"raw 1 {version}"))
            assert (await caller.final()).status == status
            if method == "INVITE":
                caller.ack()
        caller.send("INVITE", body=GOOD.replace("raw 1 1", "raw 1 4"))
        await caller.acknowledge(200)
        assert (await caller.bye()).status == 200


async def test_an_offer_that_repeats_its_formats(watched: Server) -> None:
    for formats in ("0 0 0 101 101", "101 101 0", "8 0 8 0 101 101"):
        async with RawCaller("silent", watched.sip_port) as caller:
            caller.invite(formats=formats)
            assert (await caller.final()).status in (200, 488)
            caller.ack()
            caller.invite(formats=formats)
            assert (await caller.final()).status in (200, 488)
            caller.ack()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("Signal=5", 200),
        ("Signal=5\n", 200),
        ("Signal=5\r\nDuration=160", 200),
        ("Signal=5\r\nDuration=", 200),
        ("Duration=160\r\nSignal=5", 200),
        ("Signal=", 400),
        ("Signal", 400),
        ("=", 400),
        ("\r\n", 400),
    ],
)
async def test_a_key_by_info_without_a_line_end(watched: Server, body: str, status: int) -> None:
    async with watched.events() as events, RawCaller("silent", watched.sip_port) as caller:
        await caller.establish()
        caller.send("INFO", body=body, content_type="application/dtmf-relay")
        assert (await caller.final()).status == status
        if status == 200:
            assert (await events.wait("call.dtmf"))["data"]["digit"] == "5"
        assert (await caller.bye()).status == 200


@pytest.mark.parametrize("tag", ["peer", "another"], ids=["the same branch", "another branch"])
@pytest.mark.parametrize("body", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_an_early_answer_that_cannot_be_used(watched: Server, body: str, tag: str) -> None:
    async with RawPeer() as peer, watched.events() as events:
        call = await place(watched, peer)
        await peer.expect("INVITE")
        peer.answer("183 Session Progress", body=body, tag=tag)
        assert (await events.wait("call.early"))["data"]["sip_code"] == 183
        peer.answer("200 OK", body=GOOD)
        await peer.expect("ACK")
        assert (await events.wait("call.established"))["data"]["codec"] == "PCMU"
        await hang_up(watched, peer, call)


async def test_bad_branches_of_a_fork_do_not_end_the_good_one(watched: Server) -> None:
    async with RawPeer() as peer, watched.events() as events:
        call = await place(watched, peer)
        invite = await peer.expect("INVITE")
        peer.answer("183 Session Progress", body=GOOD, tag="good")
        await events.wait("call.early")
        for number, body in enumerate(UNUSABLE.values()):
            peer.answer("183 Session Progress", body=body, tag=f"bad{number}")
            peer.answer("180 Ringing", body=body, tag=f"bad{number}")
        peer.answer("200 OK", body=GOOD, tag="good")
        ack = await peer.expect("ACK")
        assert "tag=good" in ack
        await events.wait("call.established")
        for number, body in enumerate(UNUSABLE.values()):
            peer.request = invite
            peer.answer("200 OK", body=body, tag=f"late{number}")
            assert f"tag=late{number}" in await peer.expect("ACK")
            assert f"tag=late{number}" in await peer.take_bye()
        assert (await watched.only_call())["state"] == "established"
        await hang_up(watched, peer, call)


async def test_an_answer_that_cannot_be_used_ends_the_call(watched: Server) -> None:
    for body in UNUSABLE.values():
        async with RawPeer() as peer, watched.events() as events:
            await place(watched, peer)
            await peer.expect("INVITE")
            peer.answer("200 OK", body=body)
            await peer.expect("ACK")
            await peer.take_bye()
            await events.wait("call.terminated")


@pytest.mark.parametrize("contact", ["<tel:+1>", "*", "<mailto:a@b>"])
async def test_an_answer_with_a_contact_that_is_no_target(watched: Server, contact: str) -> None:
    async with RawPeer() as peer, watched.events() as events:
        call = await place(watched, peer)
        await peer.expect("INVITE")
        peer.answer("180 Ringing", body=GOOD, contact=contact)
        peer.answer("200 OK", body=GOOD, contact=contact)
        await peer.expect("ACK")
        await events.wait("call.established")
        await hang_up(watched, peer, call)
