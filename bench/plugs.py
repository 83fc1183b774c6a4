"""The first audio through each plug beside ``/v1/audio/speech``, and many texts at once.

``python -m bench.plugs [--rounds 30] [--streams 40]``. Each round asks for the same text by each way, one after the other,
on connections that are open. The first audio counts from the first message. With many at once, the longest gap is how late
audio came for a player that started with the first byte.
"""

import argparse
import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import aiohttp

from bench.report import machine, percentiles, save, show
from lab.server_under_test import Json, Server

TEXT = "Your order has been shipped, and it will arrive on Friday."
VOICE = "en-us"
Audio = AsyncIterator[bytes]


class Way:
    """A way to ask for speech. ``audio`` asks, and gives the parts of the answer."""

    bytes_per_s = 8000  # mu-law
    path = "/v1/audio/speech"
    request: ClassVar[Mapping[str, Any]] = {"json": {"input": TEXT, "voice": VOICE, "response_format": "ulaw"}}

    def __init__(self, server: Server) -> None:
        self.server = server

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Callable[[], Audio]]:
        yield self.audio

    async def audio(self) -> Audio:
        async with self.server.http.post(self.server.url + self.path, **self.request) as response:
            assert response.status == 200, await response.text()
            async for part in response.content.iter_any():
                yield part


class OverSocket(Way):
    """A plug with a WebSocket: its path, the messages that ask, and how an answer is read."""

    messages: tuple[Json, ...] = ()
    num_greetings = 0

    def read(self, message: Json) -> bytes | None:
        """The audio of a JSON message; ``None``: the text is over."""
        raise NotImplementedError

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Callable[[], Audio]]:
        async with self.server.http.ws_connect(self.server.url + self.path) as socket:
            for _ in range(self.num_greetings):
                await socket.receive()
            yield lambda: self._ask(socket)

    async def _ask(self, socket: aiohttp.ClientWebSocketResponse) -> Audio:
        for message in self.messages:
            await socket.send_json(message)
        while True:
            received = await socket.receive()
            if received.type is aiohttp.WSMsgType.BINARY:
                yield received.data
                continue
            audio = self.read(json.loads(received.data))
            if audio is None:
                return
            if audio:
                yield audio


class ElevenLabs(OverSocket):
    path = f"/v1/text-to-speech/{VOICE}/multi-stream-input?output_format=ulaw_8000"
    messages = (
        {"text": TEXT, "context_id": "a"},
        {"text": "", "context_id": "a", "flush": True},
        {"context_id": "a", "close_context": True},
    )

    def read(self, message: Json) -> bytes | None:
        assert "error" not in message, message
        return None if message.get("isFinal") else base64.b64decode(message["audio"])


class Deepgram(OverSocket):
    path = f"/v1/speak?model={VOICE}&encoding=mulaw&sample_rate=8000"
    messages = ({"type": "Speak", "text": TEXT}, {"type": "Flush"})
    num_greetings = 1

    def read(self, message: Json) -> bytes | None:
        assert message["type"] == "Flushed", message
        return None


class Flux(Deepgram):
    path = f"/v2/speak?model={VOICE}&encoding=mulaw&sample_rate=8000"

    def read(self, message: Json) -> bytes | None:
        assert message["type"] in ("SpeechStarted", "SpeechMetadata", "Flushed"), message
        return None if message["type"] == "Flushed" else b""


class Jambonz(Way):
    bytes_per_s = 16_000
    path = "/v1/jambonz/speech"
    request: ClassVar = {"json": {"language": "en-US", "voice": VOICE, "type": "text", "text": TEXT}}


class Vapi(Way):
    bytes_per_s = 16_000
    path = f"/vapi/{VOICE}"
    request: ClassVar = {"json": {"message": {"type": "voice-request", "text": TEXT, "sampleRate": 8000}}}


class CosyVoice(Way):
    bytes_per_s = 48_000
    path = "/inference_sft"
    request: ClassVar = {"data": {"tts_text": TEXT, "spk_id": VOICE}}


class Cartesia(OverSocket):
    path = "/tts/websocket"
    messages = (
        {
            "context_id": "a",
            "transcript": TEXT,
            "voice": {"mode": "id", "id": VOICE},
            "output_format": {"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000},
        },
    )

    def read(self, message: Json) -> bytes | None:
        assert message["type"] != "error", message
        return None if message["done"] else base64.b64decode(message["data"])


WAYS: dict[str, type[Way]] = {
    "/v1/audio/speech": Way,
    "ElevenLabs": ElevenLabs,
    "Deepgram": Deepgram,
    "Deepgram Flux": Flux,
    "Cartesia": Cartesia,
    "jambonz": Jambonz,
    "Vapi": Vapi,
    "CosyVoice": CosyVoice,
}


async def one(ask: Callable[[], Audio], bytes_per_s: int) -> tuple[float, float, int]:
    """Milliseconds to the first audio, the longest gap for a player, ms, and the bytes."""
    began_s, first_s, num_bytes, gap_s = time.perf_counter(), 0.0, 0, 0.0
    async for part in ask():
        now_s = time.perf_counter()
        first_s = first_s or now_s
        gap_s = max(gap_s, now_s - first_s - num_bytes / bytes_per_s)
        num_bytes += len(part)
    return 1000 * (first_s - began_s), 1000 * gap_s, num_bytes


async def alone(server: Server, rounds: int) -> Json:
    first_ms: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        for name, way in WAYS.items():
            async with way(server).connected() as ask:
                first, _, num_bytes = await one(ask, way.bytes_per_s)
            assert num_bytes > way.bytes_per_s
            if number:  # the first round warms up
                first_ms[name].append(first)
    return {name: percentiles(values) for name, values in first_ms.items()}


async def together(server: Server, streams: int) -> Json:
    """So many texts at once by each way."""
    result: Json = {}
    for name, way in WAYS.items():

        async def ask_once(way: type[Way] = way) -> tuple[float, float, int]:
            async with way(server).connected() as ask:
                return await one(ask, way.bytes_per_s)

        answers = await asyncio.gather(*(ask_once() for _ in range(streams)))
        firsts_ms, gaps_ms, sizes = zip(*answers, strict=True)
        result[name] = {
            "first_ms": percentiles(firsts_ms),
            "longest_gap_ms": round(max(gaps_ms), 1),
            "whole": sum(size > way.bytes_per_s for size in sizes),
        }
    return result


async def main(rounds: int, streams: int) -> Json:
    server = await Server.with_settings(f"http.max_speech_streams={streams}")
    try:
        result: Json = {"machine": machine(), "text": TEXT, "alone": await alone(server, rounds)}
        return result | {"streams": streams, "together": await together(server, streams)}
    finally:
        await server.end()


def _parsed(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--streams", type=int, default=40)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = _parsed(sys.argv[1:])
    measured = asyncio.run(main(options.rounds, options.streams))
    show("first audio, one at a time", list(measured["alone"].items()))
    show(f"first audio, {options.streams} at once", [(n, e["first_ms"]) for n, e in measured["together"].items()])
    for way, each in measured["together"].items():
        print(f"  {way:42} whole {each['whole']:>3}, longest gap {each['longest_gap_ms']:>7} ms")
    print(save("plugs", measured))
