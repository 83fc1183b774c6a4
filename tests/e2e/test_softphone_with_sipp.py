"""The softphone against SIPp as the answering side: what it hears, reports and sends."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import pytest

from cc_tts.media import g711
from lab import audio_match
from lab.children import Child
from lab.peers import Sipp
from lab.ports import HOST, free_ports
from lab.softphone import SoftphoneProcess
from lab.waiting import PATIENCE_S
from tests.e2e.quiet import until_quiet
from tests.e2e.signals import through_ulaw, voice_like
from tests.support.alaw import alaw_encode

pytestmark = pytest.mark.e2e

SPEECH = voice_like(2.0, seed=1)


def audio_file(folder: Path, *, codec: str = "pcmu") -> Path:
    path = folder / f"speech.{codec}"
    encode = g711.ulaw_encode if codec == "pcmu" else alaw_encode
    path.write_bytes(encode(SPEECH.astype("<i2").tobytes()))
    return path


@pytest.mark.parametrize(("codec", "payload_type"), [("pcmu", 0), ("pcma", 8)])
async def test_recording_is_bit_exact_and_figures_are_right(
    phone: SoftphoneProcess, tmp_path: Path, codec: str, payload_type: int
) -> None:
    peer = await Sipp.answer(
        "uas_play", folder=tmp_path, audio=audio_file(tmp_path, codec=codec), payload_type=payload_type
    )
    record = tmp_path / "heard.wav"
    dialing = await phone.dial(f"sip:bot@{HOST}:{peer.port}", codec=codec, record=record)
    ringing = await phone.wait_event("ringing")
    answered = await phone.wait_event("answered")
    start = await phone.wait_event("speech_start")
    end = await until_quiet(phone)
    report = await phone.hangup()
    await peer.passed()

    assert dialing["at_ns"] < ringing["at_ns"] < answered["at_ns"] < start["at_ns"] < end["at_ns"]
    assert answered["sip_call_id"] == report["sip_call_id"] == dialing["sip_call_id"]
    assert report["sip_call_id"] in peer.messages
    heard, rate_hz = audio_match.read_wav(record)
    match = audio_match.find(SPEECH, heard)
    assert rate_hz == 8000
    assert match.corr > 0.999
    assert match.overlap_ms == 2000
    assert match.offset_ms == 0
    if codec == "pcmu":
        assert (heard[: len(SPEECH)] == through_ulaw(SPEECH)).all()
    assert audio_match.find_gaps(SPEECH, heard) == []
    assert audio_match.find_clicks(SPEECH, heard) == []
    rtp = report["rtp"]
    assert (rtp["packets"], rtp["lost"], rtp["duplicates"], rtp["reordered"], rtp["ssrc_changes"]) == (100, 0, 0, 0, 0)
    assert rtp["payload_types"] == {str(payload_type): 100}
    assert rtp["gap_ms"]["count"] == 99
    assert 0 < rtp["gap_ms"]["p50"] <= rtp["gap_ms"]["p95"] <= rtp["gap_ms"]["max"]
    assert report["talkspurts"][0]["start_at_ns"] == start["at_ns"]
    assert 0 < report["answer_to_first_rtp_ms"] <= report["answer_to_first_speech_ms"]
    assert report["ringing_ms"] < report["answered_ms"]
    assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "us")


def udp_ports_of(pid: int) -> set[int]:
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(str(link.readlink()))
    inodes = {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:[")}
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[9] in inodes}


async def test_pjmedia_opens_no_socket_of_its_own(phone: SoftphoneProcess, tmp_path: Path) -> None:
    """All RTP is ours: a second sender would spoil what the far side hears, a second receiver our figures."""
    peer = await Sipp.answer("uas_play", folder=tmp_path, audio=audio_file(tmp_path))
    before = udp_ports_of(phone.pid)
    dialing = await phone.dial(f"sip:bot@{HOST}:{peer.port}")
    await phone.wait_event("speech_start")
    during = udp_ports_of(phone.pid)
    await phone.hangup()
    await peer.passed()
    assert len(before) == 1
    assert during - before == {dialing["rtp_port"], dialing["rtp_port"] + 1}, "RTP and RTCP"
    assert udp_ports_of(phone.pid) == before


async def test_far_side_hangs_up(phone: SoftphoneProcess, tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_hangup", folder=tmp_path, audio=audio_file(tmp_path), pause_ms=500)
    await phone.dial(f"sip:bot@{HOST}:{peer.port}")
    report = await phone.report()
    await peer.passed()
    assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")


async def test_refusal_carries_code_and_retry_after(phone: SoftphoneProcess, tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_refuse", folder=tmp_path)
    await phone.dial(f"sip:bot@{HOST}:{peer.port}")
    report = await phone.report()
    await peer.passed()
    ending = report["ending"]
    assert (ending["result"], ending["sip_code"], ending["retry_after_s"]) == ("refused", 503, 7)
    assert report["trying_ms"] is not None


async def test_cancel_while_ringing(phone: SoftphoneProcess, tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_ring", folder=tmp_path)
    await phone.dial(f"sip:bot@{HOST}:{peer.port}")
    await phone.wait_event("ringing")
    report = await phone.hangup()
    await peer.passed()
    assert (report["ending"]["result"], report["ending"]["sip_code"]) == ("cancelled", 487)


async def test_no_answer_within_the_timeout(phone: SoftphoneProcess, tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_ring", folder=tmp_path)
    await phone.dial(f"sip:bot@{HOST}:{peer.port}", timeout_s=3)
    report = await phone.report()
    await peer.passed()
    assert report["ending"]["result"] == "no_answer"


async def test_hold_stops_our_packets_and_resume_starts_them(phone: SoftphoneProcess, tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_hold", folder=tmp_path, audio=audio_file(tmp_path))
    await phone.dial(f"sip:bot@{HOST}:{peer.port}")
    await phone.wait_event("answered")
    assert (await phone.hold())["by"] == "us"
    await phone.unhold()
    report = await phone.hangup()
    await peer.passed()
    versions = [line.split()[2] for line in peer.messages.splitlines() if line.startswith("o=-")]
    assert versions == sorted(set(versions), key=int), "each offer raises the version of o= (RFC 3264 §8)"
    assert len(versions) == 3
    assert report["ending"]["result"] == "completed"


async def test_keys_go_out_at_their_instants(phone: SoftphoneProcess, tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_play", folder=tmp_path, audio=audio_file(tmp_path))
    await phone.dial(f"sip:bot@{HOST}:{peer.port}", dtmf="1@200ms,#@0.6s")
    answered = await phone.wait_event("answered")
    first = await phone.wait_event("dtmf_sent")
    second = await phone.wait_event("dtmf_sent")
    third = await phone.dtmf("9")
    report = await phone.hangup()
    await peer.passed()
    assert [event["digit"] for event in (first, second, third)] == ["1", "#", "9"]
    assert first["at_ns"] - answered["at_ns"] >= 200_000_000
    assert second["at_ns"] - answered["at_ns"] >= 600_000_000
    assert [key["digit"] for key in report["dtmf_sent"]] == ["1", "#", "9"]


async def test_four_calls_at_once_and_no_fifth(phone: SoftphoneProcess, tmp_path: Path) -> None:
    audio = audio_file(tmp_path)
    peers = [await Sipp.answer("uas_play", folder=tmp_path, audio=audio) for _ in range(4)]
    for number, peer in enumerate(peers):
        await phone.dial(f"sip:bot@{HOST}:{peer.port}", call=str(number), record=tmp_path / f"{number}.wav")
    await phone.send({"cmd": "dial", "uri": f"sip:bot@{HOST}:{peers[0].port}", "call": "5"})
    refused = await phone.wait_event("error")
    assert "4 calls at a time" in refused["detail"]
    for number in range(4):
        await phone.wait_event("speech_start", call=str(number))
        await until_quiet(phone, call=str(number))
    for number in range(4):
        report = await phone.hangup(call=str(number))
        assert (report["rtp"]["packets"], report["rtp"]["lost"]) == (100, 0)
        heard, _ = audio_match.read_wav(tmp_path / f"{number}.wav")
        assert audio_match.find(SPEECH, heard).corr > 0.999
    for peer in peers:
        await peer.passed()


async def run_command_line(*arguments: str, log_path: Path) -> Child:
    return await Child.start([sys.executable, "-m", "cc_tts.softphone", *arguments], log_path=log_path)


async def test_command_line_prints_one_json_document(tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_play", folder=tmp_path, audio=audio_file(tmp_path))
    child = await run_command_line(
        f"sip:bot@{HOST}:{peer.port}", "--json", "--duration", "1", "--header", "X-Foo: bar", log_path=tmp_path / "out"
    )
    assert await child.wait() == 0
    await peer.passed()
    report = json.loads(child.log)
    assert report["ending"]["by"] == "us"
    assert report["talk_ms"] >= 1000
    assert "X-Foo: bar" in peer.messages


async def test_command_line_prints_a_table(tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_hangup", folder=tmp_path, audio=audio_file(tmp_path), pause_ms=300)
    child = await run_command_line(f"sip:bot@{HOST}:{peer.port}", "--quiet", log_path=tmp_path / "out")
    assert await child.wait() == 0
    await peer.passed()
    assert "200 to first speech" in child.log
    assert "they hung up" in child.log


async def test_command_line_refused_is_status_1(tmp_path: Path) -> None:
    peer = await Sipp.answer("uas_refuse", folder=tmp_path)
    child = await run_command_line(f"sip:bot@{HOST}:{peer.port}", "--quiet", log_path=tmp_path / "out")
    assert await child.wait() == 1
    await peer.passed()
    assert "refused: 503 Service Unavailable" in child.log


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_command_line_nobody_there_is_status_2(tmp_path: Path, transport: str) -> None:
    child = await run_command_line(
        f"sip:bot@{HOST}:{free_ports()}", "--timeout", "1", "--transport", transport, log_path=tmp_path / "out"
    )
    assert await child.wait() == 2
    assert "unreachable" in child.log


async def test_command_line_ends_cleanly_every_time(tmp_path: Path) -> None:
    """pjsua2 is known for crashing on the way out: the exit status of many short calls tells."""
    runs = int(os.environ.get("CC_TTS_SOFTPHONE_RUNS", "2"))
    for number in range(runs):
        peer = await Sipp.answer("uas_play", folder=tmp_path, audio=audio_file(tmp_path))
        child = await run_command_line(
            f"sip:bot@{HOST}:{peer.port}", "--json", "--duration", "200ms", log_path=tmp_path / f"run{number}"
        )
        assert await child.wait() == 0, f"run {number}: {child.log}"
        await asyncio.wait_for(peer.passed(), PATIENCE_S)
