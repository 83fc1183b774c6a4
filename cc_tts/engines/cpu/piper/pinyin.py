"""Han characters as the syllables of pinyin that Piper's Chinese voices were trained on (piper1-gpl 1.4).

They are written as a dictionary spells them, without tone sandhi: the models have learned it from such spelling.
"""

import re
from typing import Final

from pypinyin import Style, lazy_pinyin

_NO_INITIAL: Final = "Ø"
_SYLLABLE: Final = re.compile(r"(zh|ch|sh|[bpmfdtnlgkhjqxrzcsyw]?)([a-z]+)([1-5])")


def syllables(text: str) -> list[tuple[str, str, str]]:
    """The initial, the final and the tone of each character; ``Ø`` where there is no initial. What has no reading is left
    out: other letters have other voices.
    """
    read = lazy_pinyin(text, style=Style.TONE3, neutral_tone_with_five=True, v_to_u=False, errors="ignore")
    matches = (_SYLLABLE.fullmatch(each.replace("ü", "v")) for each in read)
    return [(match[1] or _NO_INITIAL, match[2], match[3]) for match in matches if match is not None]
