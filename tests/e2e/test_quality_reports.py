"""How a call sounds, as others are told it: RTCP-XR with the far side, a report to a collector, levels of a live call."""

import asyncio
import contextlib
import re
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lab.configured import Lend, server_with
from lab.peers import Sipp
from lab.ports import HOST
from lab.raw_rtp import RtpPeer
from lab.raw_sip import SDP, Answer, RawCaller, RawPeer
from lab.server_under_test import Json, Server
from lab.waiting import until
from tests.support.vq_grammar import parsed

pytestmark = pytest.mark.e2e

TIMEOUT_S = 30.0
ASKED = "a=rtcp-xr:voip-metrics"
METRICS = struct.Struct("!BxHIBBBBHHHHbbBBBBBBBxHHH")
"""The block of VoIP metrics (RFC 3611 §4.7)."""


def rtp_address(answer: Answer) -> tuple[str, int]:
    return HOST, int(re.findall(r"^m=audio (\d+)", answer.text, re.MULTILINE)[0])


def extended_report(about_ssrc: int) -> bytes:
    """Say that a quarter of ``about_ssrc`` is lost, with MOS-LQ 3.1."""
    block = METRICS.pack(
        7, 8, about_ssrc, 64, 0, 0, 64, 0, 9000, 30, 20, -18, -60, 55, 16, 70, 127, 31, 127, 0, 40, 80, 80
    )
    return struct.pack("!BBHI", 0x80, 207, 1 + len(block) // 4, 4711) + block


def block_of(compound: bytes) -> tuple[int, ...] | None:
    """The VoIP metrics of a compound packet: sender and fields."""
    at = 0
    while at < len(compound):
        end = at + 4 * (int.from_bytes(compound[at + 2 : at + 4], "big") + 1)
        if compound[at + 1] == 207:
            return int.from_bytes(compound[at + 4 : at + 8], "big"), *METRICS.unpack(compound[at + 8 : end])
        at = end
    return None


def body_of(message: str) -> str:
    return message.replace("\r\n", "\n").partition("\n\n")[2].rstrip("\n").replace("\n", "\r\n") + "\r\n"


async def shown(server: Server, wanted: Callable[[Json], Any], query: str = "") -> Json:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            _, found = await server.get(f"/v1/calls{query}")
            if found["calls"] and wanted(found["calls"][0]):
                return found["calls"][0]  # type: ignore[no-any-return]
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def reporting(folder: Path, collector: Sipp, **settings: str) -> AsyncIterator[Server]:
    async with (
        RawPeer() as registrar,
        server_with(
            folder,
            quality__collector=f"sip:vq@{HOST}:{collector.port}",
            registration__registrar=f"sip:{HOST}:{registrar.port}",
            registration__username="greet",
            registration__password="open sesame",
            **settings,
        ) as server,
    ):
        await registrar.expect("REGISTER")
        registrar.answer("200 OK", headers=f"Contact: <sip:greet@{HOST}:{server.sip_port}>;expires=60\r\n")
        yield server


async def test_both_sides_say_how_they_hear_each_other_and_a_collector_is_told(tmp_path: Path) -> None:
    collector = await Sipp.answer("collector", folder=tmp_path, calls=2)
    async with (
        reporting(tmp_path, collector) as server,
        RawCaller("long", server.sip_port) as caller,
        RtpPeer() as phone,
    ):
        caller.send("INVITE", body=SDP.format(port=phone.port, formats="0 101") + f"{ASKED}\r\n")
        answer = await caller.acknowledge(200)
        assert ASKED in answer.text
        to = rtp_address(answer)
        talking = asyncio.create_task(phone.say_on(to))
        await until(lambda: block_of(phone.last_rtcp) is not None)
        block = block_of(phone.last_rtcp)
        assert block is not None
        ours, (kind, _, about, loss) = block[0], block[1:5]
        assert (kind, loss) == (7, 0)
        assert ours == phone.heard[-1].ssrc
        assert about != ours
        phone.report(to, extended_report(ours))
        call = await shown(server, lambda call: call["quality"]["remote"])
        talking.cancel()
        assert (call["quality"]["remote"]["loss_rate"], call["quality"]["remote"]["mos_lq"]) == (0.25, 3.1)
        assert (await caller.bye()).status == 200
        await collector.passed()
        ended = await server.until_terminated()
        _, metrics = await server.get_text("/metrics")
    assert ended["quality"]["remote"] == call["quality"]["remote"]
    assert "cctts_call_remote_mos_sum 3.1" in metrics
    first, second = collector.received("PUBLISH")
    assert "Authorization" not in first
    assert "sesame" not in collector.messages + server.log
    report = parsed(body_of(second))
    assert report.session["CallID"] == caller.call_id
    assert report.session["RemoteID"] == f"<sip:raw@{HOST}>"
    assert report.session["RemoteAddr"].startswith(f"IP={HOST} PORT={phone.port} ")
    assert report.session["LocalAddr"] == f"IP={HOST} PORT={to[1]} SSRC=0x{ours:08x}"
    assert report.local["PacketLoss"]["NLR"] == "0.0"
    assert report.remote is not None
    assert report.remote["QualityEst"] == {"RCQ": "70", "MOSLQ": "3.1"}
    assert report.dialog is not None


async def test_a_call_on_hold_is_reported_while_it_lasts_and_at_its_end(tmp_path: Path) -> None:
    collector = await Sipp.answer("collector", folder=tmp_path, calls=4)
    async with (
        reporting(tmp_path, collector, quality__interval_s="5") as server,
        RawCaller("long", server.sip_port) as caller,
        RtpPeer() as phone,
    ):
        await caller.establish(rtp_port=phone.port)
        caller.send("INVITE", body=SDP.format(port=phone.port, formats="0 101") + "a=sendonly\r\n")
        assert "a=recvonly" in (await caller.acknowledge(200)).text
        await until(lambda: len(collector.received("PUBLISH")) >= 2)
        assert (await caller.bye()).status == 200
        await collector.passed()
    challenged, during, _, at_the_end = (parsed(body_of(each)) for each in collector.received("PUBLISH"))
    assert challenged == during
    assert (during.is_interval, at_the_end.is_interval) == (True, False)
    assert during.session == at_the_end.session
    times = [report.local["Timestamps"] for report in (during, at_the_end)]
    assert times[0]["START"] <= times[1]["START"] < times[0]["STOP"] <= times[1]["STOP"]


async def test_a_collector_that_is_silent_keeps_no_call_from_its_end(lend: Lend) -> None:
    async with (
        RawPeer() as collector,
        lend(quality__collector=f"sip:vq@{HOST}:{collector.port}") as server,
        RawCaller("silent", server.sip_port) as caller,
    ):
        answer = await caller.establish()
        assert ASKED not in answer.text, "nobody asks for it"
        assert (await caller.bye()).status == 200
        await server.until_terminated()
        assert "VQSessionReport" in await collector.expect("PUBLISH")
        collector.answer("404 Not Found")

        async def refused() -> bool:
            _, metrics = await server.get_text("/metrics")
            return (
                re.search(r'^cctts_quality_reports_total\{result="refused"\} [1-9]', metrics, re.MULTILINE) is not None
            )

        await until(refused, TIMEOUT_S)


async def test_how_loud_a_call_is(server: Server) -> None:
    async with RawCaller("long", server.sip_port) as caller, RtpPeer() as phone:
        answer = await caller.establish(rtp_port=phone.port)
        talking = asyncio.create_task(phone.say_on(rtp_address(answer)))
        call = await server.only_call()
        assert "levels" not in call
        query = "?state=established&levels=true"
        call = await shown(server, lambda call: call["levels"] and call["levels"]["received_dbov"] > -20, query)
        assert call["levels"]["received_dbov"] < -12, "a square wave of 5372, which is -15.7 dBov"
        call = await shown(server, lambda call: call["levels"] and call["levels"]["sent_dbov"] > -60, query)
        assert call["levels"]["sent_dbov"] <= 0
        talking.cancel()
        await shown(server, lambda call: call["levels"] and call["levels"]["received_dbov"] == -127, query)
        await caller.bye()
        assert (await server.until_terminated())["state"] == "terminated"
