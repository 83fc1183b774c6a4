import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.device import Sampled, SlotPrefill
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    SOS,
    TASK,
    ForbiddenIds,
    LengthLimits,
    LmInput,
    LmRequest,
    SpeechIds,
    Table,
    speech_inputs,
    text_inputs,
)
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.prefill import UNLIMITED, Bistream, BistreamState, Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runners.lm import LmRunner, LmVoice
from cc_tts.errors import EngineFailed
from lab.cosyvoice.networks import lm_of
from lab.cosyvoice.tiny_model import NUM_CODES, tiny_states
from tests.parity.generation import CachedSequence, speak, speak_streamed
from tests.parity.samplers import SeededRas
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

END: Final = NUM_CODES
FILL: Final = NUM_CODES + 2
PROMPT_TEXT: Final = (30, 31, 32)

_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.fixture(scope="module")
def lm() -> SpeechLm:
    return lm_of(tiny_states()["llm"])


def biased(special: Sequence[float]) -> SpeechLm:
    """The same network, but with scores of the three special ids raised."""
    state = tiny_states()["llm"]
    state["llm_decoder.bias"] = state["llm_decoder.bias"].clone()
    state["llm_decoder.bias"][NUM_CODES:] += torch.tensor(special)
    return lm_of(state)


def request_of(rng: random.Random) -> LmRequest:
    """A text with or without a prompt."""
    text = [rng.randrange(500) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        return LmRequest(text)
    prompt_speech = [rng.randrange(NUM_CODES) for _ in range(rng.randint(0, 12))]
    return LmRequest(text, prompt_text=PROMPT_TEXT, prompt_speech=prompt_speech)


def alone(lm: SpeechLm, request: LmRequest, seed: int, limits: LengthLimits | None = None) -> list[int]:
    return list(speak(lm, request, SeededRas(seed), limits=limits))


def prefill_of(slot: int, request: LmRequest, seed: int, limits: LengthLimits | None = None) -> SlotPrefill:
    rules = SamplingRules.of_request(request.limits if limits is None else limits)
    return SlotPrefill(slot, "", Prefill(request.inputs_for(SpeechIds()), rules), seed)


def finish(runner: LmRunner, slots: Sequence[int], *, num_steps: int = 7) -> dict[int, list[int]]:
    """Decode until all of the slots have stopped."""
    spoken: dict[int, list[int]] = {slot: [] for slot in slots}
    running = set(slots)
    while running:
        for slot, drawn in runner.decode(dict.fromkeys(running, UNLIMITED), num_steps).items():
            assert not drawn.failed
            if slot in running:
                spoken[slot] += drawn.ids
                if drawn.stopped:
                    running.remove(slot)
    return spoken


def small_runner(lm: SpeechLm, num_slots: int = 3, num_positions: int = 200) -> LmRunner:
    return LmRunner(lm, num_slots=num_slots, num_positions=num_positions)


# --- in company as alone


@pytest.mark.parametrize("num_slots", [5, 18], ids=["few slots", "more than a prefill takes"])
def test_sequences_that_come_and_go_draw_what_they_draw_alone(lm: SpeechLm, num_slots: int) -> None:
    rng = random.Random(num_slots)
    runner = LmRunner(lm, num_slots=num_slots, num_positions=160)
    voice = runner.add_voice(PROMPT_TEXT)
    waiting = [(number * 77 - 300, request_of(rng)) for number in range(9 + num_slots)]
    expected = {seed: alone(lm, request, seed) for seed, request in waiting}
    spoken: dict[int, list[int]] = {seed: [] for seed in expected}
    running: dict[int, int] = {}
    while waiting or running:
        free = [slot for slot in range(num_slots) if slot not in running]
        prefills = []
        for slot in free[: rng.randint(0, num_slots)]:
            if waiting:
                seed, request = waiting.pop()
                prefills.append(prefill_of(slot, request, seed))
                running[slot] = seed
        runner.start(prefills, {each.slot: voice for each in prefills if rng.random() < 0.5})
        chosen = [slot for slot in running if rng.random() < 0.8]
        until = {slot: len(spoken[running[slot]]) + rng.randint(1, 12) for slot in chosen}
        for slot, drawn in runner.decode(until, rng.randint(0, 9)).items():
            assert not drawn.failed
            spoken[running[slot]] += drawn.ids
            if drawn.stopped:
                runner.release(slot)
                del running[slot]
    assert spoken == expected
    assert len({tuple(ids) for ids in expected.values()}) == len(expected)
    assert runner.num_not_finite == 0


def test_streamed_texts_in_random_pieces_draw_what_they_draw_alone(lm: SpeechLm) -> None:
    rng = random.Random(4)
    for _ in range(2):
        texts = {slot: [rng.randrange(500) for _ in range(length)] for slot, length in enumerate((3, 9, 16))}
        expected = {
            slot: list(speak_streamed(lm, [text], SeededRas(slot), prompt_text=PROMPT_TEXT))
            for slot, text in texts.items()
        }
        runner = LmRunner(lm, num_slots=3, num_positions=500)
        streams = {slot: Bistream(PROMPT_TEXT, speech_ids=lm.config.speech_ids) for slot in texts}
        assert replay(runner, streams, texts, rng) == expected
        assert all(stream.state is BistreamState.DONE for stream in streams.values())


def replay(
    runner: LmRunner, streams: Mapping[int, Bistream], texts: Mapping[int, list[int]], rng: random.Random
) -> dict[int, list[int]]:
    """Hand text over in pieces at random rounds, and let each stream see what its slot drew."""
    spoken: dict[int, list[int]] = {slot: [] for slot in streams}
    voice = runner.add_voice(PROMPT_TEXT)
    rest = {slot: list(text) for slot, text in texts.items()}
    begun: set[int] = set()
    num_sampled = dict.fromkeys(streams, 0)
    idle = set(streams)
    while any(stream.state is not BistreamState.DONE for stream in streams.values()):
        prefills = []
        for slot, stream in streams.items():
            if rest.get(slot) is not None and rng.random() < 0.5:
                size = rng.randint(0, 6)
                stream.add_text(rest[slot][:size])
                del rest[slot][:size]
                if not rest[slot]:
                    stream.end_text()
                    del rest[slot]
            step = stream.next_prefill() if slot in idle else None
            if step is not None:
                prefills.append(SlotPrefill(slot, "", step, slot))
                begun.add(slot)
                idle.remove(slot)
        runner.start(prefills, dict.fromkeys(begun, voice))
        until = {slot: num_sampled[slot] + rng.randint(1, 20) for slot in begun}
        for slot, drawn in runner.decode(until, rng.randint(0, 8)).items():
            num_sampled[slot] += len(drawn.ids)
            spoken[slot] += [taken for taken in map(streams[slot].take, drawn.ids) if taken is not None]
            if drawn.stopped:
                idle.add(slot)
    return spoken


def test_a_stopped_slot_reports_fill_and_goes_on(lm: SpeechLm) -> None:
    stream = Bistream(speech_ids=lm.config.speech_ids)
    stream.add_text([1, 2, 3, 4, 5])
    step = stream.next_prefill()
    assert step is not None
    runner = small_runner(lm)
    runner.start([SlotPrefill(1, "", step, 5)])
    drawn = runner.decode({1: 99}, 30)[1]
    assert drawn.stopped
    assert drawn.ids[-1] == FILL
    assert len(drawn.ids) <= 16
    assert max(drawn.ids[:-1]) < NUM_CODES
    for drawn_id in drawn.ids:
        stream.take(drawn_id)
    stream.end_text()
    step = stream.next_prefill()
    assert step is not None
    assert step.inputs == [TASK]
    runner.start([SlotPrefill(1, "", step, 5)])
    assert len(runner.decode({}, 0)[1].ids) == 1


@pytest.mark.parametrize("num_kept", [0, 1, 17])
def test_a_sequence_is_turned_back_to_an_earlier_token_and_other_ids_are_drawn_from_there(
    lm: SpeechLm, num_kept: int
) -> None:
    request = LmRequest([1, 2, 3], prompt_text=PROMPT_TEXT)
    inputs, rules = request.inputs_for(SpeechIds(NUM_CODES)), SamplingRules.of_request(LengthLimits(99, 99))
    runner = small_runner(lm)
    prefill = Prefill(inputs, rules)
    runner.start([SlotPrefill(1, "", prefill, 5), SlotPrefill(2, "", prefill, 6)])
    drawn = runner.decode({1: 30}, 40)
    before = drawn[1].ids
    assert len(before) == 30
    last = speech_inputs(before[num_kept - 1 : num_kept]) if num_kept else inputs[-1:]
    position = len(inputs) + num_kept - 1
    runner.start([SlotPrefill(1, "", Prefill(last, rules, extends=True, keeps=position), 5)])
    ras, history = SeededRas(5, len(before)), list(before)
    context = CachedSequence(lm, num_positions=200)
    log_probs, expected = context.feed([*inputs, *speech_inputs(before[:num_kept])]), []
    for _ in range(10):
        forbidden = log_probs.clone()
        forbidden[NUM_CODES:] = -torch.inf
        expected.append(ras(forbidden, history))
        history.append(expected[-1])
        log_probs = context.feed(speech_inputs(expected[-1:]))
    after = runner.decode({1: 40, 2: 40}, 40)
    assert list(after[1].ids) == expected
    assert [*drawn[2].ids, *after[2].ids] == alone(lm, request, 6, LengthLimits(99, 99))[:40]


def test_a_voice_spares_what_the_inputs_have_in_common_with_it(lm: SpeechLm) -> None:
    request = LmRequest([1, 2], prompt_text=PROMPT_TEXT, prompt_speech=[4])
    voices: list[LmVoice | None] = [None]
    runner = small_runner(lm, len(voices) + 4)
    voices += [runner.add_voice(PROMPT_TEXT), runner.add_voice(), runner.add_voice([30, 99]), runner.add_voice([7])]
    runner.start([prefill_of(slot, request, 3) for slot in range(len(voices))], dict(enumerate(voices)))
    spoken = finish(runner, range(5))
    assert all(ids == alone(lm, request, 3) for ids in spoken.values())


def test_inputs_that_are_a_part_of_the_voice_are_fed_all_the_same(lm: SpeechLm) -> None:
    runner = small_runner(lm)
    voice = runner.add_voice(PROMPT_TEXT)
    rules = SamplingRules.of_request(LengthLimits(2, 8))
    inputs = [SOS, *text_inputs(PROMPT_TEXT[:2])]
    runner.start([SlotPrefill(slot, "", Prefill(inputs, rules), 3) for slot in (0, 1)], {0: voice})
    spoken = finish(runner, (0, 1))
    assert spoken[0] == spoken[1]


# --- run-ahead


def test_no_slot_runs_further_than_it_may(lm: SpeechLm) -> None:
    limits = LengthLimits(60, 60)
    requests = {slot: LmRequest([slot]) for slot in range(3)}
    runner = small_runner(lm)
    runner.start([prefill_of(slot, request, slot, limits) for slot, request in requests.items()])
    spoken: dict[int, list[int]] = {slot: [] for slot in requests}
    for until, num_steps, counts in (
        ({}, 5, (1, 1, 1)),
        ({0: 4, 1: 1, 2: 20}, 6, (4, 1, 7)),
        ({0: 4, 2: 2}, 6, (4, 1, 7)),
        ({0: 60, 1: 60, 2: 60}, 0, (4, 1, 7)),
        ({0: 5, 1: 9, 2: 8}, 64, (5, 9, 8)),
        ({0: 99, 1: 99, 2: 99}, 64, (60, 60, 60)),
    ):
        for slot, drawn in runner.decode(until, num_steps).items():
            spoken[slot] += drawn.ids
            assert drawn.stopped == (len(spoken[slot]) == 60)
        assert tuple(map(len, spoken.values())) == counts
    assert spoken == {slot: alone(lm, request, slot, limits) for slot, request in requests.items()}


def test_only_steps_that_somebody_wants_are_run(lm: SpeechLm, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    runner = small_runner(lm, 9, 300)
    decode = SpeechLm.decode

    def counted(lm: SpeechLm, last: Tensor, *given: Tensor, num_keys: int, **rest: Any) -> tuple[Tensor, Tensor]:
        calls.append((len(last), num_keys))
        return decode(lm, last, *given, num_keys=num_keys, **rest)

    monkeypatch.setattr(SpeechLm, "decode", counted)
    limits = LengthLimits(200, 200)
    runner.start([prefill_of(slot, LmRequest([1]), 0, limits) for slot in (0, 4)])
    runner.decode({0: 3, 4: 3}, 50)
    assert calls == [(8, 128)] * 2
    runner.release(4)
    runner.decode({0: 3}, 50)
    runner.decode({0: 5}, 50)
    assert calls[2:] == [(1, 128)] * 2
    for _ in range(3):
        runner.decode({0: 200}, 60)
    assert calls[4:] == [(1, 128)] * 120 + [(1, 256)] * 60


# --- rules


@pytest.mark.parametrize("limits", [LengthLimits(0, 7), LengthLimits(5, 5), LengthLimits(30, 40)])
def test_the_end_comes_neither_too_early_nor_too_late(limits: LengthLimits) -> None:
    lm = biased([4.0, 9.0, 9.0])  # the end likes to come, and what is forbidden even more
    requests = {slot: LmRequest([slot, 4]) for slot in range(3)}
    runner = small_runner(lm)
    runner.start([prefill_of(slot, request, slot, limits) for slot, request in requests.items()])
    spoken = finish(runner, range(3))
    assert spoken == {slot: alone(lm, request, slot, limits) for slot, request in requests.items()}
    assert all(limits.min_len <= len(ids) <= limits.max_len for ids in spoken.values())
    assert all(max(ids, default=0) < NUM_CODES for ids in spoken.values())


def test_speech_of_no_length_is_silent(lm: SpeechLm) -> None:
    runner = small_runner(lm)
    runner.start([prefill_of(0, LmRequest([]), 1), prefill_of(1, LmRequest([1]), 1)])
    drawn = runner.decode({}, 0)
    assert drawn[0] == Sampled((), stopped=True)
    assert len(drawn[1].ids) == 1


@pytest.mark.parametrize("special", [(9.0, 0.0, 0.0), (0.0, 9.0, 0.0), (0.0, 0.0, 9.0)])
def test_officially_every_special_id_ends_the_speech(special: tuple[float, float, float]) -> None:
    lm = biased(special)
    request = LmRequest([3, 4])
    expected = list(speak(lm, request, SeededRas(8), compat=True))
    runner = small_runner(lm)
    anything = ForbiddenIds(end=False, unused=False, fill=False)
    rules = dataclasses.replace(SamplingRules.of_request(request.limits), forbidden=anything)
    runner.start([SlotPrefill(0, "", Prefill(request.inputs_for(SpeechIds()), rules), 8)])
    assert finish(runner, [0])[0] == expected
    assert len(expected) < request.limits.max_len


def test_fill_is_forced_where_the_rules_say_so(lm: SpeechLm) -> None:
    forbidden = ForbiddenIds(end=True, unused=True, fill=True)
    runner = small_runner(lm)
    rules = [SamplingRules(forbidden=forbidden, forced_fill_at=at, reports_special=True) for at in (0, 1, 6)]
    runner.start([SlotPrefill(slot, "", Prefill([SOS, TASK], rule), 5) for slot, rule in enumerate(rules)])
    spoken = finish(runner, range(3))
    assert [len(ids) for ids in spoken.values()] == [1, 2, 7]
    assert all(ids[-1] == FILL for ids in spoken.values())


# --- slots


def runner_with_cache(lm: SpeechLm, monkeypatch: pytest.MonkeyPatch, num_slots: int = 3) -> tuple[LmRunner, Tensor]:
    """A runner, and what it keeps of its slots: layers, keys and values, slots, …"""
    caches: list[Tensor] = []
    new_cache = SpeechLm.new_cache

    def noting(lm: SpeechLm, *sizes: int) -> Tensor:
        caches.append(new_cache(lm, *sizes))
        return caches[-1]

    with monkeypatch.context() as patch:
        patch.setattr(SpeechLm, "new_cache", noting)
        runner = small_runner(lm, num_slots)
    (cache,) = caches
    return runner, cache


def poison(cache: Tensor, slot: int) -> None:
    with torch.inference_mode():
        cache[:, 1, slot] = torch.nan


def test_numbers_that_are_not_finite_stay_in_their_row(lm: SpeechLm, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = {slot: LmRequest([slot, 9]) for slot in range(3)}
    runner, cache = runner_with_cache(lm, monkeypatch)
    runner.start([prefill_of(slot, request, slot) for slot, request in requests.items()])
    before = runner.decode({}, 0)
    poison(cache, 1)
    after = runner.decode(dict.fromkeys(range(3), 4), 3)
    assert after[1] == Sampled((), stopped=True, failed=True)
    assert runner.decode(dict.fromkeys(range(3), 9), 3)[1] == Sampled((), stopped=True, failed=True)
    assert runner.num_not_finite == 1
    for slot in (0, 2):
        assert before[slot].ids + after[slot].ids == tuple(alone(lm, requests[slot], slot)[:4])
    runner.release(1)
    runner.start([prefill_of(1, requests[1], 1)])
    assert finish(runner, [1])[1] == alone(lm, requests[1], 1)


def test_a_slot_that_is_released_leaves_nothing_behind(lm: SpeechLm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do ids that nobody asked for, or numbers that are not finite and were not seen yet."""
    runner, cache = runner_with_cache(lm, monkeypatch, 2)
    for seed in range(4):
        request = LmRequest([seed, 5, 6])
        runner.start([prefill_of(0, request, seed)])
        poison(cache, 0)
        runner.release(0)
        runner.release(0)
        assert runner.decode({}, 4) == {}
        runner.start([prefill_of(0, request, seed)])
        assert finish(runner, [0])[0] == alone(lm, request, seed)
        runner.release(0)
    assert runner.num_not_finite == 0


def test_a_slot_that_is_full_fails(lm: SpeechLm) -> None:
    request, limits = LmRequest([1, 2]), LengthLimits(30, 30)
    runner = small_runner(lm, 2, 12)
    runner.start([prefill_of(0, request, 3, limits), prefill_of(1, request, 4, LengthLimits(3, 3))])
    drawn = runner.decode({0: 30, 1: 30}, 40)
    assert drawn[1] == Sampled(tuple(alone(lm, request, 4, LengthLimits(3, 3))), stopped=True)
    assert drawn[0] == Sampled(tuple(alone(lm, request, 3, limits)[:9]), stopped=True, failed=True)
    assert runner.num_not_finite == 0


def test_warming_up_changes_nothing(lm: SpeechLm) -> None:
    request = LmRequest([1, 2])
    runner = small_runner(lm, 3)
    runner.warm_up(max_width=8)
    runner.start([prefill_of(2, request, 3)])
    assert finish(runner, [2])[2] == alone(lm, request, 3)


def test_no_value_leaves_the_device(lm: SpeechLm) -> None:
    """Tensors without values can go through every shape: nothing asks for one, so all can be recorded."""
    state = {key: value.to("meta") for key, value in lm.state_dict().items()}
    runner = small_runner(lm_of(state))
    runner.warm_up(max_width=8)
    runner.start([prefill_of(0, LmRequest([1]), 3)])


def test_half_precision_is_drawn_from_too(lm: SpeechLm) -> None:
    half = lm_of({key: value.bfloat16() for key, value in lm.state_dict().items()})
    runner = small_runner(half)
    runner.start([prefill_of(0, LmRequest([1, 2]), 5, LengthLimits(8, 8))], {0: runner.add_voice()})
    ids = finish(runner, [0])[0]
    assert len(ids) == 8
    assert max(ids) < NUM_CODES


RULES: Final = SamplingRules.of_request(LengthLimits(0, 9))


@pytest.mark.parametrize(
    "inputs",
    [text_inputs([512]), text_inputs([-1]), speech_inputs([NUM_CODES]), [LmInput(Table.SPECIAL, 2)]],
)
def test_inputs_past_the_end_of_their_table_are_refused_and_nothing_is_run(lm: SpeechLm, inputs: list[LmInput]) -> None:
    runner = small_runner(lm)
    request, limits = LmRequest([1]), LengthLimits(9, 9)
    runner.start([prefill_of(1, request, 1, limits)])
    with pytest.raises(ValueError, match="past the end"):
        runner.start([prefill_of(2, request, 1), SlotPrefill(0, "", Prefill(inputs, RULES), 1)])
    drawn = runner.decode({1: 9}, 9)
    assert {slot: list(news.ids) for slot, news in drawn.items()} == {1: alone(lm, request, 1, limits)}


def test_inputs_that_do_not_fit_are_refused(lm: SpeechLm) -> None:
    runner = LmRunner(lm, num_slots=2, num_positions=4)
    with pytest.raises(EngineFailed, match="5 positions does not fit into 4"):
        runner.start([SlotPrefill(slot, "", Prefill([SOS] * (4 + slot), RULES), 1) for slot in (0, 1)])
    with pytest.raises(ValueError, match="5 positions does not fit"):
        runner.add_voice(range(4))
    with pytest.raises(ValueError, match="past the end"):
        runner.add_voice([512])
    assert runner.decode({}, 0) == {}
