"""A stream of text cut into sentences.

Runs on: any thread; one :class:`SentenceSplitter` belongs to one stream.
"""

import re
from functools import cache
from importlib import resources
from typing import Literal

from cc_tts.text.characters import has_speech
from cc_tts.text.cuts import long_cut
from cc_tts.text.language import latin_language_of
from cc_tts.text.others.abbreviations import NAME_BEHIND, NUMBER_BEHIND, never_last, short_words

MAX_SENTENCE_CHARS = 400
"""A sentence without an end is cut at about this many characters (unmeasured)."""

_CLOSERS = "\"'”’)\\]}»」』）】》"
_LINE_ENDS = "\n\x85\u2028\u2029"
_CANDIDATE = re.compile(rf"[.!?…。！？；]+[{_CLOSERS}]*|[{_LINE_ENDS}]")
_WIDE_END = re.compile("[。！？；]")
_HAN = re.compile("[\u3400-\u9fff]")
_LETTER = "A-Za-zÀ-ɏͰ-ԯ"
_WORD_BEFORE = re.compile(rf"[{_LETTER}][{_LETTER}.'’]*$|\d+$")
_INITIALS = re.compile(rf"(?:[{_LETTER}]\.)*[{_LETTER}]|(?:[A-Z][a-z]{{0,3}}\.)+[A-Z][a-z]{{0,3}}")
"""Degrees such as Ph.D. and B.Sc. count as initials."""
_NUMBER_OF_PART = re.compile(r"\d|[IVX]{1,6}\b")
_GERMAN_COMPOUND = re.compile("[a-zß]{3}(?:str|nr)$")
"""Hauptstr. and Kundennr. are followed by a number."""
_LONGEST_SHORT_FORM = 7
"""Letters; unmeasured. None of :func:`common_words` is longer."""
BEGINS_SENTENCE = re.compile(
    r"(?:The|This|That|These|It|We|You|Your|Our|Please|He|She|They|There|Then|If|For|When|And|But|To|How|What|Would|Is|Are|Do)\s"
)
_MONTH_AFTER_DAY = re.compile(
    r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember|Jänner)\b"
)
_BEFORE_ORDINAL = re.compile(
    r"\b(?:[Dd](?:ie|er|as|e[nms])|[Ii]m|[Aa]m|[Bb]eim|[Zz]u[mr]|[Vv]om|(?:[Ii]hr|[Uu]nser|[Mm]ein|[Ee]in)e?[nmrs]?)\s$"
)
_KEY_IS_PRESSED = re.compile(r"\b(?:[Dd]rück|[Ww]ähl|[Tt]ipp)\w*\s[^.!?]*$|\b(?:Taste|Ziffer)\b")
_LONGEST_ORDINAL = 2
_DAY_BEFORE = re.compile(r"(?<![\d.])\d{1,2}\.\s?$")
"""A day before its month: 27.11."""
_WITH_ORDINAL_STOPS = frozenset({"de", "da", "nb", "sv", "fi", "cs", "sk", "hr", "hu", "pl", "tr"})
"""Languages that write ordinal numbers with a full stop, of those that are told by words; and Swedish, for which a few words
of Danish may be taken."""
_PERHAPS_MONTH = re.compile(r"[A-ZÄÖÜ][^\W\d_]{0,8}")
_NAME_GOES_ON = re.compile(
    r"[A-Z]{1,5}-?\d|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\b"
)
"""Behind the short name of a month, of a day or of a number."""
_PART_GOES_ON = re.compile(r"(?!I\b)[IVX]{1,6}\b(?!-)|[B-HJ-Z]\b(?!\.)|A(?=[,;:)])")
_DAY_GOES_ON = re.compile(r"[AP]M\b")
_PERHAPS_MORE = re.compile(r"[A-Z][A-Za-z]{0,8}-?")
"""The beginning of a word by which it is decided, whose end has not come yet."""
_LOOK_BACK_CHARACTERS = 24
_HALF_OF_DAY = frozenset({"a.m", "p.m"})
_ZONE = re.compile(r"(?:[ECMP]\.?[SD]?\.?T|AK[SD]?T|HST|GMT|UTC|BST|CES?T|IST|JST|AE[SD]T)(?![A-Za-z])")
_STREETS = frozenset({"ave", "blvd", "rd", "ct", "pl", "ln"})
_QUADRANT = re.compile(r"(?:[NS][EW]?|[EW])(?![\w'])")
_TITLES = frozenset(
    re.findall(
        r"\w+",
        "dr mr mrs ms mt prof st rev hon capt lt col gen sgt gov sen rep pres messrs mme mx maj cpl cmdr adm supt ft "
        "msgr mmes amb thos jas wm geo chas robt jos benj edw saml danl "
        "calif ariz fla mich minn okla penn tenn wis wyo",
    )
)
"""These end no sentence when they begin with a capital: ``Mr. He`` is a name."""
_NEVER_LAST = frozenset({"vs", "v"})
_SELDOM_LAST = (_TITLES - {"ft"}) | frozenset(
    re.findall(
        r"\w+",
        "ste apt jr sr inc ltd corp co bros approx dept est appt "
        "acct ext tel incl max min exp rs qty amt ref rm fl bldg sq asst assn mgr hwy rte inv conf "
        "atty intl univ natl p pp pg par art ver fr "
        "avail auth eff sched prev orig avg addl std adj alt cert cont dia div enc freq grp lic loc mfg prem sig stn tkt "
        "flt sta repl vit rt agg lvl pls plz fwd chg ind fam coll veh trans tot res reg ca btwn dep arr pref nr msgs err",
    )
)
_DATES = frozenset(
    re.findall(r"\w+", "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun")
)
_NUMBERS = frozenset({"no", "nos"})
_PARTS = frozenset({"sec", "fig", "vol", "pp", "ch", "opt", "para", "sc", "op", "term", "ex", "gr", "mi", "pt", "sch"})
_QUALIFIERS = frozenset({"temp", "misc", "mkt", "ded"})
_ACRONYM = re.compile(r"[A-Z]{2,5}\b")
_COURTS = frozenset(
    {
        "fed",
        "cal",
        "app",
        "super",
        "sup",
        "dist",
        "cir",
        "civ",
        "crim",
        "evid",
        "bankr",
        "supp",
        "rptr",
        "cong",
        "sess",
        "prob",
        "def",
        "pltf",
        "resp",
    }
)
"""These are short forms with a capital only: ``app`` and ``super`` are words."""
_CITATION_GOES_ON = re.compile(
    r"(?:App|Ct|Cl|Div|Rs?|Civ|Crim|Evid|P|Supp|Rptr|Cir|Cong|Sess|Code|Rule|No)\b"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\b"
)
_LONGEST_UNIT = 4
"""Letters of a unit behind a number, whose full stop may end the sentence (``50 gal. tank``)."""
_IS_CONTRACTED = re.compile("[a-z][b-df-hj-np-tv-xz]{2,6}")
"""Without a vowel behind the first letter: ``clmt.`` of "claimant"."""
_AMOUNT_BEFORE = re.compile("[\\d/¼-¾⅐-⅞]\\s{0,2}$")
_PART_OF_WORD = re.compile(r"\d-$")
"""A unit behind a hyphen belongs to the word that follows: an 18-mo. CD."""
_LAST_PERHAPS = _HALF_OF_DAY | _STREETS | _DATES | _NUMBERS | _PARTS | _QUALIFIERS
_GOES_ON_WITH = frozenset("0123456789#$€£¥&+(@")

_Kind = Literal["word", "name", "seldom last", "unit", "listed", "unknown"]


@cache
def common_words() -> frozenset[str]:
    """Return the English words that are no short forms."""
    lines = resources.files("cc_tts.text.en").joinpath("common_words.txt").read_text("ascii").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


class SentenceSplitter:
    """Cuts a growing text into sentences. How the text is divided when it arrives makes no difference to the result.

    The sentences, those of :meth:`flush` included, join to the input, character for character; white space between two
    stands at the beginning of the second. A sentence is given out as soon as the character after its end shows that it
    has ended. Lines end sentences too.
    """

    def __init__(self, *, max_chars: int = MAX_SENTENCE_CHARS) -> None:
        self._max_chars = max_chars
        self._pending = ""
        self._num_settled = 0

    @property
    def settled(self) -> str:
        """Return what has arrived of the sentence that is under way and certainly belongs to it."""
        return self._pending[: self._num_settled]

    def push(self, text: str) -> list[str]:
        """Append text; returns the sentences it completed."""
        self._pending += text
        return self._taken(is_last=False)

    def flush(self) -> list[str]:
        """Give out the rest."""
        return self._taken(is_last=True)

    def _taken(self, *, is_last: bool) -> list[str]:
        sentences: list[str] = []
        text, begin = self._pending, 0
        while begin < len(text):
            window = text[begin : begin + self._max_chars + 1]
            end, self._num_settled = self._sentence_end(window, is_last=is_last)
            if not end:
                break
            sentences.append(window[:end])
            begin += end
        self._pending = text[begin:]
        if not self._pending:
            self._num_settled = 0
        return sentences

    def _sentence_end(self, window: str, *, is_last: bool) -> tuple[int, int]:
        """The length of the first sentence, or 0 and how many characters are known to belong to it.

        ``window`` holds one character more than the longest sentence when the text is that long: everything is decided
        by it, so the same text is always cut the same way.
        """
        is_full = len(window) > self._max_chars
        is_complete = is_full or is_last
        for candidate in _CANDIDATE.finditer(window):
            end = candidate.end()
            if end == len(window):
                if not is_complete:
                    return 0, candidate.start()
                break
            if not has_speech(window[:end]):
                continue
            verdict = _ends(window, candidate, is_complete=is_complete)
            if verdict is None:
                return 0, candidate.start()
            if verdict:
                return end, end
        if is_full:
            end = long_cut(window, self._max_chars)
            return end, end
        return (len(window), len(window)) if is_last else (0, len(window))


def _ends(text: str, candidate: re.Match[str], *, is_complete: bool) -> bool | None:
    """Whether the sentence ends with this mark; ``None`` when what comes next must be known first."""
    mark, following = candidate.group(), text[candidate.end() :]
    if mark in _LINE_ENDS or _WIDE_END.search(mark):
        return True
    if not following[0].isspace():
        return _HAN.match(following) is not None and (
            mark != "." or _HAN.match(text, candidate.start() - 1) is not None
        )
    if mark[0] != "." or mark.startswith(".."):
        return True
    return _full_stop_ends(text[: candidate.start()], following.lstrip(), is_complete=is_complete)


def _full_stop_ends(before: str, following: str, *, is_complete: bool) -> bool | None:
    match = _WORD_BEFORE.search(before[-_LOOK_BACK_CHARACTERS:])
    if match is None:
        return _ends_behind_other_letters(before, following, is_complete=is_complete)
    written = match.group()
    before = before[: -len(written)]
    if written.isdigit():
        return _ends_behind_number(written, before, following, is_complete=is_complete)
    kind = _kind(written, before)
    short = re.split("['’]", written)[-1]
    if kind == "name" or (kind == "word" and short not in _short_forms_elsewhere(written)):
        return kind == "word"
    if not is_complete and (not following or _PERHAPS_MORE.fullmatch(following)):
        return None
    if kind in {"word", "unknown"} and _NUMBER_OF_PART.match(following) and short in never_last(NUMBER_BEHIND):
        return False
    if kind == "word":
        return not following[:1].islower() or written in common_words()
    return not following or _ends_after_short_form(written.lower(), kind, following)


def _short_forms_elsewhere(written: str) -> frozenset[str]:
    """The short forms of other languages that a word may be; an English word is one only before a number."""
    return never_last(NUMBER_BEHIND) if written in common_words() else short_words()


def _ends_behind_number(written: str, before: str, following: str, *, is_complete: bool) -> bool | None:
    if not has_speech(before):  # the number of an item in a list
        return False
    if _DAY_BEFORE.search(before):
        return None if not following and not is_complete else not following[:1].islower()
    if len(written) > _LONGEST_ORDINAL or not _has_ordinals(before):
        return True
    if not is_complete and (not following or _PERHAPS_MONTH.fullmatch(following)):
        return None
    return not _is_ordinal(before, following)


def _ends_behind_other_letters(before: str, following: str, *, is_complete: bool) -> bool | None:
    """Whether it ends one: not within ``डॉ. वर्मा``, ``3 พ.ย. 2569`` and the like."""
    word = before[-_LOOK_BACK_CHARACTERS:].rpartition(" ")[2]
    if not following and not is_complete and word in short_words():
        return None
    return word not in never_last(NAME_BEHIND) and not (word in short_words() and following[:1].isdigit())


def _kind(written: str, before: str) -> _Kind:
    word = written.lower()
    if written in never_last(NAME_BEHIND) or _GERMAN_COMPOUND.search(written):
        return "name"
    may_be_unit = len(word) <= _LONGEST_UNIT and (written.islower() or (written.isupper() and len(word) > 1))
    if word in _NEVER_LAST or (word in _TITLES and written[0].isupper()):
        return "name"
    if word in _SELDOM_LAST or _PART_OF_WORD.search(before):
        return "seldom last"
    if word in _HALF_OF_DAY:
        return "listed"
    if may_be_unit and "." not in word and _AMOUNT_BEFORE.search(before):
        return "unit"
    if _INITIALS.fullmatch(written):
        return "seldom last" if "." in written else "name" if written != "I" else "word"
    if word in _LAST_PERHAPS or (word in _COURTS and written[0].isupper()):
        return "listed"
    may_be_short = (
        len(word) <= _LONGEST_SHORT_FORM and word.isalpha() and (word[1:] == written[1:] or written.isupper())
    )
    if not may_be_short or word in common_words():
        return "word"
    return "seldom last" if _IS_CONTRACTED.fullmatch(word) else "unknown"


def _ends_after_short_form(word: str, kind: _Kind, following: str) -> bool:
    if following[0] in ",;:":
        return False
    if kind == "seldom last":
        return BEGINS_SENTENCE.match(following) is not None
    if kind != "listed" and (following[0].islower() or following[0] in _GOES_ON_WITH):
        return False
    if kind == "unit" and (_QUADRANT.match(following) or word not in _LAST_PERHAPS):
        return not _QUADRANT.match(following)
    if kind == "unknown":
        return _NAME_GOES_ON.match(following) is None
    return _ends_after_listed(word, following)


def _has_ordinals(before: str) -> bool:
    """Whether the words before a number with a full stop are of a language that may write an ordinal one so."""
    return precedes_ordinal(before) or latin_language_of(before, "en") in _WITH_ORDINAL_STOPS


def _is_ordinal(before: str, following: str) -> bool:
    """Whether a number with a full stop is an ordinal one, as several languages write it: ``3. sal``, ``die 3. Mahnung``."""
    if following[:1].islower() or _MONTH_AFTER_DAY.match(following):
        return True
    return precedes_ordinal(before) and following[:1].isupper()


def precedes_ordinal(before: str) -> bool:
    """Whether a number behind these German words is an ordinal one if a noun follows, and no key to be pressed."""
    return _BEFORE_ORDINAL.search(before) is not None and _KEY_IS_PRESSED.search(before) is None


def _ends_after_listed(word: str, following: str) -> bool:
    """Whether an abbreviation that may end a sentence ends one, by what follows."""
    if (word in _HALF_OF_DAY and _ZONE.match(following)) or (word in _STREETS and _QUADRANT.match(following)):
        return False
    if (word in _PARTS and _PART_GOES_ON.match(following)) or (word in _DATES and _DAY_GOES_ON.match(following)):
        return False
    if word in _QUALIFIERS and _ACRONYM.match(following):
        return False
    if (word in _COURTS or word == "ct") and _CITATION_GOES_ON.match(following):
        return False
    return following[0].isupper() and (word in _HALF_OF_DAY or _NAME_GOES_ON.match(following) is None)
