"""What the engine records for a card, recorded and replayed without one; and how strict its stand-in is."""

from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.sizes import Generation
from cc_tts.engines.cosyvoice.runners import causal_vocoder
from cc_tts.engines.cosyvoice.runners import lm as lm_runner
from cc_tts.engines.cosyvoice.runners import runner as model_runner
from cc_tts.engines.cosyvoice.runners import vocoder as vocoder_runner
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall
from lab.cosyvoice.tiny_model import make_tiny_model
from tests.fakes.replayed_graphs import ReplayedGraphs
from tests.support.small_engine import let_hops_double, load_engine, most_apart, num_graphs, say
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

FEW_BUCKETS: Final[dict[Any, dict[str, tuple[int, ...]]]] = {
    lm_runner: {"KEY_BUCKETS": (256, 512), "PREFILL_ROW_BUCKETS": (1, 4), "WIDTH_BUCKETS": (32, 128, 512)},
    model_runner: {"WARM_CHUNKS": (1, 2), "WARM_PAGES": (24,), "ROW_BUCKETS": (1, 4)},
    vocoder_runner: {"ROW_BUCKETS": (1, 4), "FRAME_BUCKETS": (24, 50, 108)},
    causal_vocoder: {"ROW_BUCKETS": (1, 4), "FRAME_BUCKETS": (46, 108)},
}
"""Recording all that a card is given would take minutes here."""

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> ReplayedGraphs:
    return ReplayedGraphs(monkeypatch)


def test_a_replay_reads_what_it_is_given_and_adds_to_what_it_keeps(replayed: ReplayedGraphs) -> None:
    total = torch.zeros(2, 3)

    def work(row: int, *, x: Tensor) -> tuple[Tensor, Tensor]:
        doubled = x.reshape(-1) * 2
        total[row].add_(doubled)
        return doubled, total.sum(dim=1)

    graphed = GraphedCall(work, enabled=True)
    answers: list[Any] = [
        (row, *graphed.call((row,), x=torch.full((3, 1), value)))
        for row, value in ((0, 1.0), (1, 10.0), (0, 2.0), (1, 20.0), (0, 3.0))
    ]
    assert [(row, doubled.tolist()) for row, doubled, _ in answers] == [
        (0, [2.0] * 3),
        (1, [20.0] * 3),
        (0, [4.0] * 3),
        (1, [40.0] * 3),
        (0, [6.0] * 3),
    ]
    assert total.tolist() == [[12.0] * 3, [60.0] * 3]
    assert [sums.tolist() for *_, sums in answers][-2:] == [[18.0, 180.0], [36.0, 180.0]]
    assert (len(replayed.graphs), replayed.num_replays) == (2, 3)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("generation", "most"),
    [(2, 2), pytest.param(3, 40, marks=pytest.mark.slow)],  # a last place of a phase is more (v3 §5.6)
)
def test_streams_sound_the_same_from_graphs(
    tmp_path: Path, replayed: ReplayedGraphs, monkeypatch: pytest.MonkeyPatch, generation: Generation, most: int
) -> None:
    let_hops_double(monkeypatch)
    for module, buckets in FEW_BUCKETS.items():
        for name, values in buckets.items():
            monkeypatch.setattr(module, name, values)
    directory = make_tiny_model(tmp_path, generation)
    plain = say(load_engine(directory, graphs=False))
    assert (len(replayed.graphs), replayed.num_replays) == (0, 0)
    engine = load_engine(directory, graphs=True)
    num_recorded = len(replayed.graphs)
    assert sum(num_graphs(engine).values()) == num_recorded
    said = say(engine)
    assert {graph.stage for graph in replayed.graphs if graph.num_replays} == {"prefill", "decode", "flow", "vocoder"}
    assert len(replayed.graphs) == num_recorded, "recorded in service"
    assert most_apart(said, plain) <= most
