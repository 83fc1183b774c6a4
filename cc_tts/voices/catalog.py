"""Selects the voice for a request."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from cc_tts.errors import MAX_COMPARED_CHARS, LanguageUnsupported, UnknownVoice
from cc_tts.voices.scripts import scripts_of
from cc_tts.voices.voice import Voice

_SAME_LANGUAGE: Final = {"zh": "cmn", "no": "nb", "nn": "nb", "iw": "he", "in": "id"}
"""Common primary subtags → the ones that voices have (ISO 639-3: zh is a group, Mandarin is cmn)."""
_CANTONESE: Final = frozenset({"hk", "mo", "yue"})
_CHINESE: Final = frozenset({"cmn", "yue", "hak"})
_USUAL_TAGS: Final = {"cmn": "zh", "nb": "no"}
"""Common names for the primary subtags of voices."""
_MAX_SUBTAG_CHARS: Final = 3
"""The longest subtag of a language (BCP 47); anything longer may be a name."""
_MAX_LISTED: Final = 12  # voices that a message names; unmeasured
_LIKELY: Final = {"en": "en-us", "fr": "fr-fr"}
"""The tag meant by a bare primary subtag (Unicode CLDR, likely subtags), if no voice has the bare one."""


def normalised_language(language: str) -> str:
    """Return ``language`` in lower case with hyphens, and with the primary subtag that voices have: ``zh_CN`` → ``cmn``."""
    tag = language.strip().replace("_", "-").lower()
    primary, _, rest = tag.partition("-")
    if primary == "zh":
        return "yue" if _CANTONESE & set(rest.split("-")) else "cmn"
    if primary in _SAME_LANGUAGE:
        return _SAME_LANGUAGE[primary] + ("-" + rest if rest else "")
    return tag


def _primary(language: str) -> str:
    return normalised_language(language).partition("-")[0]


def speaks(voice: Voice, language: str) -> bool:
    """Whether ``voice`` speaks the language of a BCP 47 tag, in any accent. ``zh`` is any Chinese language."""
    spoken = {_primary(each) for each in (voice.language, *voice.also_speaks)}
    wanted = _primary(language)
    is_any_chinese = wanted == "cmn" and language.lower().startswith("zh")
    return wanted in spoken or (is_any_chinese and not spoken.isdisjoint(_CHINESE))


def reads(voice: Voice, script: str) -> bool:
    """Whether ``voice`` can read words in a script."""
    if script in voice.names_letters_of:
        return False
    languages = (voice.language, *voice.also_speaks)
    return script in voice.also_reads or any(script in scripts_of(each) for each in languages)


def best_for_language(language: str, voices: Sequence[Voice], *, default: Voice | None = None) -> Voice | None:
    """Find the voice for a BCP 47 tag; ``None`` if no voice has it.

    The same tag, else the longest prefix of it (RFC 4647 §3.4 lookup), else a voice of the same primary language, and
    there ``default`` first.
    """
    ordered = voices if default is None else [default, *voices]
    by_tag = {normalised_language(voice.language): voice for voice in reversed(ordered)}  # the first of each
    tag = normalised_language(language)
    while "-" in tag:
        if tag in by_tag:
            return by_tag[tag]
        tag = tag.rpartition("-")[0]
    same_language = [voice for voice in ordered if _primary(voice.language) == tag]
    if default in same_language:
        return default
    return by_tag.get(tag) or by_tag.get(_LIKELY.get(tag, "")) or next(iter(same_language), None)


class VoiceIndex:
    """Voices by id, by other names in any case, and with a variant after a plus sign (``en-us+f3``)."""

    def __init__(self, voices: Sequence[Voice] = (), variants: Iterable[str] = ()) -> None:
        self.voices = tuple(voices)
        self._by_id = {voice.id: voice for voice in voices}
        self._by_name = {name: voice for voice in reversed(voices) for name in voice.also_called}
        self._variants = {variant.lower(): variant for variant in variants}

    def find(self, voice_id: str) -> Voice | None:
        """Return the voice with this name; a variant becomes part of its id."""
        if voice_id in self._by_id:
            return self._by_id[voice_id]
        name, plus, variant_name = voice_id.strip().lower().partition("+")
        voice, variant = self._by_id.get(name) or self._by_name.get(name), self._variants.get(variant_name, "")
        if voice is None or not plus:
            return voice
        if not variant:
            return None
        return replace(voice, id=f"{voice.id}+{variant}", description=f"{voice.description}, variant {variant}")


def unknown_voice(voice_id: str, voices: Iterable[Voice]) -> UnknownVoice:
    """Return the error for an unknown id, naming the nearest of ``voices`` and, if they are few, all."""
    known = [voice.id for voice in voices]
    near = difflib.get_close_matches(voice_id.lower(), known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    listed = f"Known: {', '.join(known)}" if len(known) <= _MAX_LISTED else f"`cc-tts voices` lists all {len(known)}"
    return UnknownVoice(f"no voice is called {voice_id[:80]!r}{hint} {listed if known else ''}".strip())


def unknown_language(language: str, voices: Iterable[Voice]) -> LanguageUnsupported:
    """Return the error for a language that none of ``voices`` speaks; with the tag if the request used its English name,
    which the voices' descriptions contain.
    """
    tags: dict[str, str] = {}
    for voice in voices:
        primary = normalised_language(voice.language).partition("-")[0]
        for word in re.findall(r"\w+", voice.description.lower())[:2]:
            tags.setdefault(word, _USUAL_TAGS.get(primary, primary))
    asked = language[:MAX_COMPARED_CHARS].strip().lower()
    near = difflib.get_close_matches(asked, list(tags), n=1, cutoff=0.8) if len(asked) > _MAX_SUBTAG_CHARS else []
    hint = f", did you mean {tags[near[0]]}?" if near else ""
    return LanguageUnsupported(f"no voice speaks {language[:80]!r}{hint}")
