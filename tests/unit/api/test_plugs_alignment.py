"""The characters that go with pieces of audio."""

import pytest

from cc_tts.api.plugs.alignment import AlignedAudio, Aligner
from cc_tts.engines.speech_chunk import SpeechChunk

pytestmark = pytest.mark.unit

RATE_HZ = 8000


def audio(length_ms: int) -> bytes:
    return bytes(2 * length_ms * RATE_HZ // 1000)


def aligned(*chunks: SpeechChunk) -> list[AlignedAudio]:
    aligner = Aligner(RATE_HZ)
    return [piece for chunk in chunks for piece in aligner.add(chunk)] + aligner.finish()


def told(pieces: list[AlignedAudio]) -> list[tuple[str, float]]:
    return [
        ("".join(piece.characters.characters), round(sum(piece.characters.durations_ms)))
        if piece.characters
        else ("", 0.0)
        for piece in pieces
    ]


def test_words_that_the_engine_times_come_with_the_audio_in_which_they_begin() -> None:
    pieces = aligned(
        SpeechChunk(audio(200), "One two. ", words=((0.0, 0.0),)),
        SpeechChunk(audio(200), words=((250.0, 4 / 9),)),
    )
    assert told(pieces) == [("One", 200.0), (" two.", 200.0)]
    assert pieces[0].characters is not None
    assert pieces[0].characters.starts_ms == (0.0, 66.7, 133.3)
    assert pieces[0].characters.durations_ms == (66.7, 66.7, 66.7)


def test_audio_in_which_no_word_begins_comes_with_the_next_word() -> None:
    pieces = aligned(
        SpeechChunk(audio(200), "Incomprehensibilities end.", words=((0.0, 0.0),)),
        SpeechChunk(audio(200)),
        SpeechChunk(audio(200), words=((450.0, 22 / 26),)),
    )
    assert told(pieces) == [("Incomprehensibilities", 200.0), (" end.", 400.0)]


def test_a_long_word_does_not_hold_the_audio_back() -> None:
    number = SpeechChunk(audio(200), "4711081547110815 is it.", words=((0.0, 0.0),))
    pieces = aligned(
        number,
        *(SpeechChunk(audio(600)) for _ in range(4)),
        SpeechChunk(audio(200), words=((2700.0, 17 / 23), (2750.0, 20 / 23))),
    )
    assert told(pieces) == [("4711081547110815", 200.0), (" ", 1200.0), (" ", 1200.0), ("is it.", 200.0)]


def test_the_times_add_up_to_the_audio_where_the_text_goes_on_later() -> None:
    pieces = aligned(
        SpeechChunk(audio(300), "One.", words=((0.0, 0.0),)),
        SpeechChunk(audio(100)),
        SpeechChunk(awaits_text=True),
        SpeechChunk(audio(300), "Two.", words=((0.0, 0.0),)),
    )
    assert told(pieces) == [("One.", 300.0), (" ", 100.0), ("Two.", 300.0)]


def test_silence_at_the_end_has_no_characters() -> None:
    assert told(aligned(SpeechChunk(audio(200), "One.", words=((0.0, 0.0),)), SpeechChunk(audio(100)))) == [
        ("One.", 200.0),
        ("", 0.0),
    ]


def test_words_that_the_engine_does_not_time_are_estimated_and_all_are_told() -> None:
    text = "It will arrive on Friday."
    pieces = aligned(SpeechChunk(audio(500), text), SpeechChunk(audio(500)), SpeechChunk(audio(500)))
    assert "".join(each for each, _ in told(pieces)) == text
    assert sum(len(piece.pcm) for piece in pieces) == len(audio(1500))
    assert len(pieces) > 1


def test_chinese_is_told_character_by_character() -> None:
    pieces = aligned(SpeechChunk(audio(400), "您好世界。"), SpeechChunk(audio(400)))
    assert "".join(each for each, _ in told(pieces)) == "您好世界。"


def test_words_that_no_voice_speaks_have_no_time() -> None:
    pieces = aligned(SpeechChunk(b"", "ᏣᎳᎩ", refused_because="no voice"), SpeechChunk(audio(200), "One."))
    assert told(pieces) == [("One.", 200.0)]


def test_a_text_without_blanks_gets_none_where_a_word_is_long() -> None:
    pieces = aligned(
        SpeechChunk(audio(200), "12345678元。", words=((0.0, 0.0),)),
        *(SpeechChunk(audio(600)) for _ in range(2)),
        SpeechChunk(audio(200), words=((1300.0, 8 / 10),)),
        SpeechChunk(audio(1200)),
    )
    assert told(pieces) == [("12345678", 200.0), ("", 1200.0), ("元", 200.0), ("", 1200.0), ("。", 0.0)]
