"""A language model's tokens over a WebSocket into a call, heard by the softphone."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lab.children import Child
from lab.configured import Lend, server_with
from lab.server_under_test import Json, Server, entries
from lab.softphone import SoftphoneProcess
from tests.architecture.state_tables import ROOT
from tests.e2e.quiet import until_quiet

pytestmark = pytest.mark.e2e

ANSWER = (
    "Thank you for calling, I have found your account. The **balance** is 12.50 dollars, and the next payment of 1,234 "
    "dollars is due on Tuesday. Is there anything else I can help you with today?"
)
TOKEN_S = 0.03


class StreamClient:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.told: list[Json] = []
        self._news = asyncio.Event()
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.socket:
            self.told.append(json.loads(message.data))
            self._news.set()
        self._news.set()

    async def send(self, type_: str, **fields: Any) -> None:
        await self.socket.send_json({"type": type_, **fields})

    async def write(self, text: str, *, size: int = 3, every_s: float = TOKEN_S) -> None:
        for begin in range(0, len(text), size):
            await self.send("tokens", text=text[begin : begin + size])
            await asyncio.sleep(every_s)

    async def wait(self, type_: str, count: int = 1, timeout_s: float = 30.0) -> Json:
        async with asyncio.timeout(timeout_s):
            while len(found := [each for each in self.told if each["type"] == type_]) < count:
                assert not self.reader.done(), self.told
                self._news.clear()
                await self._news.wait()
        return found[count - 1]


@contextlib.asynccontextmanager
async def stream_of(server: Server, call: Json, query: str = "") -> AsyncIterator[StreamClient]:
    url = f"{server.url}/v1/calls/{call['id']}/stream{query}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        client = StreamClient(socket)
        try:
            yield client
        finally:
            client.reader.cancel()


async def talking(server: Server, phone: SoftphoneProcess) -> Json:
    await phone.dial(server.uri("silent"))
    return await server.until_call(lambda call: call["state"] == "established")


async def check_an_answer(server: Server, phone: SoftphoneProcess) -> int:
    """One that is written while it is spoken, word for word; returns how often its audio came too late."""
    call = await talking(server, phone)
    async with server.events() as log, stream_of(server, call, "?words=true") as client:
        await client.send("start", utterance_id="u7", client_state="turn 1")
        await client.write(ANSWER)
        await client.send("mark", name="said")
        await client.send("end")
        started = await client.wait("speak.started")
        await phone.wait_event("speech_start")
        complete = await client.wait("speak.complete")
        assert complete["spoken_text"] == ANSWER
        assert (complete["completion_cause"], complete["client_state"]) == ("normal", "turn 1")
        assert started["time_from_first_token_ms"] >= started["time_to_first_audio_ms"] > 0
        mark = await client.wait("mark")
        assert mark["played_ms"] == pytest.approx(complete["played_ms"], abs=150)
        words = [word["text"] for each in client.told if each["type"] == "words" for word in each["words"]]
        assert words == ANSWER.split()
        event = await log.wait("speak.complete", utterance_id="u7")
        assert event["data"]["spoken_text"] == ANSWER
    await phone.hangup()
    assert ANSWER[:20] not in server.log, "what is said is not logged"
    return int(event["data"]["underruns"])


def example_in(folder: Path) -> Path:
    page = (ROOT / "docs/developers/agents.md").read_text(encoding="utf-8")
    script = folder / "example.py"
    script.write_text(page.partition("\n## Text stream\n")[2].partition("```python\n")[2].partition("```")[0])
    return script


async def test_the_example_of_the_documents(server: Server, phone: SoftphoneProcess, tmp_path: Path) -> None:
    script = example_in(tmp_path)
    call = await talking(server, phone)
    child = await Child.start([sys.executable, str(script), server.url, call["id"]], log_path=tmp_path / "example.log")
    assert await child.wait() == 0, child.log
    assert child.log.strip() == "speak.complete Your balance is 12.50, and nothing is due."
    await phone.hangup()


async def test_an_answer_of_espeak(server: Server, phone: SoftphoneProcess) -> None:
    assert await check_an_answer(server, phone) == 0


async def test_an_answer_of_a_neural_voice(lend: Lend, phone: SoftphoneProcess) -> None:
    pytest.importorskip("onnxruntime")
    async with lend(tts__engine="onnx", tts__voice="hibari-heart") as server:
        await check_an_answer(server, phone)  # a busy machine is slower than speech, so it may be late


async def test_a_model_that_thinks_holds_nothing_in_the_engine(
    nothing_is_left_running: None, phone: SoftphoneProcess, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    settings = {"tts__engine": "onnx", "tts__voice": "", "tts__stall_timeout_ms": "500", "tts__max_streams": "1"}
    async with server_with(tmp_path, **settings) as server:
        call = await talking(server, phone)
        async with stream_of(server, call) as client:
            await client.write("Let me think about that. ", every_s=0.005)
            started = await client.wait("speak.started")
            await asyncio.sleep(3.0)  # all is said, and six times as long as an engine may be silent
            assert 'cctts_engine_streams{worker="worker"} 0.0' in (await server.get_text("/metrics"))[1]
            body = {"input": "The engine has a place for others.", "response_format": "wav"}
            async with aiohttp.request("POST", f"{server.url}/v1/audio/speech", json=body) as speech:
                assert (speech.status, len(await speech.read()) > 10_000) == (200, True)
            await client.write("Now I know it. ", every_s=0.005)
            await client.send("end")
            complete = await client.wait("speak.complete")
            assert complete["spoken_text"] == "Let me think about that. Now I know it. "
            utterance = (await server.get(f"/v1/utterances/{started['utterance_id']}"))[1]
            assert (utterance["underruns"], utterance["error"]) == (0, None)
            assert not entries(server.log, "worker_stalled")
        await phone.hangup()


async def test_chinese_goes_through_the_text_process(server: Server, phone: SoftphoneProcess) -> None:
    call = await talking(server, phone)
    text = "您好，您的余额是一百二十三元五角，请问您还需要什么帮助？谢谢您的来电。"
    async with stream_of(server, call) as client:
        await client.write(text, size=1)
        await client.send("end")
        complete = await client.wait("speak.complete")
        assert complete["spoken_text"] == text
        utterance = (await server.get(f"/v1/utterances/{complete['utterance_id']}"))[1]
        assert (utterance["voice"], utterance["underruns"]) == ("cmn", 0)
    await phone.hangup()


async def test_clear_silences_the_line(server: Server, phone: SoftphoneProcess) -> None:
    call = await talking(server, phone)
    async with stream_of(server, call) as client:
        await client.write(ANSWER, every_s=0.005)
        await phone.wait_event("speech_start")
        await asyncio.sleep(1.5)  # in the middle of it
        await client.send("clear")
        interrupted = await client.wait("speak.interrupted")
        assert interrupted["by"] == "clear"
        assert interrupted["spoken_text"] + interrupted["pending_text"] == ANSWER
        assert interrupted["spoken_text"].startswith("Thank you")
        await until_quiet(phone)
        await client.send("tokens", text="Good bye.")
        await client.send("end")
        assert (await client.wait("speak.complete"))["spoken_text"] == "Good bye."
    await phone.hangup()
