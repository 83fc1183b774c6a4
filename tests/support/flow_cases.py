"""Sequences for the flow of the tiny model, and what they give as a whole; sizes of a smaller one."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.sizes import EncoderConfig, EstimatorConfig, FlowConfig
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowRunner, FlowShape
from lab.cosyvoice.tiny_model import FLOW, tiny_states
from lab.cosyvoice.whole_flow import whole_mel

CLOSE: Final[dict[str, Any]] = {"rtol": 0.0, "atol": 1e-5}
MAX_TOKENS: Final = 200
NOISE: Final = fixed_noise()[:, :, : 2 * MAX_TOKENS]
CODES: Final = 60
NUM_STEPS: Final = 3
SMALL: Final = FlowConfig(
    vocab_size=30,
    num_embedding=6,
    encoder=EncoderConfig(width=16, num_heads=2, num_hidden=24, num_layers=2, num_up_layers=1),
    estimator=EstimatorConfig(
        num_mels=4,
        channels=8,
        num_time=12,
        num_hidden=16,
        num_attention=8,
        head_dim=4,
        num_blocks=2,
        num_mid_blocks=2,
    ),
    chunk_tokens=4,
    num_steps=3,
)
"""For weights drawn at random, where a test is about what a flow does in any size."""


def new_flow(*, half: bool = False) -> Flow:
    """The tiny model with few Euler steps: what is kept of each is the same."""
    dtype = torch.bfloat16 if half else torch.float32
    state = {name: value.to(dtype) for name, value in tiny_states()["flow"].items()}
    flow = Flow(dataclasses.replace(FLOW, num_steps=NUM_STEPS)).to(dtype)
    flow.load_state_dict(state)
    return flow.requires_grad_(requires_grad=False).eval()


def new_runner(flow: Flow, *, num_pages: int = 40, num_slots: int = 4, graphs: bool = False) -> FlowRunner:
    return FlowRunner(flow, num_slots=num_slots, num_pages=num_pages, noise=NOISE, max_tokens=MAX_TOKENS, graphs=graphs)


def num_used(runner: FlowRunner) -> int:
    """Pages that are held; page 0 is nobody's."""
    return runner.arena.num_pages - 1 - runner.pool.num_free


def shapes_of_calls(monkeypatch: pytest.MonkeyPatch) -> list[FlowShape]:
    """The shapes of the calls of flows from now on, by runners that are not made yet."""
    shapes: list[FlowShape] = []
    run_pages = Flow.run_pages

    def noting(flow: Flow, *given: Any, pages: Tensor, cond: Tensor, **tensors: Any) -> Tensor:
        mel = run_pages(flow, *given, pages=pages, cond=cond, **tensors)
        assert mel.shape == cond.shape
        shapes.append(FlowShape(len(pages), cond.shape[1] // FRAMES_PER_TOKEN, pages.shape[1]))
        return mel

    monkeypatch.setattr(Flow, "run_pages", noting)
    return shapes


def prompt_of(num_prompt: int, seed: int = 1) -> FlowReference:
    generator = torch.Generator().manual_seed(seed)
    token = torch.randint(0, CODES, (1, num_prompt), generator=generator)
    feat = torch.randn((1, 2 * num_prompt, 80), generator=generator)
    return FlowReference(token, feat, torch.randn((1, 192), generator=generator))


def tokens_of(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(CODES) for _ in range(count)]


def whole(flow: Flow, prompt: FlowReference, tokens: Sequence[int], *, finalize: bool = True) -> Tensor:
    mel: Tensor = whole_mel(
        flow,
        torch.tensor([tokens], dtype=torch.int64),
        prompt,
        streaming=True,
        finalize=finalize,
        noise=NOISE,
    )[0]
    return mel


def run(runner: FlowRunner, slot: int, pieces: Sequence[Sequence[int]], *, partial: bool = False) -> list[Tensor]:
    last = len(pieces) - 1
    return [runner.step([FlowRow(slot, piece, i == last, partial)])[0] for i, piece in enumerate(pieces)]
