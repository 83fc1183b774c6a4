"""The text that a command is given."""

import sys

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
