"""E-mail and web addresses, said part by part; the words for their signs come from the language."""

import re
from collections.abc import Callable, Mapping

from cc_tts.text.alignment import substituted

_TWO_LETTER_LABEL = 2
_TOP_LEVEL = (
    "com|org|net|edu|gov|mil|int|info|biz|name|pro|mobi|tel|app|dev|shop|store|online|site|website|web|page|cloud|tech|digital"
    "|software|systems|solutions|services|support|help|health|healthcare|clinic|care|dental|bank|finance|financial|insurance"
    "|credit|loans|money|energy|travel|delivery|email|link|live|news|blog|media|agency|group|global|world|company|business"
    "|academy|school|university|space|zone|team|today|network|host|local|internal|lan|corp|intranet|example|top|xyz|club|fun|vip|wang|icu|ltd|inc"
    # countries, apart from those that are English words: "okay.so" may be two sentences
    "|ac|ae|ai|ar|au|bd|bg|br|ca|cc|ch|cl|cn|co|cz|de|dk|ee|eg|es|eu|fi|fm|fr|gg|gl|gr|hk|hr|hu|id|ie|il|io|jp|ke|kr|kz|lk"
    "|lt|lu|lv|ly|ma|me|mo|mx|ng|nl|np|nu|nz|pe|ph|pk|pl|pt|ro|rs|ru|sa|se|sg|sh|si|sk|st|th|tk|tn|tr|tv|tw|ua|ug|uk|us|uy|ve|vn"
    "|ws|za"
)
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]++(?:\*{1,9}[A-Za-z0-9_.+-]*)?@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)+"
    r"|(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]{2,40}+@[a-z]{2,20}+(?![\w.@-])"  # of a payment, or of a machine
)
_PATH = r"[A-Za-z0-9/?=&#%~_.:+@,;!$-]*+"
_URL = re.compile(rf"(?<![A-Za-z0-9@])(?:[Hh][Tt][Tt][Pp][Ss]?://|www\.)(?=[A-Za-z0-9]){_PATH}")
_BARE = re.compile(
    r"(?<![A-Za-z0-9_@.-])(?:[A-Za-z0-9][A-Za-z0-9-]*+\.)+"
    rf"(?:(?:{_TOP_LEVEL})(?![A-Za-z0-9_-])(?!\.[A-Za-z0-9])(?::\d{{2,5}}(?!\w))?(?:/{_PATH})?|(?:COM|NET|ORG)(?![A-Za-z0-9_-])(?:/{_PATH})?|[a-z]{{2,12}}/(?=[A-Za-z0-9]){_PATH})"
)
_FILE = re.compile(
    r"(?<![\w./\\-])[A-Za-z0-9][\w-]{0,60}(?:\(\d{1,2}\))?\.(?i:pdf|docx?|xlsx?|pptx?|csv|zip|jpe?g|png|gif|svg|heic|txt|rtf|log|ini|cfg|conf|json|xml|ya?ml"
    r"|html?|py|js|sh|bat|dll|tar|gz|iso|mov|wav|mp[34]|exe|msi|apk|dmg|sql|bak|ics)(?!\w)"
)
_HOST = re.compile(
    r"(?<![A-Za-z0-9_.@/-])(?=[a-z0-9.-]{0,60}\d)[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?:\.[a-z][a-z0-9]*(?:-[a-z0-9]+)*)+"
    r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
)
"""A machine of a private network, which is known by a hyphen: db-02.eu-west-1."""
_PASSWORD = re.compile(
    r"(?:(?<=密码)|(?<=密码[是为：:])|(?<=密码[是为][：:])|(?<=口令[是为：:]))(?=[!-~]{0,40}\d)(?=[!-~]{0,40}[A-Za-z])(?=[A-Za-z0-9]{0,40}[@_#$%&*+=.-])"
    r"[A-Za-z0-9@_#$%&*+=.-]{3,40}(?<![.])(?![A-Za-z0-9])"
)
"""A password of letters, digits and signs behind the Chinese word; the English rules have their own."""
_WINDOWS_PATH = re.compile(
    r"(?<![\w\\])(?:(?:[A-Za-z]:|%[A-Za-z]{2,20}%)(?=\\)|\\?(?=\\(?!u[0-9A-Fa-f]{4})[\w.$-]{1,60}\\))"
    r"(?:\\[\w.$~%+-]+(?: [\w.()+-]{1,30}(?=\\| [\w.()+-]{1,30}\\)){0,3})++\\?"
)
_UNIX_PATH = re.compile(
    r"(?<![^\s\"'(“])(?:~(?=/[\w.])|(?=/(?:etc|var|usr|home|opt|tmp|bin|dev|mnt|srv|root|lib|boot|proc|sys|api|v\d|Users"
    r"|Library|Applications)/))(?:/[\w.+@-]+)++/?"
)
_DOI = re.compile(r"(?<![\w.])10\.\d{4,9}/[\w.()/:;-]*[A-Za-z0-9]")
_PATTERNS = (_PASSWORD, _EMAIL, _URL, _BARE, _FILE, _HOST)
_STAND_INS = range(0xE000, 0xF900)
"""Stand-ins from the area for private use: :func:`cc_tts.text.characters.clean` leaves none in a text."""
_STAND_IN = re.compile("[\ue000-\uf8ff]")
_SERVER = re.compile(r"^\\+")
"""Two backslashes, of which Markdown makes one."""
_SCHEME = re.compile(r"^[Hh][Tt][Tt][Pp][Ss]?://")
_TRAILING = ".,;:!?"
_PIECE = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z0-9]")
_SHORT_CODE = 4  # unmeasured
_VOWELS = frozenset("aeiouy")
_ACRONYMS = frozenset(
    (
        "aaa", "abc", "ap", "api", "apis",
        "att", "aws", "ca", "epa", "erp", "faa", "faq", "faqs", "fbi", "fda", "hr", "iam", "ibm",
        "irs", "mfa", "nih", "qa", "sso", "ssa", "tsa", "uat", "ubs", "ui", "ups",
        "uri", "url", "usa", "uscis", "usda", "usps",
        "va", "vip", "voip",
    )
)  # fmt: skip
"""Acronyms with a vowel that stand in hosts and files in small letters."""
_LETTER_GROWS = re.compile("[a-z][A-Z]")
_TLD_AT_END = re.compile(r"(?<=\.)[A-Za-z]{2}(?=[/:]|$)")


def with_stand_ins(
    text: str, signs: Mapping[str, str], say_digits: Callable[[str], str]
) -> tuple[str, Callable[[str], str]]:
    """``text`` with one private character in place of each address, so that no rule reads its words, and a function
    that puts the words in; the arguments are those of :func:`say_addresses`.
    """
    said: list[str] = []

    def keep(match: re.Match[str]) -> str:
        written = match.group()
        address = written.rstrip(_TRAILING)
        said.append(_words(address, signs, say_digits))
        is_one_of = len(said) <= len(_STAND_INS)
        return (chr(_STAND_INS[len(said) - 1]) if is_one_of else said[-1]) + written[len(address) :]

    def words_of(match: re.Match[str]) -> str:
        return "".join(said[_STAND_INS.index(ord(match.group())) :][:1])

    kept = substituted([(pattern, keep) for pattern in _patterns(text)], text)
    return kept, lambda rewritten: substituted([(_STAND_IN, words_of)], rewritten)


def say_addresses(text: str, signs: Mapping[str, str], say_digits: Callable[[str], str]) -> str:
    """``text`` with its e-mail and web addresses in words.

    ``signs`` gives the word for ``@``, ``.``, ``-`` …; a sign it lacks is passed over. ``say_digits`` speaks a run of
    digits.
    """

    def say(match: re.Match[str]) -> str:
        written = match.group()
        address = written.rstrip(_TRAILING)
        return _words(address, signs, say_digits) + written[len(address) :]

    return substituted([(pattern, say) for pattern in _patterns(text)], text)


def _patterns(text: str) -> tuple[re.Pattern[str], ...]:
    """The patterns that may match; few texts have a path."""
    paths = (_WINDOWS_PATH,) * ("\\" in text) + (_UNIX_PATH, _DOI) * ("/" in text)
    return (*paths, *_PATTERNS)


def _words(address: str, signs: Mapping[str, str], say_digits: Callable[[str], str]) -> str:
    address = _SERVER.sub(r"\\\\", _SCHEME.sub("", address).rstrip("/"))
    address = _TLD_AT_END.sub(lambda match: match.group().upper(), address)
    said = (
        say_digits(piece) if piece.isdigit() else _letters_or_sign(piece, signs) for piece in _PIECE.findall(address)
    )
    return " ".join(filter(None, said))


def _letters_or_sign(piece: str, signs: Mapping[str, str]) -> str:
    if not piece.isalpha():
        return signs.get(piece, "")
    is_short_code = len(piece) <= _SHORT_CODE and _LETTER_GROWS.search(piece) is not None
    is_acronym = piece in _ACRONYMS or _VOWELS.isdisjoint(piece.lower())
    is_spelled = is_acronym or (piece.isupper() and len(piece) <= _TWO_LETTER_LABEL) or is_short_code
    return " ".join(piece) if is_spelled else piece
