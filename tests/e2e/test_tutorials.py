"""The scripts of the tutorials against a server and the softphone."""

import asyncio
import csv
import sys
from ast import literal_eval
from collections import Counter
from pathlib import Path

import pytest

from cc_tts.media.g711 import ulaw_encode
from cc_tts.ua import pjsua2_build
from lab import needs
from lab.caller_audio import pcm_of, said
from lab.children import Child
from lab.configured import of_kind, server_with, until
from lab.peers import Sipp
from lab.ports import HOST
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from tests.architecture.state_tables import ROOT

pytestmark = pytest.mark.e2e

START_TIMEOUT_S = 30.0


async def started(script: str, server: Server, folder: Path) -> Child:
    """A script of the tutorials, following the events of the server."""
    child = await Child.start([sys.executable, str(ROOT / script), server.url], log_path=folder / "script.log")
    await until(lambda: "ready" in child.log, START_TIMEOUT_S)
    return child


async def test_the_ivr_speaks_the_balance_and_hangs_up(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    ivr = await started("examples/ivr.py", server, tmp_path)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started", timeout_s=30)
        await phone.dtmf("4711")
        ended = await log.wait("call.terminated", timeout_s=30)
        question, balance = of_kind(log.events, "speak.complete")
    assert question["data"]["completion_cause"] == "barge_in"
    assert balance["data"]["spoken_text"] == "Your balance is $12.50. Thank you, and goodbye."
    assert ended["data"]["ending"]["reason"] == "prompt_finished"
    await until(lambda: "prompt_finished" in ivr.log, 5)


async def test_the_ivr_asks_again_and_survives_a_hangup(
    server: Server, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    ivr = await started("examples/ivr.py", server, tmp_path)
    async with server.events() as log:
        await phone.dial(server.uri("silent"))
        await log.wait("speak.started", timeout_s=30)
        await phone.dtmf("12#")
        await log.several("speak.started", 2, timeout_s=20)
        await phone.hangup()
        assert (await log.wait("call.gather_complete"))["data"]["result"] == "call_ended"
        await phone.dial(server.uri("silent"))
        await log.several("speak.started", 3, timeout_s=20)
        await phone.dtmf("9999")
        await until(lambda: "prompt_finished" in ivr.log, 30)
    assert of_kind(log.events, "speak.complete")[-1]["data"]["spoken_text"].startswith(
        "Your balance is not known to us."
    )


async def test_the_voice_agent_hears_and_remembers_what_was_heard(tmp_path: Path, phone: SoftphoneProcess) -> None:
    needs.voice_model()
    question = tmp_path / "question.ulaw"
    question.write_bytes(ulaw_encode(pcm_of(said())))
    async with server_with(tmp_path, routes__silent__barge_in_speech="true") as server, server.events() as log:
        agent = await started("examples/agent.py", server, tmp_path)
        for call in ("1", "2"):  # two callers at once
            await phone.dial(server.uri("silent"), call=call)
        await log.several("speak.started", 2, timeout_s=30)
        await asyncio.sleep(1.0)  # into the second sentence
        await phone.say(question, call="1")
        await log.wait("speak.complete", interrupted_by="speech")
        await log.wait("call.speech_stopped")
        await log.several("speak.complete", 3, timeout_s=30)
        for call in ("1", "2"):
            await phone.hangup(call=call)
        await log.several("call.terminated", 2)
        await until(lambda: agent.log.count("('assistant'") == 3, 5)
    greeting, heard, answered, other = (literal_eval(line) for line in agent.log.splitlines()[1:])
    assert greeting[0] == "assistant"
    assert greeting[1].startswith("Good morning.")
    assert not greeting[1].rstrip().endswith("ears.")
    assert heard == ("user", f"{round(len(said()) / 8000 + 0.4)} seconds of speech")
    assert answered == ("assistant", f"I heard {heard[1]}. What else? ")
    assert other == ("assistant", "Good morning. How can I help you? I am all ears. ")


@pytest.mark.parametrize(
    ("confirming", "refusing", "at_once"), [pytest.param(9, 3, 3, id="wheel"), pytest.param(80, 20, 10, id="server")]
)
async def test_a_campaign_reminds_everybody(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    confirming: int,
    refusing: int,
    at_once: int,
) -> None:
    if confirming > pjsua2_build.WHEEL_MAX_CALLS * 3:
        request.getfixturevalue("server_build")
    else:
        monkeypatch.setenv(pjsua2_build.VARIABLE, "wheel")
    needs.voice_model()
    keys = await Sipp.answer("uas_press_key", folder=tmp_path, calls=confirming, pause_ms=3500, limit_s=120)
    refuses = await Sipp.answer("uas_refuse", folder=tmp_path, calls=refusing, limit_s=120)
    people, results = tmp_path / "people.csv", tmp_path / "results.csv"
    targets = [keys.port] * confirming + [refuses.port] * refusing
    people.write_text(
        "to,name,when\n" + "".join(f"sip:p{n}@{HOST}:{port},Ann,May 3\n" for n, port in enumerate(targets))
    )
    async with server_with(tmp_path) as server:
        argv = [sys.executable, str(ROOT / "examples/campaign.py"), server.url, str(people), str(results)]
        campaign = await Child.start([*argv, "--at-once", str(at_once)], log_path=tmp_path / "campaign.log")
        assert await campaign.wait(120) == 0, campaign.log
        await keys.passed()
        await refuses.passed()
    with results.open(newline="") as file:
        assert Counter(row["result"] for row in csv.DictReader(file)) == {"confirmed": confirming, "overload": refusing}
