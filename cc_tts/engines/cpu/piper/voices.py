"""Piper voices: VITS models of about forty languages, with phonemes by espeak-ng or, of Chinese, pinyin (piper 1.x).

``NAME.onnx`` has inputs ``input`` int64 [1, L], ``input_lengths`` [1], ``scales`` float32 [3] and, with several speakers,
``sid`` [1]; ``NAME.onnx.json`` maps phonemes to ids: ``^`` first, ``_`` after each phoneme, ``$`` last. With the phoneme
type ``pinyin`` a syllable is its initial, its final and the digit of its tone, and ``_`` comes after the syllable.
"""

import importlib.util
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import starmap
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from cc_tts.engines.cpu.contract import Found, FoundModel, Parts, SentenceAudio
from cc_tts.engines.cpu.libespeak import LANGUAGE_SWITCH, EspeakLibrary
from cc_tts.engines.cpu.marks import clauses, last_mark, sentences
from cc_tts.engines.cpu.networks import Samples, network_of, pcm_of
from cc_tts.errors import UNREADABLE, CcTtsError, ConfigError
from cc_tts.voices.inline_ipa import pronounced_parts
from cc_tts.voices.voice import Voice

_BEGIN: Final = "^"
_PAD: Final = "_"
_END: Final = "$"
_FULL_WIDTH: Final = {".": "。", ",": "，", "?": "？", "!": "！", ":": "：", ";": "；"}
PYPINYIN: Final = "pip install -r requirements/kokoro.txt or 'WHEEL[kokoro]', or `make voices`"
"""How to install the package pypinyin."""
_MAX_DESCRIPTION_BYTES: Final = 4 << 20  # unmeasured


class _Audio(msgspec.Struct):
    sample_rate: int


class _Inference(msgspec.Struct):
    noise_scale: float = 0.667
    length_scale: float = 1.0
    noise_w: float = 0.8


class _Espeak(msgspec.Struct):
    voice: str


class _Language(msgspec.Struct):
    code: str = ""


class _Description(msgspec.Struct):
    audio: _Audio
    espeak: _Espeak
    phoneme_id_map: dict[str, list[int]]
    inference: _Inference = msgspec.field(default_factory=_Inference)
    language: _Language = msgspec.field(default_factory=_Language)
    num_speakers: int = 1
    speaker_id_map: dict[str, int] = {}
    phoneme_type: str = "espeak"


def piper_models(voices_dir: Path) -> list[Found]:
    """The Piper voices of a folder, one for each speaker. A voice whose description cannot be read, or has no model beside
    it, is unusable: the others speak.
    """
    found: list[Found] = []
    for path in sorted(voices_dir.glob("*.onnx.json")):
        try:
            found += _speakers(path)
        except ConfigError as error:
            found.append(error)
    return found


def _speakers(path: Path) -> list[FoundModel]:
    """The voices of one description; raises ``ConfigError`` if it is of no use."""
    description, model = _described(path), path.with_suffix("")
    if not model.is_file():
        raise ConfigError(f"{model}: the model of the voice is missing; {path.name} describes it")
    has_speakers = description.num_speakers > 1 and description.speaker_id_map
    speakers = description.speaker_id_map if has_speakers else {"": 0}
    network = cache(partial(network_of, model))  # some models have nine hundred speakers
    family = str(model) if has_speakers else ""
    found = []
    for speaker, speaker_id in sorted(speakers.items(), key=lambda each: each[1]):
        voice_id = f"{model.stem}:{speaker}" if speaker else model.stem
        language = (description.language.code or description.espeak.voice).replace("_", "-")
        rate_hz = description.audio.sample_rate
        voice = Voice(voice_id, "onnx", language, description=f"Piper {model.stem} {speaker}".rstrip(), rate_hz=rate_hz)
        found.append(FoundModel((voice,), partial(PiperVoice, model, network, description, speaker_id), family=family))
    return found


def _described(path: Path) -> _Description:
    try:
        if path.stat().st_size > _MAX_DESCRIPTION_BYTES:
            raise ConfigError(f"{path}: larger than the description of a voice can be")
        description = msgspec.json.decode(path.read_bytes(), type=_Description)
    except (OSError, *UNREADABLE) as error:
        raise ConfigError(f"{path}: not the description of a Piper voice: {error}") from error
    if description.phoneme_type not in ("espeak", "pinyin"):
        kind = description.phoneme_type
        raise ConfigError(f"{path}: phonemes of the type {kind[:40]!r} are not supported, only espeak and pinyin")
    if description.phoneme_type == "pinyin" and importlib.util.find_spec("pypinyin") is None:
        raise ConfigError(f"{path}: it reads pinyin, for which the package pypinyin is missing: {PYPINYIN}")
    if missing := [mark for mark in (_BEGIN, _PAD, _END) if not description.phoneme_id_map.get(mark)]:
        raise ConfigError(f"{path}: phoneme_id_map lacks {' '.join(missing)}")
    return description


class PiperVoice:
    """See :class:`cc_tts.engines.cpu.contract.Synthesiser`; raises ``ConfigError`` if the model is not one of Piper's.
    ``network`` gives what onnxruntime runs, which the speakers of a model share.
    """

    def __init__(self, model: Path, network: Callable[[], Any], description: _Description, speaker_id: int) -> None:
        self._model = network()
        names = {each.name for each in self._model.get_inputs()}
        if not {"input", "input_lengths", "scales"} <= names:
            raise ConfigError(f"{model}: not the model of a Piper voice: its inputs are {', '.join(sorted(names))}")
        self._has_speakers = "sid" in names
        self._description = description
        self._speaker_id = speaker_id
        self._ids = {unicodedata.normalize("NFD", phoneme): ids for phoneme, ids in description.phoneme_id_map.items()}
        try:
            is_pinyin = description.phoneme_type == "pinyin"
            self._phoneme_ids = self._ids_of_pinyin if is_pinyin else self._ids_of_phonemes
            self._espeak = EspeakLibrary()
            self._espeak_voice = "" if is_pinyin else self._espeak.identifier_of(description.espeak.voice)
        except CcTtsError as error:
            raise ConfigError(f"{model}.json: espeak.voice: {error.detail}") from error
        self.rate_hz = description.audio.sample_rate

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:  # noqa: ARG002 - one voice
        """See the contract; a part is a sentence."""
        prepared = [(ids, last_mark(each)) for each in sentences(text) if (ids := self._phoneme_ids(each))]
        for number, (ids, mark) in enumerate(prepared, 1):
            yield SentenceAudio(pcm_of(self._synthesise(ids, speed)), mark, is_last=number == len(prepared))

    def _phonemes(self, clause: str, mark: str) -> str:
        parts = pronounced_parts(clause)
        spoken = " ".join(ipa or self._espeak.phonemes(words, voice=self._espeak_voice) for words, ipa in parts)
        return f"{spoken}{mark}" if spoken.strip() else ""

    def _ids_of_phonemes(self, sentence: str) -> list[int]:
        """The ids of a sentence, its punctuation marks included; empty if nothing of it is spoken."""
        phonemes = " ".join(filter(None, starmap(self._phonemes, clauses(sentence))))
        phonemes = unicodedata.normalize("NFD", LANGUAGE_SWITCH.sub("", phonemes))
        ids = [each for phoneme in phonemes if phoneme in self._ids for each in self._ids[phoneme] + self._ids[_PAD]]
        return [*self._ids[_BEGIN], *ids, *self._ids[_END]] if ids else []

    def _ids_of_pinyin(self, sentence: str) -> list[int]:
        from cc_tts.engines.cpu.piper.pinyin import syllables

        ids: list[int] = []
        for clause, mark in clauses(sentence):
            words = "".join(words for words, _ in pronounced_parts(clause))
            ids += [each for syllable in syllables(words) for each in self._ids_of_group(syllable)]
            if mark and ids:
                ids += self._ids_of_group((mark if mark in self._ids else _FULL_WIDTH.get(mark, ""),))
        return [*self._ids[_BEGIN], *ids, *self._ids[_END]] if ids else []

    def _ids_of_group(self, group: Sequence[str]) -> list[int]:
        """The ids of a syllable or a mark, with the pause of the model behind them."""
        ids = [each for name in group if name in self._ids for each in self._ids[name]]
        return [*ids, *self._ids[_PAD]] if ids else []

    def _synthesise(self, ids: list[int], speed: float) -> Samples:
        inference = self._description.inference
        scales = [inference.noise_scale, inference.length_scale / speed, inference.noise_w]
        inputs: dict[str, Any] = {
            "input": np.asarray([ids], np.int64),
            "input_lengths": np.asarray([len(ids)], np.int64),
            "scales": np.asarray(scales, np.float32),
        }
        if self._has_speakers:
            inputs["sid"] = np.asarray([self._speaker_id], np.int64)
        return np.asarray(self._model.run(None, inputs)[0], np.float32).reshape(-1)
