"""Every shape that there can be at speed 1 has a graph; a card with little memory gets fewer of them, or an error."""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from cc_tts.engines.cosyvoice import batched
from cc_tts.engines.cosyvoice.batched import NUM_POSITIONS, BatchedConfig, BatchedLoader
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.engine.schedule import HOPS, exact_hop
from cc_tts.engines.cosyvoice.runners import flow as flow_runner
from cc_tts.engines.cosyvoice.runners import lm as lm_runner
from cc_tts.engines.cosyvoice.runners import runner as model_runner
from cc_tts.engines.cosyvoice.runners import vocoder as vocoder_runner
from cc_tts.engines.cosyvoice.runners.flow import FlowShape
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall, bucket_of
from cc_tts.engines.cosyvoice.runners.memory_plan import choose_coarseness, spare_slots
from cc_tts.engines.cosyvoice.runners.runner import COARSENESS
from cc_tts.engines.cosyvoice.runners.vocoder import CROSSFADE_FRAMES
from cc_tts.engines.cosyvoice.voice.text_front import MAX_SPEECH_TOKENS, MAX_TEXT_TOKENS
from cc_tts.errors import ConfigError
from cc_tts.voices.enrolment import MAX_LM_TOKENS, num_flow_tokens
from lab.cosyvoice.schedule import HopSchedule, calls_for
from lab.cosyvoice.tiny_model import make_tiny_model
from tests.fakes.replayed_graphs import Stream
from tests.support.small_engine import noted_calls, runner_of, stage_of
from tests.support.tiny_speakers import tiny_speaker
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

GIB: Final = 2**30
NODE_BYTES: Final = 10_000
NODES: Final = {"prefill": 560, "decode": 560, "flow": 9_950, "vocoder": 740}
"""Kernels of a call at full size, as counted."""
RUN_BYTES: Final = {"prefill": 61_000, "decode": 360_000, "flow": 8_200, "vocoder": 336_000}
"""What a call takes while it runs, at full size in float16 without kernels: for each place of a row, and key of the flow."""
VOICES: Final = {
    "longest": tiny_speaker("zero_shot", num_prompt=MAX_LM_TOKENS, id="longest"),
    "trimmed": tiny_speaker("cross_lingual", num_prompt=num_flow_tokens(750), id="trimmed"),
    "builtin": tiny_speaker("builtin"),
}

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def run_bytes(stage: str, key: tuple[int, ...]) -> int:
    sizes = key[:1] if stage == "decode" else key if stage == "flow" else key[:2]
    return RUN_BYTES[stage] * math.prod(sizes)


T = TypeVar("T")


class Graph:
    """Instead of ``torch.cuda.CUDAGraph``."""

    stage = ""
    key: tuple[int, ...] = ()
    num_bytes = 0


class Pool:
    """Of a kind of graphs: what the largest of them needs while it runs."""

    num_bytes = 0


class Card:
    """A device whose graphs only take memory, as long as anybody holds them: nothing is run for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free_bytes: int, *, hidden_bytes: int = 0) -> None:
        self.total_bytes = free_bytes
        self.hidden_bytes = hidden_bytes
        """Of each graph, that measuring does not see."""
        self.is_measuring = True
        self.graphs: WeakSet[Graph] = WeakSet()
        self.pools: WeakSet[Pool] = WeakSet()
        self.most_taken = 0
        self.planned_bytes = 0
        self._called: tuple[str, tuple[int, ...]] = ("", ())
        self.calls = noted_calls(monkeypatch)
        for module in (flow_runner, vocoder_runner, model_runner, batched):
            monkeypatch.setattr(module, "can_record", lambda _: True)
        for module in (lm_runner, flow_runner, vocoder_runner):
            monkeypatch.setattr(module, "GraphedCall", lambda _work, **how: GraphedCall(self._work, **how))
        for name, value in {
            "Stream": Stream,
            "current_stream": Stream,
            "CUDAGraph": self._new_graph,
            "graph": self._record,
            "stream": lambda _: nullcontext(),
            "graph_pool_handle": self._new_pool,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
        monkeypatch.setattr(batched, "can_measure", lambda _: True)
        monkeypatch.setattr(batched, "device_free_bytes", lambda _: self.free_bytes)
        monkeypatch.setattr(batched, "usable_bytes", lambda _: int(0.85 * self.free_bytes))
        monkeypatch.setattr(batched, "choose_coarseness", self._choose)

    @property
    def free_bytes(self) -> int:
        taken = sum(graph.num_bytes for graph in self.graphs) + sum(pool.num_bytes for pool in self.pools)
        return self.total_bytes - taken

    def keys(self, stage: str) -> set[tuple[int, ...]]:
        return {graph.key for graph in self.graphs if graph.stage == stage}

    def told(self, line: str) -> None:
        """A try begins: what was recorded for the one before, or to measure, has been given back."""
        if line.startswith("state:"):
            assert not self.graphs
            self.is_measuring, self.most_taken = False, 0

    def take(self, num_bytes: int) -> None:
        """Take memory for a moment."""
        if num_bytes > self.free_bytes:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.most_taken = max(self.most_taken, self.total_bytes - self.free_bytes + num_bytes)

    def _choose(self, *args: Any) -> tuple[int, int]:
        coarseness, self.planned_bytes = choose_coarseness(*args)
        return coarseness, self.planned_bytes

    def _new_graph(self) -> Graph:
        return _added(self.graphs, Graph())

    def _new_pool(self) -> Pool:
        return _added(self.pools, Pool())

    def _work(self, *key: int, **tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Instead of a network."""
        self._called = stage, _ = stage_of(tensors), key
        self.take(run_bytes(stage, key))
        return (torch.zeros(1),)

    @contextmanager
    def _record(self, graph: Graph, *, pool: Pool, **_: object) -> Iterator[None]:
        yield
        stage, key = self._called
        num_bytes = NODES[stage] * NODE_BYTES + (0 if self.is_measuring else self.hidden_bytes)
        pool_bytes = max(run_bytes(stage, key), pool.num_bytes)
        self.take(num_bytes + pool_bytes - pool.num_bytes)
        pool.num_bytes = pool_bytes
        graph.stage, graph.key, graph.num_bytes = stage, key, num_bytes


def _added(to: WeakSet[T], item: T) -> T:
    to.add(item)
    return item


def load(directory: Path, card: Card, *, max_streams: int = 64) -> Engine:
    config = BatchedConfig(
        engine=EngineConfig(max_streams=max_streams),
        device=torch.device("cpu"),
        memory_bytes=64 << 20,
        calibration_rows=(),
    )
    engine = BatchedLoader(directory, lambda: VOICES, config).load(card.told)
    assert engine is not None
    return engine


def flow_calls() -> Iterator[tuple[int, int]]:
    """Tokens that a call runs and pages that it looks at, for every voice, length and choice of hops."""
    for speaker in VOICES.values():
        num_prompt = len(speaker.flow_tokens)
        final = max(0, num_prompt - 3) // 25 * 25
        for hop, num_tokens in itertools.product(HOPS, range(1, MAX_SPEECH_TOKENS + 1)):
            schedule = HopSchedule(num_prompt, hop=exact_hop(num_prompt))
            for call in calls_for(schedule, num_tokens):
                behind = num_prompt + call.num_given
                start = final if call.num_given == 0 else behind // 25 * 25
                end = behind + call.num_new
                yield end - start, -(-end // 25)
                schedule.hop = hop + -(end + hop) % 25


def test_every_reachable_key_is_warm(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, 200 * GIB)
    runner = runner_of(load(directory, card, max_streams=300))
    limits = EngineConfig()
    keys = {stage: card.keys(stage) for stage in card.calls}

    step = card.calls["decode"]
    for num_used in range(1, runner.num_slots + 1):
        for length in (1, 100, 128, 129, 500, 600, NUM_POSITIONS):
            rows = min(-(-num_used // 1), runner.num_slots)
            key = step.fit((rows, length))
            assert key in keys["decode"]
            assert key[0] >= num_used
            assert key[1] >= length
    prefill = card.calls["prefill"]
    for rows, width in itertools.product(range(1, 17), range(1, MAX_LM_TOKENS + MAX_TEXT_TOKENS + 3)):
        for end in (width, min(width + 100, NUM_POSITIONS), NUM_POSITIONS):
            assert prefill.fit((rows, width, end)) in keys["prefill"]
    flow = card.calls["flow"]
    for num_tokens, num_pages in set(flow_calls()):
        for rows in range(1, limits.max_flow_rows + 1):
            bucket = FlowShape(rows, num_tokens, num_pages).bucket(25)
            assert flow.fit(bucket) in keys["flow"], bucket
    vocoder = card.calls["vocoder"]
    calls = {
        (call.num_new, call.num_given == 0)
        for count in range(1, 601)
        for call in calls_for(HopSchedule(38, hop=12), count)
    }
    for num_new, is_first in calls:
        num_frames = 2 * num_new + (0 if is_first else CROSSFADE_FRAMES)
        filled = bucket_of(num_frames, vocoder_runner.FRAME_BUCKETS)
        for rows in range(1, min(vocoder_runner.most_rows(filled), limits.max_flow_rows) + 1):
            assert vocoder.fit((rows, filled, 0)) in keys["vocoder"], num_frames


def test_the_sizes_that_a_fuller_plan_leaves_out_are_filled_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card(monkeypatch, 14 * GIB)
    runner = runner_of(load(directory, card, max_streams=64))
    flow, keys = card.calls["flow"], card.keys("flow")
    assert len(flow) < len(runner.flow_shapes(32))
    for num_tokens, num_pages in set(flow_calls()):
        bucket = FlowShape(3, num_tokens, num_pages).bucket(25)
        assert bucket is not None
        assert flow.fit(bucket) in keys


@pytest.mark.parametrize(("free_gib", "coarseness"), [(130, 0), (70, 0), (21, 2), (14, 3)])
def test_cards_get_the_graphs_that_fit(
    directory: Path, monkeypatch: pytest.MonkeyPatch, free_gib: int, coarseness: int
) -> None:
    """21 GiB are what the weights leave of a card of 24 GB."""
    card = Card(monkeypatch, free_gib * GIB)
    runner = runner_of(load(directory, card))
    expected = runner.num_graphs(32, 64 + spare_slots(64), coarseness)
    num_recorded = {stage: len(card.keys(stage)) for stage in NODES}
    assert num_recorded.pop("prefill") + num_recorded.pop("decode") == expected.pop("lm")
    assert num_recorded == expected
    assert card.planned_bytes <= 0.4 * free_gib * GIB


@pytest.mark.parametrize("free_gib", [13, 21, 70])
def test_what_is_planned_for_graphs_is_what_they_take_with_what_their_calls_need(
    directory: Path, monkeypatch: pytest.MonkeyPatch, free_gib: int
) -> None:
    """Pages have all the rest: what is not planned for ends the start. 13 GiB are what a T4 has left."""
    card = Card(monkeypatch, free_gib * GIB)
    load(directory, card)
    assert 0.8 * card.planned_bytes < card.most_taken <= card.planned_bytes


def test_when_they_do_not_fit_after_all_fewer_are_tried(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, 30 * GIB, hidden_bytes=100_000_000)
    runner = runner_of(load(directory, card))
    assert 0 < len(card.keys("flow")) < len(runner.flow_shapes(32, 1))
    assert card.free_bytes >= 0


def test_a_card_that_is_too_small_is_told_with_the_key_to_change(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card(monkeypatch, 6 * GIB)
    with pytest.raises(ConfigError, match=r"CUDA graphs do not fit: .* graphs = false, or lower tts\.max_streams"):
        load(directory, card)
    card.total_bytes = 50 << 20
    with pytest.raises(ConfigError, match=r"not even one CUDA graph .* graphs = false, or lower tts\.max_streams"):
        load(directory, card)


def test_the_choice_goes_from_many_to_few() -> None:
    counts = [{"flow": 100}, {"flow": 50}, {"flow": 10}]
    assert choose_coarseness(counts, {"flow": 10}, 5, 10_000) == (0, 1005)
    assert choose_coarseness(counts, {"flow": 10}, 5, 2_000) == (1, 505)
    assert choose_coarseness(counts, {"flow": 10}, 5, 10_000, 2) == (2, 105)
    with pytest.raises(ConfigError, match="the fewest take 105 bytes"):
        choose_coarseness(counts, {"flow": 10}, 5, 100)
    assert COARSENESS[0] == (1, 1)
