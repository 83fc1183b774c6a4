"""The kernels for cards attend and write as PyTorch does. They run on the CPU here, by Triton's interpreter."""

import random
from dataclasses import replace
from typing import Any, Final

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
from torch import Tensor
from torch import dtype as DType  # noqa: N812

from cc_tts.engines.cosyvoice.engine.device import SlotPrefill
from cc_tts.engines.cosyvoice.model.networks import page_kernels
from cc_tts.engines.cosyvoice.model.networks import pages as pages_module
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan, Window, join_linears
from cc_tts.engines.cosyvoice.model.networks.lm import lm as lm_module
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LengthLimits
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages, PageType, attend
from cc_tts.engines.cosyvoice.model.networks.trial import MOST_APART, attention_difference
from cc_tts.engines.cosyvoice.model.sizes import DitConfig, EncoderConfig, EstimatorConfig, FlowConfig, LookaheadConfig
from cc_tts.engines.cosyvoice.prefill import Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowRunner, FlowShape
from cc_tts.engines.cosyvoice.runners.lm import LmRunner
from lab.cosyvoice.networks import lm_of
from lab.cosyvoice.tiny_model import FLOW, tiny_states
from tests.support.flow_cases import SMALL, new_runner
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

if not page_kernels.IS_INTERPRETED:
    pytest.skip("a card is here: tests/gpu tries the kernels on it", allow_module_level=True)

PAGE_LEN: Final = 5
NUM_PAGES: Final = 6  # of each row
TOLERANCES: Final = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}

_one_thread = pytest.fixture(autouse=True)(one_thread_without_gradients)


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are split, also where there are few."""
    monkeypatch.setattr(pages_module, "SPLIT_KEYS", 16)
    monkeypatch.setattr(lm_module, "SPLIT_KEYS", 16)


def some_rows(draw: random.Random, num_rows: int, width: int) -> PositionSpan:
    """Rows of any age and length, with pages in any order; the last row only fills the batch."""
    counts = [draw.randint(1, width) for _ in range(num_rows - 1)]
    starts = [PAGE_LEN * draw.randint(0, NUM_PAGES - -(-width // PAGE_LEN) - 1) for _ in counts]
    pages = draw.sample(range(1, num_rows * NUM_PAGES + 1), num_rows * NUM_PAGES)
    return PositionSpan.of(
        torch.tensor([*counts, 0]),
        width,
        chunk=PAGE_LEN,
        starts=torch.tensor([*starts, 0]),
        pages=torch.tensor(pages).view(num_rows, NUM_PAGES),
        slots=torch.arange(1, num_rows + 1),
    )


def windowed_rows() -> PositionSpan:
    """Rows that see three chunks of their past; of one of them pages are left out behind the sink."""
    left_out = torch.tensor([0, 2, 3])
    return PositionSpan.of(
        torch.tensor([PAGE_LEN, 2 * PAGE_LEN, 3]),
        2 * PAGE_LEN,
        chunk=PAGE_LEN,
        starts=torch.tensor([0, 3, 4]) * PAGE_LEN + left_out * PAGE_LEN,
        pages=torch.arange(1, 3 * NUM_PAGES + 1).view(3, NUM_PAGES),
        slots=torch.tensor([1, 2, 3]),
        window=Window(2, left_out, 2 * NUM_PAGES),
    )


def both_ways(
    span: PositionSpan, type_: PageType, dtype: DType, *, num_heads: int = 2, head_dim: int = 16, far: int = 0
) -> tuple[list[Tensor], list[Pages]]:
    """Attention with PyTorch and in place, and the pages after it; ``far``: with scores by so many distances."""
    num_rows, width = span.written.shape
    shape = (num_rows * NUM_PAGES + 1, PAGE_LEN, 2, num_heads, head_dim)
    past = torch.randn(shape).to(dtype)
    projected = torch.randn(num_rows, width, 3, num_heads, head_dim).to(dtype)
    by_distance = torch.randn(num_rows, num_heads, width, far).to(dtype) if far else None
    everywhere = torch.arange(shape[0] * PAGE_LEN).view(1, -1)
    mixed, after = [], []
    for in_place in (False, True):
        pages = Pages.new(shape, past, PageForm(type_))
        pages.write(past.flatten(0, 1)[None], everywhere)
        pages = replace(pages, in_place=in_place)
        mixed.append(attend(projected[:, :, 0].transpose(1, 2), projected[:, :, 1:], pages, span, by_distance))
        after.append(pages)
    return mixed, after


@pytest.mark.parametrize("type_", ["auto", "int8", "float8"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_rows_of_any_length_attend_as_with_pytorch(dtype: DType, type_: PageType) -> None:
    torch.manual_seed(0)
    span = some_rows(random.Random(1), 4, 2 * PAGE_LEN)
    (expected, mixed), (one, other) = both_ways(span, type_, dtype)
    assert mixed.dtype == dtype
    real = torch.arange(2 * PAGE_LEN) < (span.ends - span.starts)[:, None]
    real[-1] = False
    torch.testing.assert_close(mixed[real], expected[real], rtol=0.0, atol=TOLERANCES[dtype])
    assert torch.isfinite(mixed).all(), "padding, too"
    for ours, theirs in zip(one.tensors, other.tensors, strict=True):
        assert torch.equal(ours[1:].view(torch.uint8), theirs[1:].view(torch.uint8)), "kept alike, but for scratch"


@pytest.mark.parametrize("seed", range(2))
def test_scores_by_distance_are_added(seed: int) -> None:
    torch.manual_seed(seed)
    span = some_rows(random.Random(seed), 3, PAGE_LEN)
    far = PAGE_LEN * NUM_PAGES - span.lowest
    (expected, mixed), _ = both_ways(span, "auto", torch.float32, num_heads=3, head_dim=4, far=far)
    real = torch.arange(PAGE_LEN) < (span.ends - span.starts)[:, None]
    real[-1] = False
    torch.testing.assert_close(mixed[real], expected[real], rtol=0.0, atol=2e-6)


@pytest.mark.parametrize("has_distances", [False, True])
def test_a_window_leaves_out_what_it_leaves_out_with_pytorch(has_distances: bool) -> None:
    torch.manual_seed(0)
    span = windowed_rows()
    far = span.highest - span.lowest + 1 if has_distances else 0
    (expected, mixed), _ = both_ways(span, "auto", torch.float32, far=far)
    real = torch.arange(2 * PAGE_LEN) < (span.ends - span.starts)[:, None]
    torch.testing.assert_close(mixed[real], expected[real], rtol=0.0, atol=2e-6)


def test_what_is_not_a_number_in_a_page_reaches_only_rows_that_see_it() -> None:
    torch.manual_seed(0)
    span = PositionSpan.of(
        torch.tensor([PAGE_LEN, PAGE_LEN]),
        PAGE_LEN,
        chunk=PAGE_LEN,
        pages=torch.tensor([[1, 2], [3, 4]]),
        slots=torch.tensor([1, 2]),
    )
    new = torch.randn(2, PAGE_LEN, 2, 1, 16)
    pages = Pages.new((5, PAGE_LEN, 2, 1, 16), new, PageForm(in_place=True))
    pages.kept[2] = float("nan")  # behind the end of the first row
    assert torch.isfinite(attend(torch.randn(2, 1, PAGE_LEN, 16), new, pages, span)).all()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_decode_step_attends_to_the_keys_of_each_row(dtype: DType) -> None:
    lm = lm_of({key: value.to(dtype) for key, value in tiny_states()["llm"].items()})
    starts = torch.tensor([0, 37, 3, 16, 63])
    answers = []
    for in_place in (False, True):
        lm.backbone.in_place = in_place
        torch.manual_seed(0)
        cache = lm.new_cache(5, 64)
        cache.copy_(torch.randn(cache.shape))
        active = torch.tensor([True, True, True, False, True])
        log_probs, cache = lm.decode(torch.tensor([1, 2, 3, 4, 5]), starts, cache, active=active)
        answers.append((log_probs, cache[..., :-1, :]))
    (expected, kept), (log_probs, kept_in_place) = answers
    atol = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}[dtype]
    torch.testing.assert_close(log_probs[[0, 1, 2, 4]], expected[[0, 1, 2, 4]], rtol=0.0, atol=atol)
    torch.testing.assert_close(kept_in_place, kept, rtol=0.0, atol=atol)


def test_a_prefill_attends_to_slots_in_any_order() -> None:
    lm = lm_of(tiny_states()["llm"])
    torch.manual_seed(0)
    x, past = torch.randn(3, 9, 64), torch.randn(lm.new_cache(4, 40).shape)
    num_new, starts, slots = torch.tensor([9, 4, 0]), torch.tensor([0, 20, 0]), torch.tensor([2, 0, 3])
    answers = []
    for in_place in (False, True):
        lm.backbone.in_place = in_place
        log_probs, _ = lm.prefill(x, num_new, past.clone(), starts=starts, slots=slots, num_keys=32)
        answers.append(log_probs[:2])
    torch.testing.assert_close(answers[1], answers[0], rtol=0.0, atol=1e-5)


def test_a_runner_samples_the_same_ids_in_place_and_fused() -> None:
    """Its rows are columns of tables, and of several lengths."""
    answers = []
    for in_place, fused in ((False, False), (True, False), (True, True)):
        lm = lm_of(tiny_states()["llm"])
        join_linears(lm)
        lm.backbone.in_place, lm.backbone.fused = in_place, fused
        runner = LmRunner(lm, num_slots=3, num_positions=40)
        rules = SamplingRules.of_request(LengthLimits(6, 6))
        inputs = [lm.config.speech_ids.unistream_inputs((), range(length), range(3)) for length in (9, 5, 1)]
        runner.start([SlotPrefill(slot, "", Prefill(row, rules), seed=slot) for slot, row in enumerate(inputs)])
        answers.append({slot: sampled.ids for slot, sampled in runner.decode(dict.fromkeys(range(3), 6), 6).items()})
    assert answers[1] == answers[2] == answers[0]
    assert len(set(answers[0].values())) == 3


SECOND: Final = replace(
    SMALL,
    num_steps=2,
    encoder=EncoderConfig(width=16, num_heads=2, num_hidden=24, num_layers=1, num_up_layers=1),
    estimator=EstimatorConfig(
        num_mels=4,
        channels=8,
        num_time=12,
        num_hidden=16,
        num_attention=8,
        head_dim=4,
        num_blocks=1,
        num_mid_blocks=1,
    ),
)
THIRD: Final = replace(
    SMALL,
    num_steps=2,
    encoder=LookaheadConfig(width=4, lookahead_hidden=8),
    estimator=DitConfig(
        num_mels=4, width=16, num_blocks=1, head_dim=8, num_hidden=16, num_sinusoids=8, kernel=5, num_groups=4
    ),
)


@pytest.mark.parametrize("config", [SECOND, THIRD], ids=["unet", "dit"])
@pytest.mark.parametrize(("type_", "context"), [("auto", 0), ("int8", 0), ("auto", 1)])
def test_a_flow_speaks_from_pages_in_place_as_from_copies(config: FlowConfig, type_: PageType, context: int) -> None:
    mels = []
    for in_place, fused in ((False, False), (True, False), (True, True)):
        torch.manual_seed(0)
        flow = Flow(replace(config, context_chunks=context)).eval().requires_grad_(requires_grad=False)
        join_linears(flow)
        flow.page_form = PageForm(type_, in_place, fused)
        runner = FlowRunner(flow, num_slots=2, num_pages=12, noise=torch.randn(1, 4, 60), max_tokens=30)
        voice = runner.add_voice(FlowReference(torch.arange(6)[None], torch.randn(1, 12, 4), torch.randn(1, 6)))
        runner.open(0, voice)
        first = runner.step([FlowRow(0, range(11), is_last=False)])
        runner.open(1, voice)
        rows = [FlowRow(0, range(5, 8), is_last=True), FlowRow(1, range(9), is_last=False)]
        mels.append(torch.cat((*first, *runner.step(rows)), dim=1))
    for mel in mels[1:]:
        torch.testing.assert_close(mel, mels[0], rtol=0.0, atol=1e-5 if type_ == "auto" else 1e-2)


@pytest.mark.parametrize("type_", ["auto", "int8", "float8"])
def test_what_is_tried_on_a_card_is_apart_by_little(type_: PageType) -> None:
    assert attention_difference(torch.device("cpu"), torch.float32, type_) < 1e-5


@pytest.mark.parametrize(("more_keys", "more_places"), [(512, 0), (0, 32)])
def test_what_is_wrong_for_many_keys_or_queries_alone_shows_in_the_trial(
    monkeypatch: pytest.MonkeyPatch, more_keys: int, more_places: int
) -> None:
    right = page_kernels.attend

    def wrong(queries: Tensor, kept: Tensor, **more: Any) -> Tensor:
        num_places = queries.shape[1] // kept.shape[3] * queries.shape[2]
        attended: Tensor = right(queries, kept, **more)
        return attended + int(more["num_keys"] > more_keys and num_places > more_places)

    monkeypatch.setattr(page_kernels, "attend", wrong)
    assert attention_difference(torch.device("cpu"), torch.float32, "auto") > MOST_APART


def test_no_tensor_is_asked_for_its_value() -> None:
    """On the meta device tensors have none; what runs there can be captured in a CUDA graph."""
    with torch.device("meta"):
        flow = Flow(FLOW)
    join_linears(flow)
    flow.page_form = PageForm("int8", in_place=True, fused=True)
    runner = new_runner(flow, graphs=True)
    runner.record(FlowShape(2, 50, 4))
    assert runner.arena.estimator.attention.kept.is_meta
