"""Copies of SIP messages: what a capture server gets by HEP, and what ``cc-tts trace`` shows of a call."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from lab.certificates import Authority
from lab.children import Child
from lab.configured import Lend
from lab.ports import HOST
from lab.raw_sip import RawCaller
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from lab.tls_peer import CRYPTO, KEY, ask, client_context, offer, tls_server
from lab.udp import UdpEndpoint
from lab.waiting import until
from tests.support.hep_decoder import Packet, decode

pytestmark = pytest.mark.e2e

TIMEOUT_S = 30.0
SECRET = "My secret is green"


class CaptureServer(UdpEndpoint):
    """Takes down HEP packets. Use it as a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[Packet] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.packets.append(decode(data))

    def of_kind(self, kind: int, correlation_id: str = "") -> list[Packet]:
        return [
            each
            for each in self.packets
            if each.number("kind") == kind and correlation_id in ("", each.text("correlation_id"))
        ]


def reporters(homer: CaptureServer, sip_call_id: str) -> set[tuple[int, int]]:
    """Between which ports reports of RTCP go: from either side there is one."""
    return {(each.number("source_port"), each.number("target_port")) for each in homer.of_kind(5, sip_call_id)}


def at_s(packet: Packet) -> float:
    return packet.number("seconds") + packet.number("microseconds") / 1e6


def first_lines(packets: list[Packet]) -> list[str]:
    return [each.payload.partition(b"\r\n")[0].decode() for each in packets]


async def test_a_capture_server_follows_a_call(lend: Lend, phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with CaptureServer() as homer, lend(sip__hep=f"udp:{homer.own}") as server:
        dropped_before = await num_dropped(server)
        await phone.dial(server.uri("greet"), headers={"X-TTS-Text": SECRET})
        call = await server.until_call(lambda call: call["state"] == "established")
        sip_call_id = call["sip_call_id"]
        await until(lambda: len(reporters(homer, sip_call_id)) > 1 and homer.of_kind(35, sip_call_id))
        await phone.hangup()
        await server.until_terminated()
        await until(lambda: homer.of_kind(100, sip_call_id))

        messages = homer.of_kind(1, sip_call_id)
        lines = first_lines(messages)
        assert lines[0].startswith("INVITE ")
        assert {"SIP/2.0 100 Trying", "SIP/2.0 200 OK"} <= set(lines)
        assert any(line.startswith("BYE ") for line in lines)
        invite, ok = messages[0], messages[lines.index("SIP/2.0 200 OK")]
        assert (invite.number("target_port"), ok.number("source_port")) == (server.sip_port, server.sip_port)
        assert invite.number("source_port") == ok.number("target_port")
        assert SECRET.encode() not in b"".join(each.payload for each in homer.packets)
        assert b"X-TTS-Text: ** ****** ** *****" in invite.payload

        (first, second) = reporters(homer, sip_call_id)
        assert first == second[::-1]
        report = json.loads(homer.of_kind(5, sip_call_id)[-1].payload)
        assert report["type"] in (200, 201)
        quality = homer.of_kind(35, sip_call_id)[-1]
        bye = next(each for each in messages if each.payload.startswith(b"BYE "))
        own_port = quality.number("source_port")

        def reported_at_s() -> float:
            return max(at_s(each) for each in homer.of_kind(5, sip_call_id) if each.number("source_port") == own_port)

        await until(lambda: reported_at_s() >= at_s(bye))  # that with which our stream ends
        assert json.loads(quality.payload)["quality"]["packets_sent"] > 0
        record = json.loads(homer.of_kind(100, sip_call_id)[0].payload)
        assert (record["call_id"], record["sip_code"], record["ended_by"]) == (call["id"], 200, "remote")

        text = await trace(tmp_path, "--config", str(server.config), sip_call_id, "--full")
        assert [line.split()[0] for line in text.splitlines()[3:5]] == ["1", "2"]
        assert " INVITE " in text.splitlines()[3]
        assert "X-TTS-Text: ** ****** ** *****" in text
        assert SECRET not in text
        assert await num_dropped(server) == dropped_before


async def num_dropped(server: Server) -> float:
    """Packets for the capture server that were dropped."""
    _, metrics = await server.get_text("/metrics")
    found = re.search(r'^cctts_hep_packets_total\{result="dropped"\} (\S+)', metrics, re.MULTILINE)
    return float(found[1]) if found is not None else 0.0


async def trace(folder: Path, *arguments: str) -> str:
    child = await Child.start([sys.executable, "-m", "cc_tts.cli", "trace", *arguments], log_path=folder / "trace.log")
    assert await child.wait(TIMEOUT_S) == 0, child.log
    return child.log


async def test_a_capture_server_that_is_away_costs_no_call(lend: Lend) -> None:
    async with CaptureServer() as gone:
        address = gone.own
    async with lend(sip__hep=f"udp:{address}") as server, RawCaller("long", server.sip_port) as caller:
        dropped_before = await num_dropped(server)
        await caller.establish()
        await server.until_call(lambda call: call["state"] == "established")
        assert (await caller.bye()).status == 200
        async with asyncio.timeout(TIMEOUT_S):
            while await num_dropped(server) == dropped_before:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.2)


@pytest.mark.usefixtures("server_build")
async def test_what_tls_carries_is_copied_without_its_keys(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    async with (
        CaptureServer() as homer,
        tls_server(tmp_path, authority, sip__hep=f"udp:{homer.own}") as (server, port),
    ):
        body = offer("RTP/SAVP", CRYPTO)
        answer = await ask(port, client_context(authority), method="INVITE", user="silent", body=body)
        assert answer.status == 200
        await until(lambda: "SIP/2.0 200 OK" in first_lines(homer.of_kind(1)))
        invite = homer.of_kind(1)[0]
        assert (invite.number("protocol"), invite.number("target_port")) == (6, port)
        assert b"inline:****" in invite.payload
        assert KEY.encode() not in b"".join(each.payload for each in homer.packets)
        call = await server.only_call()
        status, text = await server.get_text(f"/v1/calls/{call['id']}/trace?format=text")
        assert (status, KEY in text, "inline:****" in text) == (200, False, True)
        assert f" tls from {HOST}:" in text


async def test_a_trace_that_is_off(lend: Lend) -> None:
    async with (
        lend(sip__trace_messages="0") as server,
        RawCaller("silent", server.sip_port) as caller,
    ):
        caller.invite()
        await caller.final()
        caller.ack()
        call = await server.only_call()
        status, problem = await server.get(f"/v1/calls/{call['id']}/trace")
        assert (status, problem["code"]) == (404, "trace_not_found")
        await caller.bye()
