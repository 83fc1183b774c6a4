"""A voice agent: what a language model writes is spoken as it comes, and the history holds what the caller heard."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator

import aiohttp

REPLIES = [
    "Good morning. I can read you the weather or the news. It is sunny today. It will rain tomorrow.",
    "You pressed a key. I stop here and listen. Hang up when you are done.",
]


async def tokens(history: list[tuple[str, str]]) -> AsyncIterator[str]:
    """The stream of a language model. Replace the body by the streaming call of your LLM client."""
    for token in re.findall(r"\S+ ?", REPLIES[len(history) > 0]):
        await asyncio.sleep(0.03)
        yield token


class Conversation:
    """One call: its history, and the answer that is being written."""

    def __init__(self, stream: aiohttp.ClientWebSocketResponse) -> None:
        self.stream = stream
        self.history: list[tuple[str, str]] = []
        self.answer()

    def answer(self) -> None:
        """Begin a new answer."""
        self.writing = asyncio.create_task(self.write())

    async def write(self) -> None:
        """Hand the tokens on as they come."""
        await self.stream.send_json({"type": "start"})
        async for token in tokens(self.history):
            await self.stream.send_json({"type": "tokens", "text": token})
        await self.stream.send_json({"type": "end"})

    def press(self, digit: str) -> None:
        """The caller's turn; what was being said has stopped already."""
        self.writing.cancel()
        self.history.append(("user", f"pressed {digit}"))
        self.answer()

    async def listen(self) -> None:
        """Note what is heard, until the call is over."""
        async for message in self.stream:
            told = message.json()
            if told["type"] in ("speak.complete", "speak.interrupted") and told["spoken_text"]:
                self.history.append(("assistant", told["spoken_text"]))
        self.writing.cancel()
        print(*self.history, sep="\n", flush=True)


async def main(api: str) -> None:
    """A conversation with every caller."""
    conversations: dict[str, Conversation] = {}

    async def converse(call_id: str) -> None:
        with contextlib.suppress(aiohttp.ClientError):  # the call is over already
            async with http.ws_connect(f"/v1/calls/{call_id}/stream") as stream:
                conversations[call_id] = Conversation(stream)
                await conversations[call_id].listen()
        conversations.pop(call_id, None)

    async with (
        aiohttp.ClientSession(api) as http,
        http.ws_connect("/v1/events") as events,
        asyncio.TaskGroup() as tasks,
    ):
        print("ready", flush=True)
        async for message in events:
            event = message.json()
            if event["type"] == "call.established":
                tasks.create_task(converse(event["call_id"]))
            elif event["type"] == "call.dtmf" and event["call_id"] in conversations:
                conversations[event["call_id"]].press(event["data"]["digit"])


asyncio.run(main(sys.argv[1]))
