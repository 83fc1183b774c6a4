"""The order of work on the device: what the two lanes may do beside each other, and what the host has waited for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.clock import MonotonicClock  # noqa: E402
from cc_tts.engines.cosyvoice.engine.engine import Engine  # noqa: E402
from cc_tts.engines.cosyvoice.model.sizes import Generation  # noqa: E402
from cc_tts.engines.cosyvoice.runners.flow import FlowRunner  # noqa: E402
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall  # noqa: E402
from cc_tts.engines.cosyvoice.runners.lanes import Fetched, Lane, Mark, upload  # noqa: E402
from cc_tts.engines.cosyvoice.runners.lm import LmRunner  # noqa: E402
from lab.cosyvoice.schedule import double_hop  # noqa: E402
from lab.cosyvoice.tiny_model import make_tiny_model  # noqa: E402
from tests.fakes.ordered_streams import OrderedStreams, Race  # noqa: E402
from tests.fakes.replayed_graphs import ReplayedGraphs  # noqa: E402
from tests.support.small_engine import hang_up_during_a_call, load_engine, most_apart, say  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit

CPU = torch.device("cpu")
FLOW_STEPS = 2  # ten are ten times the same

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> tuple[OrderedStreams, Lane, Lane]:
    streams = OrderedStreams(monkeypatch)
    return streams, Lane(CPU), Lane(CPU)


def test_what_is_made_in_one_lane_is_not_there_in_another(lanes: Any) -> None:
    streams, one, other = lanes
    with streams:
        with one.entered():
            made = torch.ones(3) * 2
        with other.entered(), pytest.raises(Race, match="reads"):
            made + 1


def test_a_lane_that_follows_reads_what_was_made_before(lanes: Any) -> None:
    streams, one, other = lanes
    with streams:
        with one.entered():
            made = torch.ones(3) * 2
            other.follow()
        with other.entered():
            assert Fetched(made + 1).numbers().tolist() == [3.0] * 3


def test_what_the_host_has_fetched_is_over(lanes: Any) -> None:
    streams, one, other = lanes
    with streams:
        with one.entered():
            made = torch.ones(3) * 2
            Fetched(made).numbers()
        with other.entered():
            made.zero_()


def test_what_is_read_in_one_lane_is_not_written_in_another(lanes: Any) -> None:
    streams, one, other = lanes
    kept = torch.ones(3)
    with streams:
        with one.entered():
            kept + 1
        with other.entered():
            kept + 1
            with pytest.raises(Race, match="writes"):
                kept.zero_()


@pytest.mark.parametrize("is_recorded", [False, True])
def test_memory_does_not_go_back_to_a_lane_while_another_uses_it(lanes: Any, is_recorded: bool) -> None:
    streams, one, other = lanes
    with streams:
        with one.entered():
            made = torch.ones(3) * 2
            other.follow()
        with other.entered():
            made + 1
            if is_recorded:
                made.record_stream(torch.cuda.current_stream())
        del made
        if is_recorded:
            streams.look_for_memory_that_is_gone()
            return
        with pytest.raises(Race, match="free"):
            streams.look_for_memory_that_is_gone()


def test_numbers_are_there_when_they_have_been_waited_for_and_not_before(lanes: Any) -> None:
    streams, one, _ = lanes
    clock = MonotonicClock()
    with streams, one.entered():
        begin = Mark(CPU, clock)
        given = upload(torch.tensor([1, 2]), CPU)
        fetched = Fetched(given * 2)
        given.zero_()  # behind the copy
        end = Mark(CPU, clock)
        assert fetched._values.tolist() == [113, 113]  # noqa: SLF001 - what nobody should look at
        while not fetched.wait(0.0, clock):
            pass
        assert fetched.numbers().tolist() == [2, 4]
        assert end.ms_since(begin) == 1.0


def test_inputs_of_a_graph_are_not_overwritten_while_it_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    ReplayedGraphs(monkeypatch)
    streams = OrderedStreams(monkeypatch)
    one, other = Lane(CPU), Lane(CPU)

    def work(*, x: "Tensor") -> "tuple[Tensor]":
        return (x * 2,)

    with streams:
        with one.entered():
            graphed = GraphedCall(work, enabled=True)
            for value in (1.0, 2.0, 3.0):
                graphed.call((), x=torch.full((3,), value))
        with other.entered():
            given = torch.full((3,), 4.0)
            with pytest.raises(Race):
                graphed.call((), x=given)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("generation", [2, 3])
def test_streams_sound_the_same_from_two_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: Generation
) -> None:
    monkeypatch.setattr(Engine, "_choose_hop", double_hop)  # crossfades lie where hops end
    directory = make_tiny_model(tmp_path, generation)
    plain = say(load_engine(directory, graphs=False, flow_steps=FLOW_STEPS))
    with OrderedStreams(monkeypatch) as streams:
        engine = load_engine(directory, graphs=False, flow_steps=FLOW_STEPS)
        streams.num_beside = 0
        said = say(engine)
        hang_up_during_a_call(engine)
        streams.look_for_memory_that_is_gone()
    assert streams.num_beside > 0
    assert most_apart(said, plain) <= 2


@pytest.mark.parametrize("slip", ["follow", "wipe", "prefill"])
def test_a_slip_in_the_order_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slip: str) -> None:
    directory = make_tiny_model(tmp_path)
    streams = OrderedStreams(monkeypatch)
    if slip == "follow":
        monkeypatch.setattr(Lane, "follow", lambda _: None)
    owner, name = {"follow": (FlowRunner, ""), "wipe": (FlowRunner, "close"), "prefill": (LmRunner, "start")}[slip]
    if name:
        work = getattr(owner, name)

        def in_another_lane(*args: Any, **named: Any) -> Any:
            with Lane(CPU).entered():
                return work(*args, **named)

        monkeypatch.setattr(owner, name, in_another_lane)
    with streams, pytest.raises(Race):
        hang_up_during_a_call(load_engine(directory, graphs=False, flow_steps=FLOW_STEPS))
