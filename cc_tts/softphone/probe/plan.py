"""The plan of a probe: the caller's words, how often, and how long each wait is."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cc_tts import wav_file
from cc_tts.errors import ConfigError
from cc_tts.media.g711 import alaw_encode, ulaw_encode
from cc_tts.media.levels import SPEECH_PEAK
from cc_tts.softphone.rtp.packets import RATE_HZ

SENTENCE: Final = "Hello. Please tell me what you can do for me, and how it works."
INTERRUPTION: Final = "Excuse me, please wait. I have another question."
MAX_WORDS_S: Final = 60.0
"""The longest that words of the caller may last (unmeasured)."""
MAX_ROUNDS: Final = 50
"""The most rounds; fifty of the longest waits are half an hour (unmeasured)."""
DEAD_AIR_S: Final = 3.0
"""Longer silence is dead air: Amazon Connect counts it as non-talk time (docs/developers/agents.md)."""
WAIT_S: Final = 10.0
"""The longest wait for the agent to begin, to stop, or to finish (unmeasured)."""
INTERRUPT_AFTER_S: Final = 1.0
"""How long after its begin an answer is interrupted (unmeasured)."""
KEY_WAIT_S: Final = 3.0
"""The longest wait for the effect of a key: most agents do nothing then (unmeasured)."""
SAY_TIMEOUT_S: Final = 90.0
"""The longest that synthesising the caller's words may take: the start of an engine, and a sentence (unmeasured)."""

ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {"pcmu": ulaw_encode, "pcma": alaw_encode}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """The words and waits of a probe. ``sentence`` and ``interruption`` are texts, or names of WAV files of 8 kHz."""

    sentence: str = SENTENCE
    interruption: str = INTERRUPTION
    voice: str = ""
    rounds: int = 1
    key: str = "1"
    wait_s: float = WAIT_S
    dead_air_s: float = DEAD_AIR_S


@dataclass(frozen=True, slots=True)
class CallerWords:
    """The caller's speech, 16-bit PCM at 8 kHz without silence around it."""

    sentence: bytes
    interruption: bytes


def words_of(plan: ProbePlan) -> CallerWords:
    """Read the caller's words from files, or synthesise them; raises ``ConfigError``."""
    given = (plan.sentence, plan.interruption)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(each) if is_file(each) else Path(folder) / f"{index}.wav" for index, each in enumerate(given)]
        _speak([(text, file) for text, file in zip(given, files, strict=True) if not is_file(text)], plan.voice)
        return CallerWords(*map(_read, files))


def is_file(words: str) -> bool:
    return words.lower().endswith(".wav")


def check(plan: ProbePlan) -> None:
    """Raise ``ValueError``, whose message says what to do, if a file of the plan cannot be read."""
    for words in (plan.sentence, plan.interruption):
        if is_file(words):
            wav_file.read(Path(words), rate_hz=RATE_HZ, max_s=MAX_WORDS_S)


def _read(file: Path) -> bytes:
    try:
        samples = np.frombuffer(wav_file.read(file, rate_hz=RATE_HZ, max_s=MAX_WORDS_S), "<i2")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    heard = np.flatnonzero(np.abs(samples.astype(np.int32)) >= SPEECH_PEAK)
    if not heard.size:
        raise ConfigError(f"{file}: there is nothing to hear in it")
    return samples[heard[0] : heard[-1] + 1].tobytes()


def _speak(texts: Sequence[tuple[str, Path]], voice: str) -> None:
    """Synthesise each text into its file by ``cc-tts say``, with the voice, the engine and the configuration of this
    machine.
    """
    say = [sys.executable, "-m", "cc_tts.cli", "say", "--rate", str(RATE_HZ), *(["--voice", voice] if voice else [])]
    children = [
        subprocess.Popen([*say, "-o", str(file), "--", text], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603 - no shell
        for text, file in texts
    ]
    try:
        for child in children:
            told = child.communicate(timeout=SAY_TIMEOUT_S)[1].decode(errors="replace").strip()
            if child.returncode:
                raise ConfigError(f"the caller's words could not be made: {told.removeprefix('cc-tts: ')}")
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"the caller's words were not made within {SAY_TIMEOUT_S:g} s; give WAV files") from error
    finally:
        for child in children:
            child.kill()
            child.wait()
