"""Who answered, of audio that is made and a model that is made up: speech is what the test says it is."""

from typing import Any, cast

import numpy as np
import pytest

from cc_tts.media.tones import tone
from cc_tts.vad.answering.legs import AnsweringLegs
from cc_tts.vad.answering.settings import Amd, Answered, EarlyMedia, Finding, GreetingEnded
from cc_tts.vad.detector import LegAudio
from cc_tts.vad.messages import AnswerFound
from cc_tts.vad.silero import Floats, Memory

pytestmark = pytest.mark.unit

RATE_HZ = 8000
FRAME = 160
FRAME_NS = 20_000_000
T0_NS = 10**12

Samples = Floats


class BuzzModel:
    """Takes for speech what buzzes: a pulse every 8 ms has all harmonics of 125 Hz."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def probabilities(self, windows: list[tuple[Memory, Floats]]) -> list[float]:
        self.batches.append(len(windows))
        return [1.0 if np.abs(samples).max() > 4 * np.abs(samples).mean() else 0.0 for _, samples in windows]


def word(ms: float = 300) -> Samples:
    pulses = np.zeros(round(ms * 8), np.float32)
    pulses[::64] = 0.9
    pulses[1::64] = -0.9
    return pulses


def quiet(ms: float) -> Samples:
    return np.zeros(round(ms * 8), np.float32)


def sine(hz: float, ms: float, amplitude: float = 0.2) -> Samples:
    return np.asarray(amplitude * np.sin(2 * np.pi * hz * np.arange(round(ms * 8)) / RATE_HZ), np.float32)


def network(spec: str, ms: int) -> Samples:
    return np.asarray(np.frombuffer(tone(spec, RATE_HZ, max_ms=ms), "<i2") / 32768, np.float32)


def talk(ms: int) -> Samples:
    """Words without a long pause."""
    return np.concatenate([np.concatenate((word(300), quiet(100))) for _ in range(ms // 400)])


class Bench:
    def __init__(self) -> None:
        self.model = BuzzModel()
        self.legs = AnsweringLegs(cast("Any", self.model), RATE_HZ)
        self.now_ns = T0_NS

    def run(self, *parts: Samples, leg: str = "a", sent: Samples | None = None) -> list[Finding]:
        """The audio of a leg; returns what was found."""
        return [each.finding for each in self.run_many({leg: np.concatenate(parts)}, sent=sent)]

    def run_many(self, audio: dict[str, Samples], *, sent: Samples | None = None) -> list[AnswerFound]:
        found: list[AnswerFound] = []
        for at in range(0, max(map(len, audio.values())), FRAME):
            frames = [
                LegAudio(leg, False, self.now_ns, pcm(samples[at : at + FRAME])) for leg, samples in audio.items()
            ]
            if sent is not None:
                frames.insert(0, LegAudio(next(iter(audio)), True, self.now_ns, pcm(sent[at : at + FRAME])))
            found += self.legs.push(frames)
            self.now_ns += FRAME_NS
        return found


def pcm(samples: Samples) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def heard(*parts: Samples, **settings: Any) -> list[tuple[Any, ...]]:
    """What is found of an answered call, in short."""
    bench = Bench()
    bench.legs.classify("a", Amd(**settings), T0_NS, is_answered=True)
    return [short(finding) for finding in bench.run(*parts)]


def short(finding: Finding) -> tuple[Any, ...]:
    match finding:
        case Answered(result=result, cause=cause):
            return result, cause
        case GreetingEnded(by=by):
            return ("ended", by)
        case EarlyMedia(sound=sound):
            return ("early", sound)


def test_a_short_greeting_and_silence_are_a_person() -> None:
    bench = Bench()
    bench.legs.classify("a", Amd(), T0_NS, is_answered=True)
    (found,) = bench.run(quiet(400), word(300), quiet(100), word(300), quiet(2000))
    assert isinstance(found, Answered)
    assert (found.result, found.words) == ("human", 2)
    assert found.greeting_ms == pytest.approx(700, abs=40)
    assert found.at_ms == pytest.approx(1100 + 900, abs=60)


def answered_ms(*parts: Samples, **settings: Any) -> float:
    bench = Bench()
    bench.legs.classify("a", Amd(**settings), T0_NS, is_answered=True)
    (found,) = bench.run(*parts)
    assert isinstance(found, Answered)
    assert found.result == "human"
    return found.at_ms


def test_the_longer_a_short_greeting_is_the_longer_a_machine_may_pause_in_it() -> None:
    assert answered_ms(word(400), quiet(2000)) == pytest.approx(400 + 800, abs=60)
    assert answered_ms(word(1050), quiet(3000)) == pytest.approx(1050 + 1250, abs=60)
    assert answered_ms(word(1050), quiet(3000), long_greeting="machine") == pytest.approx(1050 + 800, abs=60)
    assert heard(word(1000), quiet(1000), talk(7200), quiet(3000))[0] == ("machine", "long_greeting")


def test_a_person_who_says_hello_again_behind_a_long_greeting_is_no_machine() -> None:
    assert heard(quiet(300), talk(4400), quiet(3000)) == [("human", "greeting_ended")]
    assert heard(quiet(300), talk(4000), quiet(1200), word(500), quiet(3000)) == [("human", "greeting_ended")]
    assert heard(quiet(300), talk(4000), quiet(1200), talk(2400), quiet(3000))[0] == ("machine", "long_greeting")


def mumble(ms: float) -> Samples:
    """Loud, and no speech to the model."""
    return np.asarray(np.random.default_rng(1).uniform(-0.2, 0.2, round(ms * 8)), np.float32)


def test_a_sound_that_may_be_speech_holds_the_result_back() -> None:
    assert answered_ms(quiet(200), word(400), mumble(520), quiet(3000)) == pytest.approx(1120 + 800, abs=60)
    assert answered_ms(quiet(200), word(400), mumble(4000)) == pytest.approx(600 + 2 * 800, abs=60)


def test_a_vowel_before_a_beep_does_not_make_it_a_melody() -> None:
    vowel = sine(356, 120)
    assert heard(talk(7200), vowel, quiet(300), sine(1300, 400), quiet(1000))[1:] == [("ended", "beep")]


def test_a_short_harmonic_sound_is_a_voice_and_no_beep() -> None:
    voice = sine(450, 100) + sine(900, 100)
    assert heard(word(), quiet(100), voice, quiet(2000)) == [("human", "short_greeting")]


def test_silence() -> None:
    assert heard(quiet(4000)) == [("silence", "initial_silence")]
    assert heard(quiet(3000), word(), quiet(2000), initial_silence_ms=4000) == [("human", "short_greeting")]


def test_a_long_greeting_that_ends_is_a_person_and_one_that_goes_on_a_machine() -> None:
    assert heard(quiet(300), talk(3200), quiet(3000)) == [("human", "greeting_ended")]
    assert heard(quiet(300), talk(7200), quiet(3000)) == [("machine", "long_greeting"), ("ended", "silence")]


def test_a_long_greeting_is_a_machine_at_once_where_that_is_asked_for() -> None:
    assert heard(quiet(300), talk(3200), quiet(3000), long_greeting="machine")[0] == ("machine", "many_words")
    found = heard(talk(2400), quiet(3000), long_greeting="machine", maximum_number_of_words=100)
    assert found[0] == ("machine", "long_greeting")


@pytest.mark.parametrize("hz", [440, 500, 620, 850, 1000, 1100, 1400, 1633, 1850])
@pytest.mark.parametrize("ms", [80, 200, 500, 2000])
def test_a_beep_after_a_greeting_ends_it(hz: int, ms: int) -> None:
    assert heard(quiet(300), talk(7200), quiet(600), sine(hz, ms), quiet(1000)) == [
        ("machine", "long_greeting"),
        ("ended", "beep"),
    ]


def test_a_beep_after_a_short_greeting_makes_it_a_machines() -> None:
    assert heard(word(), quiet(300), sine(1000, 200), quiet(1000)) == [("machine", "beep"), ("ended", "beep")]
    two = sine(850, 300) + sine(1450, 300)
    assert heard(word(), quiet(300), two, quiet(1000)) == [("machine", "beep"), ("ended", "beep")]


def test_a_beep_without_a_word_is_one_if_nothing_follows() -> None:
    assert heard(quiet(300), sine(1000, 300), quiet(3000)) == [("machine", "beep"), ("ended", "beep")]
    assert heard(quiet(300), sine(1000, 300), quiet(300), word(), quiet(2000)) == [("human", "short_greeting")]


@pytest.mark.parametrize(
    "spec", ["dtmf:5", "dtmf:1234567890*#", "440+480/2000,0/4000", "425/1000,0/4000", "400+450/400,0/200"]
)
def test_other_tones_are_no_beeps(spec: str) -> None:
    found = heard(quiet(300), talk(7200), quiet(300), network(spec, 4000), quiet(3000))
    assert found == [("machine", "long_greeting"), ("ended", "silence")]


def test_a_melody_and_a_hum_are_no_beeps() -> None:
    notes = [part for hz in (523, 659, 784, 659) for part in (sine(hz, 300), quiet(40))]
    found = heard(quiet(300), talk(7200), quiet(100), *notes, quiet(3000))
    assert found[0] == ("machine", "long_greeting")
    assert ("ended", "beep") not in found
    assert heard(sine(50, 4000), sine(100, 500)) == [("silence", "initial_silence")]


@pytest.mark.parametrize("spec", ["busy", "congestion", "425/500,0/500", "400/375,0/375", "450/350,0/350"])
def test_busy_after_the_answer(spec: str) -> None:
    assert heard(quiet(200), network(spec, 5000)) == [("unavailable", "busy")]


def test_an_announcement_of_the_network() -> None:
    assert heard(quiet(200), network("sit", 1200), talk(2000)) == [("unavailable", "information_tone")]
    american = (sine(913.8, 276), sine(1370.6, 276), sine(1776.7, 380))
    assert heard(quiet(200), *american, talk(2000)) == [("unavailable", "information_tone")]


def test_a_fax_that_calls_and_one_that_answers() -> None:
    calling = (sine(1100, 500), quiet(3000))
    assert heard(quiet(500), *calling, *calling) == [("fax", "fax_tone")]
    assert heard(quiet(500), sine(2100, 2600), quiet(1000)) == [("fax", "fax_tone")]


def test_ringing_after_the_answer_is_an_exchange() -> None:
    assert heard(network("ringback", 8000)) == [("ivr", "ringback")]


def test_the_echo_of_our_own_prompt_is_nobody() -> None:
    bench = Bench()
    bench.legs.classify("a", Amd(), T0_NS, is_answered=True)
    ours = np.concatenate((talk(4000), sine(1000, 400)))
    assert [short(each) for each in bench.run(ours * 0.05, sent=ours)] == [("silence", "initial_silence")]


def test_a_gap_in_the_audio_is_silence() -> None:
    bench = Bench()
    bench.legs.classify("a", Amd(), T0_NS, is_answered=True)
    assert bench.run(word()) == []
    bench.now_ns += 1_500_000_000
    assert [short(each) for each in bench.run(quiet(100))] == [("human", "short_greeting")]


def test_what_comes_before_the_answer_is_not_the_answer() -> None:
    bench = Bench()
    bench.legs.classify("a", Amd(), T0_NS, is_answered=False)
    early = [short(each) for each in bench.run(network("ringback", 7000), talk(2000))]
    assert early == [("early", "ringback"), ("early", "announcement")]
    bench.legs.classify("a", Amd(), bench.now_ns, is_answered=True)
    (found,) = bench.run(quiet(300), word(), quiet(1500))
    assert isinstance(found, Answered)
    assert (found.result, found.words) == ("human", 1)
    assert found.at_ms == pytest.approx(1400, abs=50)


@pytest.mark.parametrize(("spec", "sound"), [("busy", "busy"), ("425/500,0/500", "busy"), ("sit", "information_tone")])
def test_tones_before_the_answer(spec: str, sound: str) -> None:
    bench = Bench()
    bench.legs.classify("a", Amd(), T0_NS, is_answered=False)
    assert [short(each) for each in bench.run(network(spec, 4000))] == [("early", sound)]


def test_many_legs_are_judged_together_and_forgotten() -> None:
    bench = Bench()
    for leg in ("a", "b", "c"):
        bench.legs.classify(leg, Amd(), T0_NS, is_answered=True)
    audio = np.concatenate((word(), quiet(1500)))
    found = bench.run_many(dict.fromkeys(("a", "b", "c", "unknown"), audio))
    assert sorted(each.leg for each in found) == ["a", "b", "c"]
    assert max(bench.model.batches) == 3
    assert bench.run(audio) == []


def test_babble_in_front_of_a_person_is_not_the_begin_of_the_greeting() -> None:
    (found,) = heard(talk(2400) * 0.05, word(), quiet(2000), silence_threshold=10)
    assert found == ("human", "short_greeting")
    assert heard(talk(2400) * 0.05, talk(3200), quiet(3000), silence_threshold=10) == [("human", "greeting_ended")]


def test_babble_behind_a_person_is_silence() -> None:
    assert heard(word(), talk(4000) * 0.05, silence_threshold=10) == [("human", "short_greeting")]


def test_softer_words_go_on_with_a_greeting() -> None:
    found = heard(talk(800), talk(6400) * 0.3, quiet(3000))
    assert found == [("machine", "long_greeting"), ("ended", "silence")]


@pytest.mark.parametrize(("low", "high"), [(750, 850), (600, 800), (1000, 1500), (1200, 1800)])
def test_a_beep_of_two_frequencies(low: int, high: int) -> None:
    two = sine(low, 400) + sine(high, 400)
    assert heard(talk(7200), quiet(500), two, quiet(1000))[1:] == [("ended", "beep")]


def test_a_melody_is_not_busy() -> None:
    notes = [part for hz in (523, 523, 659, 523, 784, 659) * 3 for part in (sine(hz, 250), quiet(200))]
    assert heard(*notes, quiet(3000)) == [("ivr", "music")]
