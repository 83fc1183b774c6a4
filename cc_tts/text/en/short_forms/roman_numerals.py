"""Roman numerals in English words: "Title nine", "Henry the eighth", "Final Fantasy seven", "act three, scene two"."""

import re

from cc_tts.text.en.numbers import cardinal, ordinal
from cc_tts.text.substitution import grouped

_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_UP_TO_99 = r"(?=[IVXL])(?:X[CL]|L?X{0,3})(?:IX|IV|V?I{0,3})"
_ENDS = r"(?![A-Za-z\d]|'[a-z]{2})"
_SMALL = r"(?=[ivx]{2})x{0,3}(?:ix|iv|v?i{0,3})"
_NUMBERED = (
    "World War|Phase|Type|Title|Chapter|Part|Section|Class|Stage|Level|Tier|Schedule|Grade|Super Bowl|Act|Scene|Volume"
    "|Amendment|Canto|Psalm|Olympiad|WrestleMania|Symphony|Sonata|Concerto|Page|Paragraph|Clause"
)
_NUMBERED_PLACE = (
    "Theat(?:er|re)|Hall|Building|Terminal|Room|Annex|Unit|Zone|Ward|Pavilion|Tower|Wing|Block|Plan|Option|Group|Category"
    "|Region|[Dd]ivision|[Dd]epartment|Appendix|Exhibit|Article|Figure|Table|Module|Book|Episode|Season|Version|Mark|Generation|Series|Studio"
    "|Court|Lab|Plaza|Park|Calculus|Algebra|Biology|Chemistry|Physics|English|Spanish|French|Fund|Trust|Factor|Round|Lot"
)
"""These places and works are numbered; V and X alone may be the letter of one."""
_JOINT = r"(?:\s?[-–/]\s?|,\s(?:(?:and|or|&)\s)?|\s(?:and|or|&|to|through)\s)"
_ONE = rf"(?:{_UP_TO_99}[A-D]?|{_SMALL}){_ENDS}"
_PARTS = rf" (?=[IVXLivx])(?P<numerals>{_ONE}(?:{_JOINT}{_ONE})*)"
_PART_BEFORE = re.compile(rf"\b(?P<name>(?P<always>(?i:{_NUMBERED}))|{_NUMBERED_PLACE})s?$")
_LETTERS_TOO = frozenset({"L", "XL"})
_WITH_FIFTY = ("Super Bowl", "WrestleMania", "Psalm", "Amendment")
"""Schedule L and type XL are letters; as numerals they stand behind these."""
_SPEAKER = re.compile(r"(?:'[a-z]|\s(?!of\b|and\b|or\b|to\b|is\b|in\b)[a-z])")
"""``I`` before a word may be who speaks."""
_EACH = re.compile(r"(?<![A-Za-z])([IVXL]+|[ivx]+)([A-D]?)(?![A-Za-z])")
_RULERS = (
    "Henry|Louis|Elizabeth|George|Edward|James|Charles|William|Richard|John|Paul|Pius|Benedict|Leo|Gregory|Innocent|Clement"
    "|Urban|Alexander|Nicholas|Catherine|Mary|Philip|Ferdinand|Frederick|Napoleon|Peter|Ivan|Ram[es]ses|Ptolemy|Darius|Xerxes"
    "|Otto|Wilhelm|Carlos|Juan|Felipe|Alfonso|Gustav|Christian|Harald|Olav|Haakon|Margrethe|Leopold|Albert|Baldwin|Robert"
    "|David|Thutmose|Amenhotep|Mehmed|Selim|Stephen|Sigismund|Boniface|Sixtus|Julius|Martin|Eugene|Adrian|Victor|Emmanuel"
)
_GIVEN = (
    "Aaron|Adam|Alan|Alfred|Andrew|Anthony|Arthur|Benjamin|Bernard|Brian|Calvin|Carl|Christopher|Clarence|Clifford|Curtis"
    "|Daniel|Dennis|Donald|Douglas|Dwight|Earl|Edgar|Edwin|Eric|Ernest|Francis|Frank|Franklin|Fred|Gary|Gerald|Gordon|Harold"
    "|Harry|Harvey|Herbert|Howard|Hugh|Jack|Jacob|Jason|Jeffrey|Jerome|Jesse|Joe|Joseph|Joshua|Keith|Kenneth|Kevin|Lawrence"
    "|Leon|Leonard|Lewis|Lloyd|Luther|Marcus|Mark|Marvin|Matthew|Michael|Milton|Nathan|Nathaniel|Norman|Oliver|Oscar|Patrick"
    "|Ralph|Raymond|Roger|Ronald|Roy|Russell|Samuel|Scott|Sidney|Stanley|Steven|Theodore|Thomas|Timothy|Todd|Tyler|Vernon"
    "|Vincent|Walter|Warren|Wayne|Wesley|Willie|Winston"
)
_TITLES = (
    "Mister|Doctor|Judge|Justice|Officer|Reverend|Professor|Senator|Governor|Representative|Captain|Coach|Attorney"
)
_RULER = (
    rf"(?=[A-Z])\b(?P<name>(?P<title>King|Queen|Pope|Emperor|Tsar|Czar)(?:\s[A-Z][a-z]+){{1,2}}|{grouped(_RULERS)})\s(?P<numeral>(?!X{_ENDS}|L)"
    rf"(?:I(?(title)|(?=[.,;:!?)]|$|\sof\b))|(?!I{_ENDS}){_UP_TO_99})){_ENDS}(?!\.\s?[A-Z])(?(title)|(?!(?<=\s[IV])(?:\.|\s[A-Z])))"
)
_HEIR_BEFORE = re.compile(
    rf"\b(?:(?:{_TITLES})|{_GIVEN}|{_RULERS}|[A-Z]\.)(?:\s[A-Z][\w'’-]*\.?){{0,2}}\s[A-Z][A-Za-z'’-]+,?$"
)
_WORK = rf" (?=[IVX]{{2}})(?<=[A-Za-z\d'’!,] )(?P<numeral>(?=X{{0,2}}[IV]){_UP_TO_99}){_ENDS}(?!-)"
_NAME_BEFORE = re.compile(r"(?<![\w-])([A-Z][\w'’!]*)$")
_LONGEST_NAME = 24
_LONGEST_FULL_NAME = 50
_OF_HEIRS = ("II", "III", "IV")
_INTO_A_VEIN = frozenset(
    (
        "Start", "Give", "Stop", "Remove", "Insert", "Change", "Continue", "Hang", "Need", "Needs", "New", "No", "The", "An",
        "Peripheral", "Patient", "Place", "Discontinue", "Flush", "Check", "Order", "Run", "Begin", "Via", "Your",
    )
)  # fmt: skip
_OF_A_VEIN = re.compile(
    r"\s(?:fluids?|drips?|antibiotics?|lines?|bags?|sites?|push|poles?|access|infusions?|therapy|ports?|catheters?|contrast"
    r"|meds?|medications?|sedation|pumps?|tubing)\b|/"
)
"""IV is of medicine behind or before these words."""
_HEADING = r"(?m)^(?P<numeral>(?=[IVX]{2})(?!X{2,3}\.)X{0,3}(?:IX|IV|V?I{0,3}))\.(?=\s)"


def _value(written: str) -> int:
    """Return ``XIV`` as 14."""
    values = [_VALUES[character] for character in written.lower()]
    return sum(each if each >= following else -each for each, following in zip(values, [*values[1:], 0], strict=True))


def _parts(match: re.Match[str]) -> str | None:
    """``Title IX``, ``Parts II and III``, ``Stage IIIB``, ``act iii``."""
    before = _PART_BEFORE.search(match.string, max(0, match.start() - _LONGEST_NAME), match.start())
    if before is None or (len(match["numerals"]) == 1 and not before["always"]):
        return None
    if match["numerals"] in _LETTERS_TOO and not before["name"].startswith(_WITH_FIFTY):
        return None
    if match["numerals"] == "I" and before["name"].islower() and _SPEAKER.match(match.string, match.end()):
        return None
    written = re.sub(r"\s?[-–]\s?", " to ", match["numerals"])
    said = _EACH.sub(lambda each: f"{cardinal(_value(each[1]))} {each[2]}".rstrip(), written)
    return f" {said}"


def _with_ordinal(match: re.Match[str]) -> str:
    """``Henry VIII`` as "Henry the eighth"."""
    return f"{match['name']} the {ordinal(_value(match['numeral']))}"


def _work(match: re.Match[str]) -> str | None:
    """``Rocky III`` as "Rocky three", ``Thomas Reed III`` as "Thomas Reed the third"; ``Start IV fluids`` has no fourth."""
    before = _NAME_BEFORE.search(match.string, max(0, match.start() - _LONGEST_NAME), match.start())
    if match["numeral"] in _OF_HEIRS and _HEIR_BEFORE.search(
        match.string, max(0, match.start() - _LONGEST_FULL_NAME), match.start()
    ):
        return f" the {ordinal(_value(match['numeral']))}"
    is_vein = match["numeral"] == "IV" and (
        before is None
        or before[1].isupper()
        or before[1] in _INTO_A_VEIN
        or _OF_A_VEIN.match(match.string, match.end())
    )
    return None if before is None or is_vein else f" {cardinal(_value(match['numeral']))}"


ROMAN_RULES = (
    (r"\bWW\s?(II?)\b", lambda match: f"World War {cardinal(_value(match[1]))}"),
    (_HEADING, lambda match: f"{cardinal(_value(match['numeral']))},"),
    (_PARTS, _parts),
    (_RULER, _with_ordinal),
    (_WORK, _work),
)
"""Numerals of headings, of what is numbered, of rulers, and of heirs and works."""
