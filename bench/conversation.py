"""How soon a language model's tokens are heard: measured at the caller's socket.

    python -m bench.conversation [--answers 40] [--whole 5] [--engines espeak onnx]

A client writes answers of 67 tokens in 2.1 s into the text stream of one call, as a model does. Of ``--answers`` the first
words are timed, then they are cleared; ``--whole`` ones are spoken to their end and their underruns counted.
"""

import argparse
import asyncio
import contextlib
import re
import time
from typing import Final

import aiohttp

from bench.first_audio import Line, dial
from bench.lab import EventLog, Json, LabServer, machine, percentiles, save, show
from bench.softphone import SoftphoneProcess

OPENINGS: Final = ("Thank you for calling,", "Good morning to you,", "Let me have a look,", "One moment please,")
ANSWER: Final = (
    " I have found your account. The balance is twelve dollars and fifty cents, and the next payment of thirty dollars is "
    "due on Tuesday. You can pay it by card, or at any of our branches, which are open until six. Would you like me to "
    "send you a reminder, or is there anything else that I can help you with?"
)
NUM_TOKENS: Final = 67
ANSWER_S: Final = 2.1
LOOKAHEAD_CHARS: Final = 4
"""So many characters behind a comma show that a clause ends there (``cc_tts.text.segments``)."""
QUIET_S: Final = 0.6


def tokens_of(text: str) -> list[str]:
    """The text in 67 tokens, each a word or a part of one."""
    parts = re.findall(r" ?\w+|[^\w ]", text)
    while len(parts) > NUM_TOKENS:
        shortest = min(range(len(parts) - 1), key=lambda at: len(parts[at]) + len(parts[at + 1]))
        parts[shortest : shortest + 2] = [parts[shortest] + parts[shortest + 1]]
    return parts


class Sent:
    """When what was sent of one answer, ns."""

    def __init__(self) -> None:
        self.first_ns = self.comma_ns = self.certain_ns = 0


async def write(socket: aiohttp.ClientWebSocketResponse, opening: str) -> Sent:
    """Send an answer at the pace of a model."""
    sent, written, start_s = Sent(), "", time.monotonic()
    tokens = tokens_of(opening + ANSWER)
    for number, token in enumerate(tokens):
        await asyncio.sleep(max(0.0, start_s + number * ANSWER_S / len(tokens) - time.monotonic()))
        now_ns = time.monotonic_ns()
        await socket.send_json({"type": "tokens", "text": token})
        written += token
        sent.first_ns = sent.first_ns or now_ns
        if len(written) >= len(opening):
            sent.comma_ns = sent.comma_ns or now_ns
        if len(written) >= len(opening) + LOOKAHEAD_CHARS:
            sent.certain_ns = sent.certain_ns or now_ns
    return sent


async def first_words(server: LabServer, phone: SoftphoneProcess, line: Line, count: int) -> list[Sent]:
    """Write and clear ``count`` answers."""
    del phone
    sent = []
    async with server.http.ws_connect(f"{server.url}/v1/calls/{line.call_id}/stream") as socket:
        for number in range(count):
            sent.append(await write(socket, OPENINGS[number % len(OPENINGS)]))
            await socket.send_json({"type": "clear"})
            await asyncio.sleep(QUIET_S)
    return sent


async def whole_answers(server: LabServer, log: EventLog, line: Line, count: int) -> Json:
    """Write ``count`` answers and let them be heard."""
    underruns, lost = 0, 0
    async with server.http.ws_connect(f"{server.url}/v1/calls/{line.call_id}/stream") as socket:
        for number in range(count):
            name, opening = f"whole-{number}", OPENINGS[number % len(OPENINGS)]
            await socket.send_json({"type": "start", "utterance_id": name})
            await write(socket, opening)
            await socket.send_json({"type": "end"})
            done = (await log.wait("speak.complete", utterance_id=name))["data"]
            underruns += done["underruns"]
            lost += done["spoken_text"] != opening + ANSWER
    return {"answers": count, "underruns": underruns, "not_word_for_word": lost}


async def measure(engine: str, answers: int, whole: int) -> Json:
    """One engine."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(await LabServer.start(f"tts.engine={engine}"))
        phone = await stack.enter_async_context(await SoftphoneProcess.start())
        line = await dial(server, phone, "c")
        sent = await first_words(server, phone, line, answers)
        log = await stack.enter_async_context(server.events())
        heard_out = await whole_answers(server, log, line, whole)
        report = await phone.hangup(call="c")
    starts = [spurt["start_at_ns"] for spurt in report["talkspurts"]]
    first_ns = [next(start for start in starts if start >= each.first_ns) for each in sent]

    def since(name: str) -> Json:
        return percentiles([(start - getattr(each, name)) / 1e6 for start, each in zip(first_ns, sent, strict=True)])

    return {
        "certain_to_speech_ms": since("certain_ns"),
        "comma_to_speech_ms": since("comma_ns"),
        "first_token_to_speech_ms": since("first_ns"),
        "whole": heard_out,
        "lost_packets": report["rtp"]["lost"],
        "gap_ms": report["rtp"]["gap_ms"],
    }


async def run(arguments: argparse.Namespace) -> Json:
    """Every engine."""
    result: Json = {"bench": "conversation", "machine": machine(), "text_stream": {}}
    for engine in arguments.engines:
        print(f"{engine}: {arguments.answers} answers, and {arguments.whole} to their end …", flush=True)
        part = result["text_stream"][engine] = await measure(engine, arguments.answers, arguments.whole)
        show(
            f"{engine}, {NUM_TOKENS} tokens in {ANSWER_S} s",
            [
                ("the clause is certain, to speech", part["certain_to_speech_ms"]),
                ("its comma, to speech", part["comma_to_speech_ms"]),
                ("first token, to speech", part["first_token_to_speech_ms"]),
            ],
        )
        print(part["whole"])
    return result


def main() -> None:
    """Run and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=40)
    parser.add_argument("--whole", type=int, default=5)
    parser.add_argument("--engines", nargs="+", default=["espeak", "onnx"])
    arguments = parser.parse_args()
    result = asyncio.run(run(arguments))
    print(f"\nsaved {save('conversation', result)}")


if __name__ == "__main__":
    main()
