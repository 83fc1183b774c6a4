from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall, bucket_of, buckets_up_to, claim
from cc_tts.engines.cosyvoice.runners.lanes import upload

pytestmark = pytest.mark.unit


def test_buckets() -> None:
    buckets = (2, 4, 8)
    assert [bucket_of(number, buckets) for number in (0, 1, 2, 3, 8, 9, 16, 17)] == [2, 2, 2, 4, 8, 16, 16, 24]


@pytest.mark.parametrize("number", [1, 2, 3, 8, 9, 17])
def test_buckets_up_to_a_number_are_all_that_it_and_smaller_ones_fall_in(number: int) -> None:
    buckets = (2, 4, 8)
    assert buckets_up_to(number, buckets) == sorted(
        {bucket_of(each, buckets) for each in range(number + 1)}, reverse=True
    )


def test_upload_to_the_host_is_nothing() -> None:
    values = torch.arange(3)
    assert torch.equal(upload(values, torch.device("cpu")), values)


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
def test_a_card_is_made_the_current_one(monkeypatch: pytest.MonkeyPatch, device: str, number: int) -> None:
    claimed: list[object] = []
    monkeypatch.setattr(torch.cuda, "set_device", claimed.append)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda *, enabled: claimed.append(enabled))
    claim(torch.device("cpu"))
    assert claimed == []
    claim(torch.device(device))
    assert claimed == [number, False]


def test_without_graphs_each_call_is_a_plain_one() -> None:
    seen: list[tuple[int, int]] = []

    def work(rows: int, *, x: Tensor) -> tuple[Tensor]:
        seen.append((rows, int(x)))
        return (x * rows,)

    graphed = GraphedCall(work, enabled=False)
    for number in (5, 6):
        assert [int(answer) for answer in graphed.call((2,), x=torch.tensor(number))] == [2 * number]
    graphed.freeze()
    assert int(graphed.call((3,), x=torch.tensor(7))[0]) == 21
    assert seen == [(2, 5), (2, 6), (3, 7)]
    assert len(graphed) == 0


class FakeCuda:
    """Records what runs under ``torch.cuda.graph`` without running it, as CUDA does; the work here is ``y = x + key``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recording = False
        self.log: list[str] = []
        self.work_of: dict[int, Any] = {}
        fake = self

        class Stream:
            def wait_stream(self, other: object) -> None:
                fake.log.append("wait")

        class Graph:
            def replay(self) -> None:
                fake.log.append("replay")
                inputs, outputs, key = fake.work_of[id(self)]
                outputs.copy_(inputs + key)

        @contextmanager
        def graph(recorded: Graph, **options: object) -> Iterator[None]:
            assert options["capture_error_mode"] == "thread_local"
            self.recording, self.recorded = True, recorded
            yield
            self.recording = False

        for name, value in {
            "Stream": Stream,
            "current_stream": Stream,
            "CUDAGraph": Graph,
            "graph": graph,
            "stream": lambda _: nullcontext(),
            "graph_pool_handle": lambda: (0, 0),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)

    def work(self, key: int, *, x: Tensor) -> tuple[Tensor]:
        if self.recording:
            self.log.append(f"record {key}")
            outputs = torch.full_like(x, -1)
            self.work_of[id(self.recorded)] = (x, outputs, key)
            return (outputs,)
        self.log.append(f"run {key}")
        return (x + key,)


def test_the_first_call_of_a_key_answers_and_records_the_others_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    graphed = GraphedCall(cuda.work, enabled=True)
    given = [torch.tensor([number]) for number in (1, 2, 3, 4)]
    answers = [graphed.call((key,), x=x)[0] for key, x in zip((10, 10, 20, 10), given, strict=True)]
    assert [int(answer) for answer in answers] == [11, 12, 23, 14]  # no answer is overwritten by a later one
    assert [int(x) for x in given] == [1, 2, 3, 4]
    assert len(graphed) == 2
    done = [entry for entry in cuda.log if entry != "wait"]
    assert done == ["run 10", "record 10", "replay", "run 20", "record 20", "replay"]


def test_frozen_it_records_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    graphed = GraphedCall(cuda.work, enabled=True)
    graphed.call((1,), x=torch.tensor([1]))
    graphed.freeze()
    assert int(graphed.call((2,), x=torch.tensor([5]))[0]) == 7
    assert int(graphed.call((1,), x=torch.tensor([5]))[0]) == 6
    assert len(graphed) == 1
    assert cuda.log[-2:] == ["run 2", "replay"]
