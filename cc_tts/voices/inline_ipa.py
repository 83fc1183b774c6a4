"""Marks for a pronunciation inside spoken text, from the text rules to the engine.

``BEGIN IPA THEN words END``: an engine that reads the International Phonetic Alphabet says the IPA, any other one the
words. The three marks are private-use characters, which :func:`cc_tts.text.characters.clean` takes out of text from outside.
"""

import re
from collections.abc import Callable
from typing import Final

_BEGIN: Final = "\uf8f0"
_THEN: Final = "\uf8f1"
_END: Final = "\uf8f2"
_PRONOUNCED: Final = re.compile(f"{_BEGIN}([^{_BEGIN}{_THEN}{_END}]*){_THEN}([^{_BEGIN}{_THEN}{_END}]*){_END}")


def pronounced(words: str, ipa: str) -> str:
    """Return ``words`` with the pronunciation ``ipa`` for engines that use one."""
    return f"{_BEGIN}{ipa}{_THEN}{words}{_END}"


def replace_pronounced(spoken: str, written: Callable[[str, str], str]) -> str:
    """Return ``spoken`` with each pronunciation in the notation of an engine; ``written`` gets the IPA and the words."""
    return _PRONOUNCED.sub(lambda match: written(match[1], match[2]), spoken) if _BEGIN in spoken else spoken


def without_pronunciations(spoken: str) -> str:
    """Return only the words, for an engine that uses no pronunciations."""
    return replace_pronounced(spoken, lambda _ipa, words: words)


def pronounced_parts(spoken: str) -> list[tuple[str, str]]:
    """Return the words in order, each stretch with its IPA or an empty string."""
    parts: list[tuple[str, str]] = []
    end = 0
    for match in _PRONOUNCED.finditer(spoken):
        parts += [(spoken[end : match.start()], ""), (match[2], match[1])]
        end = match.end()
    return [(words, ipa) for words, ipa in (*parts, (spoken[end:], "")) if words or ipa]
