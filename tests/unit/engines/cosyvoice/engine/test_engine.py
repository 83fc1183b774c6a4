"""The engine over a device that only counts: audio, turns, listeners, refusals, in virtual time."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from cc_tts.engines.cosyvoice.engine.engine import MAX_WAITING_TEXTS
from cc_tts.engines.cosyvoice.engine.scheduler import LmCandidate, Scheduler
from cc_tts.engines.cosyvoice.engine.sequence import MAX_AHEAD_MS
from cc_tts.engines.cosyvoice.prefill import Prefill
from cc_tts.engines.engine_core import StreamDone, StreamRequest
from cc_tts.errors import EngineOverloaded, TextTooLong, UnknownVoice
from tests.fakes.fake_device import BYTES_PER_TOKEN, FakeCosts
from tests.support.engine_hall import Hall, alone, words

pytestmark = pytest.mark.unit

TEXTS = tuple(words(random.Random(number), 12) for number in range(3))


def test_a_stream_says_its_text_chunks_in_their_order() -> None:
    hall = Hall()
    heard = hall.open(1, *TEXTS)
    hall.run()
    assert heard.done == [StreamDone(1)]
    indices = [out.text_chunk_index for _, out in heard.pieces]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1, 2}
    parts = [
        b"".join(out.data for _, out in heard.pieces if out.text_chunk_index == index) for index in range(len(TEXTS))
    ]
    assert parts == [alone(text) for text in TEXTS]
    hall.check_empty()


@pytest.mark.parametrize("num_streams", [1, 4, 64])
def test_each_of_many_sounds_as_if_it_were_alone(num_streams: int) -> None:
    rng = random.Random(num_streams)
    said = {
        stream_id: (rng.choice(["anna", "ben", "cleo"]), [words(rng, rng.randint(1, 15)) for _ in range(2)])
        for stream_id in range(num_streams)
    }
    hall = Hall(num_slots=num_streams + 2, max_streams=num_streams)
    for stream_id, (voice, texts) in said.items():
        hall.open(stream_id, *texts, voice=voice)
    hall.run()
    hall.check_empty()
    for stream_id, (voice, texts) in said.items():
        heard = hall.heard[stream_id]
        assert heard.done == [StreamDone(stream_id)]
        assert heard.pcm == alone(*texts, voice=voice)


def test_many_are_spoken_in_few_calls() -> None:
    hall = Hall(num_slots=16)
    for stream_id in range(16):
        hall.open(stream_id, TEXTS[0])
    hall.run()
    one = Hall()
    one.open(0, TEXTS[0])
    one.run()
    assert len(hall.device.calls) < 4 * len(one.device.calls)


def test_who_runs_dry_first_is_spoken_first() -> None:
    """A call holds one row, so the order of calls is the order of deadlines."""
    hall = Hall(costs=FakeCosts(call_ms=50.0, call_ms_per_row=50.0))
    for stream_id in range(4):
        hall.open(stream_id, *TEXTS)
        hall.clock.advance(20.0)
    hall.play(3000)
    firsts = [hall.heard[stream_id].pieces[0][0] for stream_id in range(4)]
    assert firsts == sorted(firsts)
    for stream_id, heard in hall.heard.items():
        dry_ms = 0.0
        for at_ms, out in heard.pieces:
            assert not dry_ms or at_ms <= dry_ms, f"stream {stream_id} ran dry"
            dry_ms = max(dry_ms, at_ms) + len(out.data) / 48
    assert hall.engine.load_report().num_underruns == 0


def test_a_device_that_is_too_slow_is_seen_in_the_underruns() -> None:
    hall = Hall(costs=FakeCosts(call_ms=3000.0))
    hall.open(0, *TEXTS)
    hall.run()
    assert hall.engine.load_report().num_underruns > 0


def test_a_listener_who_waits_for_text_runs_dry_by_no_fault_of_ours() -> None:
    for interleaved in (False, True):
        hall = Hall(interleaved=interleaved)
        heard = hall.open(0, TEXTS[0], end=False)
        hall.play(30_000)
        hall.engine.push(0, TEXTS[1], 1)
        hall.play(30_000)
        hall.engine.end(0)
        hall.play(30_000)
        assert heard.done == [StreamDone(0)]
        assert hall.engine.load_report().num_underruns == 0


def test_who_reads_nothing_gets_no_more_and_the_others_go_on() -> None:
    hall = Hall()
    deaf = hall.open(0, *TEXTS * 10, reads=False)
    others = [hall.open(stream_id, *TEXTS) for stream_id in (1, 2)]
    hall.run()
    assert all(heard.done for heard in others)
    assert not deaf.done
    assert MAX_AHEAD_MS <= deaf.sent_ms < 2 * MAX_AHEAD_MS + 1000
    slots = hall.device.slots.values()
    assert len(slots) <= 2
    assert sum(len(each.said) - each.num_given for each in slots) <= 200
    deaf.is_reading = True
    hall.take(0)
    hall.run()
    assert deaf.done == [StreamDone(0)]
    assert deaf.pcm == alone(*TEXTS * 10)
    hall.check_empty()


@pytest.mark.parametrize("speed", [0.5, 1.5, 2.0])
def test_speech_of_another_speed_comes_as_a_whole_however_long(speed: float) -> None:
    text = words(random.Random(1), 60)
    hall = Hall()
    heard = hall.open(0, text, "and", text, speed=speed)
    hall.run()
    assert heard.done == [StreamDone(0)]
    assert [out.text_chunk_index for _, out in heard.pieces] == [0, 1, 2]
    plain = alone(text)
    stretched = b"".join(plain[start : start + 1] * (int(960 / speed) * 2) for start in range(0, len(plain), 1920))
    assert heard.pieces[0][1].data == stretched


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("texts", [(), ("",), ("...",), ("?!", " ", "—")])
def test_nothing_to_say_is_said_at_once(texts: tuple[str, ...], *, interleaved: bool) -> None:
    hall = Hall(interleaved=interleaved)
    heard = hall.open(0, *texts)
    hall.run()
    assert heard.done == [StreamDone(0)]
    assert heard.pieces == []
    hall.check_empty()


def test_a_text_without_a_sound_is_passed_over() -> None:
    hall = Hall()
    heard = hall.open(0, "mute", TEXTS[0], "mute", "mute", TEXTS[1])
    hall.run()
    assert heard.done == [StreamDone(0)]
    assert heard.pcm == alone(TEXTS[0], TEXTS[1])


def test_what_comes_after_the_end_is_ignored() -> None:
    hall = Hall()
    heard = hall.open(0, TEXTS[0])
    hall.engine.push(0, "more", 1)
    hall.engine.end(0)
    hall.run()
    hall.engine.push(0, "more", 1)
    hall.engine.end(0)
    hall.engine.taken(0, 10.0, 0.0)
    hall.engine.cancel(0)
    assert not hall.engine.has_work
    assert heard.pcm == alone(TEXTS[0])


def test_reports_may_come_in_any_order() -> None:
    def sent_ms(*taken_ms: float) -> float:
        hall = Hall()
        heard = hall.open(0, *TEXTS * 10, reads=False)
        hall.run()
        for each_ms in taken_ms:
            hall.engine.taken(0, each_ms, 0.0)
        hall.run()
        return heard.sent_ms

    assert sent_ms(200.0) < sent_ms(3000.0) == sent_ms(3000.0, 200.0)


def test_the_first_piece_comes_within_the_target() -> None:
    hall = Hall(first_audio_target_ms=300.0)
    begin_ms = hall.clock.at_ns / 1e6
    heard = hall.open(0, TEXTS[0])
    hall.run()
    assert heard.pieces[0][0] - begin_ms < 150.0


def test_a_burst_is_fed_at_once_and_nobody_draws_ahead_before_all_first_pieces_are_out() -> None:
    hall = Hall(num_slots=72, max_streams=64)
    for stream_id in range(64):
        hall.open(stream_id, TEXTS[0])
    hall.run()
    names = [name for name, _ in hall.device.calls]
    assert names.count("start") == 1
    first = names.index("speak")
    assert names[first : first + 2] == ["speak", "speak"]
    assert sorted(slot for _, slots in hall.device.calls[first : first + 2] for slot in slots) == list(range(64))


def test_the_schedule_has_a_first_piece_due_before_it_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall(first_audio_target_ms=300.0)
    due_ms: list[float] = []
    plan_lm = Scheduler.plan_lm

    def noting(scheduler: Scheduler, now_ms: float, sampling: Sequence[LmCandidate], *rest: Any, **options: Any) -> Any:
        due_ms.extend(each.deadline_ms - now_ms for each in sampling)
        return plan_lm(scheduler, now_ms, sampling, *rest, **options)

    monkeypatch.setattr(Scheduler, "plan_lm", noting)
    hall.open(0, TEXTS[0])
    hall.step()
    assert due_ms == [pytest.approx(200.0)]


def test_a_shorter_first_hop_comes_sooner_and_sounds_the_same() -> None:
    def first_ms(first_hop_tokens: int) -> float:
        hall = Hall(first_hop_tokens=first_hop_tokens)
        begin_ms = hall.clock.at_ns / 1e6
        heard = hall.open(0, TEXTS[0], voice="dora")
        hall.run()
        assert len(heard.pcm) > 12 * BYTES_PER_TOKEN
        return heard.pieces[0][0] - begin_ms

    assert first_ms(12) < first_ms(25)


def test_the_first_call_of_a_trimmed_reference_waits_for_15_tokens_and_gives_12() -> None:
    hall = Hall()
    heard = hall.open(0, TEXTS[0], voice="dora")
    while not heard.pieces:
        hall.step()
    assert len(heard.pieces[0][1].data) == 12 * BYTES_PER_TOKEN
    (slot,) = hall.device.slots.values()
    assert len(slot.spoken) == 15


def test_unknown_voices_and_known_streams_are_refused() -> None:
    hall = Hall()
    hall.open(0)
    with pytest.raises(UnknownVoice):
        hall.engine.open(StreamRequest(stream_id=1, voice="nobody"))
    assert hall.engine.load_report().num_streams == 1


def test_there_are_as_many_streams_as_may_be() -> None:
    hall = Hall(num_slots=3, max_streams=2)
    hall.open(0)
    hall.open(1)
    with pytest.raises(EngineOverloaded) as refused:
        hall.open(2)
    assert refused.value.retry_after_s == 1
    assert hall.engine.load_report().room == 0
    hall.engine.cancel(0)
    hall.open(2)


def test_a_stream_without_text_is_owed_its_slot() -> None:
    hall = Hall(num_slots=3, max_streams=3)
    talker = hall.open(0, *TEXTS * 3)
    hall.open(1, end=False)
    hall.open(2, end=False)
    hall.run()
    assert talker.done
    assert {slot for name, slots in hall.device.calls if name == "speak" for slot in slots} == {0}


def test_a_second_slot_has_the_next_text_drawn_in_time() -> None:
    hall = Hall(num_slots=3, max_streams=2, costs=FakeCosts(call_ms=150.0))
    hall.open(0, *TEXTS)
    hall.run()
    assert {slot for name, slots in hall.device.calls if name == "speak" for slot in slots} == {0, 1}
    full = Hall(num_slots=2, max_streams=2, costs=FakeCosts(call_ms=150.0))
    full.open(0, *TEXTS)
    full.run()
    assert {slot for name, slots in full.device.calls if name == "speak" for slot in slots} == {0}


def test_admission_refuses_who_would_starve_the_others() -> None:
    hall = Hall(
        num_slots=64, admits_all=False, first_audio_target_ms=300.0, costs=FakeCosts(call_ms=25.0, call_ms_per_row=24.0)
    )
    num_taken = 0
    with pytest.raises(EngineOverloaded) as refused:
        for stream_id in range(64):
            hall.open(stream_id, *TEXTS)
            num_taken += 1
            hall.play(100)
    assert refused.value.retry_after_s is not None
    assert 2 < num_taken < 64
    report = hall.engine.load_report()
    assert report.room == 0
    assert report.refusal
    hall.run()
    assert hall.engine.load_report().num_underruns == 0
    assert hall.engine.load_report().room > 0


@pytest.mark.parametrize("apart_ms", [0.0, 17.0, 150.0], ids=["at once", "close together", "staggered"])
def test_below_capacity_nobody_is_refused_nor_runs_dry(apart_ms: float) -> None:
    hall = Hall(num_slots=40, max_streams=32, admits_all=False, first_audio_target_ms=450.0)
    for stream_id in range(32):
        hall.open(stream_id, *TEXTS)
        hall.play(apart_ms)
    hall.run()
    assert all(heard.done for heard in hall.heard.values())
    assert hall.engine.load_report().num_underruns == 0


def test_without_admission_the_same_load_starves_listeners() -> None:
    hall = Hall(num_slots=64, first_audio_target_ms=300.0, costs=FakeCosts(call_ms=25.0, call_ms_per_row=24.0))
    for stream_id in range(64):
        hall.open(stream_id, *TEXTS * 4)
        hall.play(100)
    hall.run()
    assert hall.engine.load_report().num_underruns > 10


def test_as_many_are_taken_as_there_was_room_for() -> None:
    hall = Hall(num_slots=64, admits_all=False, first_audio_target_ms=300.0, costs=FakeCosts(call_ms=40.0))
    hall.open(0, *TEXTS)
    hall.play(500)
    room = hall.engine.load_report().room
    assert 0 < room < 63
    for stream_id in range(1, room + 1):
        hall.open(stream_id)
        hall.engine.push(stream_id, TEXTS[0], 0)
    assert hall.engine.load_report().num_streams == room + 1


def test_a_text_that_waits_cannot_grow_without_bound() -> None:
    hall = Hall()
    heard = hall.open(0, end=False)
    for index in range(MAX_WAITING_TEXTS):
        hall.engine.push(0, "ab", index)
    with pytest.raises(TextTooLong):
        hall.engine.push(0, "ab", MAX_WAITING_TEXTS)
    hall.engine.cancel(0)
    hall.run()
    assert not heard.done
    hall.check_empty()


def test_close_frees_everything() -> None:
    hall = Hall()
    for stream_id in range(3):
        hall.open(stream_id, *TEXTS)
    hall.play(50)
    hall.engine.close()
    hall.check_empty()


def test_a_text_chunk_is_prepared_as_one_that_goes_on_until_the_last() -> None:
    hall = Hall()
    told: list[tuple[str, bool]] = []
    prepare = hall.front.prepare

    def noting(voice_id: str, text: str, *, more_follows: bool = False, **options: Any) -> Prefill | None:
        told.append((text, more_follows))
        return prepare(voice_id, text, more_follows=more_follows, **options)

    hall.front.prepare = noting  # type: ignore[method-assign]
    hall.open(0, "one,", "two,", "three", end=False)
    hall.open(1, "four,")
    hall.run()
    hall.engine.end(0)
    hall.run()
    assert sorted(told) == [("four,", False), ("one,", True), ("three", True), ("two,", True)]


def test_all_sequences_draw_in_one_step() -> None:
    hall = Hall(num_slots=100, max_streams=100)
    for stream_id in range(100):
        hall.open(stream_id, TEXTS[0])
    hall.run()
    assert max(len(slots) for name, slots in hall.device.calls if name == "decode") == 100


def test_a_decode_step_is_learnt_by_the_rows_that_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall()
    seen: list[int] = []
    monkeypatch.setattr(hall.costs.lm_step, "observe", lambda num_rows, _: seen.append(num_rows))
    for stream_id in range(6):
        hall.open(stream_id, *TEXTS)
    hall.step()
    for stream_id in range(5):  # the highest slot stays in use, so all below it are computed
        hall.engine.cancel(stream_id)
    seen.clear()
    hall.run()
    assert 6 in seen
    assert 1 not in seen[: seen.index(6) + 1]


def test_newcomers_are_refused_after_an_underrun_until_it_is_over() -> None:
    hall = Hall(admits_all=False, guard_ms=60.0, first_audio_target_ms=60_000.0)
    hall.open(0, *TEXTS * 4)
    while not hall.heard[0].pieces:
        hall.step()
    hall.clock.advance(5000.0)
    while hall.engine.load_report().num_underruns == 0:
        hall.step()
    with pytest.raises(EngineOverloaded, match="run dry"):
        hall.open(1, TEXTS[0])
    hall.play(2500.0)
    hall.open(2, TEXTS[0])
