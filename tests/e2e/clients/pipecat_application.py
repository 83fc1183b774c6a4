"""An application with Pipecat's own serializer, run by the Python of ``build/pipecat``: ``pipecat_application.py URL``.

It plays a second of a tone and marks its end. When a key comes it plays ten seconds and interrupts them after one. What it
heard it says as JSON on standard output when the call is over.
"""

import asyncio
import json
import math
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
from pipecat.frames.frames import (
    InputAudioRawFrame,
    InputDTMFFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
)
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.twilio import TwilioFrameSerializer

RATE_HZ: Final = 16_000


def tone(hz: float, ms: int) -> bytes:
    samples = (round(8000 * math.sin(2 * math.pi * hz * at / RATE_HZ)) for at in range(RATE_HZ * ms // 1000))
    return b"".join(struct.pack("<h", each) for each in samples)


class Setup:
    """What Pipecat's pipeline tells a serializer."""

    audio_in_sample_rate = RATE_HZ


class Application:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._serializer: Any = None
        self._stream_id = ""
        self.heard = bytearray()
        self.report: dict[str, Any] = {"keys": [], "marks": [], "stopped": False}

    async def iter_text(self) -> AsyncIterator[str]:
        """As FastAPI's WebSocket, for Pipecat's parser of the first two messages."""
        async for message in self._socket:
            yield message.data

    async def run(self) -> None:
        transport, call = await parse_telephony_websocket(self)
        self._stream_id = call["stream_id"]
        self.report |= {"transport": transport, "call_id": call["call_id"], "from": call["from"]}
        params = TwilioFrameSerializer.InputParams(auto_hang_up=False, sample_rate=RATE_HZ)
        self._serializer = TwilioFrameSerializer(self._stream_id, call["call_id"], params=params)
        await self._serializer.setup(Setup())
        await self._play(tone(400, 1000), mark="end of the tone")
        async for message in self.iter_text():
            await self._take(message)
        samples = struct.unpack(f"<{len(self.heard) // 2}h", self.heard)
        self.report |= {"heard_ms": len(samples) * 1000 // RATE_HZ, "loudest": max(map(abs, samples), default=0)}

    async def _take(self, message: str) -> None:
        frame = await self._serializer.deserialize(message)
        event = json.loads(message)
        if isinstance(frame, InputAudioRawFrame):
            self.heard += frame.audio
        elif isinstance(frame, InputDTMFFrame):
            self.report["keys"].append(str(frame.button.value))
            await self._play(tone(800, 10_000), mark="never")
            await asyncio.sleep(1)  # the caller hears it for a while
            await self._send(InterruptionFrame())
        elif event["event"] == "mark":
            self.report["marks"].append(event["mark"]["name"])
        elif event["event"] == "stop":
            self.report["stopped"] = True

    async def _play(self, pcm: bytes, *, mark: str) -> None:
        for at in range(0, len(pcm), 640):
            await self._send(OutputAudioRawFrame(audio=pcm[at : at + 640], sample_rate=RATE_HZ, num_channels=1))
        message = {"event": "mark", "streamSid": self._stream_id, "mark": {"name": mark}}
        await self._send(OutputTransportMessageFrame(message=message))

    async def _send(self, frame: Any) -> None:
        if (data := await self._serializer.serialize(frame)) is not None:
            await self._socket.send_str(data)


async def main(url: str) -> None:
    async with aiohttp.ClientSession() as http, http.ws_connect(url) as socket:
        application = Application(socket)
        await application.run()
    sys.stdout.write(json.dumps(application.report) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
