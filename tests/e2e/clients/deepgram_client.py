"""What a program with the package deepgram-sdk sees: one JSON object for each step. The API is at the first argument."""

import json
import sys
from typing import Any

from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Close, SpeakV1Flush, SpeakV1Text


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")


def main(url: str) -> None:
    sockets = url.replace("http", "ws", 1)
    environment = DeepgramClientEnvironment(base=url, production=sockets, agent=sockets, agent_rest=url)
    client = DeepgramClient(api_key="none", environment=environment)
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
        socket.send_close(SpeakV1Close(type="Close"))
    show("socket", bytes=num_bytes, kinds=kinds)
    try:
        b"".join(client.speak.v1.audio.generate(text=text, model="nobody"))
    except ApiError as error:
        show("error", shown=str(error), status=error.status_code)


main(sys.argv[1])
