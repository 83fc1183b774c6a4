"""The scripts of the tutorials against a server and the softphone."""

import asyncio
import json
import sys
from ast import literal_eval
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from standardwebhooks import Webhook

from cc_tts.media.g711 import ulaw_encode
from lab import needs
from lab.caller_audio import pcm_of, said, silence, sound
from lab.children import Child
from lab.configured import Lend, of_kind
from lab.peers import Sipp
from lab.ports import HOST, free_ports
from lab.raw_sip import SDP, RawCaller
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.architecture.state_tables import ROOT
from tests.e2e.test_answering_machines import GREETING, octets
from tests.support.example_campaign import run_campaign
from tests.support.webhook_receiver import secret

pytestmark = pytest.mark.e2e

PERSON = f"sip:1001@{HOST}:9"


async def started(script: str, server: Server, folder: Path, *arguments: str) -> Child:
    argv = [sys.executable, str(ROOT / script), server.url, *arguments]
    child = await Child.start(argv, log_path=folder / "script.log")
    await until(lambda: "ready" in child.log)
    return child


async def test_the_ivr_records_the_call_speaks_the_balance_and_hangs_up(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    ivr = await started("examples/ivr.py", server, tmp_path, PERSON)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started")
        await phone.dtmf("1")
        await log.several("speak.started", 2)
        await phone.dtmf("4711")
        ended = await log.wait("call.terminated")
        recorded = await log.wait("call.recording", state="saved")
        menu, question, balance = of_kind(log.events, "speak.complete")
    assert menu["data"]["completion_cause"] == question["data"]["completion_cause"] == "barge_in"
    assert balance["data"]["spoken_text"] == "Your balance is $12.50. Thank you, and goodbye."
    assert ended["data"]["ending"]["reason"] == "prompt_finished"
    await until(lambda: "prompt_finished" in ivr.log)
    await until(lambda: f"recorded as {recorded['data']['recording_id']}" in ivr.log)
    status, file = await server.get_bytes(f"/v1/recordings/{recorded['data']['recording_id']}/audio")
    assert (status, file[:4]) == (200, b"RIFF")


async def test_the_ivr_asks_again_and_survives_a_hangup(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    ivr = await started("examples/ivr.py", server, tmp_path, PERSON)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started")
        await phone.dtmf("7")
        await log.several("speak.started", 2)
        await phone.hangup()
        assert (await log.wait("call.gather_complete"))["data"]["result"] == "call_ended"
        await phone.dial(server.uri("silent"))
        await log.several("speak.started", 3)
        await phone.dtmf("19999")
        await until(lambda: "prompt_finished" in ivr.log)
    assert of_kind(log.events, "speak.complete")[-1]["data"]["spoken_text"].startswith(
        "Your balance is not known to us."
    )


@pytest.mark.parametrize(("answer", "is_free"), [("202 Accepted", True), ("603 Decline", False)])
async def test_the_ivr_hands_the_caller_over_to_a_person(
    server: Server,
    tmp_path: Path,
    answer: str,
    is_free: bool,
) -> None:
    ivr = await started("examples/ivr.py", server, tmp_path, PERSON)
    async with server.events() as log, RawCaller("silent", server.sip_port) as caller:
        await caller.establish()
        await log.wait("speak.started")
        caller.send("INFO", body="Signal=2\r\nDuration=160\r\n", content_type="application/dtmf-relay")
        assert (await caller.final()).status == 200
        held = await caller.request("INVITE", body=SDP.format(port=9, formats="0 101"))
        assert "a=sendonly" in held
        assert f"Refer-To: <{PERSON}>" in await caller.request("REFER", status=answer)
        if is_free:
            state = b"Event: refer\r\nSubscription-State: terminated;reason=noresource\r\n"
            caller.send("NOTIFY", headers=state, body="SIP/2.0 200 OK\r\n", content_type="message/sipfrag;version=2.0")
            assert (await caller.final()).status == 200
            assert "X-TTS-Cause: transferred" in await caller.request("BYE")
        else:
            assert "a=sendrecv" in await caller.request("INVITE", body=SDP.format(port=9, formats="0 101"))
            await caller.request("BYE")
        ended = await log.wait("call.terminated")
        await until(lambda: ended["data"]["ending"]["reason"] in ivr.log)
    said = [event["data"]["spoken_text"] for event in of_kind(log.events, "speak.complete")]
    assert said[1:] == ["One moment, please.", *([] if is_free else ["Please call again later. Goodbye."])]


async def test_the_receiver_of_webhooks_answers_a_call_and_says_what_was_pressed(
    lend: Lend, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    port, key = free_ports(), secret()
    receiver = await Child.start(
        [sys.executable, str(ROOT / "examples/webhook_receiver.py"), "http://127.0.0.1:9", str(port)],
        log_path=tmp_path / "receiver.log",
        env={"WEBHOOK_SECRET": key},
    )
    await until(lambda: "Running on" in receiver.log)
    await refuses_strangers(f"http://{HOST}:{port}/events", key)
    await receiver.end()
    endpoint = f'[{{url = "http://{HOST}:{port}/events", secret = "{key}"}}]'
    settings = {"webhooks__endpoints": endpoint, "routes__table__answer": "manual"}
    async with lend(**settings) as server, server.events() as log:
        receiver = await Child.start(
            [sys.executable, str(ROOT / "examples/webhook_receiver.py"), server.url, str(port)],
            log_path=tmp_path / "receiver2.log",
            env={"WEBHOOK_SECRET": key},
        )
        await until(lambda: "Running on" in receiver.log)
        await phone.dial(server.uri("table"))
        await log.several("speak.started", 2)
        await phone.dtmf("4")
        await log.wait("call.terminated")
        await until(lambda: "prompt_finished" in receiver.log)
    said = [event["data"]["spoken_text"] for event in of_kind(log.events, "speak.complete")]
    assert (said[0], said[-1]) == ("Welcome to the restaurant.", "A table for 4. See you soon.")


async def refuses_strangers(url: str, key: str) -> None:
    """What is not signed is refused, and what comes twice is answered twice and done once."""
    event, now = {"id": "evt_1", "type": "call.incoming", "call_id": "c", "data": {}}, datetime.now(UTC)
    body = json.dumps(event)
    signed = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": f"v1,zzz {Webhook(key).sign('evt_1', now, body)}",
    }
    old = now - timedelta(minutes=6)
    stale = signed | {
        "webhook-timestamp": str(int(old.timestamp())),
        "webhook-signature": Webhook(key).sign("evt_1", old, body),
    }
    async with aiohttp.ClientSession() as http:
        for headers in ({}, signed | {"webhook-id": "evt_2"}, stale):
            async with http.post(url, data=body, headers=headers) as response:
                assert response.status == 401
        for _ in range(2):
            async with http.post(url, data=body, headers=signed) as response:
                assert (response.status, (await response.json())["answer"]) == (200, True)


async def test_the_voice_agent_hears_and_remembers_what_was_heard(
    lend: Lend, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    needs.voice_model()
    question = tmp_path / "question.ulaw"
    question.write_bytes(ulaw_encode(pcm_of(said())))
    async with lend(routes__silent__barge_in_speech="true") as server, server.events() as log:
        agent = await started("examples/agent.py", server, tmp_path)
        for call in ("1", "2"):  # two callers at once
            await phone.dial(server.uri("silent"), call=call)
        await log.several("speak.started", 2)
        await asyncio.sleep(1.0)  # into the second sentence
        await phone.say(question, call="1")
        await log.wait("speak.complete", interrupted_by="speech")
        await log.wait("call.speech_stopped")
        await log.several("speak.complete", 3)
        for call in ("1", "2"):
            await phone.hangup(call=call)
        await log.several("call.terminated", 2)
        await until(lambda: agent.log.count("('assistant'") == 3)
    greeting, heard, answered, other = (literal_eval(line) for line in agent.log.splitlines()[1:])
    assert greeting[0] == "assistant"
    assert greeting[1].startswith("Good morning.")
    assert not greeting[1].rstrip().endswith("ears.")
    assert heard == ("user", f"{round(len(said()) / 8000 + 0.4)} seconds of speech")
    assert answered == ("assistant", f"I heard {heard[1]}. What else? ")
    assert other == ("assistant", "Good morning. How can I help you? I am all ears. ")


async def test_a_campaign_reminds_everybody(server: Server, tmp_path: Path) -> None:
    """As its tutorial does, by the wheel with fewer lines than people."""
    needs.voice_model()
    keys = await Sipp.answer("uas_press_key", folder=tmp_path, calls=6, pause_ms=3500, limit_s=120)
    refuses = await Sipp.answer("uas_refuse", folder=tmp_path, calls=3, limit_s=120)
    people = "".join(
        f"sip:p{n}@{HOST}:{port},Ann,May 3\n" for n, port in enumerate([keys.port] * 6 + [refuses.port] * 3)
    )
    results = await run_campaign(server.url, people, tmp_path)
    await keys.passed()
    await refuses.passed()
    assert Counter(result for *_, result in results) == {"confirmed": 6, "overload": 3}


async def test_a_campaign_leaves_its_message_after_the_beep_of_a_machine(server: Server, tmp_path: Path) -> None:
    needs.voice_model()
    greeting = (silence(500), said(GREETING), silence(700), sound("!850/300", 300))
    peer = await Sipp.answer("uas_play", folder=tmp_path, audio=octets(tmp_path, *greeting))
    async with server.events() as log:
        results = await run_campaign(server.url, f"sip:ann@{HOST}:{peer.port},Ann,May 3\n", tmp_path)
    assert results == [[f"sip:ann@{HOST}:{peer.port}", "Ann", "May 3", "message_left"]]
    (message,) = of_kind(log.events, "speak.complete")
    assert message["data"]["spoken_text"] == "Hello Ann. You have an appointment on May 3. Please call us. Goodbye."
    ended = [event["type"] for event in log.events].index("call.machine_greeting_ended")
    assert ended < [event["type"] for event in log.events].index("speak.started")
