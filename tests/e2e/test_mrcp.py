"""MRCPv2 with a client of our own, over real sockets: what it hears, and what it is told."""

import asyncio
import contextlib
import functools
import json
import signal
import ssl
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cc_tts.media.g711 import alaw_decode, ulaw_decode
from lab.certificates import Authority
from lab.configured import Lend, logged, server_with
from lab.mrcp_mutations import Mutations
from lab.peers import Sipp
from lab.ports import free_ports
from lab.server_under_test import Server
from lab.waiting import PATIENCE_S, until
from tests.support.mrcp_client import (
    MrcpConnection,
    MrcpSession,
    Packet,
    SipAgent,
    SipReply,
    audio_lines,
    channel_of,
    control_lines,
    invite,
    mrcp_message,
    ports_of,
    session_with,
)

pytestmark = pytest.mark.e2e

TEXT = "Hello there. Your balance is twelve euros."
LONG = "This sentence is said again and again, and again. " * 20
MANY = 40
AUDIBLE = 300
STILL_S = 0.2
"""Ten packets long."""
LATE_PACKETS = 15
"""Those of 300 ms, which a busy machine may send or read late; the text lasts for a minute."""


@functools.cache
def settings() -> dict[str, str]:
    """The section of the server that these tests share."""
    first = free_ports(4 + 2 * MANY)
    return {
        "mrcp__enabled": "true",
        "mrcp__sip_port": str(first),
        "mrcp__control_port": str(first + 2),
        "mrcp__rtp_port_min": str(first + 4),
        "mrcp__rtp_port_max": str(first + 3 + 2 * MANY),
        "mrcp__idle_timeout_s": "2",
    }


@contextlib.asynccontextmanager
async def session(lend: Lend, **how: str) -> AsyncIterator[MrcpSession]:
    async with lend(group="mrcp", **settings()), session_with(int(settings()["mrcp__sip_port"]), **how) as found:  # type: ignore[arg-type]
        yield found
        if found.cseq >= 0:
            await found.bye()


def peak(packet: Packet) -> int:
    decode = {0: ulaw_decode, 8: alaw_decode}.get(packet.payload_type)
    pcm = decode(packet.payload) if decode is not None else packet.payload
    samples = np.frombuffer(pcm, "<i2" if decode is not None else ">i2").astype(np.int32)
    return int(np.abs(samples).max())


def audible(packets: list[Packet]) -> list[Packet]:
    return [each for each in packets if peak(each) > AUDIBLE]


async def until_still(found: MrcpSession) -> int:
    """Wait until no packet comes any more; returns how many came."""
    num = -1
    async with asyncio.timeout(PATIENCE_S):
        while (now := len(found.packets)) != num:
            num = now
            await asyncio.sleep(STILL_S)
    return num


async def heard(found: MrcpSession, num: int = 5) -> None:
    before = len(audible(found.packets))
    await until(lambda: len(audible(found.packets)) >= before + num)


async def test_a_text_is_heard_in_time_and_completes_behind_its_last_packet(lend: Lend) -> None:
    async with session(lend) as found:
        reply = await found.speak(TEXT)
        assert (reply.status, reply.state) == (200, "IN-PROGRESS")
        assert reply.headers["channel-identifier"] == found.channel
        complete = await found.event("SPEAK-COMPLETE")
        ended_s = asyncio.get_running_loop().time()
        assert (complete.request_id, complete.state, complete.headers["completion-cause"]) == (
            1,
            "COMPLETE",
            "000 normal",
        )
        packets = found.packets
        assert [each.payload_type for each in packets] == [0] * len(packets)
        assert [each.marker for each in packets] == [True] + [False] * (len(packets) - 1)
        for one, next_ in pairwise(packets):
            assert ((next_.sequence - one.sequence) & 0xFFFF, (next_.timestamp - one.timestamp) & 0xFFFFFFFF) == (
                1,
                160,
            )
        length_s = packets[-1].at_s - packets[0].at_s
        assert abs(length_s - 0.02 * (len(packets) - 1)) < 0.1
        assert 1.5 < 0.02 * len(audible(packets)) < 6
        assert ended_s - audible(packets)[-1].at_s > 0.08
        num = len(packets)
        await asyncio.sleep(0.1)
        assert len(packets) == num  # silence between requests is not sent


@pytest.mark.parametrize(
    ("formats", "payload_type", "num_bytes"), [("96", 96, 320), ("97 0", 97, 640), ("3 101 8", 8, 160)]
)
async def test_the_first_codec_of_the_offer_that_we_speak(
    lend: Lend, formats: str, payload_type: int, num_bytes: int
) -> None:
    async with session(lend, formats=formats) as found:
        await found.speak("Hello.")
        await found.event("SPEAK-COMPLETE")
        assert {(each.payload_type, len(each.payload)) for each in found.packets} == {(payload_type, num_bytes)}
        assert len(audible(found.packets)) > 10


async def test_many_channels_share_a_connection_and_sip_comes_over_tcp(lend: Lend) -> None:
    async with session(lend, transport="TCP") as one:
        port = int(settings()["mrcp__sip_port"])
        async with session_with(port, transport="TCP", connection=one.connection) as other:
            assert "a=connection:existing" in other.answer
            other.last_id = 100
            first, second = one.send("SPEAK", "Hello.", Content_Type="text/plain"), 101
            other.send("SPEAK", "Goodbye.", Content_Type="text/plain")
            done: dict[int, str] = {}
            while len(done) < 2:
                came = await one.connection.next()
                if came.is_event:
                    done[came.request_id] = came.headers["channel-identifier"]
            assert done == {first: one.channel, second: other.channel}
            assert audible(one.packets)
            assert audible(other.packets)
            await other.bye()


async def test_marks_of_ssml_come_in_order_before_the_end(lend: Lend) -> None:
    document = (
        '<speak version="1.1">One moment. <mark name="a"/>Then two. <mark name="b"/>And three.<mark name="c"/></speak>'
    )
    async with session(lend) as found:
        await found.speak(document, Content_Type="application/ssml+xml")
        names = []
        while (came := await found.connection.next()).name != "SPEAK-COMPLETE":
            assert (came.name, came.state) == ("SPEECH-MARKER", "IN-PROGRESS")
            names.append(came.headers["speech-marker"].partition(";")[2])
        assert names == ["a", "b", "c"]
        assert came.headers["speech-marker"].endswith(";c")


async def test_requests_wait_their_turn_and_stop_ends_them_at_once(lend: Lend) -> None:
    async with session(lend) as found:
        assert (await found.speak(LONG)).state == "IN-PROGRESS"
        assert (await found.speak("Hello.")).state == "PENDING"
        await heard(found)
        reply = await found.ask("STOP")
        assert (reply.status, reply.headers["active-request-id-list"]) == (200, "1,2")
        num = len(found.packets)
        assert await until_still(found) - num <= LATE_PACKETS
        assert not [each for each in found.connection.log if each.is_event]
        assert (await found.speak("Hello.")).state == "IN-PROGRESS"
        assert (await found.event("SPEAK-COMPLETE")).request_id == found.last_id


async def test_a_paused_text_goes_on_where_it_was(lend: Lend) -> None:
    async with session(lend) as found:
        await found.speak("Hello there, and welcome.")
        await heard(found)
        reply = await found.ask("PAUSE")
        assert (reply.status, reply.headers["active-request-id-list"]) == (200, "1")
        await asyncio.sleep(STILL_S)
        num, num_audible = len(found.packets), len(audible(found.packets))
        await until(lambda: len(found.packets) - num > 15)  # silence
        assert len(audible(found.packets)) == num_audible
        assert (await found.ask("RESUME")).headers["active-request-id-list"] == "1"
        await found.event("SPEAK-COMPLETE")
        assert len(audible(found.packets)) > num_audible + 20


async def test_control_jumps_back_and_forward(lend: Lend) -> None:
    async with session(lend) as found:
        await found.speak(TEXT)
        await heard(found, 60)
        reply = await found.ask("CONTROL", Jump_Size="-10 Second")
        assert (reply.status, reply.headers["speak-restart"]) == (200, "true")
        await heard(found, 60)
        reply = await found.ask("CONTROL", Jump_Size="-1 Word")
        assert (reply.status, "speak-restart" in reply.headers) == (200, False)
        reply = await found.ask("CONTROL", Jump_Size="+100 Second")
        assert (reply.status, reply.headers["active-request-id-list"]) == (200, "1")
        complete = await found.event("SPEAK-COMPLETE")
        assert complete.headers["completion-cause"] == "000 normal"
        assert 120 <= len(audible(found.packets)) < 260


async def test_a_rate_holds_for_the_session_and_changes_while_it_speaks(lend: Lend) -> None:
    async with session(lend) as found:
        lengths = []
        for rate in ("x-fast", "x-slow"):
            assert (await found.ask("SET-PARAMS", Prosody_Rate=rate)).status == 200
            before = len(audible(found.packets))
            await found.speak("Twelve euros, please.")
            await found.event("SPEAK-COMPLETE")
            lengths.append(len(audible(found.packets)) - before)
        assert lengths[1] > 2 * lengths[0]
        await found.speak("Twelve euros, please.")
        await heard(found)
        before = len(audible(found.packets))
        assert (await found.ask("CONTROL", Prosody_Rate="x-fast")).status == 200
        await found.event("SPEAK-COMPLETE")
        assert len(audible(found.packets)) - before < 0.7 * lengths[1]


async def test_a_lexicon_of_the_session_says_how_a_name_is_spoken(lend: Lend) -> None:
    lexicon = (
        '<lexicon version="1.0" alphabet="ipa" xml:lang="en" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon"><lexeme>'
        "<grapheme>Xq</grapheme><alias>one two three four five</alias></lexeme></lexicon>"
    )
    async with session(lend) as found:
        lengths = []
        for _ in range(2):
            before = len(audible(found.packets))
            await found.speak("Xq.")
            await found.event("SPEAK-COMPLETE")
            lengths.append(len(audible(found.packets)) - before)
            reply = await found.ask(
                "DEFINE-LEXICON", lexicon, Content_Type="application/pls+xml", Content_ID="<names@client>"
            )
            assert reply.status == 200
        assert lengths[1] > 2 * lengths[0]
        reply = await found.ask("DEFINE-LEXICON", "<lexicon", Content_Type="application/pls+xml", Content_ID="<b>")
        assert (reply.status, reply.headers["completion-cause"]) == (407, "006 lexicon-load-failure")


@pytest.mark.parametrize(
    ("body", "headers", "status", "cause", "reason"),
    [
        ("<speak>Hello", {"Content_Type": "application/ssml+xml"}, 407, "002 parse-failure", "line 1"),
        ("Hello.", {"Voice_Name": "nobody"}, 409, "004 error", "nobody"),
        ("x" * 100_000, {}, 504, "004 error", "tts.max_text_chars"),
        ("", {}, 407, "002 parse-failure", "no text"),
        (b"\xff\xfeHello.", {}, 407, "002 parse-failure", '"the text is not utf-8"'),
    ],
)
async def test_what_cannot_be_spoken_is_refused_at_once(
    lend: Lend, body: str | bytes, headers: dict[str, str], status: int, cause: str, reason: str
) -> None:
    async with session(lend) as found:
        reply = await found.speak(body, **headers)
        assert (reply.status, reply.state, reply.headers["completion-cause"]) == (status, "COMPLETE", cause)
        assert reason in reply.headers["completion-reason"]
        assert (await found.speak("Hello.")).state == "IN-PROGRESS"
        await found.event("SPEAK-COMPLETE")


async def test_speak_length_bounds_what_is_heard(lend: Lend) -> None:
    async with session(lend) as found:
        await found.speak(LONG, Speak_Length="+1 Second")
        await found.event("SPEAK-COMPLETE")
        assert 45 <= len(found.packets) <= 60


async def test_a_lost_connection_keeps_the_channel_and_events_follow_the_new_one(lend: Lend) -> None:
    async with session(lend) as found:
        await found.speak(TEXT)
        port = ports_of(found.answer)[0]
        found.connection.close()
        await heard(found)
        found.connection = await MrcpConnection.open(port)
        assert (await found.ask("GET-PARAMS", Kill_On_Barge_In="")).headers["kill-on-barge-in"] == "true"
        assert (await found.event("SPEAK-COMPLETE")).request_id == 1
        found.connection.close()


async def test_a_session_whose_client_is_gone_ends_with_a_bye(lend: Lend) -> None:
    async with session(lend) as found:
        assert (await found.speak("Hello.")).status == 200
        found.connection.close()
        async with asyncio.timeout(PATIENCE_S):
            assert (await found.agent.requests.get()).startswith("BYE sip:client@")
        found.cseq = -1


async def test_other_resources_get_port_0_and_the_call_stays(lend: Lend) -> None:
    async with lend(group="mrcp", **settings()) as server:
        port = int(settings()["mrcp__sip_port"])
        agent = await SipAgent.open("UDP", port)
        recognizer = control_lines(resource="speechrecog", cmid="2")
        _, reply = await invite(agent, control_lines(), recognizer, audio_lines(40_000))
        control, refused, audio = ports_of(reply.body)
        assert (control, refused, audio > 0) == (int(settings()["mrcp__control_port"]), 0, True)
        call_id, reply = await invite(agent, recognizer, audio_lines(40_000))
        assert (reply.status, ports_of(reply.body)[0]) == (200, 0)
        assert channel_of(reply.body).endswith("@speechrecog")  # that of a session whose synthesiser may come yet
        for each in ("a=cmid:2", "a=mid:1", "a=sendonly"):
            assert each in reply.body
        agent.send(agent.message("BYE", call_id=call_id, cseq=2, to_tag=reply.to_tag))
        assert (await agent.reply(call_id, 2, "BYE")).status == 200
        await ended(server, agent)


async def ended(server: Server, agent: SipAgent) -> None:
    """The sessions that are left end since nobody connects to them."""
    await server.until_metrics("cctts_mrcp_sessions 0.0")
    agent.close()


async def test_an_offer_changes_within_a_session(lend: Lend) -> None:
    async with session(lend) as found:
        await found.speak(LONG)
        await heard(found)
        reply = await found.modify(control_lines(), audio_lines(found.rtp_port, direction="inactive"))
        assert (reply.status, channel_of(reply.body)) == (200, found.channel)
        assert "a=inactive" in reply.body
        await until_still(found)
        await found.modify(control_lines(), audio_lines(found.rtp_port))
        await heard(found)
        reply = await found.modify(control_lines(port="0"), audio_lines(found.rtp_port))
        assert ports_of(reply.body)[0] == 0
        assert (await found.ask("STOP")).status == 405


@pytest.mark.parametrize("sections", [(), (audio_lines(40_000),), (control_lines(), audio_lines(40_000, "3 18"))])
async def test_an_offer_that_is_of_no_use_is_refused(lend: Lend, sections: tuple[str, ...]) -> None:
    async with lend(group="mrcp", **settings()):
        agent = await SipAgent.open("UDP", int(settings()["mrcp__sip_port"]))
        _, reply = await invite(agent, *sections)
        assert reply.status == 488
        agent.close()


async def test_what_there_is_can_be_asked_for_outside_of_sessions(lend: Lend) -> None:
    async with lend(group="mrcp", **settings()):
        agent = await SipAgent.open("UDP", int(settings()["mrcp__sip_port"]))
        agent.send(agent.message("OPTIONS", call_id="o", cseq=1))
        reply = await agent.reply("o", 1, "OPTIONS")
        assert (reply.status, "a=resource:speechsynth" in reply.body) == (200, True)
        agent.close()


async def test_a_request_for_no_channel_and_a_stream_that_is_none(lend: Lend) -> None:
    async with lend(group="mrcp", **settings()):
        port = int(settings()["mrcp__control_port"])
        connection = await MrcpConnection.open(port)
        connection.send(mrcp_message("SPEAK", 5, "0123@speechsynth", {"Content-Type": "text/plain"}, b"Hello."))
        assert (await connection.next()).status == 405
        connection.send(mrcp_message("SPEAK", 6, "", {}, b""))
        assert (await connection.next()).status == 406
        connection.send(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(EOFError):
            await connection.next()
        connection.close()


async def test_mutated_messages_end_no_process_and_leave_the_server_serving(lend: Lend) -> None:
    async with lend(group="mrcp", **settings()) as server:
        (pid,) = server.pids_of("cc_tts.mrcp")
        mutations = Mutations(int(settings()["mrcp__sip_port"]), int(settings()["mrcp__control_port"]))
        await mutations.run(400, per_s=100)
        async with session_with(int(settings()["mrcp__sip_port"])) as found:
            await found.speak("Hello.")
            await found.event("SPEAK-COMPLETE")
            assert audible(found.packets)
            await found.bye()
        assert server.pids_of("cc_tts.mrcp") == [pid]
        assert not [line for line in server.log.splitlines() if '"level": "error"' in line]


async def test_tls_for_sip_and_for_mrcp(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    pair = authority.issue("server")
    first = free_ports(16)
    async with server_with(
        tmp_path,
        mrcp__enabled="true",
        mrcp__transports='["tls"]',
        mrcp__sip_tls_port=str(first),
        mrcp__control_tls_port=str(first + 1),
        mrcp__rtp_port_min=str(first + 2),
        mrcp__rtp_port_max=str(first + 15),
        tls__certificate_file=str(pair.certificate),
        tls__private_key_file=str(pair.key),
    ):
        context = ssl.create_default_context(cafile=str(authority.certificate))
        async with session_with(first, transport="TLS", protocol="TCP/TLS/MRCPv2", tls=context) as found:
            assert "m=application" in found.answer
            await found.speak("Hello.")
            await found.event("SPEAK-COMPLETE")
            assert audible(found.packets)
            await found.bye()


async def refused(agent: SipAgent) -> SipReply:
    """Invite until that is refused: the process hears of a drain a moment after the server logs it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            call_id, reply = await invite(agent, control_lines(), audio_lines(40_000))
            if reply.status != 200:
                return reply
            agent.send(agent.message("BYE", call_id=call_id, cseq=2, to_tag=reply.to_tag))
            await agent.reply(call_id, 2, "BYE")


async def test_a_killed_process_is_started_again_and_a_drain_ends_sessions_by_bye(tmp_path: Path) -> None:
    first = free_ports(12)
    async with server_with(
        tmp_path,
        mrcp__enabled="true",
        mrcp__sip_port=str(first),
        mrcp__control_port=str(first + 1),
        mrcp__rtp_port_min=str(first + 2),
        mrcp__rtp_port_max=str(first + 11),
        mrcp__max_sessions="2",
        calls__drain_timeout_s="1",
        accounting__file=str(tmp_path / "lines"),
    ) as server:
        async with session_with(first) as found:
            await found.speak(LONG)
            (pid,) = server.pids_of("cc_tts.mrcp")
            server.signal(signal.SIGKILL, pid=pid)
        await until(lambda: len([each for each in logged(server, "child_ready") if each["child"] == "mrcp"]) == 2)
        async with session_with(first) as one, session_with(first) as two:
            agent = one.agent
            await one.speak("Hello.")
            await one.event("SPEAK-COMPLETE")
            _, reply = await invite(agent, control_lines(), audio_lines(40_000))
            assert (reply.status, reply.headers["retry-after"]) == (503, "7")
            await two.bye()
            server.signal(signal.SIGTERM)
            await until(lambda: logged(server, "draining"))
            reply = await refused(agent)
            assert reply.status == 503
            assert (await one.speak(LONG)).state == "IN-PROGRESS"
            async with asyncio.timeout(PATIENCE_S):
                assert (await agent.requests.get()).startswith("BYE ")
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    spoken = [each for each in lines if each["type"] == "utterance"]
    assert [(each["characters"], each["reason"]) for each in spoken] == [
        (len(LONG), "process_ended"), (len("Hello."), "normal"), (len(LONG), "shutdown"),
    ]  # fmt: skip


async def test_sipp_sets_up_and_ends_sessions(lend: Lend, tmp_path: Path) -> None:
    async with lend(group="mrcp", **settings()):
        port = int(settings()["mrcp__sip_port"])
        caller = await Sipp.call("mrcp_session", folder=tmp_path, target_port=port, service="mrcp", pause_ms=100)
        await caller.passed()
        assert "@speechsynth" in caller.messages


async def test_without_its_section_there_is_no_process(lend: Lend) -> None:
    async with lend() as server:
        assert not server.pids_of("cc_tts.mrcp")
