"""Words that the chosen voice cannot speak are heard all the same, or refused: by REST, stream, greeting and SIP header."""

from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from lab import server_under_test
from lab.configured import Lend, server_with
from lab.raw_sip import invite_once
from lab.softphone import SoftphoneProcess
from tests.e2e.test_streamed_answers import stream_of, talking

pytestmark = pytest.mark.e2e

CHINESE = "您好，欢迎致电客户服务中心。"
MIXED = "Your name is 王小明, right? Guten Tag, Ihre Bestellung ist auf dem Weg zu Ihnen."


async def test_every_way_in_speaks_what_the_english_voice_cannot(
    nothing_is_left_running: None, phone: SoftphoneProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(server_under_test, "GREETING", CHINESE)
    async with server_with(tmp_path, tts__engine="auto", tts__voice="hibari-heart") as server, server.events() as log:
        await phone.dial(server.uri("greet"))
        greeted = await log.wait("speak.complete", 30)
        assert (greeted["data"]["spoken_text"], greeted["data"]["completion_cause"]) == (CHINESE, "normal")
        assert greeted["data"]["played_ms"] > 1500
        await phone.wait_event("speech_start")
        await phone.hangup()
        await server.until_all_terminated()

        call = await talking(server, phone)
        body = {"text": CHINESE, "voice": "hibari-heart", "utterance_id": "chinese"}
        assert (await server.post(f"/v1/calls/{call['id']}/speak", body))[0] == 201
        spoken = (await log.wait("speak.complete", 30, utterance_id="chinese"))["data"]
        assert (spoken["spoken_text"], spoken["completion_cause"]) == (CHINESE, "normal")
        assert spoken["played_ms"] > 1500
        await phone.wait_event("speech_start")

        ask = {"prompt": {"text": CHINESE, "voice": "hibari-heart", "utterance_id": "asked"}, "initial_timeout_ms": 100}
        assert (await server.post(f"/v1/calls/{call['id']}/gather", ask))[0] == 201
        asked = (await log.wait("speak.complete", 30, utterance_id="asked"))["data"]
        assert (asked["spoken_text"], asked["completion_cause"]) == (CHINESE, "normal")
        assert asked["played_ms"] > 1500

        async with stream_of(server, call) as client:
            await client.write(MIXED, size=4, every_s=0.005)
            await client.send("end")
            complete = await client.wait("speak.complete")
            assert (complete["spoken_text"], complete["completion_cause"]) == (MIXED, "normal")
            assert complete["played_ms"] > 4000
        await phone.hangup()


async def test_where_no_voice_speaks_it_nobody_is_told_that_it_was_heard(
    nothing_is_left_running: None, phone: SoftphoneProcess, lend: Lend
) -> None:
    pytest.importorskip("onnxruntime")
    async with lend(tts__engine="onnx", tts__voice="hibari-heart") as server:
        call = await talking(server, phone)
        status, problem = await server.post(f"/v1/calls/{call['id']}/speak", {"text": CHINESE})
        assert (status, problem["code"]) == (422, "language_unsupported")
        assert "hibari-heart does not speak Chinese" in problem["detail"]
        async with aiohttp.request("POST", f"{server.url}/v1/audio/speech", json={"input": MIXED}) as speech:
            assert (speech.status, (await speech.json())["code"]) == (422, "language_unsupported")
        async with stream_of(server, call) as client, server.events() as log:
            await client.write("Hello there. Your name is 王小明, right? Goodbye.", size=4, every_s=0.005)
            await client.send("end")
            refused = await client.wait("speak.refused")
            assert (refused["text"].strip(), refused["error"]) == ("王小明,", "language_unsupported")
            complete = await client.wait("speak.complete")
            assert (complete["completion_cause"], complete["error"]) == ("error", "language_unsupported")
            assert complete["spoken_text"].split() == ["Hello", "there.", "Your", "name", "is", "right?", "Goodbye."]
            assert complete["pending_text"].strip() == "王小明,"
            assert complete["played_ms"] > 1500
            told = await log.wait("speak.refused")
            assert told["data"]["char_start"] == len("Hello there. Your name is ")
        assert "王小明" not in server.log
        await phone.hangup()


async def test_what_no_voice_speaks_is_refused_in_a_header_before_the_answer_and_as_a_prompt_of_a_gather(
    nothing_is_left_running: None, phone: SoftphoneProcess, lend: Lend
) -> None:
    pytest.importorskip("onnxruntime")
    async with lend(tts__engine="onnx", tts__voice="hibari-heart") as server:
        call = await talking(server, phone)
        for field in ("prompt", "invalid_prompt"):
            ask = {"prompt": {"text": "Press one."}, "max_tries": 2} | {field: {"text": CHINESE}}
            status, problem = await server.post(f"/v1/calls/{call['id']}/gather", ask)
            assert (status, problem["code"]) == (422, "language_unsupported"), field
        await phone.hangup()
        await server.until_all_terminated()
        for more in ("", "X-TTS-Gather: max=1\r\n"):
            headers = f"X-TTS-Text: {quote(CHINESE)}\r\nX-TTS-Then: hangup\r\n{more}".encode()
            refused = await invite_once("silent", server.sip_port, headers=headers)
            assert refused.status == 400
            assert "hibari-heart does not speak Chinese" in (refused.header("Warning") or "")
