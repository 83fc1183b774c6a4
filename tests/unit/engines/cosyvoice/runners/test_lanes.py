"""The order of work on the device: what the two lanes may do beside each other, and what the host has waited for."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from cc_tts.clock import MonotonicClock
from cc_tts.engines.cosyvoice.model.sizes import Generation
from cc_tts.engines.cosyvoice.runners.lanes import Fetched, Lane, LaneMark, upload
from lab.cosyvoice.tiny_model import make_tiny_model
from tests.fakes.ordered_streams import OrderedStreams
from tests.support.small_engine import hang_up_during_a_call, let_hops_double, load_engine, most_apart, say
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

CPU = torch.device("cpu")
FLOW_STEPS = 2  # ten are ten times the same

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> tuple[OrderedStreams, Lane, Lane]:
    streams = OrderedStreams(monkeypatch)
    return streams, Lane(CPU), Lane(CPU)


def test_a_lane_that_follows_reads_what_was_made_before(lanes: Any) -> None:
    streams, one, other = lanes
    with streams:
        with one.entered():
            made = torch.ones(3) * 2
            other.follow()
        with other.entered():
            assert Fetched(made + 1).numbers().tolist() == [3.0] * 3


def test_numbers_are_there_when_they_have_been_waited_for_and_not_before(lanes: Any) -> None:
    streams, one, _ = lanes
    clock = MonotonicClock()
    with streams, one.entered():
        begin = LaneMark(CPU, clock)
        given = upload(torch.tensor([1, 2]), CPU)
        fetched = Fetched(given * 2)
        given.zero_()  # behind the copy
        end = LaneMark(CPU, clock)
        (copy,) = streams.pinned.values()
        assert copy.tolist() == [113, 113]
        while not fetched.wait(0.0, clock):
            pass
        assert fetched.numbers().tolist() == [2, 4]
        assert end.ms_since(begin) == 1.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("generation", [2, 3])
def test_streams_sound_the_same_from_two_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: Generation
) -> None:
    let_hops_double(monkeypatch)
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
