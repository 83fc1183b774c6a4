"""Replacing what a pattern finds by words, with spaces where they would run into their neighbours."""

import re
from collections.abc import Callable
from functools import cache
from operator import methodcaller

from cc_tts.text.alignment import substituted

Say = Callable[[re.Match[str]], str | None]
"""The words for a match, or ``None`` to leave it as it is."""


def in_order(*rules: tuple[str, Say | str]) -> Callable[[str], str]:
    """A function that applies rules one after the other: a pattern with what is said for it, or a template of that as
    :meth:`re.Match.expand` takes it.
    """
    says = ((pattern, methodcaller("expand", say) if isinstance(say, str) else say) for pattern, say in rules)
    return rewriter(*((pattern, _padded(say)) for pattern, say in says))


def rewriter(*rules: tuple[str, str | Callable[[re.Match[str]], str]]) -> Callable[[str], str]:
    """A function that applies rules one after the other, without spaces beyond what they give. Its first call compiles them:
    all rules take a quarter of a second of a processor (measured), and most processes that import them prepare no text.
    """

    @cache
    def compiled() -> list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]:
        return [(re.compile(pattern), change) for pattern, change in rules]

    return lambda text: substituted(compiled(), text)


def _padded(say: Say) -> Callable[[re.Match[str]], str]:
    def padded(match: re.Match[str]) -> str:
        words, text = say(match), match.string
        if words is None:
            return match.group()
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        left = " " if before.isalnum() and words[:1].isalnum() else ""
        right = " " if after.isalnum() and words[-1:].isalnum() else ""
        return f"{left}{words}{right}"

    return padded


def grouped(alternatives: str) -> str:
    """Alternatives that each begin with a letter, grouped by it: a pattern that is found several times as fast."""
    groups: dict[str, list[str]] = {}
    for each in re.split(r"\|(?![^(]*\))", alternatives):
        groups.setdefault(each[0], []).append(each[1:])
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in groups.items())


def ends_sentence(match: re.Match[str]) -> bool:
    """Whether the text after the match is its end or begins a new sentence or line, so that a full stop must be kept."""
    following = match.string[match.end() : match.end() + 40]
    rest = following.lstrip(" \n\"')”’")
    between = following[: len(following) - len(rest)]
    return not rest or "\n" in between or (between != "" and rest[0].isupper())


_ARTICLE = re.compile(r"\b(?:[Aa]n?|[Aa]ny|[Aa]nother)\s(?:\S{1,12}\s(?:to|by)\s)?$")
_NO_NOUN = (
    r"(?!(?:per|w|a|an|or|and|is|was|off|more|less|in|on|to|each|for|at|of|with|from|by|every|when|if|as|the|your|plus|total"
    r"|now|today|extra|back|only|ago|later|before|after|until|till|but|so|that|which|will|has|because|while|than"
    r"|ea|yesterday|tomorrow|tonight|again|north|south|east|west|past(?!-)|above|below|under|over|behind|ahead|down|up|inside|outside|into|onto|between|around|through"
    r"|along|near|towards?|beyond|(?:long|short|wid|tall|deep|high|low|clos|fa|furth|farth|small|bigg|larg|thick|thinn|old|young|fast|slow)e?r"
    r"|left|right|straight|north\w+|south\w+|expected|possible|likely|forecast|required|needed|remaining|wide|tall|long|deep|thick|high|across|away|apart|or|too|by|x|are|were|had|have|does|did|may|might|must|should|would"
    r"|could|can(?=\s(?!of|is|was|has|and|or|for|with|at|costs?|from)[a-z]))\b)"
)
_ATTRIBUTED = re.compile(
    rf"\s(?!my\b){_NO_NOUN}(?:(?:[a-z]{{3,13}}\.?|co-?pay|[A-Z]{{2,5}})\s)?"
    r"(?:fee|charge|payment|deposit|credit|co-?pay|deductible|plan|gift|card|minimum|refund|penalty|limit|bonus|discount"
    r"|voucher|coupon|rebate|reward|surcharge|subscription|membership|package|wait|window|hold|session|trial|warranty|contract|term"
    r"|appointment|line|loan|policy|fund|amount|total|threshold|cable|cord|hose|bag|box|can|balance"
    r"|pack|battery|bulb|lamp|adapter|charger|outlet|drive|notice|delay|break|increase|commitment|grace|guarantee|installment|bill|transfer|pill|tablet"
    r"|capsule|bottle|tube|pallet|roll|sheet|ticket|coin|note|block|interval|increment|slot|shift|visit|call|chunk|book|top-up|add-on|upgrade|order|purchase|tip|toll|fare|ceiling|cap|donation|prize|cover|excess|bolt|screw|nail|pipe|breaker|fuse|circuit|plug|socket)s?\b"
)
_NOUN = re.compile(rf"\s{_NO_NOUN}[A-Za-z]")


def precedes_noun(match: re.Match[str]) -> bool:
    """Whether a word behind the match may be a noun that it qualifies."""
    return _NOUN.match(match.string, match.end()) is not None


def qualifies_noun(match: re.Match[str]) -> bool:
    """Whether the match qualifies a noun behind it, and is singular: "a five dollar fee", "the ten minute wait"."""
    text = match.string
    noun = _NOUN if _ARTICLE.search(text[max(0, match.start() - 20) : match.start()]) else _ATTRIBUTED
    return noun.match(text, match.end()) is not None


def kept_stop(match: re.Match[str]) -> str:
    """The full stop at the end of the match if it also ends the sentence."""
    return "." if match.group().endswith(".") and ends_sentence(match) else ""
