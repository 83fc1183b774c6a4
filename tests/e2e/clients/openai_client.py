"""What a program with the package openai sees: one JSON object for each step."""

import base64
import json
import sys
from typing import Any

import openai


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")


def main(base_url: str) -> None:
    client = openai.OpenAI(api_key="none", base_url=base_url, max_retries=0)
    speech = client.audio.speech
    words: Any = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "Your order has been shipped."}
    made = speech.create(**words)
    show("default", head=base64.b64encode(made.content[:4]).decode(), bytes=len(made.content))
    for kind in ("mp3", "opus", "aac", "flac", "wav", "pcm"):
        with speech.with_streaming_response.create(**words, response_format=kind) as response:
            audio = b"".join(response.iter_bytes())
            content_type = response.headers["content-type"]
        show(kind, content_type=content_type, head=base64.b64encode(audio[:4]).decode(), bytes=len(audio))
    slow = speech.create(**words, response_format="pcm", speed=0.25, instructions="Speak like a pirate.")
    show("slow", bytes=len(slow.content), speed=slow.response.headers["x-speed"])
    with speech.with_streaming_response.create(**words, response_format="pcm", stream_format="sse") as response:
        events = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]
    deltas = [base64.b64decode(each["audio"]) for each in events[:-1]]
    show("sse", bytes=sum(map(len, deltas)), deltas=len(deltas), last=events[-1]["type"])
    show("models", ids=[model.id for model in client.models.list()])
    long = "This sentence is said again and again. " * 100
    with speech.with_streaming_response.create(**(words | {"input": long}), response_format="pcm") as response:
        first = next(response.iter_bytes())
    show("interrupted", bytes=len(first))
    for wrong in ({"voice": "nobody"}, {"input": "..."}, {"response_format": "wma"}):
        try:
            speech.create(**(words | wrong))
        except openai.APIStatusError as error:
            show("error", shown=str(error), status=error.status_code, param=error.param)


main(sys.argv[1])
