"""Reads the texts and instructions that commands are given."""

import sys

import msgspec

from cc_tts.config.sections.models import Instructions
from cc_tts.config.wording import in_words
from cc_tts.errors import ConfigError


def given_text(text: str) -> str:
    """Return the text of a command line, or standard input for ``-``.

    Raises:
        ConfigError: it is in another encoding than the terminal says.
    """
    try:
        found = sys.stdin.read() if text == "-" else text
        found.encode()
    except UnicodeError:
        wanted = sys.stdin.encoding or "utf-8"
        raise ConfigError(
            f"the text is not in {wanted}, the encoding of this terminal; `iconv -f GBK -t {wanted}` changes a text in GBK"
        ) from None
    return found


def given_instructions(instructions: str | None) -> str | None:
    """Return how to speak, in words; raises ``ConfigError`` for what no model takes."""
    try:
        return msgspec.convert(instructions, Instructions | None)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--instructions: {in_words(str(error))}") from None
