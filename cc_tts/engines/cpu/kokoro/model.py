"""The model: tokens, a row of the voice's styles and a speed in, samples out."""

import json
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import hibari
import numpy as np

from cc_tts.engines.cpu.networks import Samples, network_of
from cc_tts.errors import ConfigError

RATE_HZ: Final = 24_000
MAX_TOKENS: Final = 510
"""Tokens of a sentence without the two at its ends: the model has 512 positions (its ONNX graph)."""


@cache
def symbols() -> dict[str, int]:
    """Kokoro's tokens by their signs. hibari has the same: it is distilled from Kokoro."""
    path = Path(hibari.__file__).parent / "assets" / "vocab.json"
    known: dict[str, int] = json.loads(path.read_text("utf-8"))
    return known


def tokens_of(phonemes: str) -> list[int]:
    """The tokens of a phoneme string; a sign that Kokoro lacks is decomposed, and what is still unknown left out."""
    known = symbols()
    signs = (sign if sign in known else unicodedata.normalize("NFD", sign) for sign in phonemes)
    return [known[each] for sign in signs for each in sign if each in known]


def tokens_input(runner: Any, path: Path) -> str:
    """The name that an export of Kokoro gives the tokens; raises ``ConfigError`` if the inputs are not those of Kokoro."""
    names = {each.name for each in runner.get_inputs()}
    tokens = "tokens" if "tokens" in names else "input_ids"
    if names != {tokens, "style", "speed"}:
        raise ConfigError(f"{path}: not the model of Kokoro: its inputs are {', '.join(sorted(names))}")
    return tokens


def inputs_of(tokens: list[int], style: Samples, speed: float, *, tokens_name: str) -> dict[str, Any]:
    """The inputs for a sentence; :func:`tokens_input` tells ``tokens_name``."""
    return {
        tokens_name: np.asarray([[0, *tokens, 0]], np.int64),
        "style": style.reshape(1, -1),
        "speed": np.asarray([speed], np.float32),
    }


Speak = Callable[[list[int], Samples, float], Iterator[Samples]]
"""It takes the tokens of a sentence, a row of styles and a speed, and gives the samples as they are made."""


def whole_model(path: Path) -> Speak:
    """One session for all voices; any thread may call it. Raises ``ConfigError`` if the file is no model of Kokoro's."""
    model = network_of(path)
    tokens_name = tokens_input(model, path)

    def speak(tokens: list[int], style: Samples, speed: float) -> Iterator[Samples]:
        inputs = inputs_of(tokens, style, speed, tokens_name=tokens_name)
        yield np.asarray(model.run(None, inputs)[0], np.float32).reshape(-1)

    return speak
