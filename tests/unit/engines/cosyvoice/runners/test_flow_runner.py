import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.device import PagesExhausted
from cc_tts.engines.cosyvoice.model.networks.flow.flow import (
    Flow,
    FlowReference,
)
from cc_tts.engines.cosyvoice.model.sizes import Generation
from cc_tts.engines.cosyvoice.runners.flow import MAX_CALL_CHUNKS, FlowRow, FlowRunner, FlowShape, FlowVoice, max_pages
from lab.cosyvoice.networks import flow_of
from lab.cosyvoice.tiny_model import FLOW, tiny_states
from tests.support.flow_cases import (
    CLOSE,
    MAX_TOKENS,
    NOISE,
    NUM_STEPS,
    new_flow,
    new_runner,
    num_used,
    prompt_of,
    run,
    shapes_of_calls,
    tokens_of,
    whole,
)
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

PAGES_OF_PROMPT: Final = {0: 0, 20: 0, 27: 0, 28: 1, 50: 1, 67: 2}

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def flow() -> Flow:
    return new_flow()


def cut(tokens: Sequence[int], draw: random.Random) -> list[list[int]]:
    pieces, rest = [], list(tokens)
    while rest:
        size = draw.choice((0, 1, 3, 24, 25, 26, 40))
        pieces.append(rest[:size])
        rest = rest[size:]
    return pieces


@dataclass
class Speaking:
    """One sequence of a crowd."""

    voice: FlowVoice
    tokens: list[int]
    fed: int = 0
    mels: list[Tensor] = field(default_factory=list)


class TestOneSequence:
    """It gives what the whole gives."""

    @pytest.mark.parametrize("graphs", [False, True])
    @pytest.mark.parametrize("num_prompt", list(PAGES_OF_PROMPT))
    def test_random_pieces(self, flow: Flow, num_prompt: int, graphs: bool) -> None:
        prompt, tokens = prompt_of(num_prompt), tokens_of(90, num_prompt)
        runner = new_runner(flow, graphs=graphs)
        voice = runner.add_voice(prompt)
        runner.open(2, voice)
        mels = run(runner, 2, cut(tokens, random.Random(num_prompt)))
        torch.testing.assert_close(torch.cat(mels, dim=1), whole(flow, prompt, tokens), **CLOSE)
        assert all(mel.dtype == torch.float32 for mel in mels)

    @pytest.mark.parametrize("graphs", [False, True])
    @pytest.mark.parametrize("num_prompt", [0, 20, 50])
    def test_hops_within_chunks(self, flow: Flow, num_prompt: int, graphs: bool) -> None:
        prompt, tokens = prompt_of(num_prompt), tokens_of(70, 3)
        runner = new_runner(flow, graphs=graphs)
        runner.open(0, runner.add_voice(prompt))
        num_given = 0
        ends = (8, 8, 13, 33, 36, 61, 70)
        for start, end, partial in zip((0, *ends), ends, (True, True, True, False, True, True, False), strict=False):
            new, is_last = tokens[start:end], end == 70
            mel = runner.step([FlowRow(0, new, is_last, partial)])[0]
            whole_chunks = (num_prompt + end - 3) // 25 * 25 - num_prompt + 3
            known = whole(flow, prompt, tokens[: end if partial or is_last else whole_chunks], finalize=is_last)
            torch.testing.assert_close(mel, known[:, num_given:], **CLOSE)
            num_given = max(num_given, known.shape[1])

    @pytest.mark.parametrize("num_prompt", [0, 20, 27])
    def test_nothing_at_all(self, flow: Flow, num_prompt: int) -> None:
        runner = new_runner(flow)
        runner.open(0, runner.add_voice(prompt_of(num_prompt)))
        assert runner.step([FlowRow(0, [], is_last=True)])[0].shape == (80, 0)

    def test_half_precision(self) -> None:
        flow = new_flow(half=True)
        prompt, tokens = prompt_of(30), tokens_of(40, 3)
        runner = new_runner(flow)
        runner.open(0, runner.add_voice(prompt))
        mel = torch.cat(run(runner, 0, [tokens[:30], tokens[30:]]), dim=1)
        assert runner.arena.estimator.attention.kept.dtype == torch.bfloat16
        assert mel.dtype == torch.float32
        torch.testing.assert_close(mel, whole(flow, prompt, tokens), rtol=0.0, atol=0.05)


class TestManySequences:
    """Each of a crowd gives what it gives alone."""

    @pytest.mark.parametrize("graphs", [False, True])
    def test_they_join_and_leave_at_any_step(self, flow: Flow, graphs: bool) -> None:
        draw = random.Random(11)
        runner = new_runner(flow, num_pages=60, num_slots=5, graphs=graphs)
        voices = [runner.add_voice(prompt_of(count, seed)) for seed, count in enumerate((0, 20, 50, 67))]
        num_shared = num_used(runner)
        waiting = [
            Speaking(voices[index % 4], tokens_of(count, index))
            for index, count in enumerate((55, 80, 31, 5, 64, 77, 26, 40))
        ]
        everyone, speaking = list(waiting), dict[int, Speaking]()
        while waiting or speaking:
            while waiting and len(speaking) < 5 and draw.random() < 0.6:
                slot = draw.choice([slot for slot in range(5) if slot not in speaking])
                speaking[slot] = waiting.pop()
                runner.open(slot, speaking[slot].voice)
            rows = []
            for slot, one in speaking.items():
                if draw.random() < 0.7:
                    new = one.tokens[one.fed : one.fed + draw.choice((0, 2, 15, 28, 50))]
                    one.fed += len(new)
                    rows.append(FlowRow(slot, new, one.fed == len(one.tokens)))
            draw.shuffle(rows)
            for row, mel in zip(rows, runner.step(rows), strict=True):
                speaking[row.slot].mels.append(mel)
                if row.is_last:
                    runner.close(row.slot)
                    del speaking[row.slot]
        for one in everyone:
            expected = whole(flow, one.voice.reference, one.tokens)
            torch.testing.assert_close(torch.cat(one.mels, dim=1), expected, **CLOSE)
        assert num_used(runner) == num_shared == 3

    def test_a_slot_is_used_again_after_half_a_sequence(self, flow: Flow) -> None:
        prompt, tokens = prompt_of(50), tokens_of(40, 9)
        runner = new_runner(flow, num_slots=1)
        voice, other = runner.add_voice(prompt), runner.add_voice(prompt_of(67, 8))
        for cancelled in (voice, other):
            runner.open(0, cancelled)
            runner.step([FlowRow(0, tokens_of(60, 4), is_last=False, partial=True)])
            runner.close(0)
        runner.open(0, voice)
        torch.testing.assert_close(torch.cat(run(runner, 0, [tokens]), dim=1), whole(flow, prompt, tokens), **CLOSE)

    def test_what_is_not_finite_stays_with_its_sequence_when_wiped(self, flow: Flow) -> None:
        prompt, tokens = prompt_of(20), tokens_of(12, 9)
        runner = new_runner(flow, num_slots=2)
        voice = runner.add_voice(prompt)
        bad = runner.add_voice(FlowReference(prompt.token, prompt.feat * float("nan"), prompt.embedding))
        runner.open(0, bad)
        assert torch.isnan(runner.step([FlowRow(0, tokens_of(40, 1), is_last=False)])[0]).all()
        runner.close(0, wipe=True)
        runner.open(0, voice)
        torch.testing.assert_close(torch.cat(run(runner, 0, [tokens]), dim=1), whole(flow, prompt, tokens), **CLOSE)

    @pytest.mark.parametrize("graphs", [False, True])
    def test_what_is_not_finite_stays_in_its_row(self, flow: Flow, graphs: bool) -> None:
        prompt, tokens = prompt_of(20), tokens_of(12, 9)
        runner = new_runner(flow, num_slots=4, graphs=graphs)
        bad = runner.add_voice(FlowReference(prompt.token, prompt.feat * float("nan"), prompt.embedding))
        voice = runner.add_voice(prompt)
        for slot, one in enumerate((bad, voice, bad, bad)):
            runner.open(slot, one)
        mels = runner.step(
            [FlowRow(slot, tokens if slot == 1 else tokens_of(40, 1), is_last=True) for slot in range(4)]
        )
        assert [bool(torch.isnan(mel).any()) for mel in mels] == [True, False, True, True]
        torch.testing.assert_close(mels[1], whole(flow, prompt, tokens), **CLOSE)


class TestPages:
    """Taken when chunks begin, shared by a voice, all given back."""

    @pytest.mark.parametrize(("num_prompt", "expected"), PAGES_OF_PROMPT.items())
    def test_a_voice_holds_the_final_chunks_of_its_prompt(self, flow: Flow, num_prompt: int, expected: int) -> None:
        runner = new_runner(flow)
        voice = runner.add_voice(prompt_of(num_prompt))
        assert num_used(runner) == len(voice.pages) == expected
        runner.drop_voice(voice)
        assert num_used(runner) == 0

    def test_sequences_share_them(self, flow: Flow) -> None:
        runner = new_runner(flow)
        voice = runner.add_voice(prompt_of(67))
        before = runner.arena.estimator.attention.kept[:, :, 2 : 2 + 2 * 2].clone()
        for slot in range(3):
            runner.open(slot, voice)
        assert num_used(runner) == 2
        runner.step([FlowRow(slot, tokens_of(40, slot), is_last=False) for slot in range(3)])
        assert num_used(runner) == 2 + 3 * 2
        assert torch.equal(runner.arena.estimator.attention.kept[:, :, 2 : 2 + 2 * 2], before)

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
    @pytest.mark.parametrize("dropped_first", [True, False])
    def test_all_come_back(self, flow: Flow, order: tuple[int, ...], dropped_first: bool) -> None:
        runner = new_runner(flow)
        voice = runner.add_voice(prompt_of(50))
        for slot in range(3):
            runner.open(slot, voice)
        runner.step([FlowRow(slot, tokens_of(30 * slot, slot), is_last=False) for slot in range(3)])
        if dropped_first:
            runner.drop_voice(voice)
        for slot in order:
            assert num_used(runner) > 0
            runner.close(slot)
            runner.close(slot)
        assert num_used(runner) == (0 if dropped_first else 1)

    @pytest.mark.parametrize("num_prompt", [0, 20, 28, 50])
    @pytest.mark.parametrize("num_tokens", [1, 25, 33])
    def test_how_many_are_needed(self, flow: Flow, num_prompt: int, num_tokens: int) -> None:
        runner = new_runner(flow)
        voice = runner.add_voice(prompt_of(num_prompt))
        num_shared = num_used(runner)
        runner.open(0, voice)
        runner.step([FlowRow(0, tokens_of(num_tokens, 1), is_last=True)])
        assert num_used(runner) - num_shared == runner.pages_needed(num_prompt, num_tokens)

    @pytest.mark.parametrize("graphs", [False, True])
    def test_when_they_run_out_nothing_has_changed(self, flow: Flow, graphs: bool) -> None:
        prompt, tokens = prompt_of(50), tokens_of(60, 1)
        runner = new_runner(flow, num_pages=5, graphs=graphs)
        voice = runner.add_voice(prompt)
        runner.open(0, voice)
        runner.open(1, voice)
        first = runner.step([FlowRow(slot, tokens[:10], is_last=False) for slot in (0, 1)])
        arena = runner.arena
        kept = [arena.estimator.attention.kept.clone(), *(context.clone() for context in arena.contexts(1))]
        rows = [FlowRow(slot, tokens[10:], is_last=True) for slot in (0, 1)]
        for _ in range(2):
            with pytest.raises(PagesExhausted):
                runner.step(rows)
        assert num_used(runner) == 3
        assert all(map(torch.equal, kept, [arena.estimator.attention.kept, *arena.contexts(1)]))
        with pytest.raises(PagesExhausted):
            runner.add_voice(prompt_of(150))
        runner.close(1)
        assert num_used(runner) == 2
        second = runner.step(rows[:1])
        mel = torch.cat((first[0], second[0]), dim=1)
        torch.testing.assert_close(mel, whole(flow, prompt, tokens), **CLOSE)

    def test_nothing_new_takes_no_page(self, flow: Flow) -> None:
        runner = new_runner(flow, num_pages=1)
        runner.open(0, runner.add_voice(prompt_of(20)))
        assert runner.step([FlowRow(0, [], is_last=False)])[0].shape == (80, 0)
        assert runner.step([FlowRow(0, tokens_of(7, 1), is_last=False)])[0].shape == (80, 0)
        assert num_used(runner) == 0
        assert runner.step([FlowRow(0, [1], is_last=False)])[0].shape == (80, 10)
        assert num_used(runner) == 1
        assert runner.step([]) == []


class TestShapes:
    """Few shapes, and memory that stays where it is."""

    def test_memory_stays(self, flow: Flow) -> None:
        runner = new_runner(flow, num_pages=300)
        paged = (*runner.arena.encoder.paged, runner.arena.estimator.attention)
        tensors = [pages.kept for pages in paged]
        places = [tensor.data_ptr() for tensor in tensors]
        runner.open(0, runner.add_voice(prompt_of(20)))
        with torch.profiler.profile(profile_memory=True, record_shapes=False) as profile:
            run(runner, 0, [tokens_of(40, 1), tokens_of(10, 2)])
        largest = max(event.self_cpu_memory_usage for event in profile.events())
        assert 0 < largest < tensors[2][0, 0].nbytes / 4
        assert [tensor.data_ptr() for tensor in tensors] == places

    def test_buckets(self) -> None:
        assert FlowShape(3, 28, 5).bucket(25) == (4, 50, 8)
        assert FlowShape(1, 25, 4).bucket(25) == (1, 25, 8)
        assert FlowShape(300, 10_000, 70).bucket(25) == (512, 10_000, 128), "past the largest, multiples of it"

    def test_shapes_are_those_of_the_buckets(self, monkeypatch: pytest.MonkeyPatch, flow: Flow) -> None:
        shapes = shapes_of_calls(monkeypatch)
        runner = new_runner(flow, graphs=True)
        runner.warm_up([FlowShape(1, 25, 4), FlowShape(3, 10, 1)])
        assert shapes == [FlowShape(4, 25, 8), FlowShape(1, 25, 8)], "the largest first"
        voice = runner.add_voice(prompt_of(50))
        shapes.clear()
        for slot in range(3):
            runner.open(slot, voice)
        runner.step([FlowRow(slot, tokens_of(28, slot), is_last=False) for slot in range(3)])
        runner.step([FlowRow(1, tokens_of(30, 1), is_last=True)])
        assert shapes == [FlowShape(4, 50, 8), FlowShape(1, 50, 8)]

    def test_warming_up_touches_scratch_only(self, flow: Flow) -> None:
        runner = new_runner(flow, graphs=True)
        runner.warm_up([FlowShape(3, 50, 4)])
        attention, encoder = runner.arena.estimator.attention.kept, runner.arena.encoder
        assert attention[:, :, :2].any()
        assert not attention[:, :, 2:].any()
        assert not any(pages.kept[:, 1:].any() for pages in encoder.paged)
        assert not any(context.any() for slot in range(1, 5) for context in runner.arena.contexts(slot))

    def test_no_tensor_is_asked_for_its_value(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On the meta device tensors have none; what runs there can be captured in a CUDA graph."""
        shapes = shapes_of_calls(monkeypatch)
        with torch.device("meta"):
            flow = Flow(FLOW)
        runner = FlowRunner(flow, num_slots=2, num_pages=3, noise=NOISE, max_tokens=MAX_TOKENS, graphs=True)
        shape = FlowShape(2, 50, 4)
        runner.record(shape)
        assert shapes == [shape]

    def test_a_result_is_not_overwritten(self, flow: Flow) -> None:
        runner = new_runner(flow, graphs=True)
        voice = runner.add_voice(prompt_of(20))
        runner.open(0, voice)
        runner.open(1, voice)
        first = runner.step([FlowRow(0, tokens_of(20, 1), is_last=True)])[0]
        copy = first.clone()
        runner.step([FlowRow(1, tokens_of(20, 2), is_last=True)])
        assert torch.equal(first, copy)


# --- a flow that sees the start of a sequence and a bounded part of what came last

NUM_TOKENS: Final = 120
CUTS: Final = ([NUM_TOKENS], [28, 25, 25, 42])


def windowed(generation: Generation, context_chunks: int) -> Flow:
    flow = flow_of(tiny_states(generation)["flow"])
    flow.use(num_steps=NUM_STEPS, context_chunks=context_chunks)
    return flow


def cut_at(lengths: list[int]) -> list[list[int]]:
    tokens = iter(tokens_of(NUM_TOKENS, 3))
    return [[next(tokens) for _ in range(length)] for length in lengths]


def windowed_mel(flow: Flow, num_prompt: int, lengths: list[int], *, graphs: bool = False) -> Tensor:
    runner = new_runner(flow, graphs=graphs)
    runner.open(1, runner.add_voice(prompt_of(num_prompt)))
    mel: Tensor = torch.cat(run(runner, 1, cut_at(lengths)), dim=1)
    return mel


@pytest.mark.parametrize(
    ("generation", "context_chunks", "num_prompt"), [(2, 1, 67), (2, 2, 20), (2, 1, 0), (3, 1, 20), (3, 2, 67)]
)
def test_piece_by_piece_it_gives_what_a_whole_pass_under_the_same_mask_gives(
    generation: Generation, context_chunks: int, num_prompt: int
) -> None:
    flow = windowed(generation, context_chunks)
    expected = whole(flow, prompt_of(num_prompt), tokens_of(NUM_TOKENS, 3))
    for lengths in CUTS:
        torch.testing.assert_close(windowed_mel(flow, num_prompt, lengths), expected, **CLOSE)
    torch.testing.assert_close(windowed_mel(flow, num_prompt, CUTS[1], graphs=True), expected, **CLOSE)
    unbounded = whole(windowed(generation, 0), prompt_of(num_prompt), tokens_of(NUM_TOKENS, 3))
    assert (expected - unbounded).abs().max() > 1e-3


@pytest.mark.parametrize("generation", [2, 3])
def test_as_long_as_the_text_it_changes_nothing(generation: Generation) -> None:
    num_prompt = 67
    num_chunks = -(-(num_prompt + NUM_TOKENS) // 25)
    expected = whole(windowed(generation, 0), prompt_of(num_prompt), tokens_of(NUM_TOKENS, 3))
    ours = windowed_mel(windowed(generation, num_chunks - 2), num_prompt, CUTS[1])
    torch.testing.assert_close(ours, expected, **CLOSE)


def test_many_of_any_age_give_what_each_gives_alone_and_all_pages_come_back() -> None:
    flow, draw = windowed(2, 1), random.Random(5)
    runner = new_runner(flow, num_pages=24, num_slots=3, graphs=True)
    voices = [runner.add_voice(prompt_of(num_prompt)) for num_prompt in (0, 67, 110)]
    texts = [tokens_of(90, seed) for seed in range(3)]
    fed, mels = [0, 0, 0], [list[Tensor](), list[Tensor](), list[Tensor]()]
    for slot, voice in enumerate(voices):
        runner.open(slot, voice)
    while any(count < 90 for count in fed):
        rows = []
        for slot in (each for each in range(3) if fed[each] < 90 and draw.random() < 0.7):
            new = texts[slot][fed[slot] :][: draw.choice((3, 25, 40))]
            fed[slot] += len(new)
            rows.append(FlowRow(slot, new, fed[slot] == 90))
        for row, mel in zip(rows, runner.step(rows), strict=True):
            mels[row.slot].append(mel)
    for slot, voice in enumerate(voices):
        expected = whole(flow, voice.reference, texts[slot])
        torch.testing.assert_close(torch.cat(mels[slot], dim=1), expected, **CLOSE)
        runner.close(slot, wipe=slot == 1)
        runner.drop_voice(voice)
    assert num_used(runner) == 0


def test_pages_that_nothing_sees_any_more_are_given_back() -> None:
    flow = windowed(2, 1)
    runner = new_runner(flow)
    assert len(runner.add_voice(prompt_of(110)).pages) == num_used(runner) == 2, "the first and the last of four"
    voice = runner.add_voice(prompt_of(35))
    num_shared = num_used(runner)
    runner.open(0, voice)
    num_own = []
    for number in range(6):
        runner.step([FlowRow(0, tokens_of(25, number), is_last=False)])
        num_own.append(num_used(runner) - num_shared)
    assert num_own == [1] * 6
    assert runner.pages_needed(35, 500) == max_pages(flow.config) == 2 + MAX_CALL_CHUNKS
    assert runner.pages_needed(35, 40) == 2
