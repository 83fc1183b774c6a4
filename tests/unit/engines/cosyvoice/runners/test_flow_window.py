"""A flow that sees the start of a sequence and a bounded part of what came last."""

import random
from typing import Final

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice.model.sizes import Generation
from cc_tts.engines.cosyvoice.runners.flow import MAX_CALL_CHUNKS, FlowRow, max_pages
from lab.cosyvoice.networks import flow_of
from lab.cosyvoice.tiny_model import tiny_states
from tests.support.flow_cases import CLOSE, NUM_STEPS, new_runner, num_used, prompt_of, run, tokens_of, whole
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

NUM_TOKENS: Final = 120
CUTS: Final = ([NUM_TOKENS], [28, 25, 25, 42])

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


def new_flow(generation: "Generation", context_chunks: int) -> Flow:
    flow = flow_of(tiny_states(generation)["flow"])
    flow.use(num_steps=NUM_STEPS, context_chunks=context_chunks)
    return flow


def pieces(lengths: list[int]) -> list[list[int]]:
    tokens = iter(tokens_of(NUM_TOKENS, 3))
    return [[next(tokens) for _ in range(length)] for length in lengths]


def spoken(flow: Flow, num_prompt: int, lengths: list[int], *, graphs: bool = False) -> Tensor:
    runner = new_runner(flow, graphs=graphs)
    runner.open(1, runner.add_voice(prompt_of(num_prompt)))
    mel: Tensor = torch.cat(run(runner, 1, pieces(lengths)), dim=1)
    return mel


@pytest.mark.parametrize(
    ("generation", "context_chunks", "num_prompt"), [(2, 1, 67), (2, 2, 20), (2, 1, 0), (3, 1, 20), (3, 2, 67)]
)
def test_piece_by_piece_it_gives_what_a_whole_pass_under_the_same_mask_gives(
    generation: "Generation", context_chunks: int, num_prompt: int
) -> None:
    flow = new_flow(generation, context_chunks)
    expected = whole(flow, prompt_of(num_prompt), tokens_of(NUM_TOKENS, 3))
    for lengths in CUTS:
        torch.testing.assert_close(spoken(flow, num_prompt, lengths), expected, **CLOSE)
    torch.testing.assert_close(spoken(flow, num_prompt, CUTS[1], graphs=True), expected, **CLOSE)
    unbounded = whole(new_flow(generation, 0), prompt_of(num_prompt), tokens_of(NUM_TOKENS, 3))
    assert (expected - unbounded).abs().max() > 1e-3


@pytest.mark.parametrize("generation", [2, 3])
def test_as_long_as_the_text_it_changes_nothing(generation: "Generation") -> None:
    num_prompt = 67
    num_chunks = -(-(num_prompt + NUM_TOKENS) // 25)
    expected = whole(new_flow(generation, 0), prompt_of(num_prompt), tokens_of(NUM_TOKENS, 3))
    ours = spoken(new_flow(generation, num_chunks - 2), num_prompt, CUTS[1])
    torch.testing.assert_close(ours, expected, **CLOSE)


def test_many_of_any_age_give_what_each_gives_alone_and_all_pages_come_back() -> None:
    flow, draw = new_flow(2, 1), random.Random(5)
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
    assert num_used(runner.pool) == 0


def test_pages_that_nothing_sees_any_more_are_given_back() -> None:
    flow = new_flow(2, 1)
    runner = new_runner(flow)
    assert len(runner.add_voice(prompt_of(110)).pages) == num_used(runner.pool) == 2, "the first and the last of four"
    voice = runner.add_voice(prompt_of(35))
    num_shared = num_used(runner.pool)
    runner.open(0, voice)
    num_own = []
    for number in range(6):
        runner.step([FlowRow(0, tokens_of(25, number), is_last=False)])
        num_own.append(num_used(runner.pool) - num_shared)
    assert num_own == [1] * 6
    assert runner.pages_needed(35, 500) == max_pages(flow.config) == 2 + MAX_CALL_CHUNKS
    assert runner.pages_needed(35, 40) == 2
