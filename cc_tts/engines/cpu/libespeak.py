"""libespeak-ng by ctypes: just what the voices of the CPU need of it, with types.

Runs on: any thread of a worker process, never in the server, since a fault of the C library ends the process that has loaded
it. The library is one global state: one synthesis at a time in a process. Every instance of :class:`EspeakLibrary` shares
that state; a lock of the process makes them take turns.

The library, its phoneme data and its dictionaries come with the ``espeakng_loader`` package. Synthesis is synchronous:
``espeak_Synth`` runs the callback on the calling thread, releasing the interpreter lock in between.
"""

import ctypes
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import espeakng_loader

from cc_tts.engines import mandarin
from cc_tts.engines.cpu.contract import WordStart
from cc_tts.errors import EngineFailed, UnknownVoice

BUFFER_MS: Final = 200
"""Audio per callback, ms. Each callback takes the interpreter lock, up to 5 ms behind a busy event loop, and 200 ms of
audio take about 0.2 ms to synthesise: a larger buffer costs no first-audio time and saves hand-overs. Beside a thread
that never rests, 60 ms gave 9 times real time and 200 ms gave 20; alone, both give 900 (measured)."""

# espeak-ng/speak_lib.h
_AUDIO_OUTPUT_SYNCHRONOUS: Final = 2
_INITIALIZE_DONT_EXIT: Final = 0x8000
_EE_OK: Final = 0
_CHARS_UTF8: Final = 1  # never espeakSSML (0x10): the text is plain text
_PHONEMES_IN_BRACKETS: Final = 0x100
_PHONEMES_IPA: Final = 2
_PHONEMES_TIED: Final = 0x80  # joined by the character in bits 8 to 23
_POS_CHARACTER: Final = 1
_EVENT_LIST_TERMINATED: Final = 0
_EVENT_WORD: Final = 1
_PARAMETER_RATE: Final = 1
_LONG_PATH: Final = 150  # espeak-ng keeps its data path in a fixed array of 160 bytes

LANGUAGE_SWITCH: Final = re.compile(r"\([a-z-]{2,12}\)")
"""The mark among phonemes where a word is read in another language."""
MIN_RATE_WPM: Final = 80  # ``espeakRATE_MINIMUM`` in speak_lib.h
MAX_RATE_WPM: Final = 450  # ``espeakRATE_MAXIMUM``


class _Event(ctypes.Structure):
    """A structure of speak_lib.h: ``espeak_EVENT``."""

    _fields_: ClassVar = [
        ("type", c_int),
        ("unique_identifier", c_uint),
        ("text_position", c_int),  # characters, the first is 1
        ("length", c_int),
        ("audio_position", c_int),  # ms
        ("sample", c_int),
        ("user_data", c_void_p),
        ("id", c_void_p),  # a union with a pointer and eight characters in it
    ]


class _Voice(ctypes.Structure):
    """A structure of speak_lib.h: ``espeak_VOICE``."""

    _fields_: ClassVar = [
        ("name", c_char_p),
        ("languages", c_char_p),  # priority byte, tag, NUL, ... , NUL
        ("identifier", c_char_p),
        ("gender", c_ubyte),
        ("age", c_ubyte),
        ("variant", c_ubyte),
        ("xx1", c_ubyte),
        ("score", c_int),
        ("spare", c_void_p),
    ]


_Callback = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, POINTER(_Event))


@dataclass(frozen=True, slots=True)
class EspeakVoice:
    """One entry of espeak's list: ``language`` a lower-case tag, ``identifier`` its file below ``lang/``."""

    language: str
    identifier: str
    name: str


OnAudio = Callable[[bytes, tuple[WordStart, ...]], bool]
"""Takes PCM (may be empty) and the words that begin in or near it; ``False`` stops the synthesis."""

_process_lock = threading.Lock()
_sample_rate_hz = 0
"""The C library gives audio at this rate; 0 until it is initialised, once in the life of the process."""
_voice_set = ""
"""The voice that the C library has loaded and has not been interrupted with; loading takes 0.1 to 3 ms."""


def _failed(what: str, code: int) -> EngineFailed:
    return EngineFailed(f"espeak-ng: {what} returned {code}")


class EspeakLibrary:
    """The loaded library; raises ``EngineFailed`` if it or its data cannot be loaded."""

    def __init__(self) -> None:
        self._data = Path(espeakng_loader.get_data_path())
        try:
            self._lib: Any = ctypes.CDLL(espeakng_loader.get_library_path())
            # the same library, called without letting go of the interpreter lock: to get it back costs up to 5 ms
            self._quick: Any = ctypes.PyDLL(espeakng_loader.get_library_path())
        except OSError as error:
            raise EngineFailed(f"libespeak-ng cannot be loaded: {error}") from error
        self._declare()
        self._on_audio: OnAudio | None = None
        self._error: BaseException | None = None
        self._is_stopped = False
        self._rewritten = ""
        self._callback = _Callback(self._on_callback)  # kept alive: the C side holds only the address
        self.sample_rate_hz = self._initialise()

    def _declare(self) -> None:
        """Argument types of the functions used."""
        lib = self._lib
        lib.espeak_Initialize.argtypes = [c_int, c_int, c_char_p, c_int]
        lib.espeak_SetVoiceByName.argtypes = [c_char_p]
        self._quick.espeak_SetSynthCallback.argtypes = [_Callback]
        self._quick.espeak_SetSynthCallback.restype = None
        self._quick.espeak_SetParameter.argtypes = [c_int, c_int, c_int]
        lib.espeak_ListVoices.argtypes = [POINTER(_Voice)]
        lib.espeak_ListVoices.restype = POINTER(POINTER(_Voice))
        lib.espeak_TextToPhonemes.argtypes = [POINTER(c_char_p), c_int, c_int]
        lib.espeak_TextToPhonemes.restype = c_char_p
        lib.espeak_Synth.argtypes = [c_char_p, c_size_t, c_uint, c_int, c_uint, c_uint, POINTER(c_uint), c_void_p]

    def _initialise(self) -> int:
        global _sample_rate_hz  # noqa: PLW0603 the state of the C library belongs to the process
        with _process_lock:
            if not _sample_rate_hz:
                path = str(self._data).encode()
                rate_hz = self._lib.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, BUFFER_MS, path, _INITIALIZE_DONT_EXIT)
                if rate_hz <= 0:
                    hint = " (espeak-ng cannot use so long a path)" if len(path) > _LONG_PATH else ""
                    raise EngineFailed(f"espeak-ng cannot read its data in {self._data}{hint}")
                _sample_rate_hz = rate_hz
            return _sample_rate_hz

    def voices(self) -> tuple[EspeakVoice, ...]:
        """Every voice that can speak; the few whose dictionary is not in the package are left out."""
        return tuple(voice for voice in self._list(None) if self._has_dictionary(voice))

    def variants(self) -> tuple[str, ...]:
        """Names for ``voice+variant``, as espeak spells them."""
        wanted = _Voice(languages=b"variant")
        return tuple(voice.identifier.removeprefix("!v/") for voice in self._list(ctypes.byref(wanted)))

    def _list(self, wanted: Any) -> list[EspeakVoice]:
        with _process_lock:
            entries = self._lib.espeak_ListVoices(wanted)  # ends with a null pointer
            return [
                EspeakVoice(
                    language=entry.contents.languages[1:].decode("ascii", "replace").lower(),
                    identifier=entry.contents.identifier.decode("utf-8", "replace"),
                    name=entry.contents.name.decode("utf-8", "replace").strip(),
                )
                for entry in itertools.takewhile(bool, entries)
            ]

    def _has_dictionary(self, voice: EspeakVoice) -> bool:
        names = [voice.language.partition("-")[0]]
        lines = (self._data / "lang" / voice.identifier).read_text("utf-8", "replace").splitlines()
        names += [words[1] for line in lines if (words := line.split())[:1] == ["dictionary"] and len(words) > 1]
        return (self._data / f"{names[-1]}_dict").exists()

    def synthesise(self, text: str, *, voice: str, rate_wpm: int, on_audio: OnAudio) -> None:
        """Say ``text``, in which ``[[…]]`` are mnemonics of phonemes, and hand the audio to ``on_audio``, on this thread,
        until all was handed over or it returned ``False``.

        ``voice`` is an identifier of the list, perhaps with ``+variant``. ``text`` must hold no control characters (espeak
        takes some as commands). After an ``EngineFailed`` the library stays usable.
        """
        global _voice_set  # noqa: PLW0603
        written = mandarin.in_mnemonics(text) if voice.startswith(mandarin.VOICES) else text
        encoded = written.encode("utf-8", "replace").replace(b"\0", b" ")
        rate_wpm = min(max(rate_wpm, MIN_RATE_WPM), MAX_RATE_WPM)
        with _process_lock:
            self._set_voice(voice)
            if (code := self._quick.espeak_SetParameter(_PARAMETER_RATE, rate_wpm, 0)) != _EE_OK:
                raise _failed("setting the rate", code)
            self._quick.espeak_SetSynthCallback(self._callback)
            self._on_audio, self._error, self._is_stopped = on_audio, None, False
            self._rewritten = text if written != text else ""
            _voice_set = ""
            try:
                flags = _CHARS_UTF8 | (_PHONEMES_IN_BRACKETS if b"[[" in encoded else 0)
                code = self._lib.espeak_Synth(encoded, len(encoded) + 1, 0, _POS_CHARACTER, 0, flags, None, None)
                error = self._error
                if code == _EE_OK and not self._is_stopped:
                    _voice_set = voice
            finally:
                self._on_audio = self._error = None
        if error is not None:
            raise error
        if code != _EE_OK:
            raise _failed("synthesis", code)

    def _set_voice(self, voice: str) -> None:
        """Load the voice unless it is loaded. Under the lock."""
        global _voice_set  # noqa: PLW0603
        if voice != _voice_set:
            _voice_set = ""
            if (code := self._lib.espeak_SetVoiceByName(voice.encode("utf-8", "replace"))) != _EE_OK:
                raise _failed(f"the voice {voice}", code)
            _voice_set = voice

    def identifier_of(self, name: str) -> str:
        """The voice that espeak-ng calls so: a language tag (``en-us``) or the name of its file; else ``UnknownVoice``."""
        wanted = name.lower()
        for voice in self.voices():
            if wanted in (voice.language, voice.identifier.rpartition("/")[2].lower()):
                return voice.identifier
        raise UnknownVoice(f"espeak-ng has no voice {name[:40]!r}")

    def phonemes(self, text: str, *, voice: str, tie: str = "") -> str:
        """The International Phonetic Alphabet for ``text``, without punctuation; ``voice`` is an identifier of the list, and
        ``tie`` stands between the signs of one phoneme.
        """
        if voice.startswith(mandarin.VOICES):
            parts = mandarin.parts_and_ipa(text)
            return " ".join(ipa or self._phonemes(part, voice, tie) for part, ipa in parts).strip()
        return self._phonemes(text, voice, tie)

    def _phonemes(self, text: str, voice: str, tie: str) -> str:
        mode = _PHONEMES_IPA | (_PHONEMES_TIED | ord(tie) << 8 if tie else 0)
        with _process_lock:
            self._set_voice(voice)
            rest = c_char_p(text.encode("utf-8", "replace").replace(b"\0", b" "))
            clauses: list[str] = []
            while rest.value is not None:
                spoken = self._lib.espeak_TextToPhonemes(ctypes.byref(rest), _CHARS_UTF8, mode)
                clauses.append((spoken or b"").decode("utf-8", "replace").strip())
        return " ".join(clause for clause in clauses if clause)

    def _on_callback(self, samples: int | None, num_samples: int, events: Any) -> int:
        """``t_espeak_callback``: 0 continues, 1 stops. Nothing may be raised into C."""
        try:
            words = tuple(_words_of(events))
            if self._rewritten:
                words = tuple(
                    WordStart(mandarin.position_in(self._rewritten, each.position), each.sample) for each in words
                )
            pcm = ctypes.string_at(samples, num_samples * 2) if samples and num_samples > 0 else b""
            assert self._on_audio is not None
            if not (pcm or words) or self._on_audio(pcm, words):
                return 0
        except BaseException as error:  # noqa: BLE001 handed to synthesise(), which raises it
            self._error = error
        self._is_stopped = True
        return 1


def _words_of(events: Any) -> Iterator[WordStart]:
    for event in itertools.takewhile(lambda event: event.type != _EVENT_LIST_TERMINATED, events):
        if event.type == _EVENT_WORD:
            yield WordStart(max(0, event.text_position - 1), event.sample)
