"""``GET /v1/calls/{id}/trace``, and ``cc-tts trace`` over it."""

import asyncio
import shutil
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cc_tts import cli
from cc_tts.ua.messages import TracedMessage
from tests.fakes.running_api import RunningApi, running_api
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

TRACE = "/v1/calls/call_17/trace"
INVITE = (
    b"INVITE sip:100@127.0.0.1:5060 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK1\r\nCall-ID: x\r\n"
    b"CSeq: 1 INVITE\r\nFrom: \x1b[2J<sip:a@b>;tag=1\r\nTo: <sip:100@b>\r\n"
    b"Content-Type: application/sdp\r\nContent-Length: 0\r\n\r\n"
)


def message(text: bytes, *, is_sent: bool, at_s: float, transport: str = "udp") -> TracedMessage:
    return TracedMessage(
        at_ns=round(at_s * 1e9),
        is_sent=is_sent,
        transport=transport,
        local=("192.0.2.1", 5060),
        remote=("192.0.2.9", 5062),
        text=text,
    )


MESSAGES = (
    message(INVITE, is_sent=False, at_s=1_700_000_000.5),
    message(b"SIP/2.0 100 Trying\r\nCall-ID: x\r\n\r\n", is_sent=True, at_s=1_700_000_000.502),
)


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    with capture_logs():
        async with running_api() as running:
            running.registry.add("call_17", answered=True)
            running.registry.ua.traced = MESSAGES
            yield running


async def test_a_ladder(api: RunningApi) -> None:
    answered = await api.ask("GET", TRACE)
    assert answered.headers["Content-Type"] == "text/plain; charset=utf-8"
    lines = answered.raw.decode().splitlines()
    assert lines[0] == "call_17  Call-ID sip-call_17"
    assert lines[2].split() == ["cc-tts", "192.0.2.9:5062"]
    assert lines[3].startswith("  1 22:13:20.500   +0.000  │◂──")
    assert " INVITE sip:100@127.0.0.1:5060 (SDP) " in lines[3]
    assert lines[4].startswith("  2 22:13:20.502   +0.002  │──")
    assert lines[4].endswith("──▸│ udp")
    assert len({line.index("│", 40) for line in lines[3:]}) == 1


async def test_the_messages_themselves(api: RunningApi) -> None:
    text = (await api.ask("GET", f"{TRACE}?format=text")).raw.decode()
    assert "--- 1: 22:13:20.500 udp from 192.0.2.9:5062" in text.splitlines()
    assert "From: \ufffd[2J<sip:a@b>;tag=1" in text.splitlines()
    found = (await api.ask("GET", f"{TRACE}?format=json")).json
    assert [each["sent"] for each in found["messages"]] == [False, True]
    assert found["messages"][0]["text"].encode() == INVITE


async def test_a_capture_file(api: RunningApi, tmp_path: Path) -> None:
    answered = await api.ask("GET", f"{TRACE}?format=pcap")
    assert answered.headers["Content-Type"] == "application/vnd.tcpdump.pcap"
    assert struct.unpack("<I", answered.raw[:4]) == (0xA1B2C3D4,)
    first = answered.raw[24:]
    length = struct.unpack("<I", first[8:12])[0]
    packet = first[16 : 16 + length]
    assert packet[28:] == INVITE
    assert (packet[12:16], packet[16:20]) == (bytes((192, 0, 2, 9)), bytes((192, 0, 2, 1)))
    assert struct.unpack("!HH", packet[20:24]) == (5062, 5060)
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    path = tmp_path / "call.pcap"
    path.write_bytes(answered.raw)
    fields = ("-e", "ip.checksum.status", "-e", "sip.Method", "-e", "sip.Status-Code")
    command = ["tshark", "-o", "ip.check_checksum:TRUE", "-r", str(path), "-T", "fields", *fields]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    printed = (await child.communicate())[0].decode()
    assert [line.split("\t") for line in printed.splitlines()] == [["1", "INVITE", ""], ["1", "", "100"]]


async def test_what_is_not_kept(api: RunningApi) -> None:
    api.registry.ua.traced = ()
    (await api.ask("GET", TRACE)).check_problem(404, "trace_not_found")
    api.registry.ua.traced = None
    answered = await api.ask("GET", TRACE)
    assert "sip.trace_messages is 0" in answered.json["detail"]
    (await api.ask("GET", "/v1/calls/nobody/trace")).check_problem(404, "call_not_found")
    (await api.ask("GET", f"{TRACE}?format=xml")).check_problem(422, "unprocessable")


async def test_the_command(api: RunningApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run(*arguments: str) -> str:
        server = f"127.0.0.1:{api.port}"
        assert await asyncio.to_thread(cli.main, ["trace", "alice", "--server", server, *arguments]) == 0
        return capsys.readouterr().out

    assert await run() == (await api.ask("GET", TRACE)).raw.decode()
    assert await run("--full") == (await api.ask("GET", f"{TRACE}?format=text")).raw.decode()
    path = tmp_path / "call.pcap"
    assert (await run("--pcap", str(path))).startswith(f"{path}: ")
    assert path.read_bytes() == (await api.ask("GET", f"{TRACE}?format=pcap")).raw
