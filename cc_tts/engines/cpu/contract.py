"""The contract of voices on the CPU: how the engine finds them, loads them and has them speak."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cc_tts.errors import ConfigError
from cc_tts.voices.voice import Voice


class WordStart(NamedTuple):
    """A word that begins at character ``position`` of the text chunk and at ``sample`` of its sentence."""

    position: int
    sample: int


class SentenceAudio(NamedTuple):
    """The next audio of a sentence, signed 16-bit little-endian PCM, mono. ``ends_with`` is the end of the sentence's text,
    whose punctuation decides the pause after it; it is ``None`` while more of the sentence follows. ``is_last``: nothing of
    the chunk follows, which is known before the next part is asked for.
    """

    pcm: bytes
    ends_with: str | None
    words: tuple[WordStart, ...] = ()
    is_last: bool = False


Parts = Generator[SentenceAudio, None, None]
"""The audio of a text chunk. A reader that stops early closes it."""


class Synthesiser(Protocol):
    """A loaded model. Any thread may call it, several at a time."""

    rate_hz: int

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:
        """Speak a text chunk with one of the model's voices. Each part is computed when it is requested, on the requesting
        thread and without a lock, so that other streams can run between two parts.
        """
        ...


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that was found, its voices, and how to load it (``ConfigError`` names a damaged file). ``variants``: the names
    that may follow each voice after a plus sign.
    """

    voices: tuple[Voice, ...]
    load: Callable[[], Synthesiser]
    variants: tuple[str, ...] = ()
    family: str = ""
    """Models of the same family are one network with several voices, which cost the same."""


Found = FoundModel | ConfigError
"""A model, or why a file is none."""
