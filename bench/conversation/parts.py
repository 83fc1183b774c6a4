"""The parts: what is done on every call of a level, and what is timed."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import numpy as np

from bench.conversation.answers import OPENINGS, Sent, text_of, write
from bench.conversation.stage import Found, Level, calls_up, each_call, pids_of
from cc_tts.audio import PTIME_MS
from cc_tts.clock import NS_PER_MS
from cc_tts.media.g711 import ulaw_encode
from cc_tts.processes.tasks import cancel_all
from cc_tts.softphone.rtp.packets import SAMPLES_PER_PACKET
from lab.caller_audio import pcm_of, said
from lab.load import SENTENCE, cpu_s
from lab.server_under_test import Json, Server

VOICES: Final = {"espeak": "en-us", "onnx": "hibari-heart"}
PHRASES: Final = (
    ("en-us", "I have a question."),
    ("en-gb", "Can you hear me?"),
    ("de", "Eine Frage, bitte."),
    ("fr-fr", "Je voudrais parler."),
)
CALLER_DBFS: Final = -24.0
ECHO_DB: Final = -20.0
TONE: Final = {"tone": "440", "duration_ms": 60_000}
SILENT_SHARE: Final = 0.35
"""Of the time of barge-in: callers are silent so long, then they speak."""
FIRST_WORDS_SHARE: Final = 0.75
"""Of the time of text: answers are cleared so long, then one is heard to its end, for which there are ``WHOLE_S``."""
WHOLE_S: Final = 30.0
HEARD_WITHIN_NS: Final = 300_000_000
"""Of an answer that was cleared: what comes later is of the next one."""
MARK_PEAK: Final = 8000
CPU_WINDOW_S: Final = 10.0


class Sounds:
    """What callers send, as files of μ-law."""

    def __init__(self, folder: Path) -> None:
        self.phrases: list[Path] = []
        self.talks: list[Path] = []
        for number, (voice, text) in enumerate(PHRASES):
            octets = ulaw_encode(pcm_of(said(text, CALLER_DBFS, voice)))
            self.phrases.append(self._file(folder / f"{number}.ulaw", octets))
            self.talks.append(self._file(folder / f"{number}_long.ulaw", octets * 20))
        loud = np.tile(np.array([0.9, -0.9]), SAMPLES_PER_PACKET // 2)
        self.mark = self._file(folder / "mark.ulaw", ulaw_encode(pcm_of(loud)))

    @staticmethod
    def _file(path: Path, octets: bytes) -> Path:
        path.write_bytes(octets)
        return path


async def keys(level: Level, _sounds: Sounds) -> Found:
    """A key, to ``call.gather_complete`` on the WebSocket of events."""
    found = Found()
    found.counts.update(keys=0, not_recognised=0)

    async def press(number: int, call_id: str) -> None:
        while not level.is_over:
            await level.server.ask(f"/v1/calls/{call_id}/gather", {"max_digits": 1})
            await asyncio.sleep(random.uniform(0.1, 0.5))
            digit = random.choice("0123456789")
            pressed = await level.callers.press(number, digit)
            done = await level.events.wait("call.gather_complete", call_id)
            found.counts["keys"] += 1
            if done["digits"] == digit:
                found.took("end_of_key_to_event_ms", pressed["end_ns"], done["seen_ns"])
                found.took("first_packet_to_event_ms", pressed["first_ns"], done["seen_ns"])
            else:
                found.counts["not_recognised"] += 1  # the gather has timed out
            await asyncio.sleep(0.15)  # the pause that a telephone leaves between two keys

    await each_call(level, press)
    return found


async def media(level: Level, sounds: Sounds) -> Found:
    """A loud frame of RTP, to the message of the media WebSocket that holds it."""
    found = Found()

    async def listen(number: int, call_id: str) -> None:
        url = f"{level.server.url}/v1/calls/{call_id}/media?direction=in&rate=8000"
        heard: asyncio.Queue[int] = asyncio.Queue()
        times: list[int] = []
        async with level.server.http.ws_connect(url, timeout=aiohttp.ClientWSTimeout(ws_close=5)) as socket:
            reading = asyncio.create_task(_hear(socket, heard, times, found))
            try:
                while not level.is_over:
                    await asyncio.sleep(random.uniform(0.2, 0.4))
                    sent_ns = await level.callers.say(number, sounds.mark)
                    found.counts["marks"] += 1
                    try:
                        async with asyncio.timeout(2.0):
                            found.took("rtp_to_websocket_ms", sent_ns, await heard.get())
                    except TimeoutError:
                        found.counts["marks_lost"] += 1
            finally:
                await cancel_all(reading)
        found.counts["frames"] += len(times)
        found.counts["frames_missing"] += num_missing(times)

    found.counts.update(marks_lost=0, frames_dropped=0, frames_missing=0)
    await each_call(level, listen)
    return found


def num_missing(times_ns: Sequence[int]) -> int:
    """Frames that are missing of a stream with one every 20 ms. What is only late does not count: the least delay of the
    last quarter is compared with that of the first.
    """
    delays_ns = np.array(times_ns, dtype=np.int64) - np.arange(len(times_ns)) * PTIME_MS * NS_PER_MS
    quarter = len(delays_ns) // 4
    if not quarter:
        return 0
    shift_ns = int(delays_ns[-quarter:].min() - delays_ns[:quarter].min())
    return max(0, round(shift_ns / (PTIME_MS * NS_PER_MS)))


async def _hear(
    socket: aiohttp.ClientWebSocketResponse, heard: asyncio.Queue[int], times: list[int], found: Found
) -> None:
    was_loud = False
    async for message in socket:
        now_ns = time.monotonic_ns()
        if message.type is aiohttp.WSMsgType.BINARY:
            times.append(now_ns)
            is_loud = any(message.data) and int(np.frombuffer(message.data, "<i2").max()) > MARK_PEAK
            if is_loud and not was_loud:
                heard.put_nowait(now_ns)
            was_loud = is_loud
        elif message.type is aiohttp.WSMsgType.TEXT and (event := message.json())["type"] == "dropped":
            found.counts["frames_dropped"] += event["frames"]


async def barge_in(level: Level, sounds: Sounds) -> Found:
    """Prompts are said to silent callers, whose line returns an echo; then each caller speaks into tones without gaps."""
    found = Found()
    found.counts.update(silent_prompts=0, silent_prompts_ms=0, false_stops=0, interruptions=0, not_interrupted=0)
    silent_until_s = time.monotonic() + SILENT_SHARE * (level.until_s - time.monotonic())

    async def stay_silent(_number: int, call_id: str) -> None:
        await asyncio.sleep(random.uniform(0.0, 1.0))
        while time.monotonic() < silent_until_s:
            utterance = await level.server.ask(f"/v1/calls/{call_id}/speak", {"text": SENTENCE.strip()})
            done = await level.events.wait("speak.complete", utterance["id"], timeout_s=15.0)
            found.counts["silent_prompts"] += 1
            found.counts["silent_prompts_ms"] += round(done["played_ms"])
            found.counts["false_stops"] += done["interrupted_by"] is not None
            found.counts["false_onsets"] += len(level.events.take("call.speech_started", call_id))
            level.events.take("call.speech_stopped", call_id)

    said_ns: list[list[int]] = [[] for _ in level.call_ids]

    async def interrupt(number: int, call_id: str) -> None:
        await asyncio.sleep(random.uniform(0.0, 1.0))
        while not level.is_over:
            utterance = await level.server.ask(f"/v1/calls/{call_id}/play", TONE)
            await level.events.wait("speak.started", utterance["id"])
            await asyncio.sleep(random.uniform(0.4, 0.9))
            for type_ in ("call.speech_started", "call.speech_stopped"):
                level.events.take(type_, call_id)
            phrase = number % len(sounds.phrases)
            first_ns = await level.callers.say(number, sounds.phrases[phrase])
            found.counts["interruptions"] += 1
            try:
                done = await level.events.wait("speak.complete", utterance["id"], timeout_s=4.0)
            except TimeoutError:
                found.counts["not_interrupted"] += 1
                found.counts[f"not_interrupted_by_{PHRASES[phrase][0]}"] += 1
                await level.server.ask(f"/v1/calls/{call_id}/stop")
                continue
            assert done["interrupted_by"] == "speech", done
            started = await level.events.wait("call.speech_started", call_id)
            await level.events.wait("call.speech_stopped", call_id)
            said_ns[number].append(first_ns)
            found.took("speech_to_event_ms", first_ns, started["seen_ns"])
            await asyncio.sleep(0.2)

    level.callers.echo(ECHO_DB)
    await each_call(level, stay_silent)
    level.callers.echo(None)
    await asyncio.sleep(0.5)
    await each_call(level, interrupt)
    spurts = (await level.callers.report())["talkspurts"]
    for instants, of_call in zip(said_ns, spurts, strict=True):
        for first_ns in instants:
            end_ns = next((end for start, end in of_call if start < first_ns < end), None)
            if end_ns is None:
                found.counts["not_found"] += 1
            else:
                found.took("speech_to_last_packet_ms", first_ns, end_ns)
    return found


async def text(level: Level, _sounds: Sounds, *, engine: str) -> Found:
    """Answers as a language model writes them, to the first audible packet; then one on each call to its end."""
    found = Found()
    found.counts.update(answers=0, not_heard=0, whole=0, whole_underruns=0, whole_not_word_for_word=0)
    sent: list[list[Sent]] = [[] for _ in level.call_ids]
    refused: dict[str, str] = {}
    start = {"type": "start", "voice": VOICES[engine]}
    first_words_until_s = time.monotonic() + FIRST_WORDS_SHARE * (level.until_s - time.monotonic())

    async def answer(number: int, call_id: str) -> None:
        url = f"{level.server.url}/v1/calls/{call_id}/stream"
        async with level.server.http.ws_connect(url, timeout=aiohttp.ClientWSTimeout(ws_close=5)) as socket:
            reading = asyncio.create_task(_follow(socket, refused))
            await asyncio.sleep(random.uniform(0.0, 2.5))
            while time.monotonic() < first_words_until_s:
                name = f"{call_id}:{len(sent[number])}"
                await socket.send_json(start | {"utterance_id": name})
                sent[number].append(await write(socket, random.choice(OPENINGS), name))
                await socket.send_json({"type": "clear"})
                await asyncio.sleep(random.uniform(0.6, 1.2))
            name, opening = f"{call_id}:whole", OPENINGS[number % len(OPENINGS)]
            await socket.send_json(start | {"utterance_id": name})
            await write(socket, opening, name)
            await socket.send_json({"type": "end"})
            try:
                done = await level.events.wait("speak.complete", name, timeout_s=WHOLE_S)
            except TimeoutError:
                found.counts["whole_not_in_time"] += 1
            else:
                if done["completion_cause"] == "normal":
                    found.counts["whole"] += 1
                    found.counts["whole_underruns"] += done["underruns"]
                    found.counts["whole_not_word_for_word"] += done["spoken_text"] != text_of(opening)
                else:
                    found.counts[f"whole_{done.get('error') or done['completion_cause']}"] += 1
            await cancel_all(reading)

    await each_call(level, answer)
    spurts = (await level.callers.report())["talkspurts"]
    for answers, of_call in zip(sent, spurts, strict=True):
        for each in answers:
            found.counts["answers"] += 1
            heard_ns = next((at for at, _ in of_call if each.first_ns <= at < each.last_ns + HEARD_WITHIN_NS), None)
            if each.utterance_id in refused:
                found.counts[refused[each.utterance_id]] += 1
            elif heard_ns is None:
                found.counts["not_heard"] += 1
            else:
                found.took("certain_to_speech_ms", each.certain_ns, heard_ns)
                found.took("comma_to_speech_ms", each.comma_ns, heard_ns)
                found.took("first_token_to_speech_ms", each.first_ns, heard_ns)
    return found


async def _follow(socket: aiohttp.ClientWebSocketResponse, refused: dict[str, str]) -> None:
    async for message in socket:
        match message.json():
            case {"type": "speak.complete", "utterance_id": str(name), "error": str(code)}:
                refused[name] = code


async def vad_cost(server: Server, num_calls: int, sounds: Sounds) -> Json:
    """CPU of each process, percent of a core a leg, while a protected tone plays: not listened to, listened to while the
    caller is silent, and while the caller speaks without end.
    """
    async with calls_up(server, num_calls, "caller", seconds=0.0) as level:
        protected = TONE | {"barge_in": {"speech": False}}
        for call_id in level.call_ids:
            await server.ask(f"/v1/calls/{call_id}/play", protected)
        await asyncio.sleep(1.0)
        found = {"not_listened_to": await _cpu(server, num_calls)}
        for call_id in level.call_ids:
            status, answer = await server.patch(f"/v1/calls/{call_id}", {"barge_in": {"speech": True}})
            assert status == HTTPStatus.OK, answer
        await asyncio.sleep(2.0)
        found["caller_silent"] = await _cpu(server, num_calls)
        for number in range(num_calls):
            await level.callers.say(number, sounds.talks[number % len(sounds.talks)])
        await asyncio.sleep(1.0)
        found["caller_speaks"] = await _cpu(server, num_calls)
    return found


async def _cpu(server: Server, num_calls: int) -> dict[str, float]:
    pids = {name: each for name, each in pids_of(server).items() if name in {"server", "ua", "vad"}}
    before = {name: sum(map(cpu_s, each)) for name, each in pids.items()}
    await asyncio.sleep(CPU_WINDOW_S)
    return {
        name: round((sum(map(cpu_s, each)) - before[name]) / CPU_WINDOW_S / num_calls * 100, 3)
        for name, each in pids.items()
    }


Measure = Callable[[Level, Sounds], Awaitable[Found]]


@dataclass(frozen=True, slots=True)
class Part:
    """``user``: the route of its calls. ``overhead_s``: what it takes beyond its time. ``rounds_of_one``: with one call, so
    many are placed in turn, since one call has but one phase between the clocks of both sides.
    """

    measure: Measure
    rows: Mapping[str, str]
    user: str = "caller"
    rounds_of_one: int = 1


def _text(engine: str) -> Part:
    async def measure(level: Level, sounds: Sounds) -> Found:
        return await text(level, sounds, engine=engine)

    return Part(
        measure,
        {
            "certain_to_speech_ms": "the clause is certain → speech",
            "comma_to_speech_ms": "its comma → speech",
            "first_token_to_speech_ms": "first token → speech",
        },
    )


def parts_of(name: str, engines: Sequence[str]) -> dict[str, Part]:
    match name:
        case "keys":
            rows = {
                "end_of_key_to_event_ms": "end of a key → call.gather_complete",
                "first_packet_to_event_ms": "its first packet → call.gather_complete",
            }
            return {name: Part(keys, rows)}
        case "media":
            return {name: Part(media, {"rtp_to_websocket_ms": "RTP in → WebSocket"}, rounds_of_one=8)}
        case "barge-in":
            rows = {
                "speech_to_last_packet_ms": "first packet of speech → last of the prompt",
                "speech_to_event_ms": "first packet of speech → call.speech_started",
            }
            return {name: Part(barge_in, rows, user="listened")}
        case _:
            return {f"text {engine}": _text(engine) for engine in engines}
