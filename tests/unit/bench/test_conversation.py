"""How the figures of a conversation are taken: what the callers hear and send, and how an answer is cut into tokens."""

import pytest

from bench.conversation.answers import NUM_TOKENS, OPENINGS, text_of, tokens_of
from bench.conversation.callers import INAUDIBLE, echo_table, talkspurts
from bench.conversation.parts import num_missing
from bench.conversation.stage import Found
from cc_tts.media.g711 import ulaw_decode, ulaw_encode
from cc_tts.media.speech_activity import is_audible
from tests.support.caller_audio import pcm_of, sound

pytestmark = pytest.mark.unit

MS = 1_000_000
SILENCE = b"\xff"


@pytest.mark.parametrize(
    ("audible_ms", "spurts_ms"),
    [
        ((), []),
        ((40,), [(40, 40)]),
        ((40, 60, 80), [(40, 80)]),
        ((40, 320, 620), [(40, 320), (620, 620)]),
        ((40, 60, 400, 420), [(40, 60), (400, 420)]),
    ],
    ids=["nothing", "one packet", "without a pause", "a comma and a pause", "two"],
)
def test_talkspurts_end_with_a_pause(audible_ms: tuple[int, ...], spurts_ms: list[tuple[int, int]]) -> None:
    at_ms = range(0, 800, 20)
    found = talkspurts([each * MS for each in at_ms], [each in audible_ms for each in at_ms])
    assert found == [(start * MS, end * MS) for start, end in spurts_ms]


def test_the_audible_codes_are_those_of_the_server() -> None:
    for code in range(256):
        octet = bytes([code])
        assert (octet not in INAUDIBLE) == is_audible(ulaw_decode(octet))


def test_an_echo_is_softer() -> None:
    tone = ulaw_encode(pcm_of(sound("440", 100)))
    echoed = ulaw_decode(tone.translate(echo_table(-20.0)))
    loudest, softer = (max(memoryview(pcm).cast("h")) for pcm in (ulaw_decode(tone), echoed))
    assert softer == pytest.approx(loudest / 10, rel=0.05)
    assert SILENCE.translate(echo_table(-20.0)) == SILENCE


@pytest.mark.parametrize(
    ("gone", "late_ms", "missing"),
    [((), {}, 0), ((50,), {}, 1), ((50, 51, 90), {}, 3), ((), {60: 900}, 0), ((50,), {190: 700, 199: 30}, 1)],
    ids=["all there", "one", "three", "one is late", "one is gone, the last ones are late"],
)
def test_missing_frames_are_not_late_ones(gone: tuple[int, ...], late_ms: dict[int, int], missing: int) -> None:
    times_ns = [(20 * number + late_ms.get(number, 0)) * MS for number in range(200) if number not in gone]
    assert num_missing(times_ns) == missing


@pytest.mark.parametrize("opening", OPENINGS)
def test_tokens_are_the_text(opening: str) -> None:
    tokens = tokens_of(text_of(opening))
    assert "".join(tokens) == text_of(opening)
    assert len(tokens) == NUM_TOKENS


def test_rounds_add_up() -> None:
    total, other = Found(), Found()
    total.took("wait_ms", 0, 10 * MS)
    other.took("wait_ms", 0, 30 * MS)
    other.counts["lost"] += 2
    total.add(other)
    result = total.result()
    assert result["wait_ms"]["n"] == 2
    assert result["wait_ms"]["max"] == 30
    assert result["counts"] == {"lost": 2}
