"""What a program with the package deepgram-sdk sees: one JSON object for each step. The API is at the first argument."""

import json
import sys
from typing import Any

from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Clear, SpeakV1Close, SpeakV1Flush, SpeakV1Text
from deepgram.speak.v2.types import SpeakV2Flush, SpeakV2Interrupt, SpeakV2InterruptPlaybackOffset, SpeakV2Speak
from websockets.exceptions import InvalidStatus


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")


def show_turn(client: DeepgramClient, text: str) -> None:
    with client.speak.v2.connect(model="en-us", encoding="mulaw", sample_rate=8000) as turns:
        turns.send_speak(SpeakV2Speak(text=text))
        turns.send_flush(SpeakV2Flush())
        num_bytes, kinds = 0, []
        for message in turns:
            if isinstance(message, bytes):
                num_bytes += len(message)
                continue
            kinds.append(message.type)
            if message.type == "Flushed":
                turns.send_interrupt(SpeakV2Interrupt(playback_offset=SpeakV2InterruptPlaybackOffset(value=700)))
            elif message.type == "SpeechInterrupted":
                show("turn", bytes=num_bytes, kinds=kinds, spoken=message.text_spoken, rest=message.text_remaining)
                break
    try:
        with client.speak.v2.connect(model="nobody", encoding="mulaw", sample_rate=8000):
            pass
    except InvalidStatus as error:
        show("turn error", status=error.response.status_code)


def main(url: str) -> None:
    sockets = url.replace("http", "ws", 1)
    environment = DeepgramClientEnvironment(base=url, production=sockets, agent=sockets, agent_rest=url)
    client = DeepgramClient(api_key="none", environment=environment)
    below = DeepgramClient(
        api_key="none",
        environment=DeepgramClientEnvironment(
            base=f"{url}/deepgram", production=f"{sockets}/deepgram", agent=sockets, agent_rest=url
        ),
    )
    show("models", names=[model.canonical_name for model in below.manage.v1.models.list().tts or ()])
    text = "Your order has been shipped."
    show("default", bytes=len(b"".join(client.speak.v1.audio.generate(text=text, model="en-us"))))
    made = client.speak.v1.audio.generate(
        text=text, model="en-us", encoding="mulaw", sample_rate=8000, container="none"
    )
    show("mulaw", bytes=len(b"".join(made)))
    with client.speak.v1.connect(model="en-us", encoding="mulaw", sample_rate=8000) as socket:
        socket.send_text(SpeakV1Text(type="Speak", text=text))
        socket.send_flush(SpeakV1Flush(type="Flush"))
        num_bytes, kinds = 0, list[str]()
        for message in socket:
            if isinstance(message, bytes):
                num_bytes += len(message)
                continue
            kinds.append(message.type)
            if message.type == "Flushed":
                break
        show("socket", bytes=num_bytes, kinds=kinds)
        socket.send_text(SpeakV1Text(type="Speak", text="This sentence is said again and again. " * 100))
        socket.send_flush(SpeakV1Flush(type="Flush"))
        seen = list[str]()
        for message in socket:
            seen.append("audio" if isinstance(message, bytes) else message.type)
            if len(seen) == 1:
                socket.send_clear(SpeakV1Clear(type="Clear"))
            elif seen[-1] in ("Cleared", "Flushed"):
                break
        socket.send_close(SpeakV1Close(type="Close"))
        seen += ["audio" for message in socket if isinstance(message, bytes)]
    show("interrupted", last=seen[-1], chunks=len(seen))
    show_turn(client, text)
    try:
        b"".join(client.speak.v1.audio.generate(text=text, model="nobody"))
    except ApiError as error:
        show("error", shown=str(error), status=error.status_code)


main(sys.argv[1])
