"""The first hop of 12 tokens behind a reference of 13 more than a multiple of 25: exact, and one chunk of work."""

import random
from typing import Final

import pytest

pytest.importorskip("torch")

from collections.abc import Sequence

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.schedule import exact_hop
from cc_tts.engines.cosyvoice.model.networks.flow.flow import (
    Flow,
    FlowReference,
    fixed_noise,
)
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowRunner
from cc_tts.voices.enrolment import num_flow_tokens
from lab.cosyvoice.golden_fill import fill_by_kind
from lab.cosyvoice.networks import flow_of
from lab.cosyvoice.schedule import FlowCall, HopSchedule, calls_for
from lab.cosyvoice.whole_flow import whole_mel
from tests.support.flow_cases import CLOSE, new_flow, new_runner, prompt_of, shapes_of_calls, tokens_of, whole
from tests.support.golden import read_tensors, tiny_shapes
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

REFERENCES: Final = (13, 38, 63, 113)

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def flow() -> Flow:
    return new_flow()


def calls_of(num_prompt: int, num_tokens: int) -> list[FlowCall]:
    return list(calls_for(HopSchedule(num_prompt, hop=exact_hop(num_prompt)), num_tokens))


def spoken(runner: FlowRunner, slot: int, tokens: "Sequence[int]", calls: "Sequence[FlowCall]") -> list[Tensor]:
    fed, mels = 0, []
    for call in calls:
        mels.append(runner.step([FlowRow(slot, tokens[fed : call.num_tokens], call.finalize)])[0])
        fed = call.num_tokens
    return mels


def test_any_reference_is_trimmed_to_leave_twelve_tokens_of_a_chunk() -> None:
    for num_tokens in range(13, 800):
        kept = num_flow_tokens(num_tokens)
        assert kept % 25 == 13
        assert kept == min(num_tokens - (num_tokens - 13) % 25, 188)
        assert exact_hop(kept) == 12


@pytest.mark.parametrize("num_prompt", REFERENCES)
def test_the_first_call_solves_one_chunk_after_15_tokens(
    flow: Flow, num_prompt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of(num_prompt, 60)
    assert (calls[0].num_tokens, calls[0].num_new) == (15, 12)
    shapes = shapes_of_calls(monkeypatch)
    runner = new_runner(flow)
    runner.open(0, runner.add_voice(prompt_of(num_prompt)))
    shapes.clear()
    (mel, *_) = spoken(runner, 0, tokens_of(60, 1), calls[:1])
    assert mel.shape[1] == 24
    assert [shape.num_tokens for shape in shapes] == [25]


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("num_prompt", REFERENCES)
def test_it_equals_the_whole_of_a_random_reference(flow: Flow, num_prompt: int, graphs: bool) -> None:
    for seed in range(3):
        prompt, tokens = prompt_of(num_prompt, seed), tokens_of(random.Random(seed).randint(13, 80), seed)
        runner = new_runner(flow, graphs=graphs)
        runner.open(1, runner.add_voice(prompt))
        mels = spoken(runner, 1, tokens, calls_of(num_prompt, len(tokens)))
        expected = whole(flow, prompt, tokens)
        torch.testing.assert_close(torch.cat(mels, dim=1), expected, **CLOSE)
        torch.testing.assert_close(mels[0][:, :24], expected[:, : mels[0].shape[1]][:, :24], **CLOSE)


def test_it_equals_the_reference_on_golden_data() -> None:
    """The golden reference, trimmed as enrolment does, against one run over everything under the chunk mask."""
    golden = read_tensors("tiny.npz")
    flow = flow_of(fill_by_kind(tiny_shapes("flow"), "flow."))
    given = golden["flow_prompt_token"].shape[1]
    kept = num_flow_tokens(given)
    assert kept % 25 == 13
    prompt = FlowReference(
        golden["flow_prompt_token"][:, given - kept :],
        golden["flow_prompt_feat"][:, 2 * (given - kept) :],
        golden["flow_embedding"],
    )
    tokens = golden["flow_token"]
    noise = fixed_noise()[:, :, : 2 * (kept + tokens.shape[1])]
    expected = whole_mel(flow, tokens, prompt, streaming=True, finalize=True, noise=noise)[0]
    runner = FlowRunner(flow, num_slots=1, num_pages=40, noise=noise, max_tokens=kept + tokens.shape[1])
    runner.open(0, runner.add_voice(prompt))
    calls = calls_of(kept, tokens.shape[1])
    assert calls[0].num_new == 12
    mels = spoken(runner, 0, tokens[0].tolist(), calls)
    assert mels[0].shape[1] == 24
    torch.testing.assert_close(torch.cat(mels, dim=1), expected, **CLOSE)


def test_a_hop_off_the_grid_is_not_exact(flow: Flow) -> None:
    """What makes the residue matter: the same 12 tokens behind a reference of 25 end inside a chunk."""
    prompt, tokens = prompt_of(25), tokens_of(60, 2)
    runner = new_runner(flow)
    runner.open(0, runner.add_voice(prompt))
    first = runner.step([FlowRow(0, tokens[:15], is_last=False, partial=True)])[0]
    assert first.shape[1] == 24
    assert (first - whole(flow, prompt, tokens)[:, :24]).abs().max() > 1e-3
