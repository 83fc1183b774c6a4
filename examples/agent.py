"""A voice agent: hears the caller, speaks a language model's tokens as they come, and is silent when the caller speaks."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from http import HTTPStatus

import aiohttp

BYTES_A_MS, PADDING_MS = 16, 200  # of signed 16-bit at 8 kHz; around what was taken for speech


async def recognise(pcm: bytes) -> str:
    """What the caller said. Ask your speech recogniser here."""
    return f"{len(pcm) / BYTES_A_MS / 1000:.0f} seconds of speech"


async def tokens(history: list[tuple[str, str]]) -> AsyncIterator[str]:
    """The next answer. Stream the tokens of your language model here."""
    answer = f"I heard {history[-1][1]}. What else?" if history else "Good morning. How can I help you? I am all ears."
    for word in answer.split():
        await asyncio.sleep(0.03)
        yield f"{word} "


class Conversation:
    """One call. ``history`` holds of the agent's words those that were heard."""

    def __init__(self, stream: aiohttp.ClientWebSocketResponse) -> None:
        self.stream, self.history = stream, list[tuple[str, str]]()

    async def hear(self, media: aiohttp.ClientWebSocketResponse) -> None:
        """Collect the caller's audio, and answer when the caller has spoken; what was being said has stopped by then."""
        audio, begin, answering = bytearray(), 0, asyncio.create_task(self.answer(b""))
        async for message in media:
            if message.type is aiohttp.WSMsgType.BINARY:
                audio += message.data
            elif (told := message.json())["type"] == "speech.started":
                answering.cancel()
                begin = max(0, int(told["at_ms"]) - PADDING_MS) * BYTES_A_MS
            elif told["type"] == "speech.stopped":
                end = (int(told["at_ms"]) + PADDING_MS) * BYTES_A_MS
                answering = asyncio.create_task(self.answer(bytes(audio[begin:end])))
        answering.cancel()

    async def answer(self, speech: bytes) -> None:
        """Recognise what was said, and hand the tokens of the answer on as they come."""
        if speech:
            self.history.append(("user", await recognise(speech)))
        await self.stream.send_json({"type": "start"})
        async for token in tokens(self.history):
            await self.stream.send_json({"type": "tokens", "text": token})
        await self.stream.send_json({"type": "end"})

    async def remember(self) -> None:
        """Note what is heard of each answer, until the call is over."""
        async for message in self.stream:
            if heard := message.json().get("spoken_text"):  # of speak.complete and speak.interrupted
                self.history.append(("assistant", heard))
        print(*self.history, sep="\n", flush=True)


async def converse(http: aiohttp.ClientSession, path: str) -> None:
    """Hold the conversation of a call, if the call is not over yet; begin later if the server is full."""
    with contextlib.suppress(aiohttp.ClientError):
        while True:
            try:
                async with http.ws_connect(f"{path}/media") as media, http.ws_connect(f"{path}/stream") as stream:
                    call = Conversation(stream)
                    await asyncio.gather(call.hear(media), call.remember())
                    return
            except aiohttp.WSServerHandshakeError as refusal:
                if refusal.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
                await asyncio.sleep(int(refusal.headers["Retry-After"] if refusal.headers else 1))


async def main(api: str) -> None:
    """Converse with every caller."""
    async with aiohttp.ClientSession(api) as http, asyncio.TaskGroup() as calls:
        events = await http.ws_connect("/v1/events?types=call.established")
        print("ready", flush=True)
        async for event in events:
            calls.create_task(converse(http, f"/v1/calls/{event.json()['call_id']}"))


asyncio.run(main(sys.argv[1]))
