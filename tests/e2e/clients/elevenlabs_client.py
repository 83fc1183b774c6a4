"""What a program with the package elevenlabs sees: one JSON object for each step. The API is at the first argument."""

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

from elevenlabs import VoiceSettings
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

TEXT = "Your order has been shipped. It will arrive on Friday."
LONG = "This sentence is said again and again. " * 100
VOICE = "en-us"


def show(step: str, **seen: Any) -> None:
    sys.stdout.write(json.dumps({"step": step, **seen}) + "\n")


def main(url: str) -> None:
    client = ElevenLabs(api_key="none", base_url=url)
    speech = client.text_to_speech
    made = b"".join(speech.convert(VOICE, text=TEXT))
    show("default", head=base64.b64encode(made[:4]).decode(), bytes=len(made))
    made = b"".join(speech.stream(VOICE, text=TEXT, output_format="pcm_16000"))
    show("pcm", bytes=len(made))
    slow = b"".join(
        speech.convert(VOICE, text=TEXT, output_format="pcm_16000", voice_settings=VoiceSettings(speed=0.7))
    )
    show("slow", bytes=len(slow))
    timed = speech.convert_with_timestamps(VOICE, text=TEXT, output_format="pcm_16000")
    assert timed.alignment is not None
    show(
        "timed",
        bytes=len(base64.b64decode(timed.audio_base_64)),
        text="".join(timed.alignment.characters),
        end_s=timed.alignment.character_end_times_seconds[-1],
    )
    chunks = list(speech.stream_with_timestamps(VOICE, text=TEXT, output_format="pcm_16000"))
    aligned = [chunk.alignment for chunk in chunks if chunk.alignment is not None]
    show(
        "timed stream",
        bytes=sum(len(base64.b64decode(chunk.audio_base_64)) for chunk in chunks),
        text="".join("".join(each.characters) for each in aligned),
        starts_s=[each.character_start_times_seconds[0] for each in aligned],
    )
    show("voices", ids=[voice.voice_id for voice in client.voices.get_all().voices])
    show("search", ids=[voice.voice_id for voice in client.voices.search().voices])
    show("voice", name=client.voices.get(VOICE).name)
    show("models", ids=[model.model_id for model in client.models.list()])
    first = next(iter(speech.stream(VOICE, text=LONG, output_format="pcm_16000")))
    show("interrupted", bytes=len(first))
    try:
        b"".join(speech.convert("nobody", text=TEXT))
    except ApiError as error:
        show("error", shown=str(error), status=error.status_code)
    if len(sys.argv) > 2:
        realtime(sys.argv[2])


def realtime(secure_url: str) -> None:
    def words() -> Iterator[str]:
        for word in TEXT.split():
            yield word + " "

    client = ElevenLabs(api_key="none", base_url=secure_url)
    show("secure voices", ids=[voice.voice_id for voice in client.voices.get_all().voices])
    made = b"".join(client.text_to_speech.convert_realtime(VOICE, text=words(), output_format="pcm_16000"))
    show("realtime", bytes=len(made))


main(sys.argv[1])
