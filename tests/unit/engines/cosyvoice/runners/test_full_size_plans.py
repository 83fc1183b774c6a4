"""Every card of 8 GB and more starts with the published sizes, and so does a CPU; the networks are on the meta device."""

import pytest

pytest.importorskip("torch")

import torch

from cc_tts.engines.cosyvoice.engine.engine import TYPICAL_TOKENS
from cc_tts.engines.cosyvoice.model.loader import SpeechModel
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, PageType
from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import CausalVocoder
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import (
    CAUSAL,
    DitConfig,
    FlowConfig,
    LmConfig,
    LookaheadConfig,
    VocoderConfig,
)
from cc_tts.engines.cosyvoice.runners import memory_plan
from cc_tts.engines.cosyvoice.runners.causal_vocoder import CausalVocoderRunner
from cc_tts.engines.cosyvoice.runners.kv_cache import FlowArena
from cc_tts.engines.cosyvoice.runners.memory_plan import GRAPH_SHARE, MemoryPlan, pages_for, plan_memory
from cc_tts.engines.cosyvoice.runners.vocoder import SlotVocoder, VocoderRunner
from tests.support.most_memory import most_bytes

pytestmark = pytest.mark.unit

GB = 10**9
CONTEXT_BYTES = 6 * 2**30 // 10
"""A CUDA context with PyTorch's kernels: assumed, not measured."""
THIRD = FlowConfig(encoder=LookaheadConfig(), estimator=DitConfig())
PROMPT_TOKENS = 200  # 8 s, the longest usual reference


def published(type_name: str) -> SpeechModel:
    dtype = getattr(torch, type_name)
    with torch.device("meta"):
        lm, flow = SpeechLm(LmConfig()).to(dtype), Flow(FlowConfig()).to(dtype)
        return SpeechModel(lm=lm, flow=flow, vocoder=Vocoder(VocoderConfig()))


@pytest.fixture(scope="module")
def half() -> SpeechModel:
    return published("bfloat16")


def weight_bytes(model: SpeechModel) -> int:
    networks = (model.lm, model.flow, model.vocoder)
    return sum(each.nbytes for network in networks for each in network.parameters())


def page_bytes(model: SpeechModel) -> int:
    return FlowArena(model.flow, num_slots=1, num_pages=1).bytes_per_page


def on_card(model: SpeechModel, size_gb: int, max_streams: int = 0, graphs: float = GRAPH_SHARE) -> MemoryPlan:
    """The plan on a card of this size, where graphs take that share of what the weights leave."""
    free_bytes = size_gb * GB - weight_bytes(model) - CONTEXT_BYTES
    return plan_memory(
        model,
        free_bytes=int(free_bytes * memory_plan.CUDA_SHARE) - int(graphs * free_bytes),
        max_streams=max_streams,
        num_positions=1024,
        memory_bytes=0,
        prompt_tokens=PROMPT_TOKENS,
    )


def test_the_sizes_are_the_published_ones(half: SpeechModel) -> None:
    assert page_bytes(half) == 115_404_800


@pytest.mark.parametrize(
    ("config", "type_", "num_bytes"),
    [
        (FlowConfig(), "int8", 59_505_600),
        (FlowConfig(), "float8", 57_702_400),
        (THIRD, "int8", 46_464_000),
        (THIRD, "float8", 45_056_000),
    ],
    ids=str,
)
def test_pages_of_8_bits_take_half(config: FlowConfig, type_: PageType, num_bytes: int) -> None:
    with torch.device("meta"):
        flow = Flow(config).to(torch.bfloat16)
    flow.page_form = PageForm(type_)
    assert FlowArena(flow, num_slots=1, num_pages=1).bytes_per_page == num_bytes


def test_a_card_holds_nearly_twice_as_many_of_them(half: SpeechModel) -> None:
    model = published("bfloat16")
    model.flow.page_form = PageForm("int8")
    wide, narrow = (on_card(each, 24, max_streams=32) for each in (half, model))
    assert wide.num_slots == narrow.num_slots
    assert narrow.num_pages > 1.9 * wide.num_pages


@pytest.mark.parametrize("max_streams", [0, 256])
@pytest.mark.parametrize("size_gb", [8, 10, 12, 16, 24, 48, 80])
def test_a_card_starts_and_holds_what_one_stream_needs(half: SpeechModel, size_gb: int, max_streams: int) -> None:
    plan = on_card(half, size_gb, max_streams)
    assert plan.num_streams >= 1
    assert plan.num_pages >= pages_for(PROMPT_TOKENS, TYPICAL_TOKENS)


@pytest.mark.parametrize("size_gb", [8, 10, 12, 16, 24, 48, 80])
def test_by_itself_a_card_gives_nearly_all_to_pages(half: SpeechModel, size_gb: int) -> None:
    plan = on_card(half, size_gb)
    slot_bytes = plan.num_slots * plan.slot_bytes
    assert slot_bytes < 0.07 * (slot_bytes + plan.page_bytes)
    assert plan.page_bytes - plan.num_pages * page_bytes(half) < page_bytes(half)


def test_a_larger_card_takes_more_streams(half: SpeechModel) -> None:
    streams = [on_card(half, size_gb, graphs=0.2).num_streams for size_gb in (8, 12, 16, 24, 48, 80)]
    assert streams == sorted(set(streams))
    assert on_card(half, 280).num_streams == memory_plan.MAX_STREAMS


@pytest.mark.parametrize(("type_name", "available_gb"), [("float32", 8), ("float32", 64), ("bfloat16", 4)])
def test_a_cpu_starts(monkeypatch: pytest.MonkeyPatch, type_name: str, available_gb: int) -> None:
    model = published(type_name)
    monkeypatch.setattr(SpeechLm, "device", torch.device("cpu"))
    free_bytes = int(available_gb * GB * memory_plan.CPU_SHARE)
    plan = plan_memory(
        model, free_bytes=free_bytes, max_streams=0, num_positions=1024, memory_bytes=0, prompt_tokens=100
    )
    assert plan.num_pages >= pages_for(100, TYPICAL_TOKENS)
    assert plan.num_pages <= pages_for(100, 1200), "a CPU speaks two sequences at a time, not more"
    assert plan.num_pages * page_bytes(model) <= 0.6 * available_gb * GB


def vocoder_runner(generation: int) -> SlotVocoder:
    with torch.device("meta"):
        if generation == 2:
            return VocoderRunner(Vocoder(VocoderConfig()), num_slots=1)
        vocoder = CausalVocoder(VocoderConfig(**CAUSAL))
        vocoder.f0_predictor.double()
        return CausalVocoderRunner(vocoder, num_slots=1, noise=torch.empty((300 * 480, 9)))


@pytest.mark.parametrize("generation", [2, 3])
def test_no_call_of_the_vocoder_takes_more_than_a_small_card_has_left(generation: int) -> None:
    runner = vocoder_runner(generation)
    largest = runner.keys(64)[0]
    assert largest[0] > 1
    assert most_bytes(lambda: runner.record(largest)) < 0.7 * GB
