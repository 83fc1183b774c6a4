"""LiveKit's plugin for ElevenLabs, pointed at the server of the first argument: what it gets, as JSON objects."""

import asyncio
import json
import sys
from typing import Any

import aiohttp
from livekit.plugins import elevenlabs


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")
    sys.stdout.flush()


async def main(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        tts = elevenlabs.TTS(
            voice_id="en-us", encoding="pcm_24000", api_key="none", base_url=f"{url}/v1", http_session=session
        )
        stream = tts.stream()
        for word in ["Your", "order", "has", "been", "shipped.", "It", "will", "arrive", "on", "Friday."]:
            stream.push_text(word + " ")
        stream.end_input()
        length_s, words = 0.0, ""
        async with asyncio.timeout(20):
            async for event in stream:
                length_s += event.frame.duration
                words += "".join(str(each) for each in event.frame.userdata.get("lk.timed_transcripts", []))
        show("streamed", length_s=length_s, words=words)
        await stream.aclose()
        whole = tts.synthesize("Goodbye.")
        length_s = 0.0
        async with asyncio.timeout(20):
            async for event in whole:
                length_s += event.frame.duration
        show("whole", length_s=length_s)
        await tts.aclose()
        wrong = elevenlabs.TTS(
            voice_id="nobody", encoding="pcm_24000", api_key="none", base_url=f"{url}/v1", http_session=session
        )
        try:
            async with asyncio.timeout(20):
                async for _ in wrong.synthesize("Hello."):
                    pass
        except Exception as error:  # noqa: BLE001 - of a kind that the plugin chooses
            show("error", shown=f"{type(error).__name__}: {error}")
        await wrong.aclose()


asyncio.run(main(sys.argv[1]))
