"""Asterisk 22 in front of one or two nodes, with the files of ``sip/peers/asterisk/`` and ``dialplans/asterisk/``.

The phone is our softphone, so each call is phone - Asterisk - node.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab import audio_match
from lab.asterisk import NODES, Asterisk
from lab.configured import of_kind, renew_speech
from lab.server_under_test import LONG_GREETING, EventLog, Server
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.asterisk_lab import (
    MOST,
    RECORDING_SLIP_MS,
    asterisk_for,
    heard_at_asterisk,
    node,
    numbering_plan,
    reference,
)
from tests.e2e.test_tutorials import PERSON, started

pytestmark = pytest.mark.e2e

BALANCE = "Your balance is 12 dollars."
THANKS = "Thank you for calling, and good bye."
BUSY = "All lines are busy, please hold; we are glad to help you."
HOLD_S = 2.0
EXIT_TIMEOUT_S = 20.0


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Server, Asterisk]]:
    """A node and Asterisk, for all tests of this module with one node."""
    folder = tmp_path_factory.mktemp("asterisk")
    async with node(folder, 1, cache__enabled="false") as server:
        server.share()
        async with asterisk_for(folder, server) as running:
            running.share()
            yield server, running


async def test_the_dialplan_speaks_and_goes_on_after_our_bye(
    first: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    async with first.events() as log:
        await phone.dial(pbx.uri("500"), record=tmp_path / "phone.wav")
        report = await phone.report()
        complete = await log.several("speak.complete", 2)
    assert [event["data"]["spoken_text"] for event in complete] == [BALANCE, THANKS]
    assert {event["data"]["completion_cause"] for event in complete} == {"normal"}
    legs = await pbx.several("UserEvent", 2, UserEvent="TtsLeg")
    assert [(leg["Node"], leg["Status"], leg["Cause"]) for leg in legs] == [("tts-1", "ANSWER", "16")] * 2
    calls = await first.calls()
    assert len({call["headers"]["X-Call-Ref"] for call in calls}) == 1, "both legs are of one call"
    assert (report["ending"]["result"], report["ending"]["by"]) == ("completed", "them")
    await heard_at_asterisk(pbx, "500-tts-1", BALANCE, tmp_path)
    heard, _ = audio_match.read_wav(tmp_path / "phone.wav")
    recorded = pbx.recordings("500-tts-1")
    shares = [audio_match.share_heard(each, heard, slip_ms=RECORDING_SLIP_MS) for each in recorded]
    assert min(shares) >= MOST, "the phone heard what Asterisk did"
    balance, thanks = [audio_match.find(each, heard) for each in recorded]
    assert thanks.offset_ms > balance.offset_ms + 1000, "one after the other"


async def test_an_announcement(first: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with first.events() as log:
        await phone.dial(pbx.uri("501"))
        await phone.report()
        complete = await log.wait("speak.complete")
    assert len(of_kind(log.events, "speak.complete")) == 1
    assert complete["data"]["completion_cause"] == "normal"
    assert (await first.only_call())["callee"].startswith(f"<sip:annc@{NODES[0]}")
    match = await heard_at_asterisk(pbx, "501-tts-1", BUSY, tmp_path)
    assert match.duration_ms > 2 * match.overlap_ms, "twice"


async def test_the_place_in_the_queue_is_whispered_to_the_caller(
    first: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    text = "You are number 1 in the queue."
    async with first.events() as log:
        await phone.dial(pbx.uri("504"), record=tmp_path / "phone.wav")
        await pbx.event("QueueCallerJoin", Queue="support", Position="1")
        complete = await log.wait("speak.complete")
        leg = await pbx.event("UserEvent", UserEvent="TtsLeg")
        waiting = await pbx.command("queue show support")
        await asyncio.sleep(0.5)  # the queue goes on
        report = await phone.hangup()
    assert complete["data"]["spoken_text"] == text
    assert leg["Status"] == "ANSWER"
    assert "PJSIP/1001-" in waiting, "the caller is still in the queue"
    assert report["ending"]["by"] == "us"
    heard, _ = audio_match.read_wav(tmp_path / "phone.wav")
    # Asterisk's mixer between keeps its own time: if it finds no frame it puts in silence, and goes on with what comes
    share = audio_match.share_heard(await reference(text, tmp_path), heard, slip_ms=RECORDING_SLIP_MS, piece_ms=50)
    assert share >= MOST


async def long_speech(
    first: Server, pbx: Asterisk, phone: SoftphoneProcess, log: EventLog, *, record: Path | str = ""
) -> None:
    """A call to 503 on which an application says something long."""
    await phone.dial(pbx.uri("503"), record=record)
    established = await log.wait("call.established")
    status, body = await first.post(f"/v1/calls/{established['call_id']}/speak", {"text": LONG_GREETING})
    assert status == 201, body
    await log.wait("speak.started")


async def test_a_key_that_asterisk_sends_interrupts(first: Server, pbx: Asterisk, phone: SoftphoneProcess) -> None:
    async with first.events() as log:
        await long_speech(first, pbx, phone, log)
        await asyncio.sleep(0.5)  # some words
        await phone.dtmf("5")
        key = await log.wait("call.dtmf", digit="5")
        complete = await log.wait("speak.complete")
        assert key["data"]["method"] == "rfc4733"
        assert complete["data"]["completion_cause"] == "barge_in"
        assert 0 < len(complete["data"]["spoken_text"]) < len(LONG_GREETING)
        assert len(of_kind(log.events, "call.dtmf")) == 1
        assert (await first.only_call())["state"] == "established"
        await phone.hangup()
        await first.until_terminated()


async def test_an_ivr_behind_asterisk_collects_the_callers_keys(
    first: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    ivr = await started("examples/ivr.py", first, tmp_path, PERSON)
    async with first.events() as log:
        await phone.dial(pbx.uri("503"))
        await log.wait("speak.started")
        await phone.dtmf("14711")
        _, collected = await log.several("call.gather_complete", 2)
        await phone.report()
        *_, balance = await log.several("speak.complete", 3)
    assert (collected["data"]["digits"], collected["data"]["valid"]) == ("4711", True)
    assert balance["data"]["spoken_text"] == "Your balance is $12.50. Thank you, and goodbye."
    await until(lambda: "prompt_finished" in ivr.log)


async def test_hold_pauses_the_prompt(first: Server, pbx: Asterisk, phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with first.events() as log:
        await long_speech(first, pbx, phone, log, record=tmp_path / "phone.wav")
        await asyncio.sleep(1.5)  # some speech before the hold
        await phone.hold()
        await log.wait("call.held")
        call = await first.only_call()
        held_at_ms = await first.until_played_stands_still(call)
        await asyncio.sleep(HOLD_S)
        assert (await first.utterance(call))["played_ms"] == held_at_ms, "the prompt's clock stands still"
        await phone.unhold()
        await log.wait("call.unheld")
        await first.until_played(call, held_at_ms + 2500)
        await phone.hangup()
        await first.until_terminated()
    wanted = await reference(LONG_GREETING, tmp_path)
    middle = round(held_at_ms * 8)
    inserted_ms = []
    for heard in (pbx.recordings("503-tts-1")[0], audio_match.read_wav(tmp_path / "phone.wav")[0]):
        parts = (wanted[: middle - 4000], wanted[middle + 4000 : middle + 12_000])
        assert min(audio_match.share_heard(part, heard, slip_ms=RECORDING_SLIP_MS) for part in parts) >= MOST
        before, after = [audio_match.find(part, heard) for part in parts]
        inserted_ms.append(after.offset_ms - before.offset_ms - (middle + 4000) / 8)
    # frames that are on their way when the direction changes are lost to Asterisk
    assert inserted_ms[0] == pytest.approx(0, abs=1.5 * RECORDING_SLIP_MS), (
        "nothing comes while on hold, and then not a word is missing"
    )
    assert inserted_ms[1] >= HOLD_S * 1000 - RECORDING_SLIP_MS, "the phone's recording counts the time on hold"


async def test_a_node_without_a_line_and_one_that_is_drained_give_way_to_the_other(
    tmp_path: Path, phone: SoftphoneProcess
) -> None:
    async with (
        node(tmp_path, 1, sip__max_calls="1", calls__drain_timeout_s="30") as first,
        node(tmp_path, 2, cache__enabled="false") as second,
        asterisk_for(tmp_path, first, second) as pbx,
    ):
        await phone.dial(pbx.uri("503"), call="full")
        await first.until_call(lambda call: call["state"] == "established")
        await phone.dial(pbx.uri("500"), call="2")
        report = await phone.report(call="2")
        assert report["ending"]["result"] == "completed"
        legs = await pbx.several("UserEvent", 4, UserEvent="TtsLeg")
        down = {"Event": "ContactStatus", "AOR": "tts-1", "ContactStatus": "Unreachable"}
        for refused, spoken in zip(legs[::2], legs[1::2], strict=True):
            # its own OPTIONS, every 15 s, may come between the two calls
            sooner = pbx.blocks[: pbx.blocks.index(refused)]
            is_known = any(down.items() <= each.items() for each in sooner)
            assert (refused["Node"], refused["Status"]) == ("tts-1", "CHANUNAVAIL" if is_known else "CONGESTION")
            assert (spoken["Node"], spoken["Status"]) == ("tts-2", "ANSWER")
        await heard_at_asterisk(pbx, "500-tts-2", BALANCE, tmp_path)
        await phone.hangup(call="full")

        await first.until_all_terminated()
        await pbx.until_contact(1, "Avail")
        await renew_speech(second)
        await pbx.begin()
        await phone.dial(pbx.uri("503"), call="last")
        last = await first.until_call(lambda call: call["state"] == "established")
        assert (await first.post("/v1/admin/drain", {}))[0] == 202
        await pbx.until_contact(1, "Unavail")
        await pbx.event("ContactStatus", AOR="tts-1", ContactStatus="Unreachable")
        await pbx.until_contact(2, "Avail")
        await phone.dial(pbx.uri("502"), call="3")
        report = await phone.report(call="3")
        assert report["ending"]["result"] == "completed"
        legs = await pbx.several("UserEvent", 2, UserEvent="TtsLeg")
        assert [(leg["Node"], leg["Status"]) for leg in legs] == [("tts-1", "CHANUNAVAIL"), ("tts-2", "ANSWER")]
        await heard_at_asterisk(pbx, "502-tts-2", numbering_plan()["routes__closed__greeting"], tmp_path)
        assert (await first.read(f"/v1/calls/{last['id']}"))["state"] == "established", "the call in progress goes on"
        await phone.hangup(call="last")
        assert await first.ended(EXIT_TIMEOUT_S) == 0


async def test_a_call_that_we_place(first: Server, pbx: Asterisk, tmp_path: Path) -> None:
    async with first.events() as log:
        body = {"to": pbx.uri("1600"), "speak": {"text": BALANCE, "then": "hangup"}}
        assert (await first.post("/v1/calls", body))[0] == 201
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "normal"
        await first.until_terminated()
        await pbx.event("Hangup", Exten="1600")
        await heard_at_asterisk(pbx, "1600", BALANCE, tmp_path)
        assert (await first.post("/v1/calls", {"to": pbx.uri("00441234567")}))[0] == 201
        refused = await log.wait(
            "call.terminated", ending={"result": "rejected", "reason": "not_found", "sip_code": 404}
        )
        assert refused["call_id"] != complete["call_id"], "a number outside [from-tts]"
