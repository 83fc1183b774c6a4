"""Calls that are answered, made: people, answering machines, exchanges, faxes, tones, as a telephone line carries them.

Each half of the calls has texts and voices of its own, so that what is tuned on one half is tried on the other.
"""

import io
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import soundfile
import soxr

from cc_tts.media.levels import FULL_SCALE
from lab.answered_texts import SPEAKERS, VARIANTS, Half
from lab.caller_audio import RATE_HZ, Samples, line_pcm, mixed, noise, said, silence, sound

Random = np.random.Generator

TAIL_MS: Final = 4000.0
PACKET: Final = RATE_HZ // 50


class Call(NamedTuple):
    """What is heard from the answer on, and what is to be found. ``beep_ms``: the end of the beep, if there is one."""

    kind: str
    result: str
    pcm: bytes
    beep_ms: float | None = None
    note: str = ""


@cache
def _hibari_said(text: str) -> Samples:
    from cc_tts.engines.cpu.hibari import HibariVoice

    said = _hibari().speak(text, voice_id="hibari-heart", speed=1.0)
    samples = np.frombuffer(b"".join(part.pcm for part in said), "<i2") / FULL_SCALE
    line: Samples = soxr.resample(samples, HibariVoice.rate_hz, RATE_HZ)
    heard = np.flatnonzero(np.abs(line) > np.abs(line).max() / 30)
    return line[heard[0] : heard[-1] + 1]


@cache
def _hibari() -> Any:
    from cc_tts.engines.cpu.hibari import HibariVoice

    return HibariVoice("heart", None)


def spoken(voice: str, text: str, level_dbfs: float) -> Samples:
    if voice != "hibari":
        return said(text, level_dbfs, voice)
    line = _hibari_said(text)
    active = line[np.abs(line) > np.abs(line).max() / 50]
    return line * 10 ** (level_dbfs / 20) / float(np.sqrt(np.mean(active**2)))


def music(ms: float, random: Random, level_dbfs: float = -22.0) -> Samples:
    """Chords that are struck, a melody and a beat."""
    length, total = round(ms * 8), np.zeros(round(ms * 8))
    at = 0
    while at < length:
        beat = int(random.integers(1600, 4000))
        t = np.arange(min(beat, length - at)) / RATE_HZ
        root = 110 * 2 ** (float(random.integers(0, 24)) / 12)
        for interval in random.choice([0, 3, 4, 7, 10, 12], 3, replace=False):
            hz = root * 2 ** (float(interval) / 12)
            for harmonic in range(1, 6):
                if hz * harmonic < 3400:
                    total[at : at + len(t)] += np.sin(2 * np.pi * hz * harmonic * t) / harmonic * np.exp(-t * 3)
        total[at : at + min(240, len(t))] += random.standard_normal(min(240, len(t))) * 0.5
        at += beat
    scaled: Samples = total * 10 ** (level_dbfs / 20) / float(np.sqrt(np.mean(total**2)))
    return scaled


def melody(ms: float, random: Random, level_dbfs: float = -20.0) -> Samples:
    """One pure note after the other, with small gaps: the hardest music to tell from a beep."""
    notes, total = [], 0.0
    while total < ms:
        length = float(random.choice([150, 250, 400]))
        hz = 523.25 * 2 ** (float(random.integers(0, 18)) / 12)
        notes += [beep(hz, length, level_dbfs), silence(float(random.choice([0, 20, 60])))]
        total += len(notes[-2]) / 8 + len(notes[-1]) / 8
    return np.concatenate(notes)


def beep(hz: float, ms: float, level_dbfs: float, second_hz: float = 0.0) -> Samples:
    """A tone of one frequency or two, with edges of 4 ms."""
    t = np.arange(round(ms * 8)) / RATE_HZ
    wave = np.sin(2 * np.pi * hz * t) + (np.sin(2 * np.pi * second_hz * t) if second_hz else 0)
    edge = np.minimum(1.0, np.minimum(np.arange(len(t)), np.arange(len(t))[::-1]) / 32)
    scaled: Samples = wave * edge * 10 ** (level_dbfs / 20) * (1.0 if second_hz else np.sqrt(2))
    return scaled


def hum(ms: float, level_dbfs: float, hz: float = 50.0) -> Samples:
    t = np.arange(round(ms * 8)) / RATE_HZ
    wave = np.sin(2 * np.pi * hz * t) + 0.5 * np.sin(2 * np.pi * 3 * hz * t) + 0.2 * np.sin(2 * np.pi * 5 * hz * t)
    scaled: Samples = wave * 10 ** (level_dbfs / 20)
    return scaled


def car(ms: float, rms_dbfs: float, seed: int) -> Samples:
    """Wheels and wind: noise that falls with the frequency and swells."""
    white = noise(ms, 0.0, seed=seed)
    spectrum, hz = np.fft.rfft(white), np.fft.rfftfreq(len(white), 1 / RATE_HZ)
    rumble = np.fft.irfft(spectrum / np.maximum(hz, 100.0), len(white))
    rumble *= 1 + 0.5 * np.sin(2 * np.pi * 0.4 * np.arange(len(rumble)) / RATE_HZ)
    scaled: Samples = rumble * 10 ** (rms_dbfs / 20) / float(np.sqrt(np.mean(rumble**2)))
    return scaled


def through_gsm(samples: Samples) -> Samples:
    """GSM 06.10 and back."""
    file = io.BytesIO()
    soundfile.write(file, samples, RATE_HZ, format="WAV", subtype="GSM610")
    file.seek(0)
    heard: Samples = soundfile.read(file)[0]
    return heard[: len(samples)]


@cache
def _television() -> Samples:
    """One who reads the news, and the music under it, 8 s."""
    news = spoken("hibari", "The weather tomorrow will be mild, with some rain in the north. Now to sports.", -24.0)
    return mixed(np.resize(news, 64_000), music(8000, np.random.default_rng(7), -34.0))


@cache
def _babble(half: Half) -> Samples:
    """Six speakers at once, 8 s."""
    texts = [(voice, " ".join(sentences)) for voice, sentences in SPEAKERS[half].machine]
    voices = [np.resize(spoken(voice, text, -26.0), 64_000) for voice, text in texts]
    rolled = [np.roll(each, 9_000 * number) for number, each in enumerate(voices + voices[:1])]
    return mixed(*rolled)


ROOMS: Final = ("person", "machine", "silence")
"""Calls with a microphone at the other end, which may stand where others talk."""
CONDITIONS: Final[dict[Half, tuple[str, ...]]] = {
    "tuned": ("none", "none", "white", "hum", "babble", "car"),
    "held_out": ("none", "none", "white", "car", "agc", "television"),
}
LEVELS_DBFS: Final[dict[Half, tuple[float, float]]] = {"tuned": (-32, -16), "held_out": (-35, -13)}
OF_PEOPLE: Final = ("babble", "television")


class Line:
    """The conditions of one call, drawn: level, noise, codec, loss."""

    def __init__(self, half: Half, random: Random, *, may_babble: bool) -> None:
        self.random, self.half = random, half
        self.level_dbfs = float(random.uniform(*LEVELS_DBFS[half]))
        self.noise = str(random.choice(CONDITIONS[half]))
        if self.noise in OF_PEOPLE and not may_babble:
            self.noise = "white"
        self.loss = float(random.choice([0, 0, 0.02, 0.05]))
        self.is_gsm = half == "held_out" and may_babble and random.random() < 0.3
        self.is_clipped = half == "held_out" and random.random() < 0.2

    def pcm(self, *parts: Samples) -> bytes:
        clean = np.concatenate(parts)
        if self.is_clipped and clean.any():  # the path stands a moment after the answer
            clean[np.flatnonzero(clean)[0] :][: RATE_HZ // 8] = 0
        clean = clean + self._around(clean)
        if self.loss:
            for at in range(0, len(clean), PACKET):
                if self.random.random() < self.loss:
                    clean[at : at + PACKET] = 0
        return line_pcm(through_gsm(clean) if self.is_gsm else clean)

    def _around(self, clean: Samples) -> Samples:
        """What else the microphone hears."""
        ms, seed = len(clean) / 8, int(self.random.integers(1 << 30))
        around = silence(ms)
        match self.noise:
            case "white":
                around = noise(ms, self.level_dbfs - 25, seed=seed)
            case "babble":
                around = np.resize(_babble(self.half), len(clean)) * 10 ** ((self.level_dbfs - 22 + 18) / 20)
            case "hum":
                around = hum(ms, -38)
            case "car":
                around = car(ms, self.level_dbfs - (16 if self.half == "held_out" else 20), seed)
            case "agc":  # the gain rises in each pause
                loud = np.convolve(np.abs(clean), np.ones(1600) / 1600, "same") > 10 ** (self.level_dbfs / 20) / 20
                gain = np.convolve(np.where(loud, 0.0, 1.0), np.ones(4000) / 4000, "full")[: len(clean)]
                around = noise(ms, self.level_dbfs - 20, seed=seed)[: len(clean)] * (0.2 + 0.8 * gain)
            case "television":
                around = np.roll(_television(), seed % 64_000)
                around = np.resize(around, len(clean)) * 10 ** ((self.level_dbfs - 20 + 24) / 20)
        return np.resize(around, len(clean))

    @property
    def note(self) -> str:
        others = " gsm" * self.is_gsm + " clipped" * self.is_clipped
        return f"{self.level_dbfs:.0f} dBFS, {self.noise}, loss {self.loss:.0%}{others}"


Chosen = TypeVar("Chosen")


def _pick(random: Random, those: tuple[Chosen, ...]) -> Chosen:
    return those[int(random.integers(len(those)))]


class Maker:
    """Makes the calls of one half, each other than the last."""

    def __init__(self, half: Half, seed: int) -> None:
        self._half = half
        self._speakers = SPEAKERS[half]
        self._seed = (seed, len(half))
        self._random = np.random.default_rng(self._seed)

    def calls(self, per_kind: int) -> Iterator[Call]:
        kinds: dict[str, Callable[[Line], Call]] = {
            "person, one word": lambda line: self._person(line, "one word", self._speakers.short),
            "person, with name": lambda line: self._person(line, "with name", self._speakers.named),
            "person, company of 2 to 4 s": lambda line: self._person(
                line, "company of 2 to 4 s", self._speakers.company
            ),
            "person, says hello again": self._impatient,
            "machine, beep": lambda line: self._machine(line, with_beep=True),
            "machine, no beep": lambda line: self._machine(line, with_beep=False),
            "exchange, music": self._music,
            "exchange, menu": self._menu,
            "exchange, rings on": self._rings,
            "silence": self._silence,
            "fax": self._fax,
            "busy or announcement": self._network,
        }
        for number_of_kind, (kind, make) in enumerate(kinds.items()):
            for number in range(per_kind):  # each call is drawn by itself, so that all can be made again
                self._random = np.random.default_rng([*self._seed, number_of_kind, number])
                yield make(Line(self._half, self._random, may_babble=kind.startswith(ROOMS)))

    # --- people ----------------------------------------------------------------------------------------------------

    def _say(self, line: Line, voice: str, text: str, variant: str | None = None) -> Samples:
        timbre = _pick(self._random, VARIANTS[self._half]) if variant is None else variant
        return spoken(voice if voice == "hibari" else voice + timbre, text, line.level_dbfs)

    def _before(self, most_ms: float = 1800) -> Samples:
        return silence(float(self._random.uniform(50, most_ms)))

    def _person(self, line: Line, kind: str, those: tuple[tuple[str, str], ...]) -> Call:
        voice, text = _pick(self._random, those)
        pcm = line.pcm(self._before(), self._say(line, voice, text), silence(TAIL_MS))
        return Call(f"person, {kind}", "human", pcm, None, f"{voice}: {text} {line.note}")

    def _impatient(self, line: Line) -> Call:
        voice, text = _pick(self._random, self._speakers.short)
        word = first = self._say(line, voice, text)
        least_ms = 400
        if self._random.random() < 0.5:
            voice, text = _pick(self._random, self._speakers.named + self._speakers.company)
            first = self._say(line, voice, text)
            least_ms = 800
        pause = silence(float(self._random.uniform(least_ms, 1500)))
        pcm = line.pcm(self._before(), first, pause, word, silence(TAIL_MS))
        return Call("person, says hello again", "human", pcm, None, f"{voice}: {text} {line.note}")

    # --- machines --------------------------------------------------------------------------------------------------

    def _greeting(self, line: Line) -> Samples:
        """Up to all sentences of a machine, up to 20 s."""
        voice, sentences = _pick(self._random, self._speakers.machine)
        first = int(self._random.integers(len(sentences)))
        variant = _pick(self._random, VARIANTS[self._half])
        parts: list[Samples] = []
        for sentence in sentences[first:] if self._random.random() < 0.4 else sentences:
            parts += [self._say(line, voice, sentence, variant), silence(float(self._random.uniform(150, 1200)))]
        greeting = np.concatenate(parts[:-1])[: 20 * RATE_HZ]
        return greeting if len(greeting) >= 2 * RATE_HZ else self._greeting(line)

    def _machine(self, line: Line, *, with_beep: bool) -> Call:
        greeting = np.concatenate((self._before(1500), self._greeting(line)))
        spoken_s = len(greeting) / RATE_HZ
        if self._half == "held_out" and self._random.random() < 0.15:
            greeting = mixed(greeting, music(len(greeting) / 8, self._random, line.level_dbfs - 15)[: len(greeting)])
        if not with_beep:
            pcm = line.pcm(greeting, silence(TAIL_MS))
            return Call("machine, no beep", "machine", pcm, None, f"{spoken_s:.1f} s {line.note}")
        hz, ms = float(self._random.uniform(440, 1850)), float(80 * 25 ** self._random.random())
        second = hz * float(self._random.choice([4 / 5, 3 / 4, 4 / 3, 3 / 2])) if self._random.random() < 0.2 else 0.0
        second = 0.0 if not 440 <= second <= 1850 else second
        tone = beep(hz, ms, line.level_dbfs + float(self._random.uniform(-6, 6)), second)
        gap = silence(float(self._random.uniform(50, 1500)))
        pcm = line.pcm(greeting, gap, tone, silence(TAIL_MS))
        end_ms = (len(greeting) + len(gap) + len(tone)) / 8
        note = f"{spoken_s:.1f} s, {hz:.0f}+{second:.0f} Hz {ms:.0f} ms after {len(gap) / 8:.0f} ms; {line.note}"
        return Call("machine, beep", "machine", pcm, end_ms, note)

    # --- exchanges, faxes, the network -------------------------------------------------------------------------------

    def _music(self, line: Line) -> Call:
        ms = float(self._random.uniform(2500, 6000))
        tune = (music if self._random.random() < 0.7 else melody)(ms, self._random, line.level_dbfs)
        pcm = line.pcm(self._before(500), tune, self._menu_text(line), silence(TAIL_MS))
        return Call("exchange, music", "ivr", pcm, None, line.note)

    def _menu_text(self, line: Line) -> Samples:
        voice, sentences = _pick(self._random, self._speakers.menu)
        parts: list[Samples] = []
        for sentence in sentences:
            parts += [self._say(line, voice, sentence, ""), silence(float(self._random.uniform(300, 700)))]
        return np.concatenate(parts)

    def _menu(self, line: Line) -> Call:
        pcm = line.pcm(self._before(500), self._menu_text(line), silence(TAIL_MS))
        return Call("exchange, menu", "ivr", pcm, None, line.note)

    def _rings(self, line: Line) -> Call:
        spec = _pick(self._random, ("440+480/2000,0/4000", "425/1000,0/4000", "400+450/400,0/200,400+450/400,0/2000"))
        pcm = line.pcm(self._before(1000), sound(spec, 9000))
        return Call("exchange, rings on", "ivr", pcm, None, f"{spec} {line.note}")

    def _silence(self, line: Line) -> Call:
        return Call("silence", "silence", line.pcm(silence(6000)), None, line.note)

    def _fax(self, line: Line) -> Call:
        hz = 1100 + float(self._random.uniform(-30, 30))
        calling = (beep(hz, 500, line.level_dbfs), silence(3000))
        answering = (beep(2100, 3000, line.level_dbfs), silence(1000))
        parts = calling * 3 if self._random.random() < 0.5 else answering
        return Call("fax", "fax", line.pcm(self._before(1000), *parts), None, line.note)

    def _network(self, line: Line) -> Call:
        specs = ("busy", "congestion", "425/500,0/500", "425/250,0/250", "400/375,0/375", "450/350,0/350", "sit")
        spec = _pick(self._random, specs)
        pcm = line.pcm(self._before(800), sound(spec, 1200 if spec == "sit" else 6000), silence(TAIL_MS))
        return Call("busy or announcement", "unavailable", pcm, None, f"{spec} {line.note}")
