"""Texts whose speech has a length that the bench chooses: with rule-filled weights nothing else decides about it."""

import random
from collections.abc import Sequence
from typing import Final

from bench.engine.figures import TOKENS_PER_S
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LengthLimits
from cc_tts.engines.cosyvoice.prefill import Prefill, SamplingRules
from cc_tts.engines.cosyvoice.voice.text_front import TextFront
from cc_tts.errors import Unprocessable

_WORDS: Final = ("hello", "and", "welcome", "to", "the", "service", "line", "your", "call", "is", "important", "please")
_WORDS_PER_S: Final = 2.5
_LEAST_S: Final = 0.04


def sized_text(seconds: float, seed: int = 0) -> str:
    """A text that becomes ``seconds`` of speech, with about as many words as that takes."""
    draw = random.Random(seed)
    words = [draw.choice(_WORDS) for _ in range(max(1, round(seconds * _WORDS_PER_S)))]
    return f"{round(max(_LEAST_S, seconds) * TOKENS_PER_S)} {' '.join(words)}"


def num_tokens_of(text: str) -> int:
    """The speech tokens that a sized text becomes.

    Raises:
        Unprocessable: it does not begin with a number.

    """
    number = text.partition(" ")[0]
    if not number.isdecimal() or int(number) < 1:
        raise Unprocessable("a text of a bench begins with the number of its speech tokens")
    return int(number)


class SizedFront(TextFront):
    """The front end of the engine, with the length of the speech given by the text."""

    def prepare(
        self, voice_id: str, text: str, *, more_follows: bool = False, instruction: Sequence[int] = ()
    ) -> Prefill | None:
        """See ``TextFront.prepare``; sampling ends at the number the text begins with."""
        prepared = super().prepare(voice_id, text, more_follows=more_follows, instruction=instruction)
        if prepared is None:
            return None
        length = num_tokens_of(text)
        rules = SamplingRules.of_request(LengthLimits(length, length))
        return Prefill(prepared.inputs, rules)


def sentences(count: int, seed: int) -> Sequence[str]:
    """Sentences of 2 to 10 s."""
    draw = random.Random(seed)
    return [sized_text(draw.uniform(2.0, 10.0), draw.randrange(1000)) for _ in range(count)]
