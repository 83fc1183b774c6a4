"""Chooses the voice for each part of a text: the requested one for what it can speak, a voice of the language
for the rest.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import ESPEAK
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import LanguageUnsupported
from cc_tts.speech.lexicons import Lexicons, replacements_in
from cc_tts.speech.prompt import Part, RefusedContent, TextContent
from cc_tts.text.language import detect_language, has_letters, latin_language
from cc_tts.text.markup.unspoken import scan
from cc_tts.text.pronunciation.lexicon import CompiledLexicon
from cc_tts.text.stretches import Languages, LanguageStretch, letters_of
from cc_tts.voices.catalog import best_for_language, reads, speaks
from cc_tts.voices.scripts import LATIN, language_name, script_of, scripts_of
from cc_tts.voices.voice import Voice

_State = tuple[tuple[CompiledLexicon, ...], tuple[Voice, ...]]
"""The parts of a text depend on this, besides the text."""


class Voicing:
    """Runs on: the event loop."""

    def __init__(self, engine: WorkerEngine, config: TtsConfig, lexicons: Lexicons) -> None:
        self._engine = engine
        self._config = config
        self._lexicons = lexicons
        self._known: WeakKeyDictionary[TextContent, tuple[_State, list[TextContent | RefusedContent]]]
        self._known = WeakKeyDictionary()
        """The parts of the texts that are being spoken, since they are needed several times."""

    def asked_language(self, content: TextContent) -> str | None:
        """Return the prompt's language, else the configuration's; ``None``, also for an empty one, if voice
        and text decide.
        """
        return (self._config.language if content.language is None else content.language) or None

    def check(self, voice: str | None, language: str | None) -> None:
        """Raise ``UnknownVoice`` or ``LanguageUnsupported`` for unusable defaults."""
        preferred = self._named(voice)
        if language:
            self._speaker_of(language, preferred)

    def voice(self, content: TextContent) -> Voice:
        """Return the voice for the beginning of the words; raises ``UnknownVoice`` and ``LanguageUnsupported``."""
        first = self.parts(content)[0]
        if isinstance(first, RefusedContent):
            raise LanguageUnsupported(first.detail)
        return self._engine.resolve_voice(first.voice, None)

    def parts(self, content: TextContent) -> list[TextContent | RefusedContent]:
        """Return the parts of a text, each with one voice, or refused if no voice speaks it; together they are the whole
        text. Raises ``UnknownVoice`` for the requested voice.
        """
        if content.is_of_one_voice:
            return [content]
        preferred, base = self._preferred(content)
        state = self.lexicons(content), self._engine.voices()
        known, parts = self._known.get(content, (None, []))
        if known != state:
            letters = self._letters(content, state[0])
            languages = self._languages(content, preferred, base)
            found = languages.stretches(letters)
            if len(found) > 1 and content.voice is None and not self._config.voice:
                preferred = self._speaker_of_all(found, languages.main(letters), preferred)
            parts = [self._part(content, letters, each, preferred, is_whole=len(found) == 1) for each in found]
            self._known[content] = state, parts
        return parts

    def main_language(self, content: TextContent) -> str:
        """Return the language of most words of a text; raises ``UnknownVoice``."""
        preferred, base = self._preferred(content)
        letters = self._letters(content, self.lexicons(content))
        return self._languages(content, preferred, base).main(letters)

    def lexicons(self, content: TextContent) -> tuple[CompiledLexicon, ...]:
        """Return the lexicons of a text whose parts are not known yet; raises ``UnknownVoice``."""
        preferred, base = self._preferred(content)
        return self._lexicons.for_prompt(content.lexicons, preferred.id, base)

    def _named(self, voice: str | None) -> Voice:
        """Return the voice with this name or alias, or the configured one; raises ``UnknownVoice``."""
        name = voice or self._config.voice
        return self._engine.resolve_voice(self._config.voice_aliases.get(name, name) or None, None)

    def _preferred(self, content: TextContent) -> tuple[Voice, str]:
        """Return the requested voice, and the language of words that do not tell their language."""
        voice = self._named(content.voice)
        return voice, self.asked_language(content) or content.context_language or voice.language

    def sequence(self, parts: Iterable[Part]) -> list[Part]:
        """Return the parts of a sequence, each text split by voice. Digits without a requested language or voice take the
        language of the words before them.
        """
        voiced: list[Part] = []
        language: str | None = None
        for part in parts:
            if not isinstance(part, TextContent):
                voiced.append(part)
                continue
            tells_language = has_letters(part.text)
            if language and not tells_language and part.voice is None and self.asked_language(part) is None:
                part = replace(part, language=language)  # noqa: PLW2901
            of_one_voice = self.parts(part)
            last = of_one_voice[-1]
            if tells_language and isinstance(last, TextContent):
                latin = latin_language(self._engine.resolve_voice(last.voice, None).language)
                language = last.language or detect_language(last.text, latin=latin)
            voiced += of_one_voice
        return voiced

    def _letters(self, content: TextContent, lexicons: tuple[CompiledLexicon, ...]) -> str:
        text, replacements = content.text, content.replacements
        if not text.isascii():
            replacements = replacements_in(text, lexicons, replacements)
        strips_markup = content.strips_markup and self._config.markdown == "strip"
        unspoken = scan(text, content.markup_at_start).unspoken if strips_markup else []
        return letters_of(text, replacements, unspoken)

    def _languages(self, content: TextContent, preferred: Voice, base: str) -> Languages:
        return Languages(
            base=base,
            latin=latin_language(preferred.language) or "en",
            is_asked=self.asked_language(content) is not None,
            reads_latin=lambda language: self._reads_latin(language, preferred),
            is_whole=not (content.context_language or content.voice or self._config.voice),
        )

    def _speaker_of_all(self, stretches: Iterable[LanguageStretch], language: str, preferred: Voice) -> Voice:
        """Return the voice for most of the words if it speaks the others as well, since no other was requested."""
        with suppress(LanguageUnsupported):
            speaker = self._speaker_of(language, preferred)
            if all(speaks(speaker, each.language) for each in stretches):
                return speaker
        return preferred

    def _reads_latin(self, language: str, preferred: Voice) -> bool:
        try:
            return reads(self._speaker_of(language, preferred), LATIN)
        except LanguageUnsupported:
            return False

    def _speaker_of(self, language: str, preferred: Voice, letters: str = "", *, is_made_ahead: bool = False) -> Voice:
        """Return the voice for a language in these letters: the preferred one, the configured one, else the engine's choice,
        or its best one for audio that is made ahead.
        """
        scripts = scripts_of(language).intersection(map(script_of, letters))
        if speaks(preferred, language) and _reads_all(preferred, scripts):
            return preferred
        default = self._named(None) if self._config.voice else preferred
        if speaks(default, language) and _reads_all(default, scripts):
            return default
        natural = [each for each in self._engine.voices() if each.engine != ESPEAK] if is_made_ahead else []
        found = best_for_language(language, natural)
        try:
            found = found or self._engine.resolve_voice(None, language)
        except LanguageUnsupported as error:
            detail = f"{preferred.id} does not speak {language_name(language)}: {error.detail}"
            raise LanguageUnsupported(detail) from None
        if not _reads_all(found, scripts):
            unread = " and ".join(sorted(script for script in scripts if not reads(found, script)))
            detail = f"{found.id} speaks {language_name(language)}, but does not read {unread} characters"
            raise LanguageUnsupported(detail)
        return found

    def _part(
        self, content: TextContent, letters: str, stretch: LanguageStretch, preferred: Voice, *, is_whole: bool
    ) -> TextContent | RefusedContent:
        start, end, language = stretch
        part = content if is_whole else content.between(start, end)
        try:
            is_made_ahead = content.is_made_ahead
            voice = self._speaker_of(language, preferred, letters[start:end], is_made_ahead=is_made_ahead)
        except LanguageUnsupported as error:
            return RefusedContent(part.text, error.detail, part.marks)
        asked = self.asked_language(content)
        keeps_language = scripts_of(language) == {LATIN} if asked is None else language == asked
        return replace(
            part, voice=voice.id, language=content.language if keeps_language else language, is_of_one_voice=True
        )


def _reads_all(voice: Voice, scripts: Iterable[str]) -> bool:
    return all(reads(voice, script) for script in scripts)
