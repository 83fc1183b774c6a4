"""How loud each voice is.

    python -m bench.voices [--set tts.voices_dir=DIR] [--voices ID ...]

As the engine gives it and as it reaches the line: active level by ITU-T P.56 and peak in dBFS, samples at full scale, DC,
and the silence before and after the speech (below −60 dBFS), at 8 kHz; over all sentences of a voice: the mean and the
range of the level, the worst of the rest.
"""

import argparse
import asyncio
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.report import machine, save
from cc_tts.audio import AudioFormat
from cc_tts.config import load as configuration
from cc_tts.engines.factory import make_engine
from cc_tts.media.levels import active_level_dbfs
from cc_tts.media.silence_trimmer import SILENCE_PEAK
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.resampler import StreamResampler
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from lab.server_under_test import Json

LINE = AudioFormat(8000)
FULL_SCALE = 32767
SENTENCES = {
    "en": (
        "Thank you for calling, how may I help you today?",
        "Your balance is forty two dollars and ten cents.",
        "Please hold.",
        "All of our agents are busy at the moment, please stay on the line.",
        "Your appointment is on Monday at three in the afternoon.",
        "Goodbye.",
    ),
    "de": (
        "Vielen Dank für Ihren Anruf.",
        "Bitte warten Sie einen Moment, wir sind gleich für Sie da.",
        "Auf Wiederhören.",
    ),
    "fr": (
        "Merci de votre appel.",
        "Veuillez patienter un instant, nous arrivons.",
        "Votre rendez-vous est lundi à trois heures.",
    ),
    "es": ("Gracias por llamar.", "Espere un momento, por favor.", "Su cita es el lunes a las tres de la tarde."),
    "cmn": ("感谢您的来电，请问有什么可以帮您？", "请稍等。", "您的余额是四十二元。"),
    "ru": (
        "Спасибо за звонок, пожалуйста, подождите.",
        "Спасибо за звонок.",
        "Ваш баланс сорок два рубля.",
        "Все операторы заняты, оставайтесь на линии.",
        "До свидания.",
    ),
    "it": ("Grazie per aver chiamato.", "Attenda un momento, per favore.", "Il suo appuntamento è lunedì alle tre."),
    "pl": (
        "Dziękujemy za telefon.",
        "Proszę chwilę zaczekać.",
        "Wszyscy konsultanci są zajęci, proszę pozostać na linii.",
    ),
    "pt": ("Obrigado por ligar.", "Aguarde um momento, por favor.", "A sua consulta é segunda-feira às três."),
    "nl": ("Bedankt voor het bellen.", "Een ogenblik geduld alstublieft.", "Al onze medewerkers zijn in gesprek."),
    "tr": ("Aradığınız için teşekkürler.", "Lütfen bekleyin.", "Tüm temsilcilerimiz meşgul, hatta kalın."),
    "sv": ("Tack för ditt samtal.", "Var god vänta ett ögonblick.", "Alla våra handläggare är upptagna."),
    "ar": ("شكرا لاتصالك.", "يرجى الانتظار قليلا.", "جميع الموظفين مشغولون حاليا."),
    "hi": ("कॉल करने के लिए धन्यवाद।", "कृपया एक क्षण प्रतीक्षा करें।", "आपकी शेष राशि बयालीस रुपये है।"),
    "ja": ("おでんわ ありがとう ございます。", "しょうしょう おまち ください。"),
    "ko": ("전화해 주셔서 감사합니다.", "잠시만 기다려 주세요."),
    "uk": ("Дякуємо за дзвінок.", "Будь ласка, зачекайте.", "Усі оператори зайняті."),
    "el": ("Ευχαριστούμε που καλέσατε.", "Παρακαλώ περιμένετε.", "Όλοι οι εκπρόσωποι είναι απασχολημένοι."),
}
DEFAULT_VOICES = ("en-us", "en-gb", "de", "fr-fr", *list(SENTENCES)[3:], "hibari-heart")


def figures(pcm: bytes) -> Json:
    samples = np.frombuffer(pcm, np.int16).astype(np.int32)
    loud = np.flatnonzero(np.abs(samples) > SILENCE_PEAK)
    level = active_level_dbfs(pcm, LINE.rate_hz)
    return {
        "level_dbfs": None if level is None else round(level, 2),
        "peak_dbfs": round(20 * math.log10(max(1, int(np.abs(samples).max())) / 32768), 2),
        "clipped": int(np.count_nonzero(np.abs(samples) >= FULL_SCALE)),
        "dc": round(float(samples.mean()), 2),
        "lead_ms": round(LINE.ms_for_samples(int(loud[0])), 1),
        "tail_ms": round(LINE.ms_for_samples(len(samples) - 1 - int(loud[-1])), 1),
    }


async def raw(source: SpeechSource, text: str, voice: str) -> bytes:
    """What the engine gives, at 8 kHz."""
    found = source.engine.resolve_voice(voice, None)
    stream = source.engine.open(voice)
    stream.push(Normalizer().normalize(text, found.language), text_chunk_index=0)
    stream.end()
    resampler = StreamResampler(found.rate_hz, LINE.rate_hz)
    pcm = b"".join([resampler.process(chunk.data) async for chunk in stream])
    return pcm + resampler.process(b"", last=True)


async def levelled(source: SpeechSource, text: str, voice: str) -> bytes:
    return b"".join([chunk.data async for chunk in source.open(TextContent(text, voice), rate_hz=LINE.rate_hz)])


def summary(sentences: list[Json]) -> Json:
    levels = [each["level_dbfs"] for each in sentences]
    return {
        "level_dbfs": {"mean": round(float(np.mean(levels)), 2), "min": min(levels), "max": max(levels)},
        "peak_dbfs": max(each["peak_dbfs"] for each in sentences),
        "clipped": sum(each["clipped"] for each in sentences),
        "dc": max((each["dc"] for each in sentences), key=abs),
        "lead_ms": max(each["lead_ms"] for each in sentences),
        "tail_ms": max(each["tail_ms"] for each in sentences),
    }


def row(voice: str, what: str, result: Json) -> str:
    level = result["level_dbfs"]
    spread = f"{level['mean']:7.1f} ({level['min']:.1f} to {level['max']:.1f})"
    return (
        f"{voice:24} {what:8} {spread:26} {result['peak_dbfs']:6.1f} {result['clipped']:8} {result['dc']:7.1f} "
        f"{result['lead_ms']:8.1f} {result['tail_ms']:8.1f}"
    )


async def levels(source: SpeechSource, voices: Sequence[str]) -> list[Json]:
    results: list[Json] = []
    print(f"{'voice':24} {'':8} {'level dBFS':26} {'peak':>6} {'clipped':>8} {'DC':>7} {'lead ms':>8} {'tail ms':>8}")
    for voice in voices:
        language = source.engine.resolve_voice(voice, None).language.split("-")[0]
        texts = SENTENCES.get(language, SENTENCES["en"])
        result: dict[str, Any] = {"voice": voice}
        for what, speak in (("engine", raw), ("line", levelled)):
            result[what] = summary([figures(await speak(source, text, voice)) for text in texts])
            print(row(voice, what, result[what]), flush=True)
        results.append(result)
    return results


async def main() -> int:
    """Measure every voice and save the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voices", nargs="*", metavar="ID")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    config = configuration.load(overrides=["tts.first_audio_target_ms=60000", *options.set])
    engine = make_engine(config)
    source = SpeechSource(engine, Normalizer(), config.tts)
    await engine.start()
    try:
        results = await levels(source, options.voices or DEFAULT_VOICES)
    finally:
        await engine.stop()
    save("levels", {"machine": machine(), "target_dbfs": config.tts.target_dbfs, "voices": results})
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
