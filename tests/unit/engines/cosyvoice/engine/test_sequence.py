"""Sequences and streams by themselves."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.cosyvoice.engine.schedule import ALL_AT_ONCE, exact_hop
from cc_tts.engines.cosyvoice.engine.sequence import MAX_AHEAD_MS, Sequence, Stream
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LengthLimits, SpeechIds, speech_inputs
from cc_tts.engines.cosyvoice.prefill import Bistream, Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runaway import MAX_REPEATED, Alarm, RunawayCause, RunawayGuard
from cc_tts.media.listener_clock import ListenerClock
from lab.cosyvoice.schedule import HopSchedule

pytestmark = pytest.mark.unit

IDS = SpeechIds(num_codes=100)


def make_stream(**fields: Any) -> Stream:
    clock = ListenerClock(first_audio_target_ms=300.0, guard_ms=60.0)
    clock.text_came(0.0)
    return Stream(**{"stream_id": 1, "voice_id": "anna", "speed": 1.0, "clock": clock, **fields})


def make_sequence(stream: Stream, *, num_prompt: int = 45, **fields: Any) -> Sequence:
    sequence = Sequence(
        **{
            "key": len(stream.sequences),
            "stream": stream,
            "marks": [(0, 0)],
            "seed": 0,
            "hop": 25,
            "num_prompt": num_prompt,
            "slot": len(stream.sequences),
            **fields,
        }
    )
    stream.sequences.append(sequence)
    return sequence


def plain_prefill() -> Prefill:
    return Prefill(SpeechIds().unistream_inputs((), (1, 2), ()), SamplingRules.of_request(LengthLimits(2, 40)))


def test_a_plain_sequence_goes_from_prefill_to_tokens() -> None:
    sequence = make_sequence(make_stream(), prefill=plain_prefill())
    assert sequence.is_sampling
    sequence.prefill = None
    assert sequence.is_sampling
    assert sequence.prefill is None
    sequence.take_sampled([1] * 32, stopped=False)
    assert not sequence.is_ready  # 30 tokens fill the prompt's grid, three more are looked at
    sequence.take_sampled([2], stopped=False)
    assert sequence.is_ready
    assert sequence.num_needed == 33
    assert sequence.num_frames == 2 * (20 + 33)
    assert sequence.num_keys == 2 * (45 + 33)
    sequence.take_sampled((), stopped=True)
    assert sequence.is_sampled
    assert not sequence.is_sampling
    assert not sequence.is_empty
    assert sequence.unsent_ms == 33 * 40


def test_a_sequence_without_tokens_is_empty() -> None:
    sequence = make_sequence(make_stream(), prefill=plain_prefill())
    sequence.prefill = None
    sequence.take_sampled((), stopped=True)
    assert sequence.is_empty
    assert not sequence.is_ready


def test_an_interleaved_sequence_waits_for_text_and_is_never_extended_while_it_runs() -> None:
    stream = make_stream(is_interleaved=True)
    sequence = make_sequence(stream, bistream=Bistream(speech_ids=IDS))
    sequence.add_text((1, 2, 3), text_chunk_index=0)
    assert sequence.prefill is None
    assert stream.owes_nothing
    sequence.add_text((4, 5, 6), text_chunk_index=1)
    assert sequence.prefill is not None
    assert not sequence.prefill.extends
    assert not stream.owes_nothing
    sequence.prefill = None
    sequence.add_text((7, 8, 9, 10), text_chunk_index=2)
    sequence.end_text()
    assert sequence.prefill is None
    sequence.take_sampled([7] * 15, stopped=False)
    assert sequence.prefill is None
    sequence.take_sampled([IDS.fill], stopped=True)
    assert sequence.prefill is not None
    assert sequence.prefill.extends
    assert sequence.num_unspoken == 1
    sequence.prefill = None
    sequence.take_sampled([8] * 15 + [IDS.fill], stopped=True)
    sequence.prefill = None
    sequence.take_sampled([9, IDS.end], stopped=True)
    assert sequence.is_sampled
    assert len(sequence.tokens) == 31
    assert sequence.num_text == 10


@pytest.mark.parametrize(("num_given", "index"), [(0, 0), (11, 0), (12, 1), (17, 1), (18, 3), (500, 3)])
def test_audio_counts_for_the_text_chunk_that_is_spoken_then(num_given: int, index: int) -> None:
    """Four text tokens in chunk 0, two in chunk 1, none in chunk 2; three speech tokens to a text token."""
    sequence = make_sequence(
        make_stream(), marks=[(0, 0), (4, 1), (6, 2), (6, 3)], num_given=num_given, tokens=[1] * 600
    )
    assert sequence.text_chunk_index == index
    del sequence.tokens[num_given + 1 :]
    assert sequence.text_chunk_index == 3  # the last call


def test_an_interleaved_text_that_ends_without_a_word_is_over() -> None:
    sequence = make_sequence(make_stream(), bistream=Bistream(speech_ids=IDS))
    sequence.end_text()
    assert sequence.is_empty
    assert not sequence.takes_text


def test_deadlines_of_later_sequences_are_behind_what_comes_before() -> None:
    stream = make_stream()
    first, second = make_sequence(stream, tokens=[1] * 50), make_sequence(stream)
    assert first.deadline_ms == stream.clock.deadline_ms == 300.0
    assert second.deadline_ms == 300.0 + 50 * 40


def test_who_is_ahead_of_the_reader() -> None:
    stream = make_stream()
    first, second = make_sequence(stream, tokens=[1] * 99), make_sequence(stream)
    assert not first.is_well_ahead
    assert not second.is_well_ahead
    first.tokens.append(1)
    assert not first.is_well_ahead
    assert second.is_well_ahead
    stream.clock.sent(0.0, MAX_AHEAD_MS)
    assert first.is_well_ahead
    stream.taken_ms = 1.0
    assert not first.is_well_ahead
    assert second.is_well_ahead


def test_speed_counts_in_what_is_unsent() -> None:
    stream = make_stream(speed=2.0)
    assert make_sequence(stream, tokens=[1] * 10).unsent_ms == 200.0


@given(num_prompt=st.integers(0, 60), num_tokens=st.integers(1, 400), steps=st.lists(st.integers(1, 40), max_size=20))
def test_flow_calls_are_those_of_the_oracle_however_tokens_arrive(
    num_prompt: int, num_tokens: int, steps: list[int]
) -> None:
    oracle = HopSchedule(num_prompt, hop=exact_hop(num_prompt))
    sequence = make_sequence(make_stream(), num_prompt=num_prompt, hop=exact_hop(num_prompt))
    sequence.prefill = None
    text, num_flowed = list(range(num_tokens)), 0
    for step in [*steps, num_tokens]:
        sequence.take_sampled(text[len(sequence.tokens) :][:step], stopped=len(sequence.tokens) + step >= num_tokens)
        while sequence.is_ready and sequence.num_given < len(sequence.tokens):
            call = oracle.poll(len(sequence.tokens), finished=sequence.is_sampled)
            assert call is not None
            job = sequence.next_job()
            sequence.speaking_ms = 0.0  # given out
            assert list(job.tokens) == text[num_flowed : call.num_tokens]
            assert (job.is_first, job.is_last) == (call.num_given == 0, call.finalize)
            assert sequence.num_given == call.num_given + call.num_new
            num_flowed = call.num_tokens
            sequence.hop = oracle.hop
        if sequence.is_sampled:
            break
    assert sequence.num_given == num_tokens


def test_speech_whose_speed_is_changed_is_one_call() -> None:
    sequence = make_sequence(make_stream(speed=1.5), hop=ALL_AT_ONCE, tokens=[1] * 1000)
    assert not sequence.is_ready
    sequence.take_sampled((), stopped=True)
    assert sequence.is_ready
    job = sequence.next_job()
    assert (len(job.tokens), job.is_first, job.is_last, sequence.num_given) == (1000, True, True, 1000)


def test_when_a_stream_will_be_done_with_is_known_once_all_is_sampled() -> None:
    stream = make_stream()
    sequence = make_sequence(stream, prefill=plain_prefill())
    sequence.prefill = None
    sequence.take_sampled([1] * 150, stopped=True)  # 6 s
    assert stream.left_ms == math.inf  # more text may come
    stream.has_ended = True
    assert stream.left_ms == 6000.0 - MAX_AHEAD_MS
    stream.clock.sent(0.0, 2000.0)
    sequence.num_given = 50
    stream.taken_ms = 1500.0
    assert stream.left_ms == 500.0
    stream.texts.append((1, "more"))
    assert stream.left_ms == math.inf
    stream.texts.clear()
    make_sequence(stream, prefill=plain_prefill())
    assert stream.left_ms == math.inf


def test_a_stream_with_nothing_left_is_done_with_now() -> None:
    assert make_stream(has_ended=True).left_ms == 0.0


def test_the_sixth_silent_token_in_a_row_and_those_after_it_are_left_out() -> None:
    sequence = make_sequence(make_stream(), prefill=plain_prefill(), silent_tokens=frozenset({1, 2}))
    sequence.prefill = None
    sequence.take_sampled([1, 2, 1, 2], stopped=False)
    sequence.take_sampled([1, 2, 1, 7, 2, 2, 2, 2, 2, 2, 9], stopped=True)
    assert sequence.tokens == [1, 2, 1, 2, 1, 7, 2, 2, 2, 2, 2, 9]
    assert sequence.num_unspoken == 3


def test_silence_of_an_interleaved_text_is_left_out_as_well() -> None:
    sequence = make_sequence(make_stream(), bistream=Bistream(speech_ids=IDS), silent_tokens=frozenset({3}))
    sequence.add_text((1, 2, 3, 4, 5), text_chunk_index=0)
    sequence.prefill = None
    sequence.take_sampled([3] * 8 + [4], stopped=False)
    assert sequence.tokens == [3] * 5 + [4]
    assert sequence.num_unspoken == 3


def test_a_sequence_is_turned_back_to_the_last_token_that_was_right_though_silence_was_left_out_before() -> None:
    whole = plain_prefill()
    sequence = make_sequence(make_stream(), silent_tokens=frozenset({1}), guard=RunawayGuard(whole))
    ids = [10, 11, *[1] * 8, 12, 13, *[7] * (1 + MAX_REPEATED), 14]
    alarm = sequence.take_sampled(ids, stopped=True)
    assert alarm == Alarm(RunawayCause.REPEATS, 2 + 5 + 2 + 1)
    assert sequence.turn_back(alarm)
    assert sequence.tokens == [10, 11, *[1] * 5, 12, 13, 7]
    prefill, num_sampled = sequence.prefill, len(ids) + 1  # the end of speech is not among the ids
    assert prefill is not None
    assert (prefill.inputs, prefill.extends) == (speech_inputs([7]), True)
    assert prefill.keeps == len(whole.inputs) + 2 + 8 + 2
    assert sequence.num_unspoken == num_sampled - 10
    rules = prefill.rules
    assert (rules.min_sampled, rules.max_sampled) == (num_sampled, num_sampled + 40 - 10)
    assert sequence.take_sampled((), stopped=True) is None  # which is reported again until the prefill
    assert not sequence.is_sampled
    assert sequence.prefill is prefill


def test_a_sequence_that_ran_away_at_once_begins_anew() -> None:
    whole = replace(plain_prefill(), num_likely=10.0)
    sequence = make_sequence(make_stream(), guard=RunawayGuard(whole))
    sequence.take_sampled(range(30), stopped=False)
    assert sequence.turn_back(Alarm(RunawayCause.LENGTH))
    prefill = sequence.prefill
    assert prefill is not None
    assert (sequence.tokens, prefill.inputs, prefill.keeps) == ([], whole.inputs[-1:], len(whole.inputs) - 1)
    assert (prefill.rules.min_sampled, prefill.rules.max_sampled) == (30 + 2, 30 + 40)


def test_an_interleaved_text_that_ran_away_is_over() -> None:
    sequence = make_sequence(make_stream(), bistream=Bistream(speech_ids=IDS), guard=RunawayGuard())
    sequence.add_text((1, 2, 3, 4, 5), text_chunk_index=0)
    sequence.prefill = None
    alarm = sequence.take_sampled([*[7] * (1 + MAX_REPEATED), IDS.fill], stopped=True)
    assert alarm is not None
    assert not sequence.turn_back(alarm)
    assert sequence.take_sampled((), stopped=True) is None
    assert sequence.is_sampled
    assert sequence.stream.sampling is None
    assert sequence.tokens == [7]
    ((index, share),) = sequence.unsaid
    assert index == 0
    assert 0.0 < share < 0.1
