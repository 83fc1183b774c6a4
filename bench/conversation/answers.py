"""Answers as a language model writes them: 67 tokens in 2.1 s."""

import asyncio
import re
import time
from functools import cache
from typing import Final

import aiohttp

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


class Sent:
    """When what was sent of one answer, ns."""

    def __init__(self, utterance_id: str) -> None:
        self.utterance_id = utterance_id
        self.first_ns = self.comma_ns = self.certain_ns = self.last_ns = 0


def text_of(opening: str) -> str:
    return opening + ANSWER


@cache
def tokens_of(text: str) -> tuple[str, ...]:
    """The text in 67 tokens, each a word or a part of one."""
    parts = re.findall(r" ?\w+|[^\w ]", text)
    while len(parts) > NUM_TOKENS:
        shortest = min(range(len(parts) - 1), key=lambda at: len(parts[at]) + len(parts[at + 1]))
        parts[shortest : shortest + 2] = [parts[shortest] + parts[shortest + 1]]
    return tuple(parts)


async def write(socket: aiohttp.ClientWebSocketResponse, opening: str, utterance_id: str) -> Sent:
    """Send an answer at the pace of a model."""
    sent, written, start_s = Sent(utterance_id), "", time.monotonic()
    tokens = tokens_of(text_of(opening))
    for number, token in enumerate(tokens):
        await asyncio.sleep(max(0.0, start_s + number * ANSWER_S / len(tokens) - time.monotonic()))
        sent.last_ns = time.monotonic_ns()
        await socket.send_json({"type": "tokens", "text": token})
        written += token
        sent.first_ns = sent.first_ns or sent.last_ns
        if len(written) >= len(opening):
            sent.comma_ns = sent.comma_ns or sent.last_ns
        if len(written) >= len(opening) + LOOKAHEAD_CHARS:
            sent.certain_ns = sent.certain_ns or sent.last_ns
    return sent
