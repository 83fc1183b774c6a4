"""Speech Synthesis Markup Language (W3C SSML 1.1), the part of it that telephony uses, as the parts of a prompt.

::

    <speak>Hello<break time="500ms"/><voice name="de">Guten Tag</voice></speak>
      ─▸ TextContent("Hello") · SilenceContent(500) · TextContent("Guten Tag", voice="de")

What is well-formed is always spoken: of an element or attribute that is not known the text inside is, with a warning.

Runs on: any thread; at most :data:`MAX_BYTES` take a few milliseconds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from msgspec import structs

from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import FieldError, SsmlMalformed
from cc_tts.speech.prompt import (
    MarkContent,
    Part,
    SequenceContent,
    SilenceContent,
    SsmlWarning,
    TextContent,
    ToneContent,
)
from cc_tts.text.alignment import replaced
from cc_tts.text.characters import clean, has_speech
from cc_tts.text.chunker import LOOK_BACK_CHARS, looks_back
from cc_tts.text.markup.prosody import RATES, VOLUMES_DB, gain_db_of, rate_of
from cc_tts.text.pronunciation.phonemes import ipa_of
from cc_tts.text.pronunciation.replacements import READ, Replacement
from cc_tts.text.pronunciation.say_as import KINDS
from cc_tts.text.pronunciation.xml_reader import XmlReader
from cc_tts.voices.inline_sounds import EMPHASIS_BEGINS, EMPHASIS_ENDS, SOUNDS

MAX_BYTES: Final = 65_536  # unmeasured
MAX_DEPTH: Final = 32  # unmeasured
MAX_ELEMENTS: Final = 500  # unmeasured
MAX_WARNINGS: Final = 20  # unmeasured
MAX_NAME_CHARS: Final = 128  # unmeasured
"""The most characters in the name of a mark, a voice or a format."""
MAX_BREAK_MS: Final = 10_000  # unmeasured
MAX_SILENCE_MS: Final = 300_000  # unmeasured
"""The limit for all breaks of a document together; further ones have no effect."""
MAX_ALIAS_CHARS: Final = 500  # unmeasured
_STRENGTHS_MS: Final = {"none": 0, "x-weak": 100, "weak": 200, "medium": 400, "strong": 700, "x-strong": 1200}
_PAUSES_MS: Final = {"p": 400, "s": 200}
_MAX_GAIN_DB: Final = 20.0  # unmeasured
_NO_STYLE: Final = TextContent("")
_BLEEP: Final = ToneContent("1000", 400)
_TIME: Final = re.compile(r"\+?(\d{1,6}(?:\.\d{0,6})?|\.\d{1,6})(ms|s)")
_LANGUAGE: Final = re.compile(r"[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}")
_FORMAT: Final = re.compile(r"[A-Za-z0-9]{0,16}")

_MARKS: Final = frozenset({"mark", "bookmark"})
_NOT_SPOKEN: Final = frozenset({"desc", "metadata", "meta", "lexicon"})
_WITHOUT_EFFECT: Final = frozenset({"w", "token", "lookup", "audio"})
_LEVELS: Final = {"strong": True, "moderate": True, "none": False, "reduced": False}
_SOUND_SIGNS: Final = frozenset(SOUNDS.values())
_CLOSING: Final = ".!?…。！？\"'”’»"
"""A sound at the end of a text is placed before its closing punctuation, so that it belongs to the sentence."""


def from_ssml(ssml: str, style: TextContent = _NO_STYLE, *, pointer: str = "/ssml") -> SequenceContent:
    """Return the parts of a document; ``style`` holds where the document says nothing itself. ``pointer`` is where it lies
    in a request. Raises ``SsmlMalformed``, with line and column, for what is not well-formed XML, without a ``speak``
    element, with a document type, or beyond one of the bounds.
    """
    return _Reader(replace(style, strips_markup=False), pointer).read(ssml)


@dataclass(slots=True)
class _Element:
    """An open element: the style of the text inside, and what happens at its end."""

    name: str
    style: TextContent
    at_end: Callable[[], None] | None = None
    is_spoken: bool = True


@dataclass(slots=True)
class _Reader:
    base: TextContent
    pointer: str
    parts: list[Part] = field(default_factory=list)
    warnings: list[SsmlWarning] = field(default_factory=list)
    _elements: list[_Element] = field(default_factory=list)
    _num_elements: int = 0
    _style: TextContent = _NO_STYLE
    _text: str = ""
    _has_text: bool = False
    """Whether text was closed before; parts end without white space."""
    _is_apart: bool = False
    """Whether white space or a pause precedes the next spoken text."""
    _replacements: list[Replacement] = field(default_factory=list)
    _marks: list[tuple[int, str]] = field(default_factory=list)
    _replaced: Replacement | None = None
    """The element ``sub``, ``say-as`` or ``phoneme`` around the text, while it is read."""
    _implied_ms: int = 0
    """The pause at the end of a paragraph or sentence that is still to come; a break replaces it."""
    _break_ms: int | None = None
    _removes_pause: bool = False
    """Whether a break of no length was last, so that no pause follows."""
    _before: str = ""
    """The end of the text of the parts before."""
    _silence_ms: int = 0
    _xml: XmlReader = field(init=False)

    def __post_init__(self) -> None:
        self._xml = XmlReader(start=self._start, end=self._end, characters=self._characters, fault=self._fault)

    def read(self, ssml: str) -> SequenceContent:
        try:
            document = ssml.encode("utf-8")
        except UnicodeEncodeError:
            raise self._fault("holds a lone surrogate") from None
        if len(document) > MAX_BYTES:
            raise self._fault(f"{len(document)} bytes; at most {MAX_BYTES} are read")
        self._xml.read(document)
        self._close_text()
        if self._replacements:
            self._warn("cc:sound: no words come behind it; it is left out")
        if self._break_ms:
            self.parts.append(SilenceContent(self._break_ms))
        return SequenceContent(tuple(self.parts), tuple(self.warnings))

    # --- handlers of the parser ------------------------------------------------------------------------------------------

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._check_bounds(name)
        parent = self._elements[-1] if self._elements else _Element("", self.base)
        element = _Element(name, parent.style, is_spoken=parent.is_spoken and name not in _NOT_SPOKEN)
        self._elements.append(element)
        is_in_replaced = self._replaced is not None and name not in _MARKS
        if not element.is_spoken or is_in_replaced:
            if name not in _NOT_SPOKEN:
                self._warn(f"<{name}> has no effect here")
        elif name in self._KNOWN:
            self._handle(element, attributes)
        else:
            fault = "has no effect" if name in _WITHOUT_EFFECT else "is not known"
            self._warn(f"<{name}> {fault}: the text inside is spoken")

    def _handle(self, element: _Element, attributes: dict[str, str]) -> None:
        handle, known = self._KNOWN[element.name]
        handle(self, element, attributes)
        for attribute in attributes:
            if attribute not in known and not attribute.startswith(("xml:", "xmlns", "xsi:")):
                self._warn(f"{element.name}: {attribute} has no effect")

    def _check_bounds(self, name: str) -> None:
        self._num_elements += 1
        if self._num_elements > MAX_ELEMENTS:
            raise self._xml.malformed(f"more than {MAX_ELEMENTS} elements")
        if len(self._elements) >= MAX_DEPTH:
            raise self._xml.malformed(f"elements nested more than {MAX_DEPTH} deep")
        if not self._elements and name != "speak":
            raise self._xml.malformed(f"the root element is {name[:MAX_NAME_CHARS]}, not speak")

    def _end(self, _name: str) -> None:
        element = self._elements.pop()
        if element.at_end is not None:
            element.at_end()

    def _characters(self, data: str) -> None:
        if self._elements and self._elements[-1].is_spoken:
            self._say(data, self._elements[-1].style)

    # --- elements --------------------------------------------------------------------------------------------------------

    def _speak(self, element: _Element, attributes: Mapping[str, str]) -> None:
        if len(self._elements) > 1:
            self._warn("<speak> inside <speak> has no effect")
        elif self.base.language is None:
            element.style = replace(element.style, language=self._language(attributes) or None)

    def _paragraph(self, element: _Element, attributes: Mapping[str, str]) -> None:
        pause_ms = _PAUSES_MS[element.name]
        self._imply(pause_ms)
        element.at_end = lambda: self._imply(pause_ms)
        if attributes.get("xml:lang"):
            self._lang(element, attributes)

    def _break(self, _element: _Element, attributes: Mapping[str, str]) -> None:
        milliseconds = self._break_length_ms(attributes)
        if milliseconds > MAX_BREAK_MS:
            self._warn(f"break: {milliseconds} ms are shortened to {MAX_BREAK_MS} ms")
        if not milliseconds and self._text:
            self._removes_pause = True
            return
        self._close_text()
        milliseconds = min(milliseconds, MAX_BREAK_MS, MAX_SILENCE_MS - self._silence_ms)
        self._silence_ms += milliseconds
        self._break_ms = (self._break_ms or 0) + milliseconds

    def _break_length_ms(self, attributes: Mapping[str, str]) -> int:
        if "time" in attributes:
            if (match := _TIME.fullmatch(attributes["time"].strip())) is not None:
                return round(float(match[1]) * (1000 if match[2] == "s" else 1))
            self._warn("break: time is a number with ms or s; 400 ms instead")
        elif (strength := attributes.get("strength", "medium").strip()) in _STRENGTHS_MS:
            return _STRENGTHS_MS[strength]
        else:
            self._warn(f"break: strength is one of {', '.join(_STRENGTHS_MS)}; 400 ms instead")
        return _STRENGTHS_MS["medium"]

    def _sub(self, element: _Element, attributes: Mapping[str, str]) -> None:
        alias = " ".join(clean(attributes.get("alias", "")).split())
        if has_speech(alias) and len(alias) <= MAX_ALIAS_CHARS:
            self._begin_replaced(element, spoken=alias, say_as=READ)
        else:
            self._warn("sub: an alias of at most 500 characters is needed: the text inside is spoken")

    def _say_as(self, element: _Element, attributes: Mapping[str, str]) -> None:
        kind = attributes.get("interpret-as", "").strip().lower()
        form = attributes.get("format", "").strip()
        if kind == "currency" and not form and re.fullmatch("[A-Z]{3}", attributes.get("language", "")):
            form = attributes["language"]
        if kind in ("expletive", "bleep"):
            element.is_spoken = False
            self._close_text()
            self._flush_pause()
            self.parts.append(_BLEEP)
        elif kind not in KINDS:
            self._warn(
                f"say-as: interpret-as is one of {', '.join(KINDS)}, expletive, bleep: the text inside is spoken"
            )
        else:
            if not _FORMAT.fullmatch(form):
                self._warn("say-as: format is letters and digits; it has no effect")
                form = ""
            self._begin_replaced(element, say_as=f"{KINDS[kind]}:{form}" if form else KINDS[kind])

    def _phoneme(self, element: _Element, attributes: Mapping[str, str]) -> None:
        alphabet = attributes.get("alphabet", "ipa").strip().lower()
        written = attributes.get("ph", "").strip()
        if ipa := ipa_of(written, alphabet):
            self._begin_replaced(element, ipa=ipa)
        else:
            self._warn("phoneme: ph in alphabet ipa or x-sampa is needed: the text inside is spoken")

    def _emphasis(self, element: _Element, attributes: Mapping[str, str]) -> None:
        level = attributes.get("level", "moderate").strip().lower()
        if level not in _LEVELS:
            self._warn(f"emphasis: level is one of {', '.join(_LEVELS)}; moderate instead")
        if _LEVELS.get(level, True):
            self._sign(EMPHASIS_BEGINS, element)
            element.at_end = lambda: self._end_emphasis(element)

    def _end_emphasis(self, element: _Element) -> None:
        last = self._replacements[-1] if self._replacements else None
        if last is not None and (last.sign, last.start) == (EMPHASIS_BEGINS, len(self._text)):
            self._replacements.pop()
        elif self._text:
            self._sign(EMPHASIS_ENDS, element)

    def _sound(self, element: _Element, attributes: Mapping[str, str]) -> None:
        if sign := SOUNDS.get(attributes.get("name", "").strip().lower()):
            self._sign(sign, element)
        else:
            self._warn(f"{element.name}: name is one of {', '.join(SOUNDS)}; it is left out")

    def _sign(self, sign: str, element: _Element) -> None:
        """Insert a sign after the words so far, or before the next ones."""
        self._close_other(element.style)
        self._replacements.append(Replacement(len(self._text), len(self._text), sign=sign))

    def _prosody(self, element: _Element, attributes: Mapping[str, str]) -> None:
        if "rate" in attributes:
            self._change_rate(element, rate_of(attributes["rate"].strip()))
        if "volume" in attributes:
            self._change_gain(element, gain_db_of(attributes["volume"].strip()))

    def _change_rate(self, element: _Element, factor: float | None) -> None:
        if factor is None:
            self._warn(f"prosody: rate is a percentage, a factor or one of {', '.join(RATES)}; it has no effect")
            return
        wanted = element.style.rate * factor
        rate = min(max(wanted, MIN_SPEED), MAX_SPEED)
        element.style = replace(element.style, rate=rate)
        if rate != wanted:
            self._warn("prosody: the rate is kept between 50% and 200%")

    def _change_gain(self, element: _Element, gain_db: float | None) -> None:
        if gain_db is None:
            self._warn(f"prosody: volume is a gain in dB or one of {', '.join(VOLUMES_DB)}; it has no effect")
        else:
            element.style = replace(element.style, gain_db=min(element.style.gain_db + gain_db, _MAX_GAIN_DB))

    def _voice(self, element: _Element, attributes: Mapping[str, str]) -> None:
        name = attributes.get("name", "").strip()
        language = self._language(attributes) or None
        if name and len(name) <= MAX_NAME_CHARS:
            # without a language it is read in the voice's own, not in the call's
            element.style = replace(element.style, voice=name, language=language or "")
        elif language:
            element.style = replace(element.style, language=language)
        else:
            self._warn("voice: name or language is needed: the voice stays")
        if "gender" in attributes or "variant" in attributes or "age" in attributes:
            self._warn("voice: only name and language choose the voice")

    def _lang(self, element: _Element, attributes: Mapping[str, str]) -> None:
        if language := self._language(attributes):
            element.style = replace(element.style, language=language)
        else:
            self._warn(f"{element.name}: xml:lang is missing: the language stays")

    def _mark(self, _element: _Element, attributes: Mapping[str, str]) -> None:
        name = attributes.get("name", attributes.get("mark", "")).strip()
        if not name or len(name) > MAX_NAME_CHARS:
            self._warn(f"mark: a name of 1 to {MAX_NAME_CHARS} characters is needed")
        elif self._replaced or (self._text.strip() and not self._implied_ms and self._break_ms is None):
            self._marks.append((len(self._text), name))
        else:
            self._close_text()
            if self._break_ms is not None:
                self._flush_pause()  # a break was before it; the pause of a paragraph comes after it
            self.parts.append(MarkContent(name))

    def _begin_replaced(self, element: _Element, **how: str) -> None:
        self._open_text(element.style)
        self._replaced = Replacement(len(self._text), len(self._text), **how)
        element.at_end = self._end_replaced

    def _end_replaced(self) -> None:
        replaced, self._replaced = self._replaced, None
        assert replaced is not None
        start, end = replaced.start, len(self._text.rstrip())
        start += len(self._text[start:]) - len(self._text[start:].lstrip())
        # a mark inside comes before or behind what is said instead
        self._marks = [(max(start, end) if offset > start else offset, mark) for offset, mark in self._marks]
        if replaced.spoken and end <= start:
            self._text += replaced.spoken  # an empty <sub>: its alias is the text
        elif end > start:
            self._replacements.append(structs.replace(replaced, start=start, end=end))

    _KNOWN: ClassVar[dict[str, tuple[Callable[["_Reader", _Element, Mapping[str, str]], None], set[str]]]] = {
        "speak": (_speak, {"version"}),
        "p": (_paragraph, set()),
        "s": (_paragraph, set()),
        "break": (_break, {"time", "strength"}),
        "sub": (_sub, {"alias"}),
        "say-as": (_say_as, {"interpret-as", "format", "detail", "language"}),
        "phoneme": (_phoneme, {"alphabet", "ph"}),
        "emphasis": (_emphasis, {"level"}),
        "cc:sound": (_sound, {"name"}),
        "prosody": (_prosody, {"rate", "volume"}),
        "voice": (_voice, {"name", "language", "languages", "gender", "variant", "age"}),
        "lang": (_lang, set()),
        "mark": (_mark, {"name"}),
        "bookmark": (_mark, {"mark"}),  # Azure's name
    }
    """The elements, with the attributes that have an effect or have a warning of their own."""

    # --- the text --------------------------------------------------------------------------------------------------------

    def _say(self, data: str, style: TextContent) -> None:
        """Append text, white space folded to one space."""
        words = re.sub(r"\s+", " ", data)
        if words == " " and not self._text:
            self._is_apart = True
            return
        self._open_text(style)
        if self._text.endswith(" ") or (not self._text and not self._has_text):
            words = words.removeprefix(" ")
        elif not self._text and self._is_apart:
            words = f" {words.removeprefix(' ')}"
        self._is_apart = self._removes_pause = False
        self._text += words

    def _open_text(self, style: TextContent) -> None:
        """Make sure that the next text is spoken in this ``style``."""
        self._close_other(style)
        if not self._text:
            self._flush_pause()
            self._style = style

    def _close_other(self, style: TextContent) -> None:
        if self._text and self._style is not style and self._style != style:
            self._close_text()

    def _close_text(self) -> None:
        text = self._text.rstrip()
        replacements, sounds = _within(text, self._replacements), list[Replacement]()
        if has_speech(text) or any(each.spoken or each.say_as for each in replacements):
            marks = tuple((min(offset, len(text)), name) for offset, name in self._marks)
            before = self._before if looks_back(text) else ""  # else cached behind any words
            self.parts.append(replace(self._style, text=text, replacements=replacements, marks=marks, before=before))
            said = [(each.start, each.end, each.spoken or text[each.start : each.end]) for each in replacements]
            self._before = (self._before + replaced(said, self._text))[-LOOK_BACK_CHARS:]
            self._is_apart = text != self._text
            self._has_text = True
        else:
            self.parts += [MarkContent(name) for _, name in self._marks]
            self._is_apart |= self._text != self._text.strip()
            found = (each.sign for each in replacements if each.sign in _SOUND_SIGNS)
            sounds = [Replacement(0, 0, sign=sign) for sign in found]  # they come before the next words
        self._text, self._replacements, self._marks = "", sounds, []

    def _imply(self, milliseconds: int) -> None:
        """Insert a pause before the next spoken text, if something was spoken before."""
        self._close_text()
        if self._removes_pause:
            self._break_ms = self._break_ms or 0
        if self.parts:
            self._implied_ms = max(self._implied_ms, milliseconds)

    def _flush_pause(self) -> None:
        milliseconds = self._implied_ms if self._break_ms is None else self._break_ms
        if milliseconds or (self._break_ms is not None and self.parts):
            self.parts.append(SilenceContent(milliseconds))
            self._is_apart = True
        self._implied_ms, self._break_ms, self._removes_pause = 0, None, False

    # --- attributes and errors -------------------------------------------------------------------------------------------

    def _language(self, attributes: Mapping[str, str]) -> str:
        written = next(
            (attributes[name] for name in ("xml:lang", "language", "languages") if name in attributes), ""
        ).strip()
        if written and not _LANGUAGE.fullmatch(written):
            self._warn("xml:lang is no BCP 47 tag; it has no effect")
            return ""
        return written

    def _warn(self, detail: str) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(SsmlWarning(self.pointer, self._xml.line, detail[:300]))

    def _fault(self, detail: str) -> SsmlMalformed:
        return SsmlMalformed.about(FieldError(self.pointer, detail))


def _within(text: str, replacements: Sequence[Replacement]) -> tuple[Replacement, ...]:
    """The replacements of a text that has lost the spaces at its end, its signs before the marks that end it."""
    words_end = len(text.rstrip(_CLOSING))
    last = max([words_end, *(each.end for each in replacements if not each.sign)])
    return tuple(
        structs.replace(each, start=last, end=last) if each.sign and each.start > last else each
        for each in replacements
    )
