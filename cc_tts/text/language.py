"""Which language a text is in, and which rules speak a BCP 47 tag."""

import re
from collections import Counter
from typing import Literal

from cc_tts.voices.scripts import KANA, LATIN, language_of_script, script_of, scripts_of

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = f"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff{_HAN}\uff00-\uffef]"
"""Thai, Lao, Burmese, Khmer, kana and Han, with their punctuation: scripts that put no spaces between words."""
_UNSPACED = re.compile(UNSPACED)
_TOLD_BY_LETTERS = {
    "ru": (("uk", re.compile("[іїєґІЇЄҐ]")), ("be", re.compile("[ўЎ]")), ("sr", re.compile("[ђћџљњЂЋЏЉЊ]"))),
    "ar": (("ur", re.compile("[ٹڈڑےں]")), ("fa", re.compile("[پچژگ]"))),
}
_FUNCTION_WORDS_OF = {
    "en": (
        "the and is are you your of to for with this that have has please will our we it was be at from or not can my "
        "in on as but no if than"
    ),
    "es": (
        "el los las una usted su sus para por con que está están gracias muy pero cuando más y hola buenos buenas "
        "día días llamada cuenta número pulse marque espere favor nuestro nuestra ha hay tiene puede es de del al "
        "sí la lo le nos hemos tarjeta pedido contrato código cita importe vuelo llegará vence entre desde "
        "hasta llame escriba visite devuelto terminada"
    ),
    "fr": (
        "le les de des une est sont vous votre vos nous notre pour avec dans sur merci bonjour ce cette qui pas "
        "plus et aux du au veuillez appuyez appel compte numéro être avez je il elle ne sera la à nos chez sous "
        "entre commande carte contrat montant allez écrivez tapez clients utilisent remboursé livrée "
        "rendez"
    ),
    "de": (
        "der die das und ist sind ein eine einen sie ihr ihre ihren wir uns unser für mit auf nicht von zu bitte "
        "danke guten tag drücken den dem des im wird werden haben hat oder auch nummer konto anruf ich kann unsere "
        "unserer unseren unserem kunden nutzen bei bestellung betrag vertrag flug karte"
    ),
    "it": (
        "il gli una è sono lei suo sua per con che grazie prego buongiorno non di della del dei nel nella premere "
        "chiamata conto numero attendere si può ha questo questa ed suoi la le lo tra fra alle dal dalla sul "
        "sulla al alla ai ordine importo codice volo porta contratto carta clienti scriva visiti termina "
        "arriverà"
    ),
    "pt": (
        "o os as um uma é são você seu sua para por com que obrigado obrigada não em de da do das dos na no "
        "ligação conta número aguarde tecle digite bom dia olá está ou mais e ao à nos nas pelo pela até pedido "
        "valor código cartão voo contrato clientes usam consulta escreva acesse vence chegará"
    ),
    "nl": (
        "de het een en is zijn u uw wij ons voor met op niet van dank bedankt alstublieft druk goedemorgen dag nummer "
        "rekening wordt kunt naar heeft hebben dit deze bij ook"
    ),
}
_FUNCTION_WORDS = {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS_OF.items()}
_OWN_LETTERS = {
    "es": re.compile("[ñ¿¡]"),
    "de": re.compile("ß"),
    "fr": re.compile("[œêëûù]|\\b[dlqcjn]['’](?=[aeiouyhéèê])", re.IGNORECASE),
    "pt": re.compile("[ãõ]"),
}
LATIN_WORD = re.compile("[A-Za-zÀ-ÖØ-öø-ÿ]+")
_PROSE_WORD = re.compile(rf"(?<![\w@.&-]){LATIN_WORD.pattern}(?![\w@&])(?!\.[A-Z])")
"""A word that is no part of a code, an address or an abbreviation."""
_LOOKED_AT_CHARS = 400
_LEAST_LEAD = 2  # unmeasured
_CHINESE = frozenset({"zh", "cmn", "yue"})
_DAY_FIRST_REGIONS = frozenset({"gb", "au", "nz", "ie", "in", "za"})


SPACED_CHARS_PER_S = 13.0
"""How fast text is spoken, about, in a script that puts spaces between words; used while nothing better is known."""
UNSPACED_CHARS_PER_S = 4.0


def spoken_s(text: str) -> float:
    """How long words take to say, about."""
    num_unspaced = 0 if text.isascii() else len(_UNSPACED.findall(text))
    return num_unspaced / UNSPACED_CHARS_PER_S + (len(text) - num_unspaced) / SPACED_CHARS_PER_S


def has_letters(text: str) -> bool:
    """Whether any letter is there to detect the language by."""
    return re.search(r"[^\W\d_]", text) is not None


def is_unspaced(character: str) -> bool:
    """Whether the character is of a script that puts no spaces between words."""
    return _UNSPACED.match(character) is not None


def detect_language(text: str, *, latin: str | None = None, base: str = "en") -> str:
    """The language of a text, by its script and, for Latin letters, its most frequent words.

    At least as many characters of the script must stand there as words of other scripts. Japanese is told from Chinese by
    its kana. ``latin`` is the language of Latin letters where it is known, by the voice for example; else they are in
    ``base`` unless their words tell otherwise.
    """
    told_by_script = "" if text.isascii() else _language_of_script(text)
    return told_by_script or latin or latin_language_of(text, base)


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
    language = language_of_script(script)
    others = _TOLD_BY_LETTERS.get(language, ())
    return next((other for other, letters in others if letters.search(text)), language)


def latin_language_of(text: str, base: str) -> str:
    """``base``, unless function words that no other of the known languages has, and letters, lead those of ``base`` by two.
    Words cannot tell a language that is not known here from others.
    """
    words = [word.lower() for word in _PROSE_WORD.findall(text[:_LOOKED_AT_CHARS])]
    scores = {language: sum(word in known for word in words) for language, known in _FUNCTION_WORDS.items()}
    for language, letters in _OWN_LETTERS.items():
        scores[language] += len(letters.findall(text[:_LOOKED_AT_CHARS]))
    own = subtags(base)[0]
    best = max(scores, key=lambda language: scores[language])
    return best if own in scores and scores[best] - scores[own] >= _LEAST_LEAD else base


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


def writes_day_first(tag: str) -> bool:
    """Whether 3/4/2026 is the third of April in this tag's region (en-GB) and not the fourth of March."""
    return not _DAY_FIRST_REGIONS.isdisjoint(subtags(tag)[1:])
