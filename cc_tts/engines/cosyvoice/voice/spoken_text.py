"""The end of a text chunk, as the front end of CosyVoice2 leaves it (§7.2).

The model was trained on sentences that end; a text without a mark at its end tends to be cut short or to ramble. A chunk
that was cut off in mid-sentence keeps its comma, unlike in the reference: a full stop there makes the voice fall.
"""

import re
from typing import Final

from cc_tts.engines.cosyvoice.model.special_tokens import CHARACTERS, has_words

_CHINESE: Final = re.compile(r"[\u4e00-\u9fff]")
_OPEN_END: Final = re.compile(r"[\s,\uff0c\u3001]+$")
_OPEN_MARKS: Final = frozenset(",\uff0c\u3001—")
_TERMINATORS_CHINESE: Final = frozenset("。\uff1f\uff01\uff1b\uff1a、.?!;")
_TERMINATORS_OTHER: Final = frozenset(".?!;:")
_CLOSED: Final = re.compile(rf"[\"'\u201d\u2019»›」』\uff09)】\]》〉}}{CHARACTERS}]*$")
"""Quotes, brackets and sounds may follow the end of a sentence."""


def as_sentence(text: str, *, more_follows: bool = False) -> str:
    """``text`` with an end: commas at its end go, and a full stop is put there unless a terminator is.

    Quotes and brackets may follow the terminator. A text without words is nothing to be said: "". If
    ``more_follows``, a comma at the end is left as it is.
    """
    if not has_words(text):
        return ""
    text = text.strip()
    if more_follows and _CLOSED.sub("", text)[-1:] in _OPEN_MARKS:
        return text
    text = _OPEN_END.sub("", text)
    is_chinese = _CHINESE.search(text) is not None
    last = _CLOSED.sub("", text)[-1:]
    if last in (_TERMINATORS_CHINESE if is_chinese else _TERMINATORS_OTHER):
        return text
    return text + ("。" if is_chinese else ".")
