"""Every shape that there can be at speed 1 has a graph; a card with little memory gets fewer of them, or an error."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

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
from cc_tts.engines.cosyvoice.runners import memory_plan
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
from tests.support.small_engine import runner_of
from tests.support.tiny_speakers import tiny_speaker
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

GIB: Final = 2**30
NODE_BYTES: Final = 10_000
NODES: Final = {"lm": 560, "flow": 9_950, "vocoder": 740}
"""Kernels of a call at full size, as counted."""
RUN_BYTES: Final = {"_run_prefill": 61_000, "_run_step": 360_000, "_solve": 8_200, "_run_batch": 336_000}
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


def run_bytes(graphed: Any, key: tuple[int, ...]) -> int:
    name = getattr(graphed._fn, "func", graphed._fn).__name__
    sizes = key[:1] if name == "_run_step" else key if name == "_solve" else key[:2]
    return RUN_BYTES[name] * math.prod(sizes)


class Card:
    """A device whose graphs only take memory: nothing is run for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free_bytes: int, *, hidden_bytes: int = 0) -> None:
        self.total_bytes = free_bytes
        self.hidden_bytes = hidden_bytes
        """Of each graph, that measuring does not see."""
        self.is_measuring = True
        self.works: dict[int, str] = {}
        self.graphs: list[Any] = []
        self.pools: dict[Any, int] = {}
        """Of each kind of graphs: what the largest of them needs while it runs."""
        self.most_taken = 0
        self.planned_bytes = 0
        for module in (flow_runner, vocoder_runner, model_runner, batched):
            monkeypatch.setattr(module, "can_record", lambda _: True)
        monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        monkeypatch.setattr(GraphedCall, "_record", self._record_in(self))
        monkeypatch.setattr(batched, "can_measure", lambda _: True)
        for module in (memory_plan, batched):
            monkeypatch.setattr(module, "device_free_bytes", lambda _: self.free_bytes)
        monkeypatch.setattr(memory_plan, "_free_bytes", lambda _: int(0.85 * self.free_bytes))
        monkeypatch.setattr(batched, "_give_memory_back", self._give_back)
        monkeypatch.setattr(batched, "choose_coarseness", self._choose)

    @property
    def free_bytes(self) -> int:
        free: int = self.total_bytes - sum(self.graphs) - sum(self.pools.values())
        return free

    def _choose(self, *args: Any) -> tuple[int, int]:
        coarseness, self.planned_bytes = choose_coarseness(*args)
        return coarseness, self.planned_bytes

    def _give_back(self, _device: object) -> None:
        self.graphs.clear()
        self.pools.clear()
        self.is_measuring = False
        self.most_taken = 0

    def take(self, num_bytes: int) -> None:
        """Take memory for a moment."""
        if num_bytes > self.free_bytes:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.most_taken = max(self.most_taken, self.total_bytes - self.free_bytes + num_bytes)

    @staticmethod
    def _record_in(card: "Card") -> Any:
        def record(graphed: Any, key: tuple[int, ...], _tensors: dict[str, Any]) -> Any:
            name = getattr(graphed._fn, "func", graphed._fn).__qualname__  # of a method, or a part of one
            stage = "flow" if "Flow" in name else "vocoder" if "Vocoder" in name else "lm"
            num_bytes = NODES[stage] * NODE_BYTES + (0 if card.is_measuring else card.hidden_bytes)
            first = run_bytes(graphed, key)
            card.take(first)
            pool = max(first, card.pools.get(graphed, 0))
            card.take(num_bytes + pool - card.pools.get(graphed, 0))
            card.pools[graphed] = pool
            card.graphs.append(num_bytes)
            graphed._recorded[key] = None
            return (torch.zeros(1),)

        return record


def load(directory: Path, *, max_streams: int = 64) -> Engine:
    config = BatchedConfig(
        engine=EngineConfig(max_streams=max_streams),
        device=torch.device("cpu"),
        memory_bytes=64 << 20,
        calibration_rows=(),
    )
    engine = BatchedLoader(directory, lambda: VOICES, config).load(lambda _: None)
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
    Card(monkeypatch, 200 * GIB)
    runner = runner_of(load(directory, max_streams=300))
    limits = EngineConfig()

    step = runner._lm._step
    for num_used in range(1, runner.num_slots + 1):
        for length in (1, 100, 128, 129, 500, 600, NUM_POSITIONS):
            rows = min(-(-num_used // 1), runner.num_slots)
            key = step.fit((rows, length))
            assert key in step._recorded
            assert key[0] >= num_used
            assert key[1] >= length
    prefill = runner._lm._prefill
    for rows, width in itertools.product(range(1, 17), range(1, MAX_LM_TOKENS + MAX_TEXT_TOKENS + 3)):
        for end in (width, min(width + 100, NUM_POSITIONS), NUM_POSITIONS):
            assert prefill.fit((rows, width, end)) in prefill._recorded
    flow = runner._flow._graphs
    for num_tokens, num_pages in set(flow_calls()):
        for rows in range(1, limits.max_flow_rows + 1):
            bucket = FlowShape(rows, num_tokens, num_pages).bucket(25)
            assert flow.fit(bucket) in flow._recorded, bucket
    vocoder = runner._vocoder._run
    calls = {
        (call.num_new, call.num_given == 0)
        for count in range(1, 601)
        for call in calls_for(HopSchedule(38, hop=12), count)
    }
    for num_new, is_first in calls:
        num_frames = 2 * num_new + (0 if is_first else CROSSFADE_FRAMES)
        filled = bucket_of(num_frames, vocoder_runner.FRAME_BUCKETS)
        for rows in range(1, min(vocoder_runner.most_rows(filled), limits.max_flow_rows) + 1):
            assert vocoder.fit((rows, filled, 0)) in vocoder._recorded, num_frames


def test_the_sizes_that_a_fuller_plan_leaves_out_are_filled_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Card(monkeypatch, 14 * GIB)
    runner = runner_of(load(directory, max_streams=64))
    flow = runner._flow._graphs
    assert len(flow) < len(runner.flow_shapes(32))
    for num_tokens, num_pages in set(flow_calls()):
        bucket = FlowShape(3, num_tokens, num_pages).bucket(25)
        assert bucket is not None
        assert flow.fit(bucket) in flow._recorded


@pytest.mark.parametrize(("free_gib", "coarseness"), [(130, 0), (70, 0), (21, 2), (14, 3)])
def test_cards_get_the_graphs_that_fit(
    directory: Path, monkeypatch: pytest.MonkeyPatch, free_gib: int, coarseness: int
) -> None:
    """21 GiB are what the weights leave of a card of 24 GB."""
    card = Card(monkeypatch, free_gib * GIB)
    runner = runner_of(load(directory))
    expected = runner.num_graphs(32, 64 + spare_slots(64), coarseness)
    assert len(runner._flow._graphs) == expected["flow"]
    assert len(runner._lm._step) + len(runner._lm._prefill) == expected["lm"]
    assert len(runner._vocoder._run) == expected["vocoder"]
    assert card.planned_bytes <= 0.4 * free_gib * GIB


@pytest.mark.parametrize("free_gib", [13, 21, 70])
def test_what_is_planned_for_graphs_is_what_they_take_with_what_their_calls_need(
    directory: Path, monkeypatch: pytest.MonkeyPatch, free_gib: int
) -> None:
    """Pages have all the rest: what is not planned for ends the start. 13 GiB are what a T4 has left."""
    card = Card(monkeypatch, free_gib * GIB)
    load(directory)
    assert 0.8 * card.planned_bytes < card.most_taken <= card.planned_bytes


def test_when_they_do_not_fit_after_all_fewer_are_tried(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, 30 * GIB, hidden_bytes=100_000_000)
    runner = runner_of(load(directory))
    assert len(runner._flow._graphs) < len(runner.flow_shapes(32, 1))
    assert card.free_bytes >= 0


def test_a_card_that_is_too_small_is_told_with_the_key_to_change(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Card(monkeypatch, 6 * GIB)
    with pytest.raises(ConfigError, match=r"CUDA graphs do not fit: .* graphs = false, or lower tts\.max_streams"):
        load(directory)
    Card(monkeypatch, 50 << 20)
    with pytest.raises(ConfigError, match=r"not even one CUDA graph .* graphs = false, or lower tts\.max_streams"):
        load(directory)


def test_the_choice_goes_from_many_to_few() -> None:
    counts = [{"flow": 100}, {"flow": 50}, {"flow": 10}]
    assert choose_coarseness(counts, {"flow": 10}, 5, 10_000) == (0, 1005)
    assert choose_coarseness(counts, {"flow": 10}, 5, 2_000) == (1, 505)
    assert choose_coarseness(counts, {"flow": 10}, 5, 10_000, 2) == (2, 105)
    with pytest.raises(ConfigError, match="the fewest take 105 bytes"):
        choose_coarseness(counts, {"flow": 10}, 5, 100)
    assert COARSENESS[0] == (1, 1)
