"""One prompt as the cache keeps it, and the same as a file.

::

    magic 8 · length of head 4 · length of PCM 4 · SHA-256 of head and PCM 32 · head (JSON) · PCM (s16le)

Of the caller's words only their numbers of characters are here: whoever plays the prompt has the words at hand.
"""

import hashlib
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from cc_tts.audio import BYTES_PER_SAMPLE

FORMAT_VERSION: Final = 1
"""Of the file, and of what goes into a key; another number, and nothing kept before is found."""
MAX_RATE_HZ: Final = 192_000

_MAGIC: Final = b"cctts\x00p" + bytes([FORMAT_VERSION])
_PREFIX: Final = struct.Struct("<8sII32s")
_PROMPT_BYTES: Final = 512
_MARK_BYTES: Final = 128
_WORD_BYTES: Final = 160
"""What objects cost in memory besides the PCM, roughly."""


class PromptMark(msgspec.Struct, frozen=True, array_like=True):
    """Something begins at ``at_bytes`` of the PCM: a text chunk of ``source_chars`` characters of the caller's (``None``: no
    new one), and ``words`` as in :class:`cc_tts.calls.utterance.SpokenSpan`.
    """

    at_bytes: int
    source_chars: int | None
    words: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class KeptPrompt:
    """A whole prompt: PCM at line rate, with its marks in order."""

    rate_hz: int
    pcm: bytes
    marks: tuple[PromptMark, ...] = ()

    @property
    def num_chars(self) -> int:
        """Characters of the caller's text that the marks take."""
        return sum(mark.source_chars or 0 for mark in self.marks)

    @property
    def num_bytes(self) -> int:
        """What it costs in memory, about."""
        num_words = sum(len(mark.words) for mark in self.marks)
        return _PROMPT_BYTES + len(self.pcm) + _MARK_BYTES * len(self.marks) + _WORD_BYTES * num_words


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    rate_hz: int
    marks: tuple[PromptMark, ...]


def to_file(key: str, prompt: KeptPrompt) -> bytes:
    """The bytes of the file that :func:`from_file` reads."""
    head = msgspec.json.encode(_Head(key=key, rate_hz=prompt.rate_hz, marks=prompt.marks))
    digest = hashlib.sha256(head + prompt.pcm).digest()
    return _PREFIX.pack(_MAGIC, len(head), len(prompt.pcm), digest) + head + prompt.pcm


def from_file(key: str, data: bytes) -> KeptPrompt:
    """Read a file back.

    Raises:
        ValueError: it was cut short, changed, or is the file of something else.
    """
    if len(data) < _PREFIX.size:
        raise ValueError("too short")
    magic, head_bytes, pcm_bytes, digest = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("not a kept prompt of this version")
    if len(data) != _PREFIX.size + head_bytes + pcm_bytes:
        raise ValueError("its length is not what its head says")
    if hashlib.sha256(memoryview(data)[_PREFIX.size :]).digest() != digest:
        raise ValueError("its checksum is wrong")
    try:
        head = msgspec.json.decode(data[_PREFIX.size : _PREFIX.size + head_bytes], type=_Head)
    except msgspec.DecodeError as error:
        raise ValueError(f"its head cannot be read: {error}") from None
    if head.key != key:
        raise ValueError("it holds another prompt than its name says")
    prompt = KeptPrompt(head.rate_hz, data[_PREFIX.size + head_bytes :], head.marks)
    if not is_sound(prompt):
        raise ValueError("its marks do not fit its audio")
    return prompt


def is_sound(prompt: KeptPrompt) -> bool:
    """Whether there is audio in whole samples and the marks lie in it, in order."""
    places = [0, *(mark.at_bytes for mark in prompt.marks)]
    return (
        0 < prompt.rate_hz <= MAX_RATE_HZ
        and len(prompt.pcm) > 0
        and not any(place % BYTES_PER_SAMPLE for place in (len(prompt.pcm), *places))
        and all(before <= after for before, after in pairwise(places))
        and places[-1] < len(prompt.pcm)
        and all((mark.source_chars or 0) >= 0 for mark in prompt.marks)
    )
