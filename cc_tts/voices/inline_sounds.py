"""Marks for sounds and emphasis inside spoken text, from SSML to the engine.

Each is one private-use character, which :func:`cc_tts.text.characters.clean` takes out of text from outside. So nothing that
a prompt or a language model spells, such as ``[laughter]``, ever becomes one.
"""

import re
from typing import Final

SOUNDS: Final = {
    "breath": "\uf8f3",
    "quick_breath": "\uf8f4",
    "laughter": "\uf8f5",
    "cough": "\uf8f6",
    "sigh": "\uf8f7",
    "lipsmack": "\uf8f8",
    "clucking": "\uf8f9",
    "hissing": "\uf8fa",
}
"""The sounds that a voice can make between words, by name."""
EMPHASIS_BEGINS: Final = "\uf8fb"
EMPHASIS_ENDS: Final = "\uf8fc"

_ALL_SOUNDS: Final = "".join(SOUNDS.values())
_SIGNS: Final = re.compile(rf" ?[{_ALL_SOUNDS}](?!\w)|[{_ALL_SOUNDS}{EMPHASIS_BEGINS}{EMPHASIS_ENDS}]")
_EMPHASIS: Final = re.compile(
    f"{EMPHASIS_BEGINS}([^{EMPHASIS_BEGINS}{EMPHASIS_ENDS}]*)(?:{EMPHASIS_ENDS}|(?={EMPHASIS_BEGINS})|$)|{EMPHASIS_ENDS}"
)


def without_sounds(spoken: str) -> str:
    """Return only the words, for an engine without sounds and emphasis."""
    return _SIGNS.sub("", spoken)


def with_whole_emphasis(spoken: str) -> str:
    """Return ``spoken`` with a closing mark for each emphasis that begins in it, and no other closing marks, since the text
    may have been cut.
    """
    return _EMPHASIS.sub(_whole, spoken)


def _whole(match: re.Match[str]) -> str:
    return f"{EMPHASIS_BEGINS}{match[1]}{EMPHASIS_ENDS}" if match[1] else ""
