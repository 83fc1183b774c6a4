"""Which language a text is in, and which rules speak a BCP 47 tag.

Runs on: any thread; nothing here has state.
"""

import re
from typing import Literal

RuleSet = Literal["en", "zh", "none"]

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, kana and Han, with their punctuation: scripts that put no spaces between words."""
_UNSPACED = re.compile(UNSPACED)
_SCRIPTS = (
    (re.compile("[\u3040-\u30ff\u31f0-\u31ff]+"), "ja"),
    (re.compile("[\uac00-\ud7af\u1100-\u11ff]+"), "ko"),
    (re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"), "zh"),
    (re.compile("[\u0400-\u04ff]+"), "ru"),
    (re.compile("[\u0600-\u06ff\u0750-\u077f]+"), "ar"),
    (re.compile("[\u0900-\u097f]+"), "hi"),
    (re.compile("[\u0370-\u03ff]+"), "el"),
    (re.compile("[\u0590-\u05ff]+"), "he"),
    (re.compile("[\u0e00-\u0e7f]+"), "th"),
    (re.compile("[\u0980-\u09ff]+"), "bn"),
    (re.compile("[\u0b80-\u0bff]+"), "ta"),
    (re.compile("[\u0c00-\u0c7f]+"), "te"),
    (re.compile("[\u10a0-\u10ff]+"), "ka"),
    (re.compile("[\u0530-\u058f]+"), "hy"),
)
"""Kana before Han: a Japanese text has both."""
_TOLD_BY_LETTERS = {
    "ru": (("uk", re.compile("[іїєґІЇЄҐ]")), ("be", re.compile("[ўЎ]")), ("sr", re.compile("[ђћџљњЂЋЏЉЊ]"))),
    "ar": (("ur", re.compile("[ٹڈڑےں]")), ("fa", re.compile("[پچژگ]"))),
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTION_WORDS = {
    "en": _words(
        "the and is are you your of to for with this that have has please will our we it was be at from or not can my"
    ),
    "es": _words(
        "el los las una usted su sus para por con que está están gracias muy pero cuando más y hola buenos buenas día días "
        "llamada cuenta número pulse marque espere favor nuestro nuestra ha hay tiene puede es del al sí"
    ),
    "fr": _words(
        "le les des une est sont vous votre vos nous notre pour avec dans sur merci bonjour ce cette qui pas plus et aux du "
        "au veuillez appuyez appel compte numéro être avez je il elle ne sera"
    ),
    "de": _words(
        "der die das und ist sind ein eine einen sie "
        "ihr ihre ihren wir uns unser für mit auf nicht von zu bitte danke guten "
        "tag drücken den dem des im wird werden haben hat oder auch nummer konto anruf ich kann"
    ),
    "it": _words(
        "il gli una è sono lei suo sua per con che grazie prego buongiorno non di della del dei nel nella premere chiamata "
        "conto numero attendere si può ha questo questa ed vi suoi"
    ),
    "pt": _words(
        "o os as um uma é são você seu sua para por com que obrigado obrigada não em da do das dos na no ligação conta "
        "número aguarde tecle digite bom dia olá está ou mais e"
    ),
    "nl": _words(
        "de het een en is zijn u uw wij ons voor met op niet van dank bedankt alstublieft druk goedemorgen dag nummer "
        "rekening wordt kunt naar heeft hebben dit deze bij ook"
    ),
}
_OWN_LETTERS = {
    "es": re.compile("[ñ¿¡]"),
    "de": re.compile("ß"),
    "fr": re.compile("[œêëûù]|\\b[dlqcjn]['’](?=[aeiouyhéèê])", re.IGNORECASE),
    "pt": re.compile("[ãõ]"),
}
_LATIN_WORD = re.compile("[A-Za-zÀ-ÖØ-öø-ÿ]+")
_LOOKED_AT_CHARS = 400
_LEAST_LEAD = 2
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE = frozenset({"zh", "cmn", "yue"})
_DAY_FIRST_REGIONS = frozenset({"gb", "au", "nz", "ie", "in", "za"})


def has_letters(text: str) -> bool:
    """Whether any letter is there to detect the language by."""
    return _WORD.search(text) is not None


def is_unspaced(character: str) -> bool:
    """Whether the character is of a script that puts no spaces between words."""
    return _UNSPACED.match(character) is not None


def detect_language(text: str, *, latin: str | None = None) -> str:
    """The language of a text, by its script and, for Latin letters, its most frequent words.

    At least as many characters of the script must stand there as words of other scripts. Japanese is told from Chinese by
    its kana. ``latin`` is the language of Latin letters where it is known, by the voice for example. ``en`` when
    nothing tells.
    """
    if not text.isascii():
        for pattern, language in _SCRIPTS:
            found = pattern.findall(text)
            if found and len("".join(found)) >= len(_LATIN_WORD.findall(text)):
                return _refined(language, text)
    return latin or _latin_language(text)


def _refined(language: str, text: str) -> str:
    """One script, several languages: letters that only one of them has."""
    for other, letters in _TOLD_BY_LETTERS.get(language, ()):
        if letters.search(text):
            return other
    return language


def _latin_language(text: str) -> str:
    """By function words that no other of these languages has, and letters; it must lead English by two."""
    words = [word.lower() for word in _LATIN_WORD.findall(text[:_LOOKED_AT_CHARS])]
    scores = {language: sum(word in known for word in words) for language, known in _FUNCTION_WORDS.items()}
    for language, letters in _OWN_LETTERS.items():
        scores[language] += len(letters.findall(text[:_LOOKED_AT_CHARS]))
    best = max(scores, key=lambda language: scores[language])
    lead = scores[best] - scores["en"]
    return best if lead >= _LEAST_LEAD else "en"


def latin_language(tag: str) -> str | None:
    """``tag`` if its language is written in Latin letters, as far as is known here."""
    others = {language for _, language in _SCRIPTS} | {"cmn", "yue", "uk", "be", "sr", "fa", "ur", "bg", "mk"}
    return None if subtags(tag)[0] in others else tag


def subtags(tag: str) -> list[str]:
    """The parts of a BCP 47 tag in lower case; ``en_US`` is read as ``en-US``."""
    return tag.strip().lower().replace("_", "-").split("-")


def rule_set(tag: str) -> RuleSet:
    """The rules that speak a tag: ``en``, ``zh`` (also ``cmn``, ``yue`` and their regions) or ``none``."""
    primary = subtags(tag)[0]
    if primary in _CHINESE:
        return "zh"
    return "en" if primary == "en" else "none"


def writes_day_first(tag: str) -> bool:
    """Whether 3/4/2026 is the third of April in this tag's region (en-GB) and not the fourth of March."""
    return not _DAY_FIRST_REGIONS.isdisjoint(subtags(tag)[1:])
