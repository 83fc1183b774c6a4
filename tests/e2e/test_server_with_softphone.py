"""The server against our own softphone: figures of the wire."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from lab import audio_match
from lab.children import Child
from lab.ports import free_ports
from lab.server_under_test import GREETING, Server, engine_pcm
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.quiet import until_quiet
from tests.e2e.signals import through_ulaw

pytestmark = [pytest.mark.e2e, pytest.mark.both_builds]


async def test_greeting_arrives_whole(fresh_server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    reference = through_ulaw(await engine_pcm(GREETING, tmp_path))
    record = tmp_path / "heard.wav"
    async with fresh_server.events() as log:
        await phone.dial(fresh_server.uri("greet"), record=record)
        await phone.wait_event("speech_start")
        await log.wait("speak.complete")
    await until_quiet(phone)
    report = await phone.hangup()
    heard, _ = audio_match.read_wav(record)
    match = audio_match.find(reference, heard)
    assert match.corr > 0.999
    assert match.overlap_ms == len(reference) / 8
    assert audio_match.find_gaps(reference, heard) == []
    assert audio_match.find_clicks(reference, heard) == []
    rtp = report["rtp"]
    assert (rtp["lost"], rtp["duplicates"], rtp["reordered"], rtp["ssrc_changes"]) == (0, 0, 0, 0)
    assert rtp["filled_ms"] == 0
    call = await fresh_server.until_terminated()
    assert call["sip_call_id"] == report["sip_call_id"]
    assert (await fresh_server.utterance(call))["underruns"] == 0


async def test_key_silences_the_line(server: Server, phone: SoftphoneProcess) -> None:
    await phone.dial(server.uri("long"))
    await phone.wait_event("speech_start")
    await asyncio.sleep(1.0)  # let it speak for a while
    key = await phone.dtmf("5")
    end = await until_quiet(phone)
    report = await phone.hangup()
    assert end["at_ns"] > key["at_ns"] - 300_000_000, "it spoke until then"
    assert report["talkspurts"][-1]["end_at_ns"] == end["at_ns"], "nothing more came"
    call = await server.until_terminated()
    assert (await server.utterance(call))["completion_cause"] == "barge_in"


async def test_hold_stops_the_servers_packets(server: Server, phone: SoftphoneProcess) -> None:
    await phone.dial(server.uri("long"))
    await phone.wait_event("speech_start")
    held = await phone.hold()
    await asyncio.sleep(4.0)  # the time on hold
    unheld = await phone.unhold()
    await asyncio.sleep(1.0)  # some speech after it
    report = await phone.hangup()
    hold_ms = (unheld["at_ns"] - held["at_ns"]) / 1e6
    assert hold_ms >= 4000
    assert report["rtp"]["packets"] < (report["talk_ms"] - hold_ms) / 20 + 100, "of 200 that hold kept back"
    assert report["talkspurts"][-1]["end_at_ns"] > unheld["at_ns"]


async def test_rest_prompt_is_measured_on_the_wire(server: Server, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cc_tts.cli", "call", server.uri("silent"), "--json", "--duration", "3"]
    argv += ["--speak", "Hello from the command line.", "--api", server.url]
    child = await Child.start(argv, log_path=tmp_path / "call.json")
    assert await child.wait(40) == 0, child.log
    speak = json.loads(child.log)["speak"]
    assert speak["http_status"] == 201
    assert speak["accepted_to_speech_ms"] is not None
    assert speak["utterance_id"]


VERBATIM = ("  \n Two  blanks,\ta tab\nand 12.50 €.\n ", "\u3000您好，2026 年 hello 世界。\n")


async def test_what_was_said_comes_back_as_it_was_sent(server: Server, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        for text in VERBATIM:
            said = await server.create(f"/v1/calls/{call_id}/speak", {"text": text})
            complete = await log.wait("speak.complete", utterance_id=said["id"])
            assert complete["data"]["spoken_text"] == text
        await phone.hangup()


@pytest.mark.parametrize("how", ["replace", "key"])
async def test_the_next_prompt_after_a_cut_is_timed_from_its_request(
    server: Server, phone: SoftphoneProcess, how: str
) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("long"), log)
        before = await log.wait("speak.started")
        if how == "key":
            await phone.dtmf("5")
            await log.wait("call.dtmf")
        body = {"text": "And now for something else.", "queue": "replace" if how == "replace" else "append"}
        said = await server.create(f"/v1/calls/{call_id}/speak", body)
        started = await log.wait("speak.started", utterance_id=said["id"])
        assert before["data"]["utterance_id"] != said["id"]
        assert started["data"]["time_to_first_audio_ms"] > 0
        await phone.hangup()


async def test_the_first_call_to_make_run_is_greeted(phone: SoftphoneProcess, tmp_path: Path) -> None:
    sip_port, http_port = free_ports(), free_ports()
    argv = [sys.executable, "-m", "cc_tts.cli", "serve", "--config", "configs/first_call.toml"]
    argv += ["--set", f"sip.port={sip_port}", "--set", f"http.port={http_port}"]
    server = await Child.start(argv, log_path=tmp_path / "run.log")
    await until(lambda: "serving" in server.log)
    await phone.dial(f"sip:hello@127.0.0.1:{sip_port}")
    await phone.wait_event("speech_start")
    await phone.hangup()
    assert await server.end() == 0
