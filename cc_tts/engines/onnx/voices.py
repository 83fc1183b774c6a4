"""Which voices there are: the one that the hibari package brings, and what lies in ``tts.voices_dir``.

``NAME.onnx`` with ``NAME.onnx.json`` is a Piper voice; a model of hibari's further voices is told by its file name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cc_tts.voices.voice import Voice

Samples = npt.NDArray[np.float32]


class Sentence(NamedTuple):
    """Audio, -1 to 1, mono; ``mark`` is the punctuation mark that it ends with, or empty."""

    samples: Samples
    mark: str


class Synthesiser(Protocol):
    """A loaded voice. Any thread, several at a time."""

    rate_hz: int

    def speak(self, text: str, *, speed: float) -> Iterator[Sentence]:
        """The words of a text chunk, each sentence as soon as it is made."""


@dataclass(frozen=True, slots=True)
class FoundVoice:
    """A voice that was found, and how to load it: ``ConfigError``, which names the file, if it is damaged."""

    voice: Voice
    load: Callable[[], Synthesiser]


def find_voices(voices_dir: Path | None) -> list[FoundVoice]:
    """All voices, the packaged one first; a file in ``voices_dir`` that is no voice is left out with an error in the log."""
    from cc_tts.engines.onnx.hibari import hibari_voices
    from cc_tts.engines.onnx.piper import piper_voices

    return [*hibari_voices(voices_dir), *(piper_voices(voices_dir) if voices_dir is not None else [])]
