"""A voice is enrolled from a recording and speaks on a call, through the engine worker: with a small model directory."""

import asyncio
import os
import shutil
import signal
import sys
import wave
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from lab.audio_match import find, read_wav
from lab.children import Child
from lab.configured import is_running, logged, server_with, until_readyz
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from tests.e2e.signals import through_ulaw, voice_like

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from lab.cosyvoice.tiny_model import make_tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TEXT = "hello"
LONG_TEXT = "please hold the line and we will be with you shortly. " * 6
COMMAND_TIMEOUT_S = 120.0
FIRST_PIECE_MS = 280
"""Less than the first sound of 320 ms: the resampler looks at what follows."""
SPEAK_TIMEOUT_S = 150.0


def write_prompt(path: Path) -> Path:
    """Two seconds that pass for a voice, at 16 kHz."""
    samples = voice_like(4.0, seed=5)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


async def run(folder: Path, *arguments: str) -> str:
    """``cc-tts`` with these arguments; it must succeed. Returns what it wrote."""
    child = await Child.start([sys.executable, "-m", "cc_tts.cli", *arguments], log_path=folder / "command.log")
    assert await child.wait(COMMAND_TIMEOUT_S) == 0, child.log
    return child.log


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    tmp_path = tmp_path_factory.mktemp("cloned")
    model, voices = make_tiny_model(tmp_path / "model"), tmp_path / "voices"
    recording = write_prompt(tmp_path / "anna.wav")
    folders = ("--model", str(model), "--voices", str(voices))
    told = ("--wav", str(recording), "--transcript", "hello and welcome", "--language", "en")
    await run(tmp_path, "voices", "enrol", "anna", *told, *folders)
    return {
        "tts__engine": "cosyvoice2",
        "tts__models__main__model_dir": str(model),
        "tts__voices_dir": str(voices),
        "tts__devices": '["cpu"]',
        "tts__num_threads": "1",
        "tts__voice": "anna",
        "tts__first_audio_target_ms": "60000",
    }


def worker_pid(server: Server) -> int:
    pid: int = [entry["pid"] for entry in logged(server, "child_ready") if entry["child"] == "worker"][-1]
    return pid


async def test_an_enrolled_voice_speaks_into_a_file_and_on_a_call(
    tmp_path: Path, settings: dict[str, str], phone: SoftphoneProcess
) -> None:
    said = tmp_path / "said.wav"
    options = [part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]
    await run(tmp_path, "say", TEXT, "-o", str(said), *options)
    reference, rate_hz = read_wav(said)
    assert rate_hz == 8000
    assert len(reference) > 8000
    assert reference.any()

    recording = tmp_path / "heard.wav"
    async with server_with(tmp_path, **settings) as server:
        status, body = await server.get("/v1/voices")
        assert status == 200
        anna = {"id": "anna", "engine": "cosyvoice2", "language": "en", "kind": "zero_shot", "ready": True}
        assert [voice["id"] for voice in body["voices"]] == ["anna"]
        assert anna.items() <= body["voices"][0].items()
        async with server.events() as log:
            call_id = await phone.establish(server.uri("silent"), log, record=str(recording))
            assert (await server.post(f"/v1/calls/{call_id}/speak", {"text": TEXT}))[0] == 201
            complete = await log.wait("speak.complete", timeout_s=SPEAK_TIMEOUT_S)
            assert complete["data"]["completion_cause"] == "normal", server.log[-3000:]
            await phone.hangup()
        metrics = (await server.get_text("/metrics"))[1]
        assert 'cctts_engine_streams{worker="worker"} 0.0' in metrics
    heard, _ = read_wav(recording)
    # where later pieces join depends on how much time there was; the first one is the same however busy the machine is
    first_piece = through_ulaw(reference)[: 8 * FIRST_PIECE_MS]
    match = find(first_piece, heard)
    assert match.corr > 0.999
    assert match.overlap_ms == pytest.approx(FIRST_PIECE_MS, abs=1)
    spoken = find(through_ulaw(reference), heard)
    assert spoken.overlap_ms >= len(reference) / 8 - 200


@pytest.mark.parametrize(("end", "reason"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSTOP, "no audio for")])
async def test_the_worker_dies_or_hangs_in_the_middle_of_a_prompt(
    tmp_path: Path, settings: dict[str, str], phone: SoftphoneProcess, *, end: signal.Signals, reason: str
) -> None:
    async with server_with(tmp_path, **settings) as server, server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        assert (await server.post(f"/v1/calls/{call_id}/speak", {"text": LONG_TEXT}))[0] == 201
        await log.wait("speak.started", timeout_s=SPEAK_TIMEOUT_S)
        old = worker_pid(server)
        os.kill(old, end)
        await until_readyz(server, 503, reason=reason)
        complete = await log.wait("speak.complete", timeout_s=SPEAK_TIMEOUT_S)
        assert complete["data"]["completion_cause"] == "error"
        status, call = await server.get(f"/v1/calls/{call_id}")
        assert (status, call["state"]) == (200, "established")
        utterance = await server.utterance(call)
        assert utterance["error"]["code"] == "engine_failed"
        assert reason in utterance["error"]["detail"]
        await until_readyz(server, 200)
        assert worker_pid(server) != old
        answer = await server.create(f"/v1/calls/{call_id}/speak", {"text": TEXT, "queue": "replace"})
        after = await log.wait("speak.complete", utterance_id=answer["id"], timeout_s=SPEAK_TIMEOUT_S)
        assert after["data"]["completion_cause"] == "normal", server.log[-3000:]
        metrics = (await server.get_text("/metrics"))[1]
        assert 'cctts_process_restarts_total{process="worker"} 1.0' in metrics
        await phone.hangup()
        pid = worker_pid(server)
    assert not is_running(pid)


async def test_a_barge_in_frees_the_worker(tmp_path: Path, settings: dict[str, str], phone: SoftphoneProcess) -> None:
    async with server_with(tmp_path, **settings) as server, server.events() as log:
        call_id = await phone.establish(server.uri("silent"), log)
        assert (await server.post(f"/v1/calls/{call_id}/speak", {"text": LONG_TEXT}))[0] == 201
        await log.wait("speak.started", timeout_s=SPEAK_TIMEOUT_S)
        await phone.dtmf("5")
        complete = await log.wait("speak.complete")
        assert complete["data"]["completion_cause"] == "barge_in"
        async with asyncio.timeout(SPEAK_TIMEOUT_S):
            idle = 'cctts_engine_streams{worker="worker"} 0.0'
            while idle not in (await server.get_text("/metrics"))[1]:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.1)
        await phone.hangup()


@pytest.mark.parametrize(
    ("mode", "fields"),
    [
        ("zero_shot", {"prompt_text": "hello and welcome"}),
        ("cross_lingual", {}),
        ("instruct2", {"instruct_text": "Speak calmly.<|endofprompt|>"}),
    ],
)
async def test_a_recording_that_comes_with_a_request_is_the_voice_of_its_text(
    tmp_path: Path, settings: dict[str, str], mode: str, fields: dict[str, str]
) -> None:
    recording = write_prompt(tmp_path / "prompt.wav").read_bytes()
    voices = shutil.copytree(settings["tts__voices_dir"], tmp_path / "voices")  # one voice serves all instructions
    settings = settings | {"tts__voices_dir": str(voices)}
    async with server_with(tmp_path, **settings) as server, aiohttp.ClientSession() as client:
        for _ in range(2):  # the second request finds the voice of the first
            form = aiohttp.FormData({"tts_text": TEXT, **fields})
            form.add_field("prompt_wav", recording, filename="prompt_wav", content_type="application/octet-stream")
            async with client.get(f"{server.url}/inference_{mode}", data=form) as response:
                assert response.status == 200, await response.text()
                assert response.headers["X-Voice"].startswith("prompt-")
                assert len(await response.read()) > 12_000, "a quarter of a second"
        assert len(logged(server, "voice_enrolled")) == 1


async def test_a_header_of_an_invite_says_how_to_speak(
    tmp_path: Path, settings: dict[str, str], phone: SoftphoneProcess
) -> None:
    instructions, recording = "speak calmly", tmp_path / "heard.wav"
    references = {}
    async with server_with(tmp_path, **settings) as server:
        async with aiohttp.ClientSession() as client:
            for told in ("", instructions):
                await until_readyz(server, 200)  # a slow machine has no room for a text beside the one before
                body = {"input": TEXT, "instructions": told, "response_format": "wav", "sample_rate_hz": 8000}
                async with client.post(f"{server.url}/v1/audio/speech", json=body) as response:
                    assert response.status == 200, await response.text()
                    (tmp_path / "said.wav").write_bytes(await response.read())
                references[told] = through_ulaw(read_wav(tmp_path / "said.wav")[0])[: 8 * FIRST_PIECE_MS]
        await until_readyz(server, 200)
        async with server.events() as log:
            headers = {"X-TTS-Text": TEXT, "X-TTS-Instructions": quote(instructions), "X-TTS-Then": "hangup"}
            await phone.dial(server.uri("silent"), headers=headers, record=str(recording))
            complete = await log.wait("speak.complete", timeout_s=SPEAK_TIMEOUT_S)
            assert complete["data"]["completion_cause"] == "normal", server.log[-3000:]
            assert complete["data"]["spoken_text"] == TEXT
            await phone.report()  # the recording is whole
        assert "calmly" not in server.log
    heard, _ = read_wav(recording)
    assert find(references[instructions], heard).corr > 0.999
    assert find(references[""], heard).corr < 0.99
