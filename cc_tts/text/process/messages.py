"""Messages between the server process and the text process.

::

    server ──▸ PrepareText · CancelText ──▸ text process
    server ◂── TextPrepared ◂── text process
"""

from typing import Final

import msgspec

from cc_tts.config.sections.log import LogConfig
from cc_tts.processes.channel import Message
from cc_tts.text.alignment import Place
from cc_tts.text.chunker import Chunking
from cc_tts.text.pronunciation.replacements import Replacement


class TextSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Written to the child's standard input as JSON."""

    log: LogConfig


class PrepareText(Message, frozen=True):
    """Cut a text into chunks and put them into words. The payload is the text, UTF-8 (surrogates pass)."""

    request_id: int
    chunking: Chunking
    replacements: tuple[Replacement, ...] = ()


class CancelText(Message, frozen=True):
    """Stop preparing a text."""

    request_id: int


class PreparedChunk(msgspec.Struct, frozen=True, array_like=True):
    """A :class:`cc_tts.text.chunker.TextChunk`, without its source, of which the length is enough."""

    num_source_chars: int
    spoken: bytes
    """The words in UTF-8; surrogates pass."""
    language: str
    replaced: tuple[Place, ...] = ()


class TextPrepared(Message, frozen=True):
    """The next chunks of a text; ``is_whole`` with the last."""

    request_id: int
    chunks: tuple[PreparedChunk, ...]
    is_whole: bool
    has_failed: bool = False
    has_placeholder: bool = False
    """True with the last if the text has one; see :attr:`cc_tts.text.chunker.Chunker.has_placeholder`."""


TO_TEXT: Final[tuple[type[Message], ...]] = (PrepareText, CancelText)
FROM_TEXT: Final[tuple[type[Message], ...]] = (TextPrepared,)
