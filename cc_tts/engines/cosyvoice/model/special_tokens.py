"""The special tokens of the text tokenizers, in the order of their ids, which follow on the vocabulary (§7.4, v3 §7).

A text cannot spell one: ``[laughter]`` and ``<|endofprompt|>`` are words like others. In what this process itself has
written each is one character of a private-use plane.
"""

import re
from collections.abc import Mapping
from typing import Final

from cc_tts.engines.phonemes import CMU_VOWELS

END_OF_PROMPT: Final = "<|endofprompt|>"

_OF_BOTH: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", END_OF_PROMPT, "[breath]", "<strong>", "</strong>", "[noise]",
    "[laughter]", "[cough]", "[clucking]", "[accent]", "[quick_breath]", "<laughter>", "</laughter>", "[hissing]",
    "[sigh]", "[vocalized-noise]", "[lipsmack]", "[mn]",
)  # fmt: skip
"""The first three are Qwen2's own."""
SOUND_TOKENS: Final = tuple(token for token in _OF_BOTH if not token.startswith("<|"))
"""Sounds between words, and the marks around words that are said with emphasis or laughing."""

_PHONES: Final = """
    AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH
"""
"""The phones of the CMU dictionary; a vowel is there without and with each of three stresses."""

_PINYIN: Final = """
    a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè ié iòng ióng iù iú iā
    iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p q r s sh t u uang ue un uo uà uài uàn uàng
    uá uái uán uáng uè ué uì uí uò uó uā uāi uān uāng uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á
    ái án áng áo è èi èn èng èr é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn
    ēng ě ěi ěn ěng ěr ī īn īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ
"""
"""Initials and finals, the finals with the marks of their tones."""


def _phones() -> list[str]:
    return [
        f"[{phone}{stress}]"
        for phone in _PHONES.split()
        for stress in (("", "0", "1", "2") if phone in CMU_VOWELS else ("",))
    ]


SPECIAL_TOKENS: Final[Mapping[int, tuple[str, ...]]] = {
    2: _OF_BOTH,
    3: (*_OF_BOTH, "<|endofsystem|>", *_phones(), *(f"[{piece}]" for piece in _PINYIN.split())),
}
"""The tokens of each generation."""

_FIRST_CHARACTER: Final = 0xF0000
_FIRST_PHONE: Final = _FIRST_CHARACTER + SPECIAL_TOKENS[3].index("[AA]")
CHARACTERS: Final = "\U000f0000-\U000ffffd"
"""The characters that stand for special tokens, as a range inside a class of a pattern."""
_ANY: Final = re.compile(f"[{CHARACTERS}]")


def characters_of(generation: int) -> dict[str, str]:
    return {token: chr(_FIRST_CHARACTER + place) for place, token in enumerate(SPECIAL_TOKENS[generation])}


def plain(text: str) -> str:
    """``text`` without characters that stand for special tokens."""
    return _ANY.sub("", text)


def has_words(text: str) -> bool:
    """Return whether a text has something to say: a sound or emphasis alone is not enough."""
    return any(character.isalnum() or ord(character) >= _FIRST_PHONE for character in text)
