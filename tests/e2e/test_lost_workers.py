"""An engine worker of this machine stands still or is killed: what callers hear, and what SIP and /readyz say."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from urllib.parse import quote

import pytest

from lab.configured import Lend, espeak_pids, logged, server_with, until_readyz
from lab.raw_sip import invite_once, options
from lab.server_under_test import Server, entries
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.e2e.test_pauses import until_options

pytest.importorskip("onnxruntime")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

AUTO = {"tts__engine": "auto", "tts__voice": "", "cache__enabled": "false"}
FAREWELL = "Thank you for your call. Good bye."
LATEST_SPEECH_MS = 4500
"""The stall is noticed after ``tts.stall_timeout_ms`` (3 s), and the fallback speaks within a second; the rest is slack."""


def worker_pid(server: Server) -> int:
    pid: int = [entry for entry in entries(server.whole_log, "child_ready") if entry["child"] == "worker"][-1]["pid"]
    return pid


async def hurt(pid: int, stands_s: float | None) -> None:
    if stands_s is None:
        os.kill(pid, signal.SIGKILL)
        return
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(stands_s)
    with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile, as it should be
        os.kill(pid, signal.SIGCONT)


async def test_a_call_that_ends_with_its_prompt_does_not_end_without_a_word(
    lend: Lend, phone: SoftphoneProcess
) -> None:
    async with lend(**AUTO) as server:
        assert await is_degraded(server, 0.0)
        await has_a_word(server, phone, None)
        await has_a_word(server, phone, 3.6)
        assert "Traceback" not in server.log


async def test_a_lost_worker_of_espeak_is_no_matter_of_a_neural_voice(lend: Lend, phone: SoftphoneProcess) -> None:
    async with lend(**AUTO) as server:
        await phone.dial(server.uri("silent"), max_talk_s=60)
        await phone.wait_event("answered")
        call = await server.only_call()
        async with server.events() as log:
            _, english = await server.post(f"/v1/calls/{call['id']}/speak", {"text": FAREWELL})
            await log.wait("speak.started", utterance_id=english["id"])
            os.kill(espeak_pids(server)[-1], signal.SIGKILL)
            assert (await server.get("/readyz"))[0] == 200
            said = await log.wait("speak.complete", utterance_id=english["id"])
            assert said["data"]["completion_cause"] == "normal", said
        await phone.hangup()


@pytest.mark.slow
async def test_nor_when_the_worker_stands_still_for_long(phone: SoftphoneProcess, tmp_path: Path) -> None:
    async with server_with(tmp_path, **AUTO) as server:
        await has_a_word(server, phone, 12.0)


async def has_a_word(server: Server, phone: SoftphoneProcess, stands_s: float | None) -> None:
    """A call whose worker stands still from its INVITE on, or is killed, hears its prompt all the same."""
    hurting = asyncio.create_task(hurt(worker_pid(server), stands_s))
    await asyncio.sleep(0.05)
    if stands_s is None:
        await until_degraded(server, 1.0)
        assert (await server.get("/readyz"))[0] == 200, "it has a fallback"
        assert (await options(server.sip_port)).status == 200
    headers = {"X-TTS-Text": quote(FAREWELL), "X-TTS-Then": "hangup"}
    name = str(stands_s)
    dialled = await phone.dial(server.uri("silent"), call=name, headers=headers, max_talk_s=40)
    report = await phone.report(call=name)
    assert report["talkspurts"], server.log[-3000:]
    assert report["answer_to_first_speech_ms"] < LATEST_SPEECH_MS
    await server.until_all_terminated()
    call = await server.read(f"/v1/calls/{await server.call_id(dialled['sip_call_id'])}")
    assert call["ending"]["result"] == "completed"
    assert logged(server, "spoken")[-1]["cause"] == "normal"
    await hurting
    if stands_s is None:
        await until_degraded(server, 0.0)
        await until(lambda: logged(server, "speech_degraded") and logged(server, "speech_restored"))


async def is_degraded(server: Server, wanted: float) -> bool:
    return f"cctts_degraded {wanted}" in (await server.get_text("/metrics"))[1]


async def until_degraded(server: Server, wanted: float) -> None:
    await until(lambda: is_degraded(server, wanted))


async def test_without_a_fallback_sip_says_what_readyz_says(tmp_path: Path) -> None:
    async with server_with(tmp_path, **{**AUTO, "tts__fallback_engine": ""}) as server:
        assert (await options(server.sip_port)).status == 200
        os.kill(worker_pid(server), signal.SIGKILL)
        await until_readyz(server, 503, reason="no engine worker is ready")
        await until_options(server, 503)
        for user in ("silent", "greet"):
            answer = await invite_once(user, server.sip_port)
            assert (answer.status, answer.header("Retry-After")) == (503, "7"), user
            assert "SIGKILL" not in answer.text
        await until_readyz(server, 200)
        await until_options(server, 200)
