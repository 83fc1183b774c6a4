"""Places that CONTROL names, and the voice that a client names."""

import pytest

from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import UnknownVoice
from cc_tts.mrcp.messages import Style, Unit
from cc_tts.mrcp.server.places import place_of
from cc_tts.mrcp.server.voices import voice_of
from cc_tts.speech.timing.spans import SpokenSpan
from cc_tts.voices.voice import Voice

pytestmark = pytest.mark.unit

SPANS = [
    SpokenSpan(
        "One two. Three four. ", 0.0, 2000.0, words=[(0.0, 0.0), (500.0, 4 / 21), (1000.0, 9 / 21), (1500.0, 15 / 21)]
    ),
    SpokenSpan("Five six.", 3000.0, 4000.0, words=[(0.0, 0.0), (500.0, 5 / 9)]),
]
VOICES = (
    Voice("en-us", "espeak", "en-US", gender="male"),
    Voice("anna", "espeak", "de-DE", gender="female", also_called=("hanna",)),
    Voice("berta", "espeak", "en-GB", gender="female"),
)


@pytest.mark.parametrize(
    ("played_ms", "count", "unit", "at_ms", "restarts"),
    [
        (1600.0, -1, "second", 600.0, False),
        (600.0, -1, "second", 0.0, True),
        (600.0, 100, "second", 100_600.0, False),
        (1600.0, -1, "word", 1000.0, False),
        (1600.0, 1, "word", 3000.0, False),
        (400.0, -1, "word", 0.0, True),
        (1600.0, -1, "sentence", 0.0, False),
        (3200.0, -1, "sentence", 1000.0, False),
        (100.0, 2, "sentence", 3000.0, False),
        (3600.0, 5, "word", 4000.0, False),
        (3600.0, -1, "paragraph", 0.0, True),
    ],
)
def test_a_place_is_so_many_units_away(
    played_ms: float, count: int, unit: Unit, at_ms: float, *, restarts: bool
) -> None:
    found_ms, found_restart = place_of(SPANS, played_ms, count, unit)
    assert found_ms == pytest.approx(at_ms, abs=2)
    assert found_restart == restarts


@pytest.mark.parametrize(
    ("style", "voice"),
    [
        (Style(), None),
        (Style(voices=("nobody", "anna")), "anna"),
        (Style(voices=("hanna",)), "hanna"),
        (Style(voices=("alloy",)), "alloy"),
        (Style(gender="female", language="en-US"), "berta"),
        (Style(gender="female", language="fr"), None),
        (Style(gender="male"), "en-us"),
    ],
)
def test_the_voice_is_what_fits_best(style: Style, voice: str | None) -> None:
    assert voice_of(style, VOICES, TtsConfig(voice_aliases={"alloy": "anna"})) == voice
    with pytest.raises(UnknownVoice):
        voice_of(Style(voices=("nobody",)), VOICES, TtsConfig())
