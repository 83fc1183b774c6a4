"""What the real model hears on a telephone line: speech of espeak-ng, tones and noise, all of it through μ-law."""

from collections.abc import Callable
from functools import cache, partial
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import pytest

from cc_tts.vad.detector import LegAudio, VoiceDetector
from cc_tts.vad.silero import WINDOW_MS, SileroModel, find_model
from cc_tts.vad.speech import Listening, SpeechStarted, SpeechStopped
from lab import needs
from lab.caller_audio import (
    PROMPT,
    SENTENCE,
    Samples,
    cough,
    frames,
    line_pcm,
    mixed,
    noise,
    said,
    silence,
    sound,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

T0_NS = 10**12
FRAME_NS = 20_000_000
ONSET_MS = 80
"""How far off the begin of speech may be."""
LONG_PROMPT = f"{PROMPT} The weather is fine today. The queue is short. All our agents are free today."
KEYS = {
    key: f"{low}+{high}"
    for keys, low in (("123", 697), ("456", 770), ("789", 852), ("*0#", 941))
    for key, high in zip(keys, (1209, 1336, 1477), strict=True)
}


@pytest.fixture(autouse=True)
def model() -> None:
    needs.voice_model()


@cache
def silero(rate_hz: int) -> SileroModel:
    return SileroModel(find_model(), rate_hz)


class Heard(NamedTuple):
    """Where speech began and ended, and when its begin was known, ms."""

    onset_ms: float
    end_ms: float
    known_ms: float


def listen(pcm: bytes, sent: bytes = b"", *, rate_hz: int = 8000, guard_ms: int = 0) -> list[Heard]:
    """The speech in a call; ``guard_ms`` of a prompt that is sent from the beginning on."""
    detector = VoiceDetector(silero(rate_hz), rate_hz)
    detector.listen("leg", Listening(deaf_until_ns=T0_NS + guard_ms * 1_000_000))
    heard: list[Heard] = []
    begun: tuple[int, int] | None = None
    received, played = frames(pcm, rate_hz=rate_hz), frames(sent, rate_hz=rate_hz)
    for number, (frame, prompt) in enumerate(zip_longest(received, played)):
        at_ns = T0_NS + number * FRAME_NS
        pushed = [LegAudio("leg", is_sent, at_ns, part) for is_sent, part in ((True, prompt), (False, frame)) if part]
        for found in detector.push(pushed):
            match found.edge:
                case SpeechStarted(onset_ns=onset_ns):
                    begun = onset_ns, at_ns + FRAME_NS
                case SpeechStopped(onset_ns=onset_ns, end_ns=end_ns):
                    assert begun is not None
                    heard.append(Heard(*((each - T0_NS) / 1e6 for each in (onset_ns, end_ns, begun[1]))))
    return heard


def quiet(ms: float) -> Samples:
    return noise(ms, -70.0)


SPEECH = {
    "american": ("en-us", SENTENCE),
    "british": ("en-gb", "Hello, can you hear me?"),
    "german": ("de", "Guten Tag, ich habe eine Frage zu meiner Rechnung."),
    "french": ("fr-fr", "Bonjour, je voudrais parler à quelqu'un."),
}


@pytest.mark.parametrize("rest", [quiet, silence], ids=["noise", "digital silence"])
@pytest.mark.parametrize("level_dbfs", [-12.0, -24.0, -36.0])
@pytest.mark.parametrize("who", SPEECH)
def test_speech_is_heard_from_its_onset(who: str, level_dbfs: float, rest: Callable[[float], Samples]) -> None:
    voice, text = SPEECH[who]
    speech = said(text, level_dbfs, voice)
    (heard,) = listen(line_pcm(rest(330), speech, rest(1000)))
    assert heard.onset_ms == pytest.approx(330, abs=ONSET_MS)
    assert heard.end_ms == pytest.approx(330 + len(speech) / 8, abs=2 * ONSET_MS)
    assert heard.known_ms - heard.onset_ms <= 300 + WINDOW_MS + 100, "in the next window that is no plosive's closure"


@pytest.mark.parametrize("level_dbfs", [-12.0, -24.0, -36.0])
@pytest.mark.parametrize("ratio_db", [10, 20])
def test_speech_is_heard_in_noise(ratio_db: int, level_dbfs: float) -> None:
    speech = said(level_dbfs=level_dbfs)
    around = noise(len(speech) / 8 + 4000, level_dbfs - ratio_db)
    (heard,) = listen(line_pcm(mixed(around, np.concatenate((silence(3000), speech)))))
    assert heard.onset_ms == pytest.approx(3000, abs=ONSET_MS)


def test_wideband_speech_is_heard() -> None:
    rate_hz = 16_000
    speech = said(rate_hz=rate_hz)
    rest = [noise(ms, -70.0, rate_hz=rate_hz) for ms in (330, 1000)]
    (heard,) = listen(line_pcm(rest[0], speech, rest[1]), rate_hz=rate_hz)
    assert heard.onset_ms == pytest.approx(330, abs=ONSET_MS)


@pytest.mark.parametrize(
    ("before_ms", "before"),
    [
        (30_330, lambda: np.concatenate((quiet(330), sound("ringback", 30_000)))),
        (30_330, lambda: np.concatenate((quiet(330), sound("440+480", 30_000)))),
        (120_000, lambda: quiet(120_000)),
        (120_000, lambda: silence(120_000)),
    ],
    ids=["ringback", "steady tone", "silence", "digital silence"],
)
def test_speech_is_heard_after_a_long_time_without(before_ms: float, before: Callable[[], Samples]) -> None:
    (heard,) = listen(line_pcm(before(), said(), quiet(1000)))
    assert heard.onset_ms == pytest.approx(before_ms, abs=ONSET_MS)
    assert heard.known_ms <= before_ms + 300 + 2 * WINDOW_MS


def backchannel() -> Samples:
    """A "mhm" of 200 ms."""
    ramp = np.minimum(1, np.minimum(np.arange(1600), 1600 - np.arange(1600)) / 160)
    faded: Samples = said("mhm", -24.0)[:1600] * ramp
    return faded


NO_SPEECH: dict[str, Callable[[], Samples]] = {
    "mhm": backchannel,
    "two of them": lambda: np.concatenate((backchannel(), quiet(400), backchannel())),
    **{f"cough {seed}": partial(cough, -12.0, ms=400, seed=seed) for seed in range(5)},
    "soft noise": lambda: noise(3000, -50.0),
    "loud noise": lambda: noise(3000, -25.0),
    "dial tone": lambda: sound("dial", 3000),
    "busy tone": lambda: sound("busy", 3000),
    "all keys": lambda: sound("dtmf:0123456789*#", 3000),
    **{f"key {key}": partial(sound, spec, 1000) for key, spec in KEYS.items()},
}


@pytest.mark.parametrize("what", NO_SPEECH)
def test_other_sounds_are_no_speech(what: str) -> None:
    assert listen(line_pcm(quiet(330), NO_SPEECH[what](), quiet(1000))) == []


@pytest.mark.parametrize("delay_ms", [0, 40, 120, 300])
@pytest.mark.parametrize("loss_db", [16, 20, 30])
def test_our_own_prompt_is_no_speech(loss_db: int, delay_ms: int) -> None:
    prompt = said(LONG_PROMPT, -20.0)
    echo = np.concatenate((silence(delay_ms), prompt * 10 ** (-loss_db / 20)))
    received = line_pcm(mixed(noise(len(echo) / 8 + 1000, -70.0), echo))
    assert listen(received, line_pcm(prompt), guard_ms=300) == []


@pytest.mark.parametrize(
    ("level_dbfs", "loss_db"), [(-24, 20), (-30, 20), (-36, 30), (-36, 60)], ids=lambda value: f"{value} dB"
)
def test_a_caller_is_heard_over_our_prompt(level_dbfs: int, loss_db: int) -> None:
    prompt = said(LONG_PROMPT, -20.0)
    echo = np.concatenate((silence(60), prompt * 10 ** (-loss_db / 20)))
    caller = np.concatenate((silence(3000), said(level_dbfs=level_dbfs)))
    received = line_pcm(mixed(noise(len(echo) / 8 + 1000, -70.0), echo, caller))
    heard = listen(received, line_pcm(prompt), guard_ms=300)
    assert heard[0].onset_ms == pytest.approx(3000, abs=ONSET_MS)
    assert heard[0].known_ms <= 3000 + 300 + 3 * WINDOW_MS


def test_a_batch_hears_what_each_leg_alone_hears() -> None:
    lines = [line_pcm(quiet(330 + 50 * number), said(level_dbfs=-20 - number), quiet(1000)) for number in range(8)]
    alone = [listen(line)[0].onset_ms for line in lines]
    detector = VoiceDetector(silero(8000), 8000)
    cut = [frames(line) for line in lines]
    onsets: dict[str, float] = {}
    for number in range(len(cut)):
        detector.listen(f"leg{number}", Listening())
    for at in range(max(map(len, cut))):
        pushed = [
            LegAudio(f"leg{number}", False, T0_NS + at * FRAME_NS, parts[at])
            for number, parts in enumerate(cut)
            if at < len(parts)
        ]
        for found in detector.push(pushed):
            if isinstance(found.edge, SpeechStarted):
                onsets[found.leg] = (found.edge.onset_ns - T0_NS) / 1e6
    assert [onsets[f"leg{number}"] for number in range(8)] == alone
