"""Deepgram's ``/v2/speak``: the messages of a turn, and what was heard of one that is interrupted."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from lab.server_under_test import Server
from lab.waiting import PATIENCE_S

pytestmark = pytest.mark.e2e

TEXT = "Your order has been shipped. It will arrive on Friday."
LONG = "This sentence is said again and again, and again. " * 40
UGARITIC = "\U00010380\U00010381\U00010382"
BYTES_PER_MS = 8


class Flux:
    """A client: what it is told, and how much audio came."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.num_bytes = 0
        self.kinds: list[str] = []

    @property
    def audio_ms(self) -> float:
        return self.num_bytes / BYTES_PER_MS

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send_json({"type": kind, **fields})

    async def turn(self, text: str) -> None:
        await self.say("Speak", text=text)
        await self.say("Flush")

    async def interrupt(self, at_ms: int | None = None) -> Any:
        offset = {} if at_ms is None else {"playback_offset": {"type": "time_ms", "value": at_ms}}
        await self.say("Interrupt", **offset)
        return await self.until("SpeechInterrupted", "Warning")

    async def until(self, *kinds: str) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.num_bytes += len(message.data)
                    continue
                told = json.loads(message.data)
                self.kinds.append(told["type"])
                if told["type"] in kinds:
                    return told

    async def audio_of(self, length_ms: int) -> None:
        end_ms = self.audio_ms + length_ms
        while self.audio_ms < end_ms:
            if (message := await self.socket.receive()).type is aiohttp.WSMsgType.BINARY:
                self.num_bytes += len(message.data)


@asynccontextmanager
async def connected(server: Server, query: str = "model=en-us&encoding=mulaw&sample_rate=8000") -> AsyncIterator[Flux]:
    url = f"{server.url}/v2/speak?{query}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        yield Flux(socket)


async def test_a_turn_begins_is_heard_and_is_over(server: Server) -> None:
    async with connected(server) as flux:
        for word in TEXT.split():
            await flux.say("Speak", text=f"{word} ")
        await flux.say("Flush")
        metadata = await flux.until("SpeechMetadata")
        flushed = await flux.until("Flushed")
        assert flux.kinds == ["Connected", "SpeechStarted", "SpeechMetadata", "Flushed"]
        assert flux.audio_ms > 2000
        assert metadata["audio_duration_ms"] == pytest.approx(flux.audio_ms, abs=1)
        assert metadata["input_character_count"] == len(TEXT) + 1
        assert flushed["speech_id"] == metadata["speech_id"]
        assert metadata["speech_id"].startswith("dg_sp_")


async def test_turns_come_one_after_the_other_and_all_before_the_end(server: Server) -> None:
    async with connected(server) as flux:
        await flux.turn("One.")
        await flux.turn("Two.")
        await flux.say("Close")
        metadata = await flux.until("SessionMetadata")
        assert flux.kinds[1:] == ["SpeechStarted", "SpeechMetadata", "Flushed"] * 2 + ["SessionMetadata"]
        assert metadata["total_audio_duration_ms"] == pytest.approx(flux.audio_ms, abs=1)
        assert metadata["total_input_character_count"] == len("One.Two.")
        assert (await flux.socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert flux.socket.close_code == 1000


async def test_an_interruption_in_mid_sentence_says_what_was_heard_and_what_was_not(server: Server) -> None:
    async with connected(server) as flux:
        await flux.say("Speak", text=LONG)
        await flux.audio_of(2000)
        told = await flux.interrupt(at_ms=1500)
        assert told["audio_played_ms"] == 1500
        assert LONG.startswith(told["text_spoken"])
        assert 5 < len(told["text_spoken"]) < 50
        assert told["text_spoken"] + told["text_remaining"] == LONG
        assert told["metadata"]["input_character_count"] == len(LONG)
        before = flux.num_bytes
        await flux.turn("Goodbye.")
        await flux.until("SpeechMetadata")
        assert 2000 < flux.num_bytes - before < 16_000  # nothing of the old turn comes behind its end


async def test_a_turn_is_interrupted_whose_audio_was_sent_and_is_still_played(server: Server) -> None:
    async with connected(server) as flux:
        await flux.turn(TEXT)
        metadata = await flux.until("SpeechMetadata")
        first_ms = metadata["audio_duration_ms"]
        told = await flux.interrupt(at_ms=first_ms - 700)
        assert (told["text_spoken"], told["text_remaining"]) != (TEXT, "")
        assert told["text_spoken"].startswith("Your order has been shipped.")
        assert told["metadata"]["speech_id"] == metadata["speech_id"]
        # audio that was not played counts no more: the next turn begins where the client was
        await flux.turn(TEXT)
        await flux.until("SpeechMetadata")
        told = await flux.interrupt(at_ms=first_ms - 700 + 5)
        assert (told["text_spoken"], told["text_remaining"]) == ("", TEXT)


async def test_the_turn_that_is_played_is_told_not_the_one_that_is_made(server: Server) -> None:
    async with connected(server) as flux:
        await flux.turn("The first one.")
        metadata = await flux.until("SpeechMetadata")
        await flux.say("Speak", text=LONG)
        await flux.audio_of(2000)
        told = await flux.interrupt(at_ms=metadata["audio_duration_ms"] // 2)
        assert told["metadata"]["speech_id"] == metadata["speech_id"]
        assert told["text_spoken"] in ("The", "The first")


async def test_without_an_offset_only_the_audio_is_told(server: Server) -> None:
    async with connected(server) as flux:
        await flux.say("Speak", text=LONG)
        await flux.audio_of(2000)
        told = await flux.interrupt()
        assert "text_spoken" not in told
        assert told["audio_played_ms"] == pytest.approx(flux.audio_ms, abs=1)


@pytest.mark.parametrize("text", ["😀", "<think>They want the balance.</think>"])
async def test_a_turn_of_which_nothing_is_spoken_says_so(server: Server, text: str) -> None:
    async with connected(server) as flux:
        await flux.turn(text)
        assert (await flux.until("Warning", "Flushed"))["code"] == "NO_SYNTHESIZABLE_TEXT"


async def test_interruptions_of_nothing_are_warnings(server: Server) -> None:
    async with connected(server) as flux:
        assert (await flux.interrupt())["code"] == "NO_ACTIVE_SPEECH"
        assert (await flux.interrupt(at_ms=10))["code"] == "NO_AUDIO_GENERATED"
        await flux.say("Flush")
        assert (await flux.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
        await flux.turn(TEXT)
        await flux.until("SpeechMetadata")
        assert (await flux.interrupt(at_ms=1000))["type"] == "SpeechInterrupted"
        assert (await flux.interrupt(at_ms=1000))["code"] == "NO_ACTIVE_SPEECH"
        await flux.turn(TEXT)
        await flux.until("SpeechMetadata")
        assert (await flux.interrupt(at_ms=1000))["code"] == "INVALID_INTERRUPT_OFFSET"
        assert (await flux.interrupt(at_ms=10**9))["text_spoken"] == TEXT  # a client that counts too much


async def test_a_turn_without_words_is_over_at_once(server: Server) -> None:
    async with connected(server) as flux:
        await flux.turn(" ... ")
        assert (await flux.until("Warning"))["code"] == "NO_SYNTHESIZABLE_TEXT"
        assert (await flux.until("SpeechMetadata"))["audio_duration_ms"] == 0


async def test_the_speed_of_the_next_turn_is_changed(server: Server) -> None:
    async with connected(server) as flux:
        lengths_ms = []
        for speed in (1.0, 0.6):
            await flux.say("Configure", speed=speed)
            assert (await flux.until("ConfigureSuccess"))["applied"] == {"speed": speed}
            await flux.turn(TEXT)
            lengths_ms.append((await flux.until("SpeechMetadata"))["audio_duration_ms"])
        assert lengths_ms[1] > 1.3 * lengths_ms[0]
        await flux.say("Configure", speed=9)
        assert (await flux.until("ConfigureFailure"))["code"] == "SPEED_OUT_OF_RANGE"


async def test_what_cannot_be_spoken_is_an_error_and_the_turn_has_its_end(server: Server) -> None:
    async with connected(server) as flux:
        await flux.turn(f"Hello there. {UGARITIC} Goodbye.")
        assert (await flux.until("Error"))["code"] == "DATA-0000"
        await flux.until("SpeechMetadata")
        await flux.turn("x" * 5001)
        assert (await flux.until("Error"))["code"] == "BIG-0000"
        await flux.until("SpeechMetadata")
        await flux.say("Sing")
        assert (await flux.until("Error"))["code"] == "MESSAGE-0000"
        await flux.turn("Hello.")
        assert (await flux.until("SpeechMetadata"))["audio_duration_ms"] > 200


@pytest.mark.parametrize(
    "query", ["model=nobody", "encoding=mp3", "encoding=linear16&container=wav", "model=en-us&sample_rate=1", "speed=x"]
)
async def test_what_does_not_exist_is_refused_before_the_handshake(server: Server, query: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with connected(server, query):
            pass
    assert refused.value.status == 422
