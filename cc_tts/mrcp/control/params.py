"""Header fields of a synthesiser (RFC 6787 §8.4): which ones are known, which values are legal, and what they mean."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, cast

from cc_tts.mrcp.control.message import Header, Request
from cc_tts.mrcp.messages import Style, Unit
from cc_tts.text.markup.prosody import gain_db_of, rate_of

KILL_ON_BARGE_IN: Final = "Kill-On-Barge-In"
LEXICON_SEARCH_ORDER: Final = "Lexicon-Search-Order"
VENDOR_SPECIFIC: Final = "Vendor-Specific-Parameters"
_LENGTH: Final = re.compile(r"([+-]?)(\d{1,9}) +([A-Za-z]{1,16})")
_UNITS: Final[Mapping[str, Unit]] = {
    "second": "second", "seconds": "second", "word": "word", "words": "word", "sentence": "sentence",
    "sentences": "sentence", "paragraph": "paragraph", "paragraphs": "paragraph",
}  # fmt: skip
_MAX_NAMES: Final = 16  # unmeasured


def _is_boolean(value: str) -> bool:
    return value.lower() in ("true", "false")


def _fits(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda value: compiled.fullmatch(value) is not None


_LEGAL: Final[Mapping[str, Callable[[str], bool]]] = {
    KILL_ON_BARGE_IN: _is_boolean,
    "Voice-Name": _fits(r"\S.*"),
    "Voice-Gender": _fits("male|female|neutral"),
    "Voice-Age": _fits(r"\d{1,3}"),
    "Voice-Variant": _fits(r"\d{1,19}"),
    "Prosody-Rate": lambda value: rate_of(value.lower()) is not None,
    "Prosody-Volume": lambda value: gain_db_of(value.lower()) is not None,
    "Prosody-Pitch": _fits(r"[+-]?\d[\d.]*(?:Hz|st|%)?|x-low|low|medium|high|x-high|default"),
    "Prosody-Range": _fits(r"[+-]?\d[\d.]*(?:Hz|st|%)?|x-low|low|medium|high|x-high|default"),
    "Prosody-Contour": _fits(r"\(.*\)"),
    "Prosody-Duration": _fits(r"\d[\d.]*m?s"),
    "Speech-Language": _fits(r"[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}"),
    "Fetch-Hint": _fits("prefetch|safe"),
    "Audio-Fetch-Hint": _fits("prefetch|safe|stream"),
    "Fetch-Timeout": _fits(r"\d{1,19}"),
    LEXICON_SEARCH_ORDER: _fits(r"(?:<[^<>]{1,256}>\s*)*"),
    "Logging-Tag": _fits(r".*"),
    VENDOR_SPECIFIC: _fits(r".*"),
}
"""The fields that SET-PARAMS can set. Those of ``Style``, the barge-in and the order of lexicons have an effect; the others
are only stored.
"""
_OF_ONE_REQUEST: Final[Mapping[str, Callable[[str], bool]]] = {
    "Jump-Size": lambda value: length_of(value) is not None or names_tag(value),
    "Speak-Length": lambda value: length_of(value) is not None or names_tag(value),
    "Load-Lexicon": _is_boolean,
}
_OF_MESSAGES: Final = frozenset(
    {
        "channel-identifier", "content-type", "content-length", "content-id", "content-base", "content-encoding",
        "content-location", "accept", "accept-charset", "proxy-sync-id", "cache-control", "set-cookie", "set-cookie2",
        "active-request-id-list",
    }
)  # fmt: skip
_CANONICAL: Final = {name.lower(): name for name in (*_LEGAL, *_OF_ONE_REQUEST)}
SETTABLE: Final = tuple(_LEGAL)

Parameters = Mapping[str, str]


def length_of(value: str) -> tuple[int, Unit] | None:
    """Return a count and its unit (``Jump-Size``, ``Speak-Length``); ``None`` if it has another form, or names a tag."""
    match = _LENGTH.fullmatch(value.strip())
    if match is None or match[3].lower() not in _UNITS:
        return None
    return int(match[1] + match[2]), _UNITS[match[3].lower()]


def names_tag(value: str) -> bool:
    """Return whether a length refers to a mark of the text, which is legal but not supported here."""
    return re.fullmatch(r"\S.{0,127} +tag", value.strip(), re.IGNORECASE) is not None


def illegal(headers: Iterable[Header]) -> list[Header]:
    rules = {**_LEGAL, **_OF_ONE_REQUEST}
    named = ((_CANONICAL.get(name.lower()), value) for name, value in headers)
    return [(name, value) for name, value in named if name is not None and not rules[name](value)]


def unsettable(headers: Iterable[Header]) -> list[Header]:
    """Return the fields that SET-PARAMS and GET-PARAMS do not know."""
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in _OF_MESSAGES and _CANONICAL.get(name.lower()) not in _LEGAL
    ]


def settable(headers: Iterable[Header]) -> dict[str, str]:
    """Return the fields that SET-PARAMS sets, by their names in the RFC."""
    named = ((_CANONICAL.get(name.lower(), ""), value) for name, value in headers)
    return {name: value for name, value in named if name in _LEGAL}


def merged(defaults: Parameters, request: Request) -> dict[str, str]:
    """Return the fields that apply to a request: its own headers, else those of SET-PARAMS."""
    return {**defaults, **settable(request.headers)}


def style_of(parameters: Parameters) -> Style:
    gender = parameters.get("Voice-Gender", "").lower()
    return Style(
        voices=tuple(parameters.get("Voice-Name", "").split()[:_MAX_NAMES]),
        gender=cast("Literal['female', 'male']", gender) if gender in ("male", "female") else "",
        language=parameters.get("Speech-Language", "").replace("_", "-"),
        rate=rate_of(parameters.get("Prosody-Rate", "").lower()),
        gain_db=gain_db_of(parameters.get("Prosody-Volume", "").lower()),
    )


def kills_on_barge_in(parameters: Parameters) -> bool:
    """Return whether BARGE-IN-OCCURRED ends the request, which is the default (RFC 6787 §8.4.2)."""
    return parameters.get(KILL_ON_BARGE_IN, "true").lower() == "true"


def lexicon_order(parameters: Parameters) -> tuple[str, ...] | None:
    """Return the URIs of lexicons in the order of their use; ``None`` if the client names none."""
    found = re.findall(r"<([^<>]+)>", parameters.get(LEXICON_SEARCH_ORDER, ""))
    return tuple(found) or None
