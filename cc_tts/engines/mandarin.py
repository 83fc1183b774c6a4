"""Mandarin syllables in -iong (熊, 兄, 穷), which espeak-ng says in English ("kshong two").

The characters are all those between U+3400 and U+9FFF whose reading by espeak-ng switches to English.
"""

import re
from itertools import accumulate
from typing import Final

VOICES: Final = "sit/cmn"
"""The prefix of the identifiers of Mandarin voices."""
_CHARACTERS: Final = {
    "S;j'ong55": "㐫兄兇凶匈哅忷恟汹洶胷胸訩詾讻賯", "S;j'ong35": "䧺熊赨雄", "S;j'ong51": "夐敻詗诇",
    "tS;hj'ong55": "匔焪芎", "tS;hj'ong35": "㒌㧭㮪㷀㼇䅃䆳䊄䓖䛪䠻儝卭宆惸桏棾橩焭煢琼瓊睘瞏穷穹窮竆笻筇茕藑藭蛩赹跫輁邛銎",
    "tS;j'ong55": "冂冋坰埛扃蘏蘔駫", "tS;j'ong51": "㑋澃",
    "tS;j'ong214": "㓏㖥㢠㤯㷗㷡䌹䐃䢛侰僒冏囧幜泂炯烱煚煛熲皛窘絅綗褧迥逈顈颎駉",
}  # fmt: skip
_MNEMONICS: Final = {each: f"[[{said}]]" for said, characters in _CHARACTERS.items() for each in characters} | {
    "兒": "儿"
}
_IPA: Final = (
    ("tS;h", "tɕh"),
    ("tS;", "tɕ"),
    ("S;", "ɕ"),
    ("j'ong", "jˈonɡ"),
    ("55", "5"),
    ("35", "ɜ"),
    ("214", "2"),
    ("51", "5"),
)
"""The IPA of these syllables; the digits are tones, as espeak-ng writes them."""
_CHARACTER: Final = re.compile(f"([{''.join(_MNEMONICS)}])")


def in_mnemonics(text: str) -> str:
    """Return ``text`` with phoneme mnemonics in place of the characters that espeak-ng cannot read."""
    return _CHARACTER.sub(lambda match: _MNEMONICS[match.group()], text)


def parts_and_ipa(text: str) -> list[tuple[str, str]]:
    """Yield the parts of ``text`` in order, each with its IPA if espeak-ng cannot read it."""
    return [(part.replace("兒", "儿"), _ipa(part)) for part in _CHARACTER.split(text) if part]


def _ipa(part: str) -> str:
    said = _MNEMONICS.get(part, "").strip("[]儿")
    for mnemonic, sign in _IPA:
        said = said.replace(mnemonic, sign)
    return said


def position_in(text: str, position: int) -> int:
    """Return the position in ``text`` for a position in the result of :func:`in_mnemonics`."""
    ends = accumulate(len(_MNEMONICS.get(character, character)) for character in text)
    return next((index for index, end in enumerate(ends) if end > position), len(text))
