"""espeak-ng as a model of the CPU worker: robotic, in a hundred languages, a thousand times real time.

A text chunk is said in passages of at most :data:`MAX_PASSAGE_CHARS`, and each passage is given out while it is made. The
library says where words begin. Runs on: the synthesis threads, and a thread for the library.
"""

import queue
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cc_tts.engines.cpu.contract import FoundModel, Parts, SentenceAudio, WordStart
from cc_tts.engines.cpu.libespeak import EspeakLibrary, EspeakVoice
from cc_tts.engines.letters import with_joined_letters
from cc_tts.engines.phonemes import to_espeak
from cc_tts.media.silence_trimmer import CLAUSE_END, SENTENCE_END
from cc_tts.voices.inline_ipa import replace_pronounced
from cc_tts.voices.scripts import LATIN
from cc_tts.voices.voice import Voice

ENGINE_NAME: Final = "espeak"
NATURAL_RATE_WPM: Final = 175
"""The rate that espeak-ng itself takes for normal (``espeakRATE`` in speak_lib.h)."""
MAX_PASSAGE_CHARS: Final = 240
"""A longer text chunk is said in several passages: 240 characters keep the library for about 20 ms (unmeasured)."""
LEVEL_DBFS: Final = -20.9
"""Active level of its voices, less what the limiter takes; measured by ``python -m bench.voices``."""
_LOUDER_DB: Final = {
    "ar": 0.8, "cmn": 1.3, "el": -0.6, "es": -0.7, "fr": -0.8, "hi": 0.8, "it": -0.9, "ja": 1.4, "ko": 1.2, "nl": -0.6,
    "pl": -0.8, "ru": -0.8, "uk": 0.8,
}  # fmt: skip
"""How much louder than the level the voices of these languages are, measured likewise. They meet other voices in one
text.
"""
_WARM_UP: Final = ("1", "en-us")

_UNSPEAKABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_SPELLS_LATIN: Final = frozenset({"ba", "cv", "hyw", "ja", "kok", "ky", "my", "nog", "shn", "ti"})
"""Voices that say the names of Latin letters. The others say words of Latin letters as English if their own language has
none (seen with espeak-ng 1.52)."""
_NAMES_LETTERS: Final = {"ja": frozenset({"CJK"}), "hak": frozenset({"CJK", "BOPOMOFO"})}
"""Voices that say "Chinese letter" for every Han character: their dictionaries have none (seen with espeak-ng 1.52)."""


def espeak_model() -> FoundModel:
    """Its voices; raises ``EngineFailed`` if the library or its data cannot be loaded."""
    library = EspeakLibrary()
    listed, variants = library.voices(), library.variants()
    voices = espeak_voices(listed, rate_hz=library.sample_rate_hz)
    identifiers = {voice.id: entry.identifier for voice, entry in zip(voices, listed, strict=True)}

    def load() -> EspeakSynthesiser:
        synthesiser = EspeakSynthesiser(library, identifiers)
        text, voice_id = _WARM_UP
        for _ in synthesiser.speak(text, voice_id=voice_id, speed=1.0):
            pass
        return synthesiser

    return FoundModel(voices, load, variants)


def espeak_voices(listed: Sequence[EspeakVoice], *, rate_hz: int) -> tuple[Voice, ...]:
    """The library's voices by the ids that this program gives them, in the same order.

    An id is the voice's language (``en-us``), or the name of its file where two share a language. The file's name is
    understood too (``en`` is ``en-gb``).
    """
    voices: dict[str, Voice] = {}
    files: set[str] = set()
    for entry in listed:
        file = entry.identifier.rpartition("/")[2].lower()
        voice_id = file if entry.language in voices else entry.language
        voices[voice_id] = Voice(
            voice_id,
            ENGINE_NAME,
            _tag(voice_id),
            description=entry.name,
            rate_hz=rate_hz,
            level_dbfs=round(LEVEL_DBFS + _LOUDER_DB.get(voice_id.partition("-")[0], 0.0), 1),
            also_called=() if file in files else (file,),
            also_reads=() if voice_id in _SPELLS_LATIN else (LATIN,),
            names_letters_of=_NAMES_LETTERS.get(voice_id, frozenset()),
        )
        files.add(file)
    return tuple(voices.values())


def split_passages(text: str, max_chars: int = MAX_PASSAGE_CHARS) -> list[tuple[int, str]]:
    """Cut ``text`` into passages of at most ``max_chars`` characters: after a sentence, a clause, a word, or anywhere.

    Returns the position of each and its text; together they are the whole text.
    """
    passages = []
    start = 0
    while len(text) - start > max_chars:
        window = text[start : start + max_chars]
        end = max_chars
        for stops in (SENTENCE_END, CLAUSE_END, " "):
            # not in the first third: tiny pieces sound worse than a pause at a less suitable place
            if (found := max(window.rfind(stop) for stop in stops)) >= max_chars // 3:
                end = found + 1
                break
        if window.count("[[", 0, end) > window.count("]]", 0, end):
            end = window.rfind("[[", 0, end) or max_chars
        passages.append((start, text[start : start + end]))
        start += end
    passages.append((start, text[start:]))
    return passages


class EspeakSynthesiser:
    """See :class:`cc_tts.engines.cpu.contract.Synthesiser`. ``identifiers``: what espeak-ng calls each voice."""

    def __init__(self, library: EspeakLibrary, identifiers: dict[str, str]) -> None:
        self._library = library
        self._thread = ThreadPoolExecutor(1, "espeak")
        """The library hands its audio to the thread that calls it, and is not left in the middle of a passage."""
        self._identifiers = identifiers
        self.rate_hz = library.sample_rate_hz

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:
        """See the contract; a part is a passage. Raises ``EngineFailed``."""
        base_id, plus, variant = voice_id.partition("+")
        identifier = self._identifiers[base_id] + plus + variant
        spoken = _spoken(text, is_english=base_id.startswith("en"))
        passages = [each for each in split_passages(spoken) if each[1].strip()]
        for number, (position, passage) in enumerate(passages, 1):
            yield from self._said(passage, position, identifier, speed)
            yield SentenceAudio(b"", passage, is_last=number == len(passages))

    def _said(self, passage: str, position: int, identifier: str, speed: float) -> Iterator[SentenceAudio]:
        """Give out the audio of a passage while the library makes it."""
        made: queue.SimpleQueue[SentenceAudio | None] = queue.SimpleQueue()

        def on_part(pcm: bytes, words: tuple[WordStart, ...]) -> bool:
            starts = (WordStart(position + min(word.position, len(passage)), word.sample) for word in words)
            made.put(SentenceAudio(pcm, None, tuple(starts)))
            return True

        def synthesise() -> None:
            try:
                rate_wpm = round(NATURAL_RATE_WPM * speed)
                self._library.synthesise(passage, voice=identifier, rate_wpm=rate_wpm, on_audio=on_part)
            finally:
                made.put(None)

        synthesising = self._thread.submit(synthesise)
        while (part := made.get()) is not None:
            yield part
        synthesising.result()


def _spoken(text: str, *, is_english: bool) -> str:
    """The text as the library takes it: no control characters, which are commands to it, and IPA in its mnemonics."""
    text = _UNSPEAKABLE.sub(" ", with_joined_letters(text) if is_english else text)
    return replace_pronounced(
        text.replace("[[", "[ ["), lambda ipa, words: to_espeak(ipa, is_english=is_english) or words
    )


def _tag(voice_id: str) -> str:
    """Write the region in capitals: ``en-us`` → ``en-US``."""
    primary, hyphen, rest = voice_id.partition("-")
    region, more, private = rest.partition("-")
    return primary + hyphen + (region.upper() if len(region) == 2 else region) + more + private  # noqa: PLR2004
