"""How well a machine understands each voice over the telephone: word error rate of PocketSphinx, through G.711.

    python -m bench.intelligibility [--set tts.voices_dir=DIR] [--voices ID ...]

The sentences go the way of a prompt (chunker, engine, resampler to 8 kHz), through μ-law and back, to 16 kHz and to the
recogniser with its own American English model and dictionary. PocketSphinx is a weak recogniser by today's measure, which
makes the difference between voices show. It comes with ``pip install -r requirements/intelligibility.txt``.
"""

import argparse
import asyncio
import re
import sys
from typing import Any

import numpy as np
import soxr

from bench.report import machine, save
from cc_tts.config import load as configuration
from cc_tts.engines.factory import make_engine
from cc_tts.media.g711 import ulaw_decode, ulaw_encode
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from lab.server_under_test import Json

LINE_HZ = 8000
RECOGNISER_HZ = 16_000
QUIET_S = 0.3
DEFAULT_VOICES = ("en-us", "hibari-heart")
SENTENCES = (
    "Thank you for calling customer service.",
    "Please hold while I transfer your call.",
    "Your account balance is forty two dollars.",
    "All of our agents are busy at the moment.",
    "Please enter your telephone number after the tone.",
    "Your appointment is on Monday at three in the afternoon.",
    "The office is closed today because of the holiday.",
    "Your payment was received on the first of March.",
    "To hear this message again please press one.",
    "We are sorry that you had to wait so long.",
    "Your order will be delivered within two days.",
    "Can you please tell me your full name and address.",
    "The next available agent will be with you shortly.",
    "This call may be recorded for quality and training.",
    "Your new password was sent to you by mail.",
    "Please stay on the line for a short survey.",
    "The flight to Boston leaves at seven in the morning.",
    "We could not find an order with this number.",
)


def words_of(text: str) -> list[str]:
    """The words of a sentence as the recogniser writes them."""
    return re.findall(r"[a-z']+", text.lower())


def num_errors(wanted: list[str], heard: list[str]) -> int:
    """Substitutions, insertions and deletions (Levenshtein distance over words)."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(wanted, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(heard, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != other))
    return row[-1]


async def spoken(source: SpeechSource, text: str, voice: str) -> "np.ndarray[Any, np.dtype[np.int16]]":
    """The sentence as the far side of a G.711 call hears it, at the recogniser's rate."""
    pcm = bytearray()
    async for chunk in source.open(TextContent(text, voice, "en"), rate_hz=LINE_HZ):
        pcm += chunk.data
    line = np.frombuffer(ulaw_decode(ulaw_encode(bytes(pcm))), np.int16).astype(np.float32)
    quiet = np.zeros(round(QUIET_S * LINE_HZ), np.float32)
    wide = soxr.resample(np.concatenate((quiet, line, quiet)), LINE_HZ, RECOGNISER_HZ)
    samples: np.ndarray[Any, np.dtype[np.int16]] = np.clip(np.rint(wide), -32768, 32767).astype(np.int16)
    return samples


async def measure(source: SpeechSource, decoder: Any, voice: str) -> Json:
    """The errors of one voice over all sentences."""
    errors, sentences = 0, []
    for text in SENTENCES:
        audio = await spoken(source, text, voice)
        decoder.start_utt()
        decoder.process_raw(audio.tobytes(), full_utt=True)
        decoder.end_utt()
        heard = words_of(decoder.hyp().hypstr if decoder.hyp() else "")
        wrong = num_errors(words_of(text), heard)
        errors += wrong
        sentences.append({"text": text, "heard": " ".join(heard), "errors": wrong})
        print(f"  {voice}: {wrong} of {len(words_of(text))} wrong: {' '.join(heard)}", flush=True)
    num_words = sum(len(words_of(text)) for text in SENTENCES)
    return {"voice": voice, "words": num_words, "errors": errors, "rate": errors / num_words, "sentences": sentences}


async def main() -> int:
    """Measure every voice and save the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voices", nargs="*", default=list(DEFAULT_VOICES), metavar="ID")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    try:
        from pocketsphinx import Decoder
    except ImportError:
        print("PocketSphinx is missing: pip install -r requirements/intelligibility.txt", file=sys.stderr)
        return 1
    config = configuration.load(overrides=options.set)
    engine = make_engine(config)
    source = SpeechSource(engine, Normalizer(), config.tts)
    await engine.start()
    try:
        decoder = Decoder(samprate=RECOGNISER_HZ, loglevel="FATAL")
        results = [await measure(source, decoder, voice) for voice in options.voices]
    finally:
        await engine.stop()
    for result in results:
        print(f"{result['voice']:20} {100 * result['rate']:5.1f} % of {result['words']} words wrong")
    save("intelligibility", {"machine": machine(), "voices": results})
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
