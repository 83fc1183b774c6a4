"""How many kernels the stages ask a device for, compiled and not, and what happens where nothing can be compiled."""

import importlib.util
import shutil
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.support.captured_logs import capture_logs

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice import worker_engine
from cc_tts.engines.cosyvoice.model.networks import compiling
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice.model.networks.layers import join_linears
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm
from cc_tts.engines.cosyvoice.model.sizes import (
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    Generation,
    LmConfig,
)
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall
from lab.cosyvoice.launches import (
    GENERATED,
    kernels_of,
    lm_step,
    parts_of_flow_call,
    published_operators,
)
from tests.fakes.replayed_graphs import ReplayedGraphs
from tests.support.torch_threads import one_thread

pytestmark = [pytest.mark.unit, pytest.mark.timeout(900)]

OPERATORS: Final[dict[Generation, dict[str, int]]] = {
    2: {"lm_step": 527, "flow_call": 9386, "vocoder_call": 862},
    3: {"lm_step": 526, "flow_call": 4709, "vocoder_call": 909},
}
"""With the published sizes; ``bench/results/engine_launches.json`` has them beside the kernels of compiled code."""

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


def two_layers() -> SpeechLm:
    config = LmConfig(
        hidden_size=32, intermediate_size=64, query_size=32, key_size=16, head_dim=8, num_layers=2, text_vocab_size=300,
        num_speech_codes=200,
    )  # fmt: skip
    lm = SpeechLm(config)
    join_linears(lm)
    return lm


def flow_of_few_blocks() -> "Flow":
    estimator = {"channels": 16, "num_time": 32, "num_hidden": 32, "num_attention": 32, "head_dim": 8}
    flow = Flow(
        FlowConfig(
            vocab_size=200,
            encoder=EncoderConfig(width=32, num_heads=2, num_hidden=64, num_layers=1, num_up_layers=1),
            estimator=EstimatorConfig(num_blocks=1, num_mid_blocks=1, **estimator),
        )
    )
    join_linears(flow)
    return flow


@pytest.mark.parametrize("generation", [2, 3])
def test_operators_at_the_published_sizes(generation: Generation) -> None:
    assert published_operators(generation) == OPERATORS[generation]


def test_a_step_of_the_language_model_is_one_graph_that_copies_no_cache() -> None:
    lm = two_layers()
    counts = kernels_of(lm_step(lm, num_rows=2).compiled)
    assert sum(counts[name] for name in counts if name.endswith("mm")) == 2 * 4 + 1
    # Of a layer two norms, rotation, keys and values written, mask and gate; a copy would be one more. 20 are once.
    assert counts[GENERATED] <= 2 * 6 + 20


def test_a_flow_call_is_two_graphs_that_copy_no_pages() -> None:
    flow = flow_of_few_blocks()
    begin, euler = parts_of_flow_call(flow)
    assert begin.total() < 75
    # 3 attention blocks of 5 generated kernels and 6 of libraries, 3 residual blocks of 6 and 3, and what is once.
    assert euler.total() < 75


def test_with_kernels_for_cards_a_block_is_five_launches() -> None:
    lm = two_layers()
    lm.backbone.in_place = lm.backbone.fused = True
    counts = kernels_of(lm_step(lm, num_rows=2).compiled)
    ours = [counts[name] for name in counts if "cc_tts" in name]
    assert sum(ours) == 2 * 5
    assert counts[GENERATED] <= 32  # all but the layers: the head and the sampler

    flow = flow_of_few_blocks()
    flow.page_form = PageForm(in_place=True, fused=True)
    begin, euler = parts_of_flow_call(flow)
    assert sum(begin[name] for name in begin if "cc_tts" in name) == 2 * 6
    # 3 attention blocks of 5, 3 residual blocks of 2, 3 more convolutions; besides, inputs and state.
    assert sum(euler[name] for name in euler if "cc_tts" in name) == 3 * 5 + 3 * 2 + 3
    assert euler.total() <= 3 * 5 + 3 * 2 + 3 + 6


def recorded(work: GraphedCall) -> list[Tensor]:
    return [work.call((), x=torch.tensor([value]))[0] for value in (1.0, 2.0)]


def test_compiled_code_is_recorded_and_plain_calls_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    ReplayedGraphs(monkeypatch)
    ways: list[str] = []

    def plain(*_key: int, x: Tensor) -> tuple[Tensor]:
        ways.append("plain")
        return (x * 2,)

    def compiled(*, x: Tensor) -> tuple[Tensor]:
        ways.append("compiled")
        return (x + x,)

    work = GraphedCall(plain, enabled=True, in_few_kernels=compiled)
    assert [float(answer) for answer in recorded(work)] == [2.0, 4.0]
    assert ways == ["compiled", "compiled"]  # the first run, and the recording
    work.freeze()
    assert float(work.call((1,), x=torch.tensor([3.0]))[0]) == 6.0
    assert ways[2:] == ["plain"]


def test_where_the_compiler_fails_there_are_more_kernels_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    ReplayedGraphs(monkeypatch)

    def two_graphs(*, x: Tensor) -> tuple[Tensor]:
        torch.compiler.disable(x.tolist)()  # type: ignore[no-untyped-call]
        return (x * 2,)

    work = GraphedCall(lambda *, x: (x * 2,), enabled=True, in_few_kernels=compiling.compiled(two_graphs))
    with capture_logs() as logs:
        assert [float(answer) for answer in recorded(work)] == [2.0, 4.0]
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("not_compiled", "warning")
    assert "graphs = true" in line["remedy"]


def test_a_fault_of_the_work_itself_is_not_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    ReplayedGraphs(monkeypatch)

    def broken(*, x: Tensor) -> tuple[Tensor]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        recorded(GraphedCall(lambda *, x: (x,), enabled=True, in_few_kernels=broken))


@pytest.mark.parametrize(
    ("has_triton", "has_compiler", "has_header", "fault"),
    [
        (True, True, True, ""),
        (False, True, True, "triton is not installed"),
        (True, False, True, "no C compiler"),
        (True, True, False, "Python.h, with which Triton starts its kernels; it is in the package python3-dev"),
    ],
)
def test_a_machine_that_cannot_compile_says_what_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_triton: bool, has_compiler: bool, has_header: bool, fault: str
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object() if has_triton else None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if has_compiler else None)
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    if has_header:
        (tmp_path / "Python.h").touch()
    monkeypatch.setenv(compiling.CACHE_VARIABLE, "/elsewhere")
    with capture_logs() as logs:
        assert worker_engine.may_compile() is (not fault)
    assert fault in compiling.compiler_fault()
    assert [line["event"] for line in logs] == ["not_compiled"] * bool(fault)
