"""What the engine records for a card, recorded and replayed without one; and how strict its stand-in is."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.tts.cosyvoice2 import lm_runner, model_runner, vocoder_runner  # noqa: E402
from cc_tts.tts.cosyvoice2.batched import BatchedConfig, BatchedEngine  # noqa: E402
from cc_tts.tts.cosyvoice2.engine import Engine, EngineConfig  # noqa: E402
from cc_tts.tts.cosyvoice2.graphs import GraphedCall  # noqa: E402
from cc_tts.tts.cosyvoice2.speakers import Speaker  # noqa: E402
from cc_tts.tts.stepped import StreamDone, StreamRequest  # noqa: E402
from tests.fakes.replayed_graphs import CannotBeRecorded, ReplayedGraphs  # noqa: E402
from tests.support.stepped_streams import endings, pcm_of, run  # noqa: E402
from tests.support.tiny_model import make_tiny_model  # noqa: E402
from tests.support.tiny_speakers import tiny_speaker  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit

MAX_STREAMS: Final = 3
VOICES: Final = ("zero_shot", "cross_lingual", "instruct", "builtin")
FEW_TIERS: Final = {
    lm_runner: {"KEY_TIERS": (256, 512), "PREFILL_ROW_TIERS": (1, 4), "WIDTH_TIERS": (32, 128, 512)},
    model_runner: {"WARM_CHUNKS": (1, 2), "WARM_PAGES": (8,), "ROW_TIERS": (1, 4)},
    vocoder_runner: {"ROW_TIERS": (1, 4), "FRAME_TIERS": (24, 50, 108)},
}
"""Recording all that a card is given would take minutes here."""

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> ReplayedGraphs:
    return ReplayedGraphs(monkeypatch)


def test_a_replay_reads_what_it_is_given_and_adds_to_what_it_keeps(replayed: ReplayedGraphs) -> None:
    total = torch.zeros(2, 3)

    def work(row: int, *, x: "Tensor") -> "tuple[Tensor, Tensor]":
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


def test_a_number_that_python_computes_is_the_one_of_the_recording(replayed: ReplayedGraphs) -> None:
    factors = iter((2, 3, 4))

    def work(*, x: "Tensor") -> "tuple[Tensor]":
        return (x * next(factors),)

    graphed = GraphedCall(work, enabled=True)
    assert [int(graphed.call((), x=torch.tensor([1]))[0]) for _ in range(3)] == [2, 3, 3]


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x * float(x.sum()),
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x + torch.tensor([1.0, 2.0]),
        lambda x: x.index_put((x > 0,), torch.zeros(())),
        lambda x: x.repeat_interleave(torch.ones(2, dtype=torch.int64)),
    ],
)
def test_what_cuda_would_not_record_is_refused(replayed: ReplayedGraphs, work: "Callable[[Tensor], Tensor]") -> None:
    graphed = GraphedCall(lambda *, x: (work(x),), enabled=True)
    with pytest.raises(CannotBeRecorded):
        graphed.call((), x=torch.tensor([1.0, 2.0]))


def test_inputs_are_not_made_to_fit(replayed: ReplayedGraphs) -> None:
    graphed = GraphedCall(lambda *, x: (x * 2,), enabled=True)
    graphed.call((), x=torch.zeros(2, 3))
    for other in (torch.zeros(1, 3), torch.zeros(2, 3, dtype=torch.float64)):
        with pytest.raises(AssertionError, match="not the inputs"):
            graphed.call((), x=other)


def speakers() -> dict[str, Speaker]:
    return {voice: tiny_speaker(voice) for voice in VOICES}


def make_engine(directory: Path, *, graphs: bool) -> Any:
    config = BatchedConfig(
        engine=EngineConfig(max_streams=MAX_STREAMS, first_audio_target_ms=60_000.0, admits_all=True),
        device=torch.device("cpu"),
        memory_bytes=64 << 20,
        calibration_rows=(),
        num_positions=512,
        graphs=graphs,
    )
    engine = BatchedEngine(directory, speakers, config)
    engine.load(lambda _: None)
    return engine


def say(engine: Any) -> list[Any]:
    """Streams of all voices, more than there is room for at a time, one of them cancelled; what each says."""
    outs: list[Any] = []
    for stream_id, voice in enumerate(VOICES[:MAX_STREAMS]):
        engine.open(StreamRequest(stream_id=stream_id, voice=voice))
        engine.push(stream_id, "welcome to the service line", 0)
        engine.end(stream_id)
    while not any(out.stream_id == 1 for out in outs):
        outs += engine.step()
    engine.cancel(1)
    engine.open(StreamRequest(stream_id=3, voice=VOICES[3]))
    for index, text in enumerate(("please hold", "the line")):
        engine.push(3, text, index)
    engine.end(3)
    outs += run(engine)
    assert endings(outs) == {stream_id: StreamDone(stream_id) for stream_id in (0, 2, 3)}
    return [np.frombuffer(pcm_of(outs, stream_id), "<i2").astype(np.int32) for stream_id in (0, 2, 3)]


def test_streams_sound_the_same_from_graphs(
    tmp_path: Path, replayed: ReplayedGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_choose_hop", lambda *_: None)  # seams lie where hops end
    for module, tiers in FEW_TIERS.items():
        for name, values in tiers.items():
            monkeypatch.setattr(module, name, values)
    directory = make_tiny_model(tmp_path)
    plain = say(make_engine(directory, graphs=False))
    assert (len(replayed.graphs), replayed.num_replays) == (0, 0)
    engine = make_engine(directory, graphs=True)
    num_graphs = len(replayed.graphs)
    said = say(engine)
    runner = engine.runner
    for recorded in (runner._lm._prefill, runner._lm._step, runner._flow._graphs, runner._vocoder._run):
        assert any(each.graph.num_replays for each in recorded._recorded.values())
    assert len(replayed.graphs) == num_graphs  # none is recorded in service
    for ours, theirs in zip(said, plain, strict=True):
        assert len(ours) == len(theirs) > 0
        assert np.abs(ours - theirs).max() <= 2
