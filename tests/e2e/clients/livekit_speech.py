"""A plugin of LiveKit, named by the second argument and pointed at the server of the first: what it gets as JSON objects."""

import asyncio
import json
import sys
from typing import Any

import aiohttp
from livekit.plugins import cartesia, deepgram, elevenlabs, openai

PATIENCE_S = 60.0
"""As in ``lab.waiting``, which the environment of the client packages does not have."""

TEXT = "Your order has been shipped. It will arrive on Friday."


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")
    sys.stdout.flush()


def plugin_of(name: str, url: str, voice: str, session: aiohttp.ClientSession) -> Any:
    if name == "elevenlabs":
        return elevenlabs.TTS(
            voice_id=voice, encoding="pcm_24000", api_key="none", base_url=f"{url}/v1", http_session=session
        )
    if name == "cartesia":
        return cartesia.TTS(base_url=url, voice=voice, api_key="none", http_session=session)
    if name == "flux":
        flux_url = f"{url}/v2/speak"
        return deepgram.TTSv2(model=voice, base_url=flux_url, sample_rate=8000, api_key="none", http_session=session)
    if name == "deepgram":
        base_url = f"{url}/v1/speak"
        return deepgram.TTS(model=voice, base_url=base_url, sample_rate=8000, api_key="none", http_session=session)
    return openai.TTS(voice=voice, base_url=f"{url}/v1", api_key="none")


async def streamed(tts: Any) -> dict[str, Any]:
    stream = tts.stream()
    for word in TEXT.split():
        stream.push_text(word + " ")
    stream.end_input()
    length_s, words = 0.0, list[str]()
    async with asyncio.timeout(PATIENCE_S):
        async for event in stream:
            length_s += event.frame.duration
            words += event.frame.userdata.get("lk.timed_transcripts", ())
    await stream.aclose()
    return {
        "length_s": length_s,
        "words": "".join(words).split(),
        "has_times": all(hasattr(each, "end_time") for each in words),
    }


async def interrupted(tts: Any) -> dict[str, Any]:
    """A long text whose stream is closed with the first audio, as an agent does that is interrupted; and the next one."""
    stream = tts.stream()
    stream.push_text("This sentence is said again and again. " * 50)
    async with asyncio.timeout(PATIENCE_S):
        await anext(aiter(stream))
    await stream.aclose()
    return await streamed(tts)


async def main(url: str, name: str) -> None:
    async with aiohttp.ClientSession() as session:
        tts = plugin_of(name, url, "en-us", session)
        if tts.capabilities.streaming:
            show("streamed", **await streamed(tts))
            show("after an interruption", **await interrupted(tts))
        long = tts.synthesize("This sentence is said again and again. " * 50)
        async with asyncio.timeout(PATIENCE_S):
            await anext(aiter(long))
        await long.aclose()
        whole = tts.synthesize("Goodbye.")
        length_s = 0.0
        async with asyncio.timeout(PATIENCE_S):
            async for event in whole:
                length_s += event.frame.duration
        show("whole", length_s=length_s)
        await tts.aclose()
        wrong = plugin_of(name, url, "nobody", session)
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for _ in wrong.synthesize("Hello."):
                    pass
        except Exception as error:  # noqa: BLE001 - of a kind that the plugin chooses
            show("error", shown=f"{type(error).__name__}: {error}")
        await wrong.aclose()


asyncio.run(main(*sys.argv[1:]))
