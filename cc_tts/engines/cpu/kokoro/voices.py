"""Kokoro's voices in ``tts.voices_dir``: ``kokoro/model.onnx`` speaks with each of ``kokoro/styles/NAME.bin``.

A style file has a row of 256 float32 for each length of a sentence in tokens. The first letter of its name is the language,
the second one the sex: ``zf_xiaobei``. Japanese (``j``) is left out: nothing here says how Japanese is read.
"""

import re
import zlib
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from cc_tts import logs
from cc_tts.engines.cpu.contract import Found, FoundModel, Parts, SentenceAudio
from cc_tts.engines.cpu.kokoro import statistics
from cc_tts.engines.cpu.kokoro.model import MAX_TOKENS, RATE_HZ, Speak, tokens_of, whole_model
from cc_tts.engines.cpu.kokoro.phonemes import Phonemes, phonemes_of, spoken_phonemes
from cc_tts.engines.cpu.marks import last_mark, sentences
from cc_tts.engines.cpu.networks import Samples, pcm_of
from cc_tts.engines.cpu.sample_texts import sample_of
from cc_tts.errors import CcTtsError, ConfigError
from cc_tts.media.levels import active_level_dbfs
from cc_tts.voices.folder import KOKORO, STYLES
from cc_tts.voices.voice import Voice

if TYPE_CHECKING:
    from cc_tts.engines.cpu.kokoro.split import SplitModel

log = logs.get(__name__)

_LANGUAGES: Final = {
    "a": "en-US", "b": "en-GB", "e": "es", "f": "fr-FR", "h": "hi", "i": "it", "p": "pt-BR", "z": "cmn",
}  # fmt: skip
_NAME: Final = re.compile(r"(?P<language>[a-z])(?P<gender>[fm])_[a-z0-9_]{1,40}")
_STYLE: Final = 256
_STYLE_BYTES: Final = MAX_TOKENS * _STYLE * 4


def kokoro_models(voices_dir: Path) -> list[Found]:
    """The voices of a folder, which share one session, and the files that are no voices."""
    found: list[Found] = []
    for path in sorted((voices_dir / STYLES).glob("*.bin")):
        try:
            model = voices_dir / KOKORO / "model.onnx"
            if (voice := _voice(path, model)) is not None:
                load = partial(_loaded, model, path, voice.language)
                found.append(FoundModel((voice,), load, family=KOKORO))
        except ConfigError as error:
            found.append(error)
        except OSError as error:
            found.append(ConfigError(f"{path}: cannot be read: {error.strerror}"))
    return found


def _voice(path: Path, model: Path) -> Voice | None:
    """The voice of a style file; ``None`` if its language is not offered. Raises ``ConfigError`` if it is no voice."""
    match = _NAME.fullmatch(path.stem)
    if match is None:
        raise ConfigError(f"{path}: the names of Kokoro's voices look like zf_xiaobei")
    if match["language"] == "j":
        return None
    if (language := _LANGUAGES.get(match["language"])) is None:
        raise ConfigError(f"{path}: no language of Kokoro's voices begins with {match['language']}")
    if path.stat().st_size != _STYLE_BYTES:
        raise ConfigError(f"{path}: {path.stat().st_size} bytes, where the styles of a voice have {_STYLE_BYTES}")
    return Voice(
        f"kokoro-{path.stem}",
        "onnx",
        language,
        description=f"Kokoro {path.stem}",
        gender="female" if match["gender"] == "f" else "male",
        rate_hz=RATE_HZ,
        level_dbfs=statistics.level_of(_kept(model, path)),
        also_speaks=("en",) if language == "cmn" else (),
    )


def _kept(model: Path, style: Path) -> Path:
    """The file of what was measured of a voice: that of this model in these styles."""
    size = model.stat().st_size if model.exists() else 0
    return model.parent / "cache" / f"{style.stem}-{zlib.crc32(style.read_bytes()):08x}-{size}.npz"


@lru_cache(maxsize=2)
def _split(path: Path, _state: tuple[int, int]) -> "SplitModel | None":
    """One model in two parts for all voices, until the file is another one; ``None`` where it has to run whole."""
    try:
        from cc_tts.engines.cpu.kokoro.split import SplitModel

        return SplitModel(path)
    except ImportError as error:
        log.warning("kokoro_runs_whole", detail=f"{error}: the extra kokoro makes it cheaper and sooner")
    except Exception as error:  # noqa: BLE001 - another export of the model; if it is damaged, that is told next
        log.warning("kokoro_runs_whole", detail=f"{path} is not built like the published model: {error!r}")
    return None


@lru_cache(maxsize=2)
def _whole(path: Path, _state: tuple[int, int]) -> Speak:
    return whole_model(path)


def _loaded(model: Path, style: Path, language: str) -> "KokoroVoice":
    try:
        stat = model.stat()
        state = stat.st_mtime_ns, stat.st_size
        split, phonemes, styles = _split(model, state), phonemes_of(language), _styles(style)
        if split is None:
            return KokoroVoice(_whole(model, state), styles, phonemes)
    except FileNotFoundError:
        raise ConfigError(f"{model}: the model of Kokoro's voices is missing") from None
    except ImportError as error:
        raise ConfigError(
            f"{style}: Chinese voices of Kokoro need the extra kokoro, pip install -r requirements/kokoro.txt: {error}"
        ) from error
    except CcTtsError as error:
        raise ConfigError(f"{style}: {error.detail}") from error
    samples = [tokens_of(spoken_phonemes(text, phonemes)) for text in sample_of(language)]
    try:
        speak = _prepared(split, _kept(model, style), [(each, styles[len(each) - 1]) for each in samples])
    except Exception as error:  # noqa: BLE001 - the model may be built in another way beyond what was looked at
        log.warning("kokoro_runs_whole", detail=f"{style.stem}: {error!r}")
        speak = _whole(model, state)
    return KokoroVoice(speak, styles, phonemes)


def _prepared(model: "SplitModel", kept: Path, samples: list[tuple[list[int], Samples]]) -> Speak:
    """Speak with a voice whose statistics are known; to measure them takes some seconds once."""
    if (known := statistics.load(kept)) is not None:
        model.admit(known, *samples[-1])
        return partial(model.speak, statistics=known)
    known = model.measure(samples)
    model.admit(known, *samples[-1])
    speak = partial(model.speak, statistics=known)
    spoken = pcm_of(np.concatenate(list(speak(*samples[-1], 1.0))))
    statistics.keep(kept, replace(known, level_dbfs=active_level_dbfs(spoken, RATE_HZ)))
    return speak


def _styles(path: Path) -> Samples:
    styles: Samples = np.fromfile(path, np.dtype("<f4")).reshape(MAX_TOKENS, _STYLE)
    if not np.isfinite(styles).all():
        raise ConfigError("not the styles of a voice")
    return styles


class KokoroVoice:
    """One voice of the model; see :class:`cc_tts.engines.cpu.contract.Synthesiser`."""

    rate_hz = RATE_HZ

    def __init__(self, speak: Speak, styles: Samples, phonemes: Phonemes) -> None:
        self._speak = speak
        self._styles = styles
        self._phonemes = phonemes

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:  # noqa: ARG002 - one voice
        """See the contract; a part is a window of a sentence."""
        prepared = [(tokens, last_mark(each)) for each in sentences(text) if (tokens := self._tokens(each))]
        for number, (tokens, mark) in enumerate(prepared, 1):
            for part in _parts(tokens):
                for samples in self._speak(part, self._styles[len(part) - 1], speed):
                    yield SentenceAudio(pcm_of(samples), None)
            yield SentenceAudio(b"", mark, is_last=number == len(prepared))

    def _tokens(self, sentence: str) -> list[int]:
        return tokens_of(spoken_phonemes(sentence, self._phonemes))


def _parts(tokens: list[int]) -> list[list[int]]:
    """The tokens of a sentence in parts that the model can take."""
    return [tokens[start : start + MAX_TOKENS] for start in range(0, len(tokens), MAX_TOKENS)]
