"""Messages that PJSIP asserts and does not check: each is answered in the protocol's own words, or dealt with, and the user
agent's process is the same afterwards.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cc_tts.ua import pjsua2_build
from lab.configured import Lend, is_running, logged, server_with, ua_pid, until_readyz
from lab.ports import HOST
from lab.raw_sip import SDP, Answer, RawCaller, RawPeer, options, repeated
from lab.server_under_test import Json, Server
from lab.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds, pytest.mark.timeout(240)]

SLOTS_TIMEOUT_S = 20.0
CALL_SLOTS = 4
"""Calls of the PyPI wheel."""
HEAD = "v=0\r\no=raw 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
AUDIO = "m=audio 9 RTP/AVP 0\r\n"
OPUS = "m=audio 9 RTP/AVP 96\r\na=rtpmap:96 opus/48000/2\r\n"
NO_CONNECTION = HEAD.replace("c=IN IP4 127.0.0.1\r\n", "")


def connected(line: str) -> str:
    """An offer with another ``c=``."""
    return NO_CONNECTION.replace("t=0 0\r\n", f"{line}\r\nt=0 0\r\n") + AUDIO


MALFORMED = {
    "IPv6 called IPv4": connected("c=IN IP4 ::1"),
    "IPv4 called IPv6": connected("c=IN IP6 127.0.0.1"),
    "IPv6 called IPv4 at the m-line": HEAD + AUDIO + "c=IN IP4 ::1\r\n",
    "no address": connected("c=IN IP4 "),
    "no c=": NO_CONNECTION + AUDIO,
    "no c= for an m-line that is off": NO_CONNECTION + AUDIO + "c=IN IP4 127.0.0.1\r\nm=video 0 RTP/AVP 96\r\n",
    "a port that is none": HEAD + "m=audio 65536 RTP/AVP 0\r\n",
    "no format": HEAD + "m=audio 9 RTP/AVP\r\n",
    "RTCP to IPv6 called IPv4": HEAD + AUDIO + "a=rtcp:9 IN IP4 ::1\r\n",
    "a line of 2,000 characters": HEAD + AUDIO + f"a=x:{'y' * 2000}\r\n",
    "an attribute without a name": HEAD + AUDIO + "a=\r\n",
    "no SDP at all": "hello",
}
"""These get 400."""
UNSERVED = {
    "IPv6": (connected("c=IN IP6 ::1"), 301),
    "a name": (connected("c=IN IP4 localhost"), 301),
    "a name of 200 letters": (connected(f"c=IN IP4 {'a' * 200}"), 301),
    "a name of 300 letters for an m-line that is off": (
        HEAD + AUDIO + f"m=audio 0 RTP/AVP 0\r\nc=IN IP4 {'a' * 300}\r\n",
        301,
    ),
    "RTCP to a name": (HEAD + AUDIO + "a=rtcp:9 IN IP4 localhost\r\n", 301),
    "multicast": (connected("c=IN IP4 224.1.1.1/127"), 330),
    "Opus alone": (HEAD + OPUS, 305),
    "a dynamic format without rtpmap": (HEAD + "m=audio 9 RTP/AVP 96\r\n", 304),
    "telephone-event alone": (HEAD + "m=audio 9 RTP/AVP 101\r\na=rtpmap:101 telephone-event/8000\r\n", 305),
    "video alone": (HEAD + "m=video 9 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n", 304),
    "SRTP alone": (HEAD + "m=audio 9 RTP/SAVP 0\r\n", 302),
    "packets of five seconds": (HEAD + AUDIO + "a=ptime:5120\r\n", 306),
}
"""These get 488 and a warning of this number."""


@pytest_asyncio.fixture(loop_scope="session")
async def server(server: Server) -> AsyncIterator[Server]:
    """A server whose user agent must be the same process at the end, and take a call."""
    async with same_process(server):
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def fresh_server(lend: Lend) -> AsyncIterator[Server]:
    """The same, with every call slot free: PJSUA keeps that of a call whose far side answers nothing. Tests with it give all
    answers.
    """
    async with lend(group="call slots") as running, same_process(running):
        yield running


@contextlib.asynccontextmanager
async def same_process(server: Server) -> AsyncIterator[None]:
    """The user agent must outlive what is done, and then take a call."""
    pid = ua_pid(server)
    yield
    assert is_running(pid), server.log[-3000:]
    await takes_a_call(server)
    assert ua_pid(server) == pid, server.log[-3000:]
    assert not logged(server, "filter_failed")
    assert not logged(server, "assertion_failed")


async def takes_a_call(server: Server) -> None:
    async with asyncio.timeout(SLOTS_TIMEOUT_S):
        while True:
            async with RawCaller("silent", server.sip_port) as caller:
                caller.invite()
                answer = await caller.final()
                caller.ack()
                if answer.status != 503:
                    assert answer.status == 200, answer.text
                    assert (await caller.bye()).status == 200
                    return
            await asyncio.sleep(0.2)


async def refused(caller: RawCaller, method: str, sdp: str, **more: str) -> Answer:
    caller.send(method, body=sdp, **more)  # type: ignore[arg-type]
    answer = await caller.final()
    if method == "INVITE":
        caller.ack()
    return answer


def warned(answer: Answer) -> int:
    match = re.fullmatch(r'(3\d\d) \S+ "[^"]+"', answer.header("Warning") or "")
    assert match is not None, answer.text
    return int(match[1])


@pytest.mark.parametrize("method", ["new call", "INVITE", "UPDATE"])
async def test_offers_that_cannot_be_taken(server: Server, method: str) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        if method != "new call":
            await caller.establish()
        for name, sdp in MALFORMED.items():
            async with RawCaller("silent", server.sip_port) as stranger:
                answer = await refused(*((stranger, "INVITE") if method == "new call" else (caller, method)), sdp)
            assert (answer.status, warned(answer)) == (400, 399), name
        for name, (sdp, number) in UNSERVED.items():
            async with RawCaller("silent", server.sip_port) as stranger:
                answer = await refused(*((stranger, "INVITE") if method == "new call" else (caller, method)), sdp)
            assert (answer.status, warned(answer)) == (488, number), name
        if method != "new call":
            assert (await caller.bye()).status == 200, "the call went on"


@pytest.mark.parametrize(
    "content_type", ["APPLICATION/SDP", "application/sdp;charset=utf-8", 'multipart/mixed;boundary="b"', "c"]
)
async def test_a_bad_offer_is_found_wherever_it_is(server: Server, content_type: str) -> None:
    sdp = MALFORMED["IPv6 called IPv4"]
    async with RawCaller("silent", server.sip_port) as caller:
        if content_type == "c":
            caller.send("INVITE", headers=b"c: application/sdp\r\n", body=sdp, content_type="")
        elif content_type.startswith("multipart"):
            parts = f"--b\r\nContent-Type: text/plain\r\n\r\nhi\r\n--b\r\nc: Application/SDP\r\n\r\n{sdp}\r\n--b--\r\n"
            caller.send("INVITE", body=parts, content_type=content_type)
        else:
            caller.send("INVITE", body=sdp, content_type=content_type)
        assert (await caller.final()).status == 400


BODIES_WITHOUT_SDP = {
    "parts behind another boundary": (
        'multipart/mixed;boundary="z"',
        "--b\r\nContent-Type: application/sdp\r\n\r\n{}\r\n--b--\r\n",
    ),
    "no last boundary": ('multipart/mixed;boundary="b"', "--b\r\nContent-Type: application/sdp\r\n\r\n{}"),
    "no part for SDP": ('multipart/mixed;boundary="b"', "--b\r\nContent-Type: text/plain\r\n\r\nhi\r\n--b--\r\n"),
    "another type": ("text/plain", "{}"),
    "no type": ("", "{}"),
}


@pytest.mark.parametrize(("content_type", "body"), BODIES_WITHOUT_SDP.values(), ids=BODIES_WITHOUT_SDP)
async def test_a_body_in_which_no_offer_is_found_is_not_taken_for_none(
    server: Server, content_type: str, body: str
) -> None:
    parts = body.format(HEAD + AUDIO)
    async with RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE", body=parts, content_type=content_type)
        answer = await caller.acknowledge(415)
        assert answer.header("Accept") == "application/sdp"
    async with RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        caller.send("INVITE", body=parts, content_type=content_type)
        await caller.acknowledge(415)
        assert (await caller.bye()).status == 200, "the call went on"


async def test_what_follows_a_body_of_zero_bytes_is_no_body(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE", headers=b"Content-Length: 0\r\n\r\n", body="junk", content_type="")
        assert (await caller.final()).status == 200
        caller.ack()
        await caller.request("BYE")  # nobody has answered the offer in the 200


async def test_names_that_are_too_long_to_be_looked_up(server: Server) -> None:
    name = ".".join(["a" * 60] * 4)  # 243 characters
    for header in (f"Contact: <sip:x@{name}>", f"m: <sip:x@{HOST};maddr={name}>", f"Record-Route: <sip:{name};lr>"):
        async with RawCaller("silent", server.sip_port) as caller:
            caller.invite(headers=header.encode() + b"\r\n")
            await caller.acknowledge(400)
    async with RawCaller("silent", server.sip_port) as caller:
        via = f"OPTIONS sip:a@{HOST} SIP/2.0\r\nVia: SIP/2.0/UDP {caller.own};branch=z9hG4bKlong;maddr={'a' * 300}\r\n"
        caller.transmit(
            f"{via}From: <sip:x@y>;tag=1\r\nTo: <sip:a@b>\r\nCall-ID: long\r\nCSeq: 1 OPTIONS\r\n\r\n".encode()
        )
        with pytest.raises(TimeoutError):
            await caller.final(0.5)
    status, problem = await server.post("/v1/calls", {"to": f"sip:x@{name}"})
    assert (status, problem["code"]) == (422, "unprocessable")


async def test_uris_that_pjsip_would_not_repeat_in_an_answer(server: Server) -> None:
    for method in ("OPTIONS", "INVITE", "BYE"):
        async with RawCaller("silent", server.sip_port) as caller:
            caller.send(method, headers=f"Record-Route: <sip:{HOST};hide>\r\n".encode())
            with pytest.raises(TimeoutError):
                await caller.final(0.3)
        async with RawCaller("silent", server.sip_port) as caller:
            caller.to = "<sip:a@[]>"
            caller.send(method)
            with contextlib.suppress(TimeoutError):  # the server build reads no such URI
                assert (await caller.final(0.3)).status == 400


async def test_warnings_of_pjsip_do_not_name_the_machine(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        caller.invite(headers=b"Replaces: none;to-tag=a;from-tag=b\r\n")
        answer = await caller.acknowledge(481)
        assert (answer.header("Warning") or "").split()[1] == "cc-tts"


@pytest.mark.parametrize("text", ["", "\r\n", "\n", "\r\n" * 9])
async def test_a_part_for_sdp_that_is_blank(server: Server, text: str) -> None:
    parts = f"--b\r\nContent-Type: application/sdp\r\n\r\n{text}\r\n--b--\r\n"
    kind = 'multipart/mixed;boundary="b"'
    async with RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE", body=parts, content_type=kind)
        assert (await caller.final()).status in (400, 488)
        caller.ack()
    async with RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        caller.send("INVITE", body=parts, content_type=kind)
        assert (await caller.final()).status in (400, 488)
        caller.ack()
        assert (await caller.bye()).status == 200
    async with RawPeer() as peer:
        call_id = await placed(server, peer)
        peer.answer("183 Session Progress", body=parts, content_type=kind)
        await until_state(server, call_id, "early")
        peer.answer("200 OK", body=parts, content_type=kind)
        await peer.take_bye()
        assert (await until_state(server, call_id, "terminated"))["ending"]["reason"] == "not_acceptable"


async def test_an_offer_that_repeats_its_formats(server: Server) -> None:
    for formats in ("0 0 0 101 101", "101 101 0", "8 0 8 0 101 101"):
        async with RawCaller("silent", server.sip_port) as caller:
            for _ in range(2):
                caller.invite(formats=formats)
                assert (await caller.final()).status in (200, 488)
                caller.ack()
            assert (await caller.bye()).status in (200, 481)


async def test_an_ack_without_our_tag_behind_a_cancel_is_nobodys(server: Server) -> None:
    async with RawCaller("ring", server.sip_port) as caller, server.events() as log:
        caller.invite()
        await log.wait("call.early")
        caller.send("CANCEL", cseq=1)
        await log.wait("call.terminated")
        caller.ack()  # it has not read the 487, so its To has no tag


@pytest.mark.parametrize("sdp", [MALFORMED["IPv6 called IPv4"], HEAD + OPUS, "hello", "a=b\r\nc=d"])
async def test_a_bad_answer_in_the_ack_ends_the_call(server: Server, sdp: str) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE")
        assert (await caller.final()).status == 200
        caller.ack(body=sdp)
        await caller.request("BYE")
        assert (await server.until_terminated())["ending"]["reason"] == "not_acceptable"


async def test_info_carries_keys_in_both_formats(server: Server) -> None:
    keys = {
        ("application/dtmf-relay", "Signal=5"): "5",
        ("application/dtmf-relay", "Signal=6\r\nDuration=160\r\n"): "6",
        ("application/dtmf-relay", "Signal= *\nDuration= 250"): "*",
        ("Application/DTMF-Relay", "Duration=100\r\nSignal = d\r\n"): "D",
        ("application/dtmf-relay", "Signal=10\r\nDuration=160\r\n"): "*",
        ("application/dtmf-relay", "Signal=!"): "R",
        ("application/dtmf-relay", "Signal=5\r\nDuration="): "5",
        ("application/dtmf", "7"): "7",
        ("application/dtmf", "*\r\n"): "*",
        ("application/dtmf", "11"): "#",
        ("application/dtmf; charset=us-ascii", " 0 \r\n"): "0",
    }
    async with server.events() as log, RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        for kind, body in keys:
            caller.send("INFO", body=body, content_type=kind)
            assert (await caller.final()).status == 200, body
        caller.send("INFO", body="1", content_type="application/dtmf", cseq=caller.cseq)
        assert (await caller.final()).status == 200, "sent again"
        told = [event["data"] for event in await log.several("call.dtmf", len(keys))]
        assert [data["digit"] for data in told] == list(keys.values())
        assert [data["duration_ms"] for data in told] == [0, 160, 250, 100, 160, 0, 0, 0, 0, 0, 0]
        assert {data["method"] for data in told} == {"sip_info"}
        assert (await caller.bye()).status == 200


async def test_info_of_other_kinds_is_refused(server: Server) -> None:
    bad = ["Signal=", "Signal", "Signal=5\r\nSignal=6", "Signal=55", "Signal=e", "=5", "\r\n", "Signal=5" * 400]
    async with RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        for body in bad:
            caller.send("INFO", body=body, content_type="application/dtmf-relay")
            assert (await caller.final()).status == 400, body
        for body in ("17", "x", "1\r\n2", "\r\n"):
            caller.send("INFO", body=body, content_type="application/dtmf")
            assert (await caller.final()).status == 400, body
        for kind in ("application/media_control+xml", "text/plain", "application/sdp"):
            caller.send("INFO", body="Signal=5", content_type=kind)
            answer = await caller.final()
            assert answer.status == 415, kind
            assert (answer.header("Accept") or "").split(", ") == ["application/dtmf-relay", "application/dtmf"]
        caller.send("INFO")
        assert (await caller.final()).status == 200, "an empty one asks whether the call is still there"
        assert (await caller.bye()).status == 200


GOOD = SDP.format(port=9, formats="0 101")
USELESS = {
    "Opus alone": HEAD + OPUS,
    "IPv6 called IPv4": MALFORMED["IPv6 called IPv4"],
    "an attribute without a name": MALFORMED["an attribute without a name"],
    "refused audio": HEAD + "m=audio 0 RTP/AVP 0\r\n",
    "more than was offered": HEAD + OPUS + AUDIO,
    "a name": connected("c=IN IP4 media.invalid"),
    "no address": NO_CONNECTION + AUDIO,
    "no media": HEAD,
    "no SDP": "hello",
}


async def placed(server: Server, peer: RawPeer) -> str:
    call = await server.create("/v1/calls", {"to": f"sip:bot@{HOST}:{peer.port}"})
    await peer.expect("INVITE")
    return str(call["id"])


async def until_state(server: Server, call_id: str, state: str) -> Json:
    return await server.until_call(lambda call: call["id"] == call_id and call["state"] == state)


async def hung_up(server: Server, call_id: str, peer: RawPeer, tag: str = "peer") -> None:
    assert (await server.post(f"/v1/calls/{call_id}/hangup", {}))[0] in (200, 202, 204)
    while f";tag={tag}" not in await peer.take_bye():
        pass
    await until_state(server, call_id, "terminated")


@pytest.mark.parametrize("sdp", USELESS.values(), ids=USELESS)
async def test_useless_early_media_does_not_end_a_call_whose_200_is_good(server: Server, sdp: str) -> None:
    async with RawPeer() as peer:
        call_id = await placed(server, peer)
        peer.answer("183 Session Progress", body=sdp)
        await until_state(server, call_id, "early")
        peer.answer("200 OK", body=GOOD)
        await peer.expect("ACK")
        await until_state(server, call_id, "established")
        await hung_up(server, call_id, peer)


@pytest.mark.parametrize("sdp", USELESS.values(), ids=USELESS)
@pytest.mark.parametrize("early", [False, True])
async def test_a_useless_200_ends_the_call(server: Server, sdp: str, early: bool) -> None:
    async with RawPeer() as peer:
        call_id = await placed(server, peer)
        if early:
            peer.answer("183 Session Progress", body=sdp)
            await until_state(server, call_id, "early")
        peer.answer("200 OK", body=sdp)
        await peer.expect("ACK")
        await peer.take_bye()
        assert (await until_state(server, call_id, "terminated"))["ending"]["reason"] == "not_acceptable"


async def test_a_response_whose_lines_end_in_a_bare_cr(server: Server) -> None:
    """PJSIP reads its headers. A second 2xx without a tag in To would make it fork the dialog, which aborts the wheel."""
    async with RawPeer() as peer, server.events() as log:
        call_id = await placed(server, peer)
        peer.answer("200 OK", body=GOOD)
        written = (
            f"SIP/2.0 299 x\r\n{repeated(peer.request)}Contact: <sip:peer@{peer.own}>\r\nContent-Length: 0\r\n\r\n"
        )
        peer.transmit(written.replace("\r\n", "\r").encode(), peer.sender)
        await peer.expect("ACK")
        await log.wait("call.established")
        assert (await options(server.sip_port)).status == 200
        await hung_up(server, call_id, peer)


NO_LOOK_UP = "<sip:a@name.invalid;tr%61nsport=sctp>"
"""PJSIP asserts that it looks up no name for this transport."""


@pytest.mark.parametrize(
    "contact", ["<tel:+1>", "*", "tel:+1", "<mailto:a@b>", "<http://x>", "<sip:a@b>, <tel:+1>", NO_LOOK_UP]
)
async def test_a_contact_that_is_no_sip_uri(server: Server, contact: str) -> None:
    async with RawPeer() as peer:
        call_id = await placed(server, peer)
        head = f"Contact: {contact}\r\nContent-Type: application/sdp\r\n"
        for status in ("183 Session Progress", "200 OK"):
            answered = f"SIP/2.0 {status}\r\n{repeated(peer.request, tag='peer')}{head}"
            peer.transmit(f"{answered}Content-Length: {len(GOOD)}\r\n\r\n{GOOD}".encode(), peer.sender)
        await peer.expect("ACK")
        await until_state(server, call_id, "established")
        await hung_up(server, call_id, peer)


async def test_a_record_route_that_is_no_sip_uri(server: Server) -> None:
    async with RawPeer() as peer:
        call_id = await placed(server, peer)
        peer.answer("200 OK", headers="Record-Route: <tel:+1>\r\n", body=GOOD)
        await peer.expect("ACK")
        await until_state(server, call_id, "established")
        await hung_up(server, call_id, peer)
    async with RawCaller("silent", server.sip_port) as caller:
        for line in ("Record-Route: <tel:+1>", "Contact: <tel:+1>", "m: *", f"Contact: {NO_LOOK_UP}"):
            caller.send("INVITE", headers=f"{line}\r\n".encode(), body=HEAD + AUDIO)
            assert (await caller.final()).status == 400, line
            caller.ack()


@pytest.mark.parametrize("good_first", [False, True])
async def test_forks_with_useless_answers(server: Server, good_first: bool) -> None:
    branches = [("one", HEAD + OPUS), ("two", GOOD), ("three", MALFORMED["IPv6 called IPv4"]), ("four", "hello")]
    if good_first:
        branches.insert(0, branches.pop(1))
    async with RawPeer() as peer:
        call_id = await placed(server, peer)

        def answer(status: str, tag: str, sdp: str) -> None:
            head = f"Contact: <sip:{tag}@{peer.own}>\r\nContent-Type: application/sdp\r\n"
            text = f"SIP/2.0 {status}\r\n{repeated(peer.request, tag=tag)}{head}"
            peer.transmit(f"{text}Content-Length: {len(sdp)}\r\n\r\n{sdp}".encode(), peer.sender)

        for tag, sdp in branches:
            answer("183 Session Progress", tag, sdp)
        await until_state(server, call_id, "early")
        answer("200 OK", "two", GOOD)
        for tag, sdp in branches:
            if tag != "two":
                answer("200 OK", tag, sdp)
        await until_state(server, call_id, "established")
        await asyncio.sleep(0.5)  # time for those that come late to do harm
        await until_state(server, call_id, "established")
        await hung_up(server, call_id, peer, "two")


async def test_bad_branches_of_a_fork_do_not_end_the_good_one(server: Server) -> None:
    async with RawPeer() as peer, server.events() as events:
        call_id = await placed(server, peer)
        invite = peer.request
        peer.answer("183 Session Progress", body=GOOD, tag="good")
        await events.wait("call.early")
        for number, body in enumerate(USELESS.values()):
            peer.answer("183 Session Progress", body=body, tag=f"bad{number}")
            peer.answer("180 Ringing", body=body, tag=f"bad{number}")
        peer.answer("200 OK", body=GOOD, tag="good")
        ack = await peer.expect("ACK")
        assert "tag=good" in ack
        await events.wait("call.established")
        for number, body in enumerate(USELESS.values()):
            peer.request = invite
            peer.answer("200 OK", body=body, tag=f"late{number}")
            assert f"tag=late{number}" in await peer.expect("ACK")
            assert f"tag=late{number}" in await peer.take_bye()
        assert (await server.only_call())["state"] == "established"
        await hung_up(server, call_id, peer, "good")


@pytest.mark.parametrize("ended", [False, True])
async def test_requests_of_a_far_side_whose_tag_nobody_has_named(fresh_server: Server, ended: bool) -> None:
    async with RawPeer() as peer:
        call_id = await placed(fresh_server, peer)
        invite = peer.request
        if ended:
            peer.answer("100 Trying", tag="")
            assert (await fresh_server.post(f"/v1/calls/{call_id}/hangup", {}))[0] in (200, 202, 204)
            await peer.expect("CANCEL")
            peer.answer("200 OK")
            peer.request = invite
        for number, method in enumerate(("INFO", "REFER", "NOTIFY", "MESSAGE", "SUBSCRIBE", "OPTIONS", "X"), start=1):
            assert (await peer.request_inside(method, number)).startswith("SIP/2.0 481 "), method
        if ended:
            peer.answer("487 Request Terminated")
            await until_state(fresh_server, call_id, "terminated")
        else:
            peer.answer("200 OK", body=GOOD)
            await until_state(fresh_server, call_id, "established")
            await hung_up(fresh_server, call_id, peer)


async def use_other_call_slots(server: Server) -> None:
    """Place calls that are refused, so that the next one gets the call slot of the call before: PJSUA takes turns."""
    for _ in range(CALL_SLOTS - 1):
        async with RawPeer() as other:
            refused = await placed(server, other)
            other.answer("486 Busy Here")
            await until_state(server, refused, "terminated")


@pytest.mark.parametrize("late", ["INVITE", "UPDATE", "PRACK", "ACK", "REFER", "BYE", "183 Session Progress", "200 OK"])
@pytest.mark.parametrize("refused", [False, True])
async def test_what_belongs_to_a_call_that_is_over_leaves_the_next_one_alone(
    fresh_server: Server, late: str, refused: bool
) -> None:
    """A dialog of PJSIP outlives its call and goes on naming the call slot, which the next call has by then."""
    async with RawPeer() as old, RawPeer() as peer:
        over = await placed(fresh_server, old)
        invite = old.request
        if refused:
            old.answer("183 Session Progress", body=GOOD)
            old.answer("486 Busy Here")
        else:
            old.answer("200 OK", body=GOOD)
            await old.expect("ACK")
            await until_state(fresh_server, over, "established")
            assert (await old.request_inside("BYE", 1)).startswith("SIP/2.0 200 ")
        await until_state(fresh_server, over, "terminated")
        await use_other_call_slots(fresh_server)
        call_id = await placed(fresh_server, peer)
        old.request = invite
        if late[0].isdigit():
            old.answer(late, body=HEAD + AUDIO.replace("9", "19"))
        elif late == "ACK":
            old.send_inside(late, 2, body=GOOD)
        else:
            assert (await old.request_inside(late, 2, body=GOOD)).startswith(("SIP/2.0 481 ", "SIP/2.0 603 ")), late
        peer.answer("200 OK", body=GOOD)
        call = await until_state(fresh_server, call_id, "established")
        assert call["codec"] == "PCMU"
        await hung_up(fresh_server, call_id, peer)


async def end_late_beside_the_next_call(server: Server, old: RawPeer, peer: RawPeer) -> None:
    """Answer the last request of ``old``, whose call is over, while ``peer`` has the call in its call slot."""
    await use_other_call_slots(server)
    call_id = await placed(server, peer)
    old.answer("487 Request Terminated")
    assert (await options(server.sip_port)).status == 200  # after it, on the same thread
    peer.answer("200 OK", body=GOOD)
    await until_state(server, call_id, "established")
    await hung_up(server, call_id, peer)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("who", ["they", "we"])
async def test_a_reinvite_of_a_call_that_is_over_leaves_the_next_one_alone(
    fresh_server: Server, who: str, repeated: bool
) -> None:
    async with RawPeer() as old, RawPeer() as peer:
        over = await placed(fresh_server, old)
        invite = old.request
        old.answer("200 OK", body=GOOD)
        await old.expect("ACK")
        await until_state(fresh_server, over, "established")
        assert (await fresh_server.post(f"/v1/calls/{over}/hold", {}))[0] in (200, 202, 204)
        reinvite = await old.expect("INVITE")
        if repeated:
            old.answer("422 Session Interval Too Small", headers="Min-SE: 3600\r\n")
            reinvite = await old.expect("INVITE")
        if who == "they":
            old.request = invite
            assert (await old.request_inside("BYE", 1)).startswith("SIP/2.0 200 ")
        else:
            await fresh_server.post(f"/v1/calls/{over}/hangup", {})
            await old.take_bye()
        await until_state(fresh_server, over, "terminated")
        old.request = reinvite
        await end_late_beside_the_next_call(fresh_server, old, peer)


@pytest.mark.parametrize("provisional", ["", "180 Ringing", "183 Session Progress"])
async def test_an_invite_of_a_call_that_is_over_leaves_the_next_one_alone(
    fresh_server: Server, provisional: str
) -> None:
    async with RawPeer() as old, RawPeer() as peer:
        over = await placed(fresh_server, old)
        invite = old.request
        if provisional:
            old.answer(provisional, body=GOOD if provisional.startswith("183") else "")
            await until_state(fresh_server, over, "early")
        assert (await fresh_server.post(f"/v1/calls/{over}/hangup", {}))[0] in (200, 202, 204)
        if provisional:
            await old.expect("CANCEL")
            old.answer("200 OK")
        await until_state(fresh_server, over, "terminated")
        old.request = invite
        await end_late_beside_the_next_call(fresh_server, old, peer)


async def test_answers_without_a_tag_after_one_that_has_it(server: Server) -> None:
    async with RawPeer() as peer:
        call_id = await placed(server, peer)
        peer.answer("180 Ringing", tag="")
        peer.answer("183 Session Progress", body=GOOD, tag="one")
        await until_state(server, call_id, "early")
        for status in ("180 Ringing", "183 Session Progress", "200 OK"):
            peer.answer(status, body=GOOD, tag="")
        peer.answer("200 OK", body=GOOD, tag="one")
        await peer.expect("ACK")
        await until_state(server, call_id, "established")
        assert (await server.post(f"/v1/calls/{call_id}/hold", {}))[0] in (200, 202, 204)
        reinvite = await peer.expect("INVITE")
        peer.request = reinvite.replace(";tag=one", "")
        peer.answer("200 OK", body=GOOD, tag="")
        peer.request = reinvite
        peer.answer("200 OK", body=GOOD)
        await hung_up(server, call_id, peer, "one")


@pytest.mark.parametrize(
    "answers",
    [
        (
            "Contact: *\r\n",
            "Expires: 4294967295\r\n",
            "Contact: {own};expires=4294967295\r\n",
            "Contact: {own};expires=x\r\nExpires: -1\r\n",
            "Contact: <tel:+1>;expires=60\r\n",
        ),
        (
            "Contact: <sip:a@b>;expires=60, <tel:+1>, <mailto:a@b>\r\n",
            "Record-Route: <tel:+1>\r\n",
            "Service-Route: <sip:127.0.0.1;lr>\r\n" * 20,
            "Service-Route: <tel:+1>\r\nService-Route:\r\n",
            "",
        ),
    ],
    ids=["contact", "routes"],
)
async def test_registrars_that_answer_strangely(tmp_path: Path, answers: tuple[str, ...]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        registrars = {
            f"trunk{index}": (lines, await stack.enter_async_context(RawPeer())) for index, lines in enumerate(answers)
        }
        settings = {}
        for name, (_, registrar) in registrars.items():
            settings[f"trunks__{name}__registrar"] = f"sip:{HOST}:{registrar.port}"
            settings[f"trunks__{name}__username"] = name
        async with server_with(tmp_path, **settings) as server, same_process(server):
            for name, (lines, registrar) in registrars.items():
                request = await registrar.expect("REGISTER")
                own = re.search(r"^Contact: (<[^>]*>)", request, re.MULTILINE)
                assert own is not None
                registrar.answer("200 OK", headers=lines.replace("{own}", own[1]))
                if "Expires: -1" not in lines:  # PJSIP cannot read the answer: it counts for none
                    await is_registered(server, name)
                stack.callback(asyncio.create_task(answer_the_rest(registrar)).cancel)


async def is_registered(server: Server, trunk: str) -> None:
    wanted = f'cctts_trunk_registered{{trunk="{trunk}"}} 1.0'
    await server.until_metrics(wanted)


async def answer_the_rest(registrar: RawPeer) -> None:
    while True:
        await registrar.expect("REGISTER")
        registrar.answer("200 OK")


async def test_another_scheme_is_416(server: Server) -> None:
    for uri in ("tel:+15551234", "TEL:15551234;phone-context=example.com"):
        for method in ("INVITE", "OPTIONS", "MESSAGE", "BYE"):
            async with RawCaller("silent", server.sip_port) as caller:
                caller.uri = uri
                caller.send(method, body=HEAD + AUDIO if method == "INVITE" else "")
                assert (await caller.final()).status == 416, (uri, method)


async def test_an_offer_of_ipv6_or_ipv4_is_taken_by_ipv4(server: Server) -> None:
    six = "m=audio 40000 RTP/AVP 0\r\nc=IN IP6 ::1\r\na=mid:1\r\n"
    four = "m=audio 40002 RTP/AVP 0\r\nc=IN IP4 127.0.0.1\r\na=mid:2\r\n"
    head = NO_CONNECTION + "a=group:ANAT 1 2\r\n"
    for media, wanted in (((six, four), [False, True]), ((four, six), [True, False])):
        async with RawCaller("silent", server.sip_port) as caller:
            caller.send("INVITE", body=head + "".join(media))
            answer = await caller.acknowledge(200)
            ports = [int(port) for port in re.findall(r"^m=audio (\d+)", answer.text, re.MULTILINE)]
            assert [port > 0 for port in ports] == wanted
            assert (await caller.bye()).status == 200


async def test_answers_name_what_is_served(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        told = await options(server.sip_port)
        allow, supported = told.header("Allow"), told.header("Supported")
        assert allow == "INVITE, ACK, BYE, CANCEL, OPTIONS, INFO, PRACK, UPDATE, NOTIFY"
        assert supported == "100rel, timer"
        answers = [told, await caller.establish()]
        for method in ("MESSAGE", "TELEPORT"):
            caller.send(method)
            answers.append(await caller.final())
            assert answers[-1].status == 405
            assert answers[-1].header("Allow") == allow
        assert (await caller.bye()).status == 200
        async with RawCaller("nobody", server.sip_port) as stranger:
            stranger.invite()
            answers.append(await stranger.final())
            assert answers[-1].status == 404
            stranger.ack()
        async with RawCaller("ring", server.sip_port) as impatient, server.events() as log:
            impatient.invite()
            await log.wait("call.early")
            impatient.send("CANCEL", cseq=1)
            assert (await impatient.final()).status == 200
            answers.append(await impatient.acknowledge(487))
        for answer in answers:
            assert answer.header("Allow") in (allow, None), answer.text
            assert answer.header("Supported") in (supported, None), answer.text
        assert answers[1].header("Allow") == allow
        assert answers[1].header("Supported") == supported
        assert all(answer.headers("Server") == ["cc-tts"] for answer in answers)


async def test_a_call_that_rings_when_the_user_agent_stops_may_be_tried_elsewhere(lend: Lend) -> None:
    async with lend() as server, RawCaller("ring", server.sip_port) as caller:
        caller.invite()
        await server.until_call(lambda call: call["state"] == "early")
        pid = ua_pid(server)
        os.kill(pid, signal.SIGTERM)
        answer = await caller.final()
        caller.ack()
        assert (answer.status, answer.header("Retry-After")) == (503, "7")
        await until(lambda: ua_pid(server) != pid)
        await until_readyz(server, 200)


async def test_an_invite_that_comes_again_after_its_ack_is_no_second_call(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        untagged = caller.to
        await caller.establish()
        tagged, caller.to = caller.to, untagged
        caller.send("INVITE", cseq=1, body=HEAD + AUDIO)
        caller.to = tagged
        await asyncio.sleep(0.5)  # time for a call that must not come
        assert len((await server.get("/v1/calls?sip_call_id=" + caller.call_id))[1]["calls"]) == 1
        assert (await caller.bye()).status == 200


async def test_a_call_that_ends_for_want_of_an_answer_takes_no_offer(server: Server) -> None:
    async with RawCaller("silent", server.sip_port) as caller:
        caller.send("INVITE")
        await caller.acknowledge(200)
        await caller.left_unanswered("BYE")
        caller.send("UPDATE", body=HEAD + AUDIO)
        assert (await caller.final()).status == 481
        caller.send("INVITE")
        await caller.acknowledge(481)
        assert (await caller.bye()).status == 200


@pytest.mark.slow
async def test_a_session_whose_200_nobody_acknowledges_is_not_refreshed(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path) as server,
        same_process(server),
        RawCaller("silent", server.sip_port) as caller,
    ):
        caller.invite(headers=b"Session-Expires: 90;refresher=uas\r\n")
        assert (await caller.final()).status == 200
        await caller.request("BYE", 40, status="100 Trying")
        await asyncio.sleep(15)  # the refresh is due after 45 s, before the BYE is given up


async def test_the_wheel_does_not_listen_where_strangers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pjsua2_build.VARIABLE, "wheel")
    monkeypatch.setenv("CC_TTS_SIP__HOST", "0.0.0.0")
    with pytest.raises(RuntimeError, match=r"cc-tts pjsua2 build.*CC_TTS_PJSUA2=server.*sip\.allow_pypi_wheel"):
        await Server.start(tmp_path)
    async with server_with(tmp_path, sip__allow_pypi_wheel="true") as server:
        assert (await options(server.sip_port)).status == 200
