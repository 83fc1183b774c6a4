"""What a program with the package cartesia sees: one JSON object for each step. The API is at the first argument."""

import base64
import json
import sys
from typing import Any

from cartesia import APIStatusError, Cartesia

TEXT = "Your order has been shipped."
LONG = "This sentence is said again and again. " * 100
FORMAT: Any = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 16000}
VOICE: Any = {"mode": "id", "id": "en-us"}


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")


def main(url: str) -> None:
    client = Cartesia(api_key="none", base_url=url, websocket_base_url=url.replace("http", "ws", 1))
    words: Any = {"model_id": "sonic-3", "transcript": TEXT, "voice": VOICE}
    made = client.tts.generate(**words, output_format=FORMAT).read()
    show("floats", bytes=len(made))
    made = client.tts.generate(
        **words, output_format={"container": "wav", "encoding": "pcm_s16le", "sample_rate": 8000}
    )
    show("wav", head=base64.b64encode(made.read()[:4]).decode())
    with client.tts.websocket_connect() as connection:
        context = connection.context(model_id="sonic-3", voice=VOICE, output_format=FORMAT, add_timestamps=True)
        for word in TEXT.split():
            context.push(word + " ")
        context.no_more_inputs()
        num_bytes, heard = 0, list[str]()
        for message in context.receive():
            if message.type == "chunk":
                num_bytes += len(message.audio or b"")
            elif message.type == "timestamps":
                heard += message.word_timestamps.words
        show("socket", bytes=num_bytes, words=" ".join(heard))
        context = connection.context(model_id="sonic-3", voice=VOICE, output_format=FORMAT)
        context.push(LONG)
        context.no_more_inputs()
        kinds = list[str]()
        for message in context.receive():
            kinds.append(message.type)
            if len(kinds) == 1:
                context.cancel()
        show("interrupted", chunks=kinds.count("chunk"), last=kinds[-1])
    show("voices", ids=[voice.id for voice in client.voices.list()])
    try:
        client.tts.generate(**(words | {"voice": {"mode": "id", "id": "nobody"}}), output_format=FORMAT)
    except APIStatusError as error:
        show("error", shown=str(error), status=error.status_code)


main(sys.argv[1])
