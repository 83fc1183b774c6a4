"""A voice agent: sentences of a language model are spoken as they arrive, and the history holds what the caller heard."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator

import aiohttp

END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+")
REPLIES = [
    "Good morning. I can read you the weather or the news. It is sunny today. It will rain tomorrow.",
    "You pressed a key. I stop here and listen. Hang up when you are done.",
]


async def tokens(history: list[tuple[str, str]]) -> AsyncIterator[str]:
    """The stream of a language model. Replace the body by the streaming call of your LLM client."""
    for word in REPLIES[len(history) > 0].split(" "):
        await asyncio.sleep(0.03)
        yield word + " "


async def reply(http: aiohttp.ClientSession, call_id: str, history: list[tuple[str, str]]) -> None:
    """Post each sentence as soon as it is complete; the first one replaces what is still queued."""
    queue, buffered = "replace", ""
    async for token in tokens(history):
        *sentences, buffered = END_OF_SENTENCE.split(buffered + token)
        for sentence in sentences:
            async with http.post(f"/v1/calls/{call_id}/speak", json={"text": sentence, "queue": queue}) as response:
                response.raise_for_status()
            queue = "append"


async def main(api: str) -> None:
    """One history and one running reply a call."""
    histories: dict[str, list[tuple[str, str]]] = {}
    replies: dict[str, asyncio.Task[None]] = {}
    async with aiohttp.ClientSession(api) as http, http.ws_connect("/v1/events") as events:
        print("ready", flush=True)
        async for message in events:
            event = message.json()
            call_id, data = event["call_id"], event["data"]
            match event["type"]:
                case "call.established":
                    histories[call_id] = []
                    replies[call_id] = asyncio.create_task(reply(http, call_id, histories[call_id]))
                case "speak.complete" if call_id in histories:
                    if data["completion_cause"] == "barge_in":
                        replies[call_id].cancel()
                    if data["spoken_text"]:
                        histories[call_id].append(("assistant", data["spoken_text"]))
                case "call.dtmf" if call_id in histories:
                    replies[call_id].cancel()
                    histories[call_id].append(("user", f"pressed {data['digit']}"))
                    replies[call_id] = asyncio.create_task(reply(http, call_id, histories[call_id]))
                case "call.terminated" if call_id in histories:
                    replies.pop(call_id).cancel()
                    print(*histories.pop(call_id), sep="\n", flush=True)


asyncio.run(main(sys.argv[1]))
