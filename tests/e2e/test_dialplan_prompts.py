"""Prompts that come with the INVITE, keys, hold: what a dialplan and a caller can do."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from lab import audio_match
from lab.configured import Lend
from lab.raw_sip import invite_once
from lab.server_under_test import LONG_GREETING, Server, engine_pcm
from lab.softphone import SoftphoneProcess
from tests.e2e.signals import through_ulaw

pytestmark = pytest.mark.e2e

HOLD_S = 1.5


@pytest_asyncio.fixture(loop_scope="session")
async def small(lend: Lend) -> AsyncIterator[Server]:
    """A server that takes at most 60 characters."""
    async with lend(tts__max_text_chars="60") as server:
        yield server


async def test_chinese_in_a_header(server: Server, phone: SoftphoneProcess) -> None:
    text = "您好，欢迎致电。"
    async with server.events() as log:
        await phone.dial(server.uri("silent"), headers={"X-TTS-Text": quote(text), "X-TTS-Then": "hangup"})
        complete = await log.wait("speak.complete")
        report = await phone.report()
    assert complete["data"]["spoken_text"] == text
    assert complete["data"]["completion_cause"] == "normal"
    assert report["talkspurts"]
    assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
    call = await server.until_terminated()
    assert call["ending"]["reason"] == "prompt_finished"
    assert (await server.utterance(call))["voice"] == "cmn"


SSML = (
    '<speak>One two <mark name="middle"/>three.<break time="700ms"/><mark name="after"/>'
    '<voice name="de">Vier.</voice><foo>Five.</foo></speak>'
)


async def test_ssml_in_a_header_with_its_marks_and_words(server: Server, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        await phone.dial(server.uri("silent"), headers={"X-TTS-SSML": quote(SSML), "X-TTS-Then": "hangup"})
        complete = await log.wait("speak.complete")
        marks = [event["data"] for event in log.events if event["type"] == "speak.mark"]
        report = await phone.report()
    assert complete["data"]["spoken_text"] == "One two three. Vier.Five."
    assert [mark["name"] for mark in marks] == ["middle", "after"]
    utterance_id = complete["data"]["utterance_id"]
    status, utterance = await server.get(f"/v1/utterances/{utterance_id}?words=true")
    words = {word["text"]: word for word in utterance["words"]}
    assert (status, utterance["voice"], list(words)[:3]) == (200, "en-us", ["One", "two", "three."])
    assert words["three."]["source"] == "engine"
    assert marks[0]["played_ms"] == pytest.approx(words["three."]["start_ms"], abs=1.0)
    assert marks[1]["played_ms"] == pytest.approx(words["three."]["end_ms"] + 700, abs=20.0)
    pauses = [later["start_ms"] - earlier["end_ms"] for earlier, later in itertools.pairwise(report["talkspurts"])]
    assert any(pause == pytest.approx(700, abs=60) for pause in pauses)


async def test_ssml_by_rest_with_a_warning(server: Server, phone: SoftphoneProcess) -> None:
    async with server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        status, accepted = await server.post(f"/v1/calls/{call_id}/speak", {"ssml": SSML})
        await log.wait("speak.complete")
    assert status == 201
    assert [warning["line"] for warning in accepted["warnings"]] == [1]
    assert "<foo>" in accepted["warnings"][0]["detail"]
    status, refused = await server.post(f"/v1/calls/{call_id}/speak", {"ssml": "<speak>&x;</speak>"})
    assert (status, refused["code"]) == (422, "ssml_malformed")


REFUSED = (
    ("silent", "X-TTS-Text: " + quote("好" * 61), 413),
    ("silent", "X-TTS-SSML: " + quote("<speak>hi</spaek>"), 400),
    ("silent", "X-TTS-Text: one\r\nX-TTS-Text: two", 400),
    ("annc;play=prompt:welcome", "", 404),
    ("annc;play=https://example.com/x.wav", "", 403),
    ("nobody", "", 404),
)


async def test_what_cannot_be_said_is_refused_with_its_own_status(small: Server) -> None:
    got = []
    for user, headers, _ in REFUSED:
        answer = await invite_once(user, small.sip_port, headers=f"{headers}\r\n".encode() if headers else b"")
        got.append((user, headers, answer.status))
        await asyncio.sleep(0.03)  # not faster than calls may come
    assert got == list(REFUSED)


async def test_an_announcement_is_repeated_after_a_delay_and_hung_up(server: Server, phone: SoftphoneProcess) -> None:
    uri = server.uri("annc") + ";play=tts:One%20moment.;repeat=2;delay=1000"
    async with server.events() as log:
        await phone.dial(uri)
        complete = await log.wait("speak.complete")
        report = await phone.report()
    assert complete["data"]["completion_cause"] == "normal"
    assert complete["data"]["played_ms"] > 1000
    spurts = report["talkspurts"]
    pauses = [later["start_ms"] - earlier["end_ms"] for earlier, later in itertools.pairwise(spurts)]
    assert max(pauses) >= 600, "by arrival, and no pause inside the text is as long"
    assert spurts[0]["start_ms"] >= 0, "it begins after the ACK"
    assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")


async def test_nothing_is_lost_while_the_caller_holds(
    fresh_server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    reference = through_ulaw(await engine_pcm(LONG_GREETING, tmp_path))
    record = tmp_path / "heard.wav"
    async with fresh_server.events() as log:
        await phone.dial(fresh_server.uri("long"), record=record)
        await phone.wait_event("speech_start")
        await asyncio.sleep(1.5)  # some speech before the hold
        await phone.hold()
        await log.wait("call.held")
        call = await fresh_server.only_call()
        held_at_ms = await fresh_server.until_played_stands_still(call)
        await asyncio.sleep(HOLD_S)
        assert (await fresh_server.utterance(call))["played_ms"] == held_at_ms, "the prompt's clock stands still"
        await phone.unhold()
        await log.wait("call.unheld")
        await fresh_server.until_played(call, held_at_ms + 2500)
        await phone.hangup()
    heard, _ = audio_match.read_wav(record)
    middle = round(held_at_ms * 8)
    before = reference[: middle - 4000]
    after = reference[middle + 4000 : middle + 12_000]
    first, second = audio_match.find(before, heard), audio_match.find(after, heard)
    assert min(first.corr, second.corr) > 0.99
    inserted_ms = second.offset_ms - first.offset_ms - (middle + 4000) / 8
    silent_ms = max(span.length_ms for span in audio_match.silences(heard, min_ms=HOLD_S * 500))
    assert inserted_ms >= HOLD_S * 500
    # the pause of a sentence beside the hold is silent, too
    assert inserted_ms == pytest.approx(silent_ms, abs=500), "as much silence as time on hold, and not a word less"


async def test_speech_over_tcp_signalling(server: Server, tmp_path: Path) -> None:
    async with await SoftphoneProcess.start(transport="tcp", log_path=tmp_path / "tcp.log") as phone:
        async with server.events() as log:
            await phone.dial(server.uri("greet") + ";transport=tcp")
            await log.wait("speak.complete", completion_cause="normal")
        report = await phone.hangup()
    assert report["talkspurts"]
    assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "us")
