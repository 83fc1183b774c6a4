"""What a model can be set to beside its defaults, on a CUDA device: streams end well.

Compiling takes minutes, so ``make gpu-check`` leaves this to ``--all``.
"""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from lab.cosyvoice.tiny_model import make_tiny_model  # noqa: E402
from tests.support.captured_logs import capture_logs  # noqa: E402
from tests.support.small_engine import load_engine, num_graphs, say  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]


@pytest.fixture(scope="module", params=[2, 3])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), request.param)


def test_compiled_code_ends_streams_well(directory: Path, device: str) -> None:
    with capture_logs() as lines:
        engine = load_engine(directory, graphs=True, compiles=True, fuses=True, device=device)
    assert [line for line in lines if line["event"] in {"not_compiled", "kernels_not_used"}] == []
    recorded = num_graphs(engine)
    assert min(recorded.values()) > 0
    assert all(len(samples) > 0 for samples in say(engine))
    assert engine.load_report().num_not_finite == 0
    assert num_graphs(engine) == recorded


@pytest.mark.parametrize("setting", [{"page_type": "int8"}, {"flow_steps": 5}, {"flow_context": 4}], ids=str)
def test_streams_say_as_much_with_and_without_kernels(directory: Path, device: str, setting: dict[str, Any]) -> None:
    said = []
    for kernels in (True, False):
        engine = load_engine(directory, graphs=True, kernels=kernels, device=device, dtype=torch.float32, **setting)
        said.append([len(samples) for samples in say(engine)])
        assert engine.load_report().num_not_finite == 0
    assert said[0] == said[1]
    assert min(said[0]) > 0
