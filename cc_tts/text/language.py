"""Which language a text is in, and which rules speak a BCP 47 tag."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib import resources
from itertools import repeat
from typing import Literal

from cc_tts.voices.scripts import KANA, LATIN, language_of_script, script_of, scripts_of

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = f"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff{_HAN}\uff00-\uffef]"
"""Thai, Lao, Burmese, Khmer, kana and Han, with their punctuation: scripts that put no spaces between words."""
_UNSPACED = re.compile(UNSPACED)
_TOLD_BY_LETTERS = {
    "ru": (("uk", re.compile("[іїєґІЇЄҐ]")), ("be", re.compile("[ўЎ]")), ("sr", re.compile("[ђћџљњЂЋЏЉЊ]"))),
    "ar": (("ur", re.compile("[ٹڈڑےںھہ]")), ("fa", re.compile("[پچژگکی]"))),
}
LATIN_WORD = re.compile("[A-Za-zÀ-ÖØ-öø-ÿ]+")
_PROSE_WORD = re.compile(r"(?<![\w@&.-])[^\W\d_]+(?:['’][^\W\d_]+)*(?![\w@&])(?!\.[A-Z\d])")
"""A word that is no part of a code, an address or an abbreviation."""
_LONGEST_SEQUENCE = 4
ZERO_WEIGHT = 80
"""The character that stands for a weight of nothing in the file of weights; one more is a tenth of a logarithm."""
_WEIGHT_OF_NAMES = 0.4
"""A word with a capital inside a sentence is often a name of a person, a place or a product (unmeasured)."""
_LEAST_LEAD = 25
"""Tenths of a logarithm, measured with 590 and 392 short texts and 3,236 lines of call centers in English: 549 and 327
were in the right language with it; with 20 four more of the English lines were in a wrong one, with 29 two fewer, and
six texts more.
"""
_LEAST_LEAD_OF_RARER = 4
"""The same before the first of the known languages, which are in the order in which they are likely. Measured with other
draws: 548 of the short texts with it, 544 with nothing and 546 with twice as much."""
_LEADS_OF_RARER = {"ca": 12}
"""How far a rarer language has to lead. Sentences in Spanish score this much for Catalan, which has a fiftieth of the
speakers (La factura de la luz).
"""
_LEAST_LEAD_IN_TEXT = 50
"""The lead that a sentence needs within a text: its abbreviations and names are no change of language (unmeasured)."""
_LEAST_LEAD_IN_SCRIPT = 10
"""The same before Russian for the other languages in Cyrillic letters. Measured: of 96 short texts 85 were right with it,
82 with half of it."""
LOOKED_AT_CHARS = 400
_CHINESE = frozenset({"zh", "cmn", "yue"})
_SAYS_YI = frozenset({"yue", "tw", "hk", "mo"})
_DAY_FIRST_REGIONS = frozenset({"gb", "au", "nz", "ie", "in", "za"})


SPACED_CHARS_PER_S = 13.0
"""How fast text is spoken, about, in a script that puts spaces between words; used while nothing better is known."""
UNSPACED_CHARS_PER_S = 4.0
LETTERS_PER_HAN_CHARACTER = 3
"""A Han character is a syllable and takes about as long to say as three letters."""


def spoken_s(text: str) -> float:
    """How long words take to say, about."""
    num_unspaced = 0 if text.isascii() else len(_UNSPACED.findall(text))
    return num_unspaced / UNSPACED_CHARS_PER_S + (len(text) - num_unspaced) / SPACED_CHARS_PER_S


def limit_for(limit: int, text: str) -> int:
    """A limit in letters as one in characters of the text's script."""
    return limit // LETTERS_PER_HAN_CHARACTER if detect_language(text, latin="en") == "zh" else limit


def has_letters(text: str) -> bool:
    """Whether any letter is there to detect the language by."""
    return re.search(r"[^\W\d_]", text) is not None


def is_unspaced(character: str) -> bool:
    """Whether the character is of a script that puts no spaces between words."""
    return _UNSPACED.match(character) is not None


def detect_language(text: str, *, latin: str | None = None) -> str:
    """The language of a text, by its script and, for Latin and Cyrillic letters, its words.

    At least as many characters of the script must stand there as words of other scripts. Japanese is told from Chinese by
    its kana. ``latin`` is the language of Latin letters where it is known, by the voice for example; else they are
    English unless their words tell otherwise.
    """
    told_by_script = "" if text.isascii() else _language_of_script(text)
    return told_by_script or latin or latin_language_of(text, "en")


def _language_of_script(text: str) -> str:
    counts = Counter(map(script_of, text))
    if not KANA.isdisjoint(counts):
        counts["HIRAGANA"] += counts.pop("KATAKANA", 0) + counts.pop("CJK", 0)
    num_latin_words = len(LATIN_WORD.findall(text))
    found = [
        (count, script) for script, count in counts.items() if script not in ("", LATIN) and count >= num_latin_words
    ]
    return language_of_letters(max(found)[1], text) if found else ""


def language_of_letters(script: str, text: str) -> str:
    """The language of words in a script that is not Latin, told from others of the script by letters of their own."""
    if script == "CJK":
        return "ja" if _is_japanese(text) else "zh"
    language = language_of_script(script)
    others = _TOLD_BY_LETTERS.get(language, ())
    told = next((other for other, letters in others if letters.search(text)), None)
    return told or _leading(text, language, _LEAST_LEAD_IN_SCRIPT)


def _leading(text: str, own: str, lead: int) -> str:
    """``own``, unless the words of the text speak clearly more for another known language of the same script."""
    languages, _ = _weights()
    if own not in languages:
        return own
    scores = dict(zip(languages, _scores(text), strict=True))
    rivals = [each for each in languages if scripts_of(each) == scripts_of(own)]
    most = max(rivals, key=lambda each: scores[each])
    level = scores[most] - _LEADS_OF_RARER.get(most, _LEAST_LEAD_OF_RARER)
    best = next(each for each in rivals if scores[each] >= level)
    return best if scores[best] - scores[own] >= lead else own


def _is_japanese(text: str) -> bool:
    """Whether more characters are of Japanese alone (円, 駅) than of Chinese alone (您, 图), by national standards."""
    in_japanese, in_chinese = (
        {each for each in text if _is_in(each, *sets)} for sets in (("shift_jis",), ("gb2312", "big5"))
    )
    return len(in_japanese - in_chinese) > len(in_chinese - in_japanese)


@lru_cache(maxsize=4096)
def _is_in(character: str, *encodings: str) -> bool:
    for each in encodings:
        with suppress(UnicodeEncodeError):
            return bool(character.encode(each))
    return False


def latin_language_of(text: str, base: str, *, is_whole: bool = True) -> str:
    """``base``, unless the words of the text are rather those of another language that is known here: clearly so where they
    are not a whole text but part of one in ``base``. Words cannot tell a language that is not known here from others.
    """
    primary = subtags(base)[0]
    led = _leading(text, primary, _LEAST_LEAD if is_whole else _LEAST_LEAD_IN_TEXT)
    return base if led == primary else led


def prose_words(text: str) -> dict[str, float]:
    """The words at the beginning of a text, in small letters between ``^`` and ``$``, and how much each of them counts."""
    words = {}
    for place, match in enumerate(_PROSE_WORD.finditer(text[:LOOKED_AT_CHARS])):
        word = match.group()
        is_name = word[0].isupper() and (place > 0 or (len(word) > 1 and word.isupper()))
        words["^" + word.lower().replace("’", "'") + "$"] = _WEIGHT_OF_NAMES if is_name else 1.0
    return words


def letter_sequences(word: str) -> Iterator[str]:
    """A word and the sequences of up to four letters in it, its ends among them."""
    yield word
    for length in range(1, min(_LONGEST_SEQUENCE, len(word) - 1) + 1):
        for start in range(len(word) - length + 1):
            yield word[start : start + length]


def _scores(text: str) -> list[float]:
    """How much the words, each of them once, speak for each of the known languages, in tenths of a logarithm."""
    rows = [[weight * score for score in _word_scores(word)] for word, weight in prose_words(text).items()]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0.0] * len(_weights()[0])


@lru_cache(maxsize=4096)
def _word_scores(word: str) -> list[float]:
    """The weights of a word and of the sequences of letters in it."""
    languages, weights = _weights()
    rows = [row for each in letter_sequences(word) if (row := weights.get(each))]
    columns = zip(*rows, strict=True) if rows else repeat((), len(languages))
    return [float(sum(column) - ZERO_WEIGHT * len(rows)) for column in columns]


@cache
def _weights() -> tuple[list[str], dict[str, bytes]]:
    """The known languages, and how much each sequence of letters speaks for each of them."""
    lines = resources.files("cc_tts.text").joinpath("languages.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return rows[0][1].split(), {sequence: weights.encode() for sequence, weights in rows[1:]}


def latin_language(tag: str) -> str | None:
    """``tag`` if its language is written in Latin letters alone, as far as is known here."""
    return tag if scripts_of(tag) == {LATIN} else None


def subtags(tag: str) -> list[str]:
    """The parts of a BCP 47 tag in lower case; ``en_US`` is read as ``en-US``."""
    return tag.strip().lower().replace("_", "-").split("-")


def rule_set(tag: str) -> Literal["en", "zh", "none"]:
    """The rules that speak a tag: ``en``, ``zh`` (also ``cmn``, ``yue`` and their regions) or ``none``."""
    primary = subtags(tag)[0]
    if primary in _CHINESE:
        return "zh"
    return "en" if primary == "en" else "none"


def says_yao(tag: str) -> bool:
    """Whether 1 among digits is 幺, as on the mainland, and not 一 as in Cantonese and in Taiwan."""
    return _SAYS_YI.isdisjoint(subtags(tag))


def writes_day_first(tag: str) -> bool:
    """Whether 3/4/2026 is the third of April in this tag's region (en-GB) and not the fourth of March."""
    return not _DAY_FIRST_REGIONS.isdisjoint(subtags(tag)[1:])
