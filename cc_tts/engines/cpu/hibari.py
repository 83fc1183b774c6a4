"""hibari: small voices of English, 24 kHz, with their own spelling-to-sound rules (``hibari-tts`` 0.2, Apache-2.0).

The package brings the voice ``heart``. Models of its other voices are files that one puts into ``tts.voices_dir``; nothing
is fetched here.
"""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hibari import Hibari
from hibari.voices import DEFAULT, VOICES

from cc_tts.engines.cpu.contract import FoundModel, Parts, SentenceAudio
from cc_tts.engines.cpu.networks import pcm_of
from cc_tts.engines.letters import LETTER_A_OF_HIBARI, with_letters
from cc_tts.engines.phonemes import to_misaki
from cc_tts.errors import ConfigError
from cc_tts.voices.inline_ipa import replace_pronounced
from cc_tts.voices.voice import Voice


def hibari_models(voices_dir: Path | None) -> list[FoundModel]:
    """The packaged voice, and those of hibari whose model file lies in ``voices_dir``."""
    found = [FoundModel((_voice(DEFAULT),), partial(HibariVoice, DEFAULT, None))]
    for name, entry in VOICES.items():
        path = voices_dir / Path(str(entry["file"])).name if voices_dir is not None and entry.get("file") else None
        if name != DEFAULT and path is not None and path.is_file():
            found.append(FoundModel((_voice(name),), partial(HibariVoice, name, path)))
    return found


def _voice(name: str) -> Voice:
    entry = VOICES[name]
    return Voice(
        f"hibari-{name}",
        "onnx",
        str(entry["language"]),
        description=f"hibari {name}",
        gender=entry["gender"],
        rate_hz=Hibari.sample_rate,
    )


class HibariVoice:
    """See :class:`cc_tts.engines.cpu.contract.Synthesiser`; raises ``ConfigError`` if the model cannot be loaded."""

    rate_hz = Hibari.sample_rate

    def __init__(self, name: str, path: Path | None) -> None:
        try:
            self._model: Any = Hibari(voice=name, model=str(path) if path is not None else None, threads=1)
            self._model.g2p  # noqa: B018 - loads the lexicon
        except Exception as error:
            raise ConfigError(f"{path or f'the voice {name} of the package hibari-tts'}: {error}") from error
        self._phonemes = threading.Lock()

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:  # noqa: ARG002 - one voice
        """See the contract; a part is a sentence. The noise of the model is the same each time."""
        with self._phonemes:  # plain Python, a third of a millisecond; its caches are not made for threads
            sentences = self._model.phonemize(replace_pronounced(with_letters(text, LETTER_A_OF_HIBARI), _written))
        noise = np.random.default_rng(0)
        for number, phonemes in enumerate(sentences, 1):
            samples = self._model.from_ids(self._model.ids(phonemes), speed, noise)
            yield SentenceAudio(pcm_of(samples), phonemes[-1:], is_last=number == len(sentences))


def _written(ipa: str, words: str) -> str:
    """A pronunciation in hibari's notation, for each word or for all words together."""
    pronounced, named = to_misaki(ipa).split(), words.split()
    if len(pronounced) != len(named):
        pronounced, named = [" ".join(pronounced)], ["-".join(named)]
    return " ".join(f"[{name}](/{each}/)" for name, each in zip(named, pronounced, strict=True))
