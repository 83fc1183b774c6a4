"""The contract of voices on the CPU: the engine finds them, loads them and has them speak."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cc_tts.voices.voice import Voice


class WordStart(NamedTuple):
    """A word begins at character ``position`` of the text chunk and at ``sample`` of its sentence."""

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
"""The audio of a text chunk; whoever does not listen any more closes it."""


class Synthesiser(Protocol):
    """A loaded model. Any thread may call it, several at a time."""

    rate_hz: int

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:
        """Speak a text chunk with one of the model's voices. Each part is made when it is asked for, on whichever thread
        asks, so that other streams may be served between two parts; no lock is held then.
        """
        ...


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that was found, its voices, and how to load it: ``ConfigError``, which names the file, if it is damaged.
    ``variants`` are names that each voice takes after a plus sign.
    """

    voices: tuple[Voice, ...]
    load: Callable[[], Synthesiser]
    variants: tuple[str, ...] = ()
    family: str = ""
    """Models of the same family are one network with several voices: what one costs the others cost as well."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A file that should be a voice and is none; ``detail`` names it and says why."""

    detail: str
