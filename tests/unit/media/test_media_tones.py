import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.errors import Unprocessable
from cc_tts.media.tones import MAX_TONE_MS, NAMED, check, tone

pytestmark = pytest.mark.unit

RATE_HZ = 8000


def ms_of(pcm: bytes, rate_hz: int = RATE_HZ) -> float:
    return len(pcm) / 2 / rate_hz * 1000


def samples(pcm: bytes) -> npt.NDArray[np.float64]:
    return np.frombuffer(pcm, np.int16).astype(float)


def frequencies(pcm: bytes, rate_hz: int = RATE_HZ) -> list[int]:
    """Peaks of the spectrum that matter, to 10 Hz."""
    spectrum = np.abs(np.fft.rfft(samples(pcm) * np.hanning(len(pcm) // 2)))
    hz = np.fft.rfftfreq(len(pcm) // 2, 1 / rate_hz)
    is_peak = (spectrum[1:-1] > spectrum[:-2]) & (spectrum[1:-1] > spectrum[2:]) & (spectrum[1:-1] > spectrum.max() / 4)
    return [10 * round(float(value) / 10) for value in hz[1:-1][is_peak]]


@pytest.mark.parametrize(
    ("spec", "expected_ms"),
    [
        ("beep", 200),
        ("BEEP", 200),
        ("sit", 1990),
        ("dtmf:1", 200),
        ("dtmf:1234#", 1000),
        ("dial", MAX_TONE_MS),
        ("ringback", MAX_TONE_MS),
        ("!440/100", 100),
        ("!440/100,!0/50", 150),
        ("440", MAX_TONE_MS),
        ("!440/100,480/50", MAX_TONE_MS),
        ("440/1,0/1," * 90 + "440/1", MAX_TONE_MS),
    ],
)
def test_length(spec: str, expected_ms: float) -> None:
    assert ms_of(tone(spec, RATE_HZ, max_ms=MAX_TONE_MS)) == expected_ms


@pytest.mark.parametrize(
    ("spec", "expected_ms"),
    [
        ("beep", 200),
        ("dtmf:1234567890", 2000),
        ("2100/3300", 3300),
        ("440/500,0/500,880/1500", 2500),
        ("ringback", 6000),
        ("dial", 1000),
        ("!440/300,880", 1300),
    ],
)
def test_without_a_length_it_is_played_once_through(spec: str, expected_ms: float) -> None:
    assert ms_of(tone(spec, RATE_HZ)) == expected_ms


@pytest.mark.parametrize("spec", ["440/120000,0/1", "dtmf:" + "1" * 700])
def test_what_is_too_long_once_through_is_refused_and_not_cut(spec: str) -> None:
    for make in (tone, check):
        with pytest.raises(Unprocessable, match="a tone lasts"):
            make(spec, RATE_HZ)


def test_each_second_of_a_long_tone_follows_the_one_before() -> None:
    wave = samples(tone("350+441", RATE_HZ, max_ms=2500)).astype(float)
    instant_s = np.arange(len(wave)) / RATE_HZ
    expected = np.sin(2 * np.pi * 350 * instant_s) + np.sin(2 * np.pi * 441 * instant_s)
    middle = slice(RATE_HZ // 10, -RATE_HZ // 10)
    assert np.corrcoef(wave[middle], expected[middle])[0, 1] > 0.999


@pytest.mark.parametrize(("spec", "max_ms", "expected_ms"), [("dial", 300, 300), ("beep", 5000, 200), ("beep", 50, 50)])
def test_max_ms_bounds_but_does_not_stretch(spec: str, max_ms: int, expected_ms: float) -> None:
    assert ms_of(tone(spec, RATE_HZ, max_ms=max_ms)) == expected_ms


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("beep", [1000]),
        ("dial", [350, 440]),
        ("busy", [480, 620]),
        ("440+480/200", [440, 480]),
        ("697+1209", [700, 1210]),
        ("dtmf:1", [700, 1210]),
        ("dtmf:A", [700, 1630]),
        ("dtmf:0", [940, 1340]),
        ("dtmf:#", [940, 1480]),
    ],
)
def test_frequencies(spec: str, expected: list[int]) -> None:
    assert frequencies(tone(spec, RATE_HZ, max_ms=200)[: 2 * 800]) == expected


def test_a_cadence_repeats_and_once_parts_do_not() -> None:
    pcm = tone("!1000/100,440/100,0/100", RATE_HZ, max_ms=500)
    parts = [pcm[start : start + 1600] for start in range(0, len(pcm), 1600)]
    assert frequencies(parts[0]) == [1000]
    assert parts[1] == parts[3] != parts[0]
    assert parts[2] == parts[4] == bytes(1600)


def test_level_is_minus_13_dbm0_for_each_frequency() -> None:
    middle = samples(tone("1000", RATE_HZ, max_ms=1000))[800:-800]
    dbm0 = 20 * np.log10(middle.std() / (32767 / np.sqrt(2))) + 3.14
    assert dbm0 == pytest.approx(-13, abs=0.05)


def test_edges_are_soft() -> None:
    pcm = samples(tone("1000/50,1400/50", RATE_HZ, max_ms=200))
    assert np.abs(pcm[[0, -1, 399, 400]]).max() < 20
    assert np.abs(np.diff(pcm)).max() <= 5110 * 2 * np.pi * 1400 / RATE_HZ


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "no tone is called ''"),
        ("bell", "no tone is called 'bell'; known: beep"),
        ("440+", "not FREQ"),
        ("440/", "not FREQ"),
        ("440//100", "not FREQ"),
        ("440/100,", "not FREQ"),
        ("440*20/100", "not FREQ"),
        ("4000/100", "4000 Hz is not between 20 and 4000 Hz"),
        ("5/100", "5 Hz is not between"),
        ("440/0", "a part lasts 1 to"),
        ("440/999999", "a part lasts 1 to"),
        ("440,480/100", "is never reached"),
        ("1000+1001+1002+1003+1004", "at most 4 frequencies"),
        ("dtmf:", "dtmf takes the keys"),
        ("dtmf:12x", "got 'X'"),
        ("440/10," * 500, "at most 1000 characters"),
        ("٤٤٠/100", "not FREQ"),
    ],
)
def test_bad_specs_say_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(Unprocessable, match=message.replace("+", r"\+").replace("*", r"\*")):
        tone(spec, RATE_HZ, max_ms=1)


@pytest.mark.parametrize("max_ms", [0, -1, MAX_TONE_MS + 1])
def test_lengths_out_of_bounds(max_ms: int) -> None:
    with pytest.raises(Unprocessable, match="a tone lasts"):
        tone("beep", RATE_HZ, max_ms=max_ms)


@given(st.text(max_size=40) | st.from_regex(r"!?\d{1,4}(\+\d{1,4})?/\d{1,3}(,!?\d{1,4}/\d{1,3}){0,5}", fullmatch=True))
def test_any_text_is_a_tone_or_unprocessable(spec: str) -> None:
    try:
        pcm = tone(spec, RATE_HZ, max_ms=500)
    except Unprocessable:
        return
    assert 0 < ms_of(pcm) <= 500


@pytest.mark.parametrize("name", NAMED)
def test_every_named_tone_can_be_heard_at_16_khz(name: str) -> None:
    assert np.abs(samples(tone(name, 16000, max_ms=400))).max() > 3000
