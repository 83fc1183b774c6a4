"""The prefill of the language model for a text, by voice."""

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.engines.cosyvoice.model import special_tokens
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SOS, TASK, SpeechIds, Table, text_inputs
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.prefill import BistreamState
from cc_tts.engines.cosyvoice.runaway import MAX_PACE, MIN_PACE, TYPICAL_PACE
from cc_tts.engines.cosyvoice.voice.text_front import (
    LIKELY_SPEECH_PER_TEXT,
    MAX_SEED,
    MAX_SPEECH_TOKENS,
    MAX_TEXT_TOKENS,
    TextFront,
)
from cc_tts.errors import UnknownVoice, Unprocessable
from cc_tts.voices.inline_sounds import EMPHASIS_BEGINS, EMPHASIS_ENDS, SOUNDS
from lab.cosyvoice.tiny_model import NUM_CODES
from tests.support.tiny_speakers import tiny_speaker

pytestmark = pytest.mark.unit

TEXT = "please hold the line"


def make_front(tokenizer: TextTokenizer, **options: Any) -> TextFront:
    speakers = {mode: tiny_speaker(mode) for mode in ("zero_shot", "cross_lingual", "instruct", "builtin")}
    ids = SpeechIds(num_codes=NUM_CODES)
    return TextFront(tokenizer, speakers, speech_ids=ids, **{"num_positions": 512, **options})


def test_what_is_fed_depends_on_the_voice(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    counts = {}
    for voice_id in ("zero_shot", "cross_lingual", "instruct", "builtin"):
        prepared = front.prepare(voice_id, TEXT)
        assert prepared is not None
        assert not prepared.extends
        inputs = prepared.inputs
        counts[voice_id] = [sum(1 for each in inputs if each.table is table) for table in Table]
    num_text = len(tokenizer.encode(TEXT + "."))
    assert counts["builtin"] == counts["cross_lingual"] == [2, num_text, 0]
    assert counts["zero_shot"] == [2, num_text + len(tokenizer.encode("please hold the line.")), 45]
    assert counts["instruct"] == [2, num_text + len(tokenizer.encode("thank you")) + 1, 0]


@pytest.mark.parametrize("text", ["", " ", "...", "?!"])
def test_nothing_to_say(tokenizer: TextTokenizer, text: str) -> None:
    assert make_front(tokenizer).prepare("builtin", text) is None


def test_speech_never_outgrows_its_place(tokenizer: TextTokenizer) -> None:
    """Neither that of the language model nor that of the flow, whose prompt the other need not have."""
    num_text = len(tokenizer.encode(TEXT + "."))
    enough = 45 + LIKELY_SPEECH_PER_TEXT * num_text
    prepared = make_front(tokenizer, num_positions=enough).prepare("cross_lingual", TEXT)
    assert prepared is not None
    assert prepared.rules.max_sampled <= enough - 45
    with pytest.raises(Unprocessable, match=r"too long for the model.*tts\.chunk_max_chars"):
        make_front(tokenizer, num_positions=enough - 1).prepare("cross_lingual", TEXT)


def test_unknown_voices_are_refused(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    with pytest.raises(UnknownVoice, match="nobody"):
        front.num_flow_prompt("nobody")
    with pytest.raises(UnknownVoice):
        front.prepare("nobody", TEXT)
    assert front.num_flow_prompt("zero_shot") == 45
    assert front.num_flow_prompt("builtin") == 0


def test_the_same_voice_says_the_same_text_in_the_same_way(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    seeds = {front.seed(voice, text) for voice in ("a", "b") for text in (TEXT, "", "\ud800")}
    assert len(seeds) == 6
    assert all(0 <= seed <= MAX_SEED for seed in seeds)
    assert front.seed("builtin", TEXT) != front.seed("builtin", TEXT + "!")


def test_interleaved_speech_begins_after_five_tokens_whatever_the_prompt(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    for voice_id in ("zero_shot", "cross_lingual", "instruct", "builtin"):
        bistream = front.begin_interleaved(voice_id)
        bistream.add_text(front.text_ids(voice_id, "hello and welcome to the service line")[:5])
        assert bistream.next_prefill() is not None
        assert bistream.state is BistreamState.INTERLEAVED


def test_a_piece_longer_than_an_interleaved_sequence_is_refused(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer, num_positions=100)
    assert front.max_interleaved("builtin") == 100 // 9
    assert front.max_interleaved("zero_shot") == 55 // 9
    with pytest.raises(Unprocessable, match="too long"):
        front.text_ids("zero_shot", "hello and welcome to the service line. your call is important to us")


@pytest.mark.parametrize("text", ["one two, three. " * 40, "word " * 200, "x" * 900, "short"])
def test_a_long_text_chunk_becomes_several_sequences(tokenizer: TextTokenizer, text: str) -> None:
    front = make_front(tokenizer, num_positions=2048)
    pieces, rest = [], text
    while rest:
        piece, rest = front.cut(rest)
        assert 0 < len(tokenizer.encode(piece)) <= MAX_TEXT_TOKENS
        pieces.append(piece)
        prepared = front.prepare("zero_shot", piece)
        assert prepared is None or prepared.rules.max_sampled <= MAX_SPEECH_TOKENS
    assert "".join(pieces) == text
    if "," in text:
        assert all(piece.rstrip()[-1] in ",." for piece in pieces)
    elif " " in text:
        assert all(piece.endswith(" ") for piece in pieces)


def test_how_long_a_text_takes_follows_from_the_pace_of_the_prompt(tokenizer: TextTokenizer) -> None:
    """45 speech tokens with so many text tokens; a voice without the words of its prompt has the usual pace."""
    front = make_front(tokenizer)
    num_text, num_prompt = len(tokenizer.encode(TEXT + ".")), len(tokenizer.encode("please hold the line."))
    assert MIN_PACE <= 45 / num_prompt < MAX_PACE
    for voice_id, pace in (("zero_shot", 45 / num_prompt), ("instruct", TYPICAL_PACE), ("builtin", TYPICAL_PACE)):
        prepared = front.prepare(voice_id, TEXT)
        assert prepared is not None
        assert prepared.num_likely == pytest.approx(pace * num_text)


def test_instructions_come_before_the_text_with_their_mark(tokenizer: TextTokenizer) -> None:
    """Also where the text comes in pieces; they take the place of those of the voice, and of its prompt."""
    front = make_front(tokenizer)
    instruction = front.instruction("speak calmly")
    words = [*tokenizer.encode("speak calmly"), tokenizer.end_of_prompt]
    ids = tokenizer.encode(TEXT + ".")
    for voice_id in ("zero_shot", "instruct"):
        prepared = front.prepare(voice_id, TEXT, instruction=instruction)
        assert prepared is not None
        assert prepared.inputs == [SOS, *text_inputs([*words, *ids]), TASK]
        bistream = front.begin_interleaved(voice_id, instruction)
        bistream.add_text(front.text_ids(voice_id, TEXT, instruction))
        first = bistream.next_prefill()
        assert first is not None
        assert first.inputs == [SOS, *text_inputs([*words, *ids][:5])]
    assert front.instruction(" ") == ()


@pytest.mark.parametrize("text", ["please hold the line. " * 30, "please hold the line " * 30, "abc. " * 30])
def test_a_text_after_long_instructions_still_fits(tokenizer: TextTokenizer, text: str) -> None:
    """Also with the full stop that it gets where it has none."""
    front = make_front(tokenizer)
    instruction = front.instruction("x" * 200)
    rest, num_pieces = text.strip(), 0
    while rest:
        piece, rest = front.cut(rest, instruction)
        assert front.prepare("zero_shot", piece, instruction=instruction) is not None
        num_pieces += 1
    assert num_pieces > 1


def test_instructions_that_leave_no_room_are_refused(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    with pytest.raises(Unprocessable, match="256 are the most"):
        front.instruction("x" * 300)


def test_sounds_and_emphasis_of_ssml_reach_their_tokens(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    said = f"well{SOUNDS['laughter']} {EMPHASIS_BEGINS}no{EMPHASIS_ENDS} {EMPHASIS_BEGINS}way"
    expected: list[int] = []
    for part in ("well", "[laughter]", " ", "<strong>", "no", "</strong>", " ", "<strong>", "way", "</strong>", "."):
        is_token = part in special_tokens.SOUND_TOKENS
        expected += tokenizer.encode_written(tokenizer.written(part)) if is_token else tokenizer.encode(part)
    prepared = front.prepare("builtin", front.spelled(said))
    assert prepared is not None
    assert prepared.inputs == [SOS, *text_inputs(expected), TASK]


@pytest.mark.parametrize(
    "text", ["hold [laughter] on", "<strong>hold</strong>", "hold <|endofprompt|>", "a \U000f0003 b"]
)
def test_what_a_text_spells_is_no_token(tokenizer: TextTokenizer, text: str) -> None:
    front = make_front(tokenizer)
    first_special = tokenizer.num_tokens - len(special_tokens.SPECIAL_TOKENS[2])
    assert all(text_id < first_special for text_id in front.text_ids("builtin", front.spelled(text)))


def test_a_sound_alone_says_nothing(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    assert front.prepare("builtin", front.spelled(SOUNDS["laughter"])) is None


def test_a_sound_takes_a_second_and_emphasis_no_more_than_a_word(tokenizer: TextTokenizer) -> None:
    front = make_front(tokenizer)
    plain, sounds, emphasis = (
        front.prepare("builtin", front.spelled(text))
        for text in ("well", f"well{3 * SOUNDS['laughter']}", f"{EMPHASIS_BEGINS}well{EMPHASIS_ENDS}")
    )
    assert plain is not None
    assert sounds is not None
    assert emphasis is not None
    assert sounds.num_likely == pytest.approx(plain.num_likely + 3 * 25)
    assert emphasis.num_likely == pytest.approx(plain.num_likely + 2 * TYPICAL_PACE)
