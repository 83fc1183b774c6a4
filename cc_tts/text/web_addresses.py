"""E-mail and web addresses, said part by part; the words for their signs come from the language."""

import re
from collections.abc import Callable, Mapping

from cc_tts.text.alignment import substituted

_TWO_LETTER_LABEL = 2
_TOP_LEVEL = (
    "com|org|net|edu|gov|mil|info|biz|app|dev|shop|online|site|cloud|tech|io|ai|eu|uk|de|fr|es|nl|ch|ca|cn|hk|jp|au|nz"
)
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]++(?:\*{1,9}[A-Za-z0-9_.+-]*)?@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)+"
)
_PATH = r"[A-Za-z0-9/?=&#%~_.:+@,;!$-]*+"
_URL = re.compile(rf"(?<![A-Za-z0-9@])(?:[Hh][Tt][Tt][Pp][Ss]?://|www\.)(?=[A-Za-z0-9]){_PATH}")
_BARE = re.compile(
    rf"(?<![A-Za-z0-9_@.-])(?:[A-Za-z0-9][A-Za-z0-9-]*+\.)+(?:{_TOP_LEVEL})(?![A-Za-z0-9_-])(?!\.[A-Za-z0-9])(?:/{_PATH})?"
)
_FILE = re.compile(
    r"(?<![\w./\\-])[A-Za-z0-9][\w-]{0,60}\.(?:pdf|docx?|xlsx?|pptx?|csv|zip|jpe?g|png|txt|exe|dmg|mp[34])(?!\w)"
)
_SCHEME = re.compile(r"^[Hh][Tt][Tt][Pp][Ss]?://")
_TRAILING = ".,;:!?"
_PIECE = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z0-9]")
_TLD_AT_END = re.compile(r"(?<=\.)[A-Za-z]{2}(?=/|$)")


def say_addresses(text: str, signs: Mapping[str, str], say_digits: Callable[[str], str]) -> str:
    """``text`` with its e-mail and web addresses in words.

    ``signs`` gives the word for ``@``, ``.``, ``-`` …; a sign it lacks is passed over. ``say_digits`` speaks a run of
    digits.
    """

    def say(match: re.Match[str]) -> str:
        written = match.group()
        address = written.rstrip(_TRAILING)
        return _words(address, signs, say_digits) + written[len(address) :]

    return substituted([(pattern, say) for pattern in (_EMAIL, _URL, _BARE, _FILE)], text)


def _words(address: str, signs: Mapping[str, str], say_digits: Callable[[str], str]) -> str:
    address = _SCHEME.sub("", address).rstrip("/")
    address = _TLD_AT_END.sub(lambda match: match.group().upper(), address)
    said = (
        say_digits(piece) if piece.isdigit() else _letters_or_sign(piece, signs) for piece in _PIECE.findall(address)
    )
    return " ".join(filter(None, said))


def _letters_or_sign(piece: str, signs: Mapping[str, str]) -> str:
    if not piece.isalpha():
        return signs.get(piece, "")
    is_spelled = piece == "www" or (piece.isupper() and len(piece) <= _TWO_LETTER_LABEL)
    return " ".join(piece) if is_spelled else piece
