"""The engine on a CUDA device: graphs are recorded and replayed there, nothing grows, and a full card ends no later stream.

What can be known without a card is in ``tests/unit/engines/cosyvoice/runners/test_replayed_graphs.py``.
"""

import gc
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.engines.cosyvoice.engine.engine import Engine  # noqa: E402
from cc_tts.engines.cosyvoice.model.loader import dtype_for  # noqa: E402
from cc_tts.engines.cosyvoice.model.networks.trial import form_on  # noqa: E402
from cc_tts.engines.cosyvoice.model.sizes import FlowConfig, LmConfig  # noqa: E402
from cc_tts.engines.engine_core import StreamDone  # noqa: E402
from cc_tts.errors import EngineFailed  # noqa: E402
from lab.cosyvoice.tiny_model import make_tiny_model  # noqa: E402
from tests.parity import command as parity  # noqa: E402
from tests.support.golden import GOLDEN  # noqa: E402
from tests.support.small_engine import (  # noqa: E402
    VOICES,
    hang_up_during_a_call,
    load_engine,
    most_apart,
    num_graphs,
    open_streams,
    runner_of,
    say,
)
from tests.support.stepped_streams import endings, run  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]

NUM_ROUNDS = 20
LEFT_BYTES = 512


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def from_graphs(directory: Path, device: str) -> Engine:
    return load_engine(directory, graphs=True, device=device, dtype=torch.float32)


@pytest.mark.parametrize("graphs", [[], ["--graphs"]])
def test_the_engine_meets_the_references(device: str, graphs: list[str]) -> None:
    assert parity.main([str(GOLDEN), "--size", "tiny", "--device", device, "--engine", *graphs]) == 0


def test_every_stage_has_graphs(from_graphs: Engine) -> None:
    assert [num > 0 for num in num_graphs(from_graphs).values()] == [True] * 4


def test_streams_sound_the_same_from_graphs(directory: Path, device: str, from_graphs: Engine) -> None:
    plain = load_engine(directory, graphs=False, device=device, dtype=torch.float32)
    assert sum(num_graphs(plain).values()) == 0
    assert most_apart(say(from_graphs), say(plain)) <= 4


def test_streams_sound_the_same_one_stage_after_the_other(directory: Path, device: str, from_graphs: Engine) -> None:
    plain = load_engine(directory, graphs=True, overlaps=False, device=device, dtype=torch.float32)
    assert most_apart(say(from_graphs), say(plain)) <= 4


def test_streams_that_are_hung_up_on_during_a_call_leave_nothing(directory: Path, device: str) -> None:
    engine = load_engine(directory, graphs=True, device=device, dtype=torch.float32)
    before = say(engine)
    for _ in range(NUM_ROUNDS):
        hang_up_during_a_call(engine)
    assert most_apart(say(engine), before) <= 4
    runner = runner_of(engine)
    assert (len(runner.decode({}, 0)), runner.num_free_pages) == (0, runner.num_pages)


def test_streams_sound_the_same_with_more_kernels_and_without_any(
    directory: Path, device: str, from_graphs: Engine
) -> None:
    form = form_on(torch.device(device), torch.float32, "auto", LmConfig(), FlowConfig(), fuses=True)
    has_kernels = torch.cuda.get_device_capability(device) >= (8, 0)
    assert (form.in_place, form.fused) == (has_kernels, has_kernels)
    for kernels in ({"fuses": True}, {"kernels": False}):
        other = load_engine(directory, graphs=True, device=device, dtype=torch.float32, **kernels)
        assert most_apart(say(from_graphs), say(other)) <= 4, kernels


def test_streams_end_well_in_the_type_of_the_card(directory: Path, device: str) -> None:
    engine = load_engine(directory, graphs=True, device=device, dtype=dtype_for(torch.device(device)))
    assert all(len(samples) > 0 for samples in say(engine))
    assert engine.load_report().num_not_finite == 0


def test_nothing_is_recorded_and_nothing_grows_in_service(device: str, from_graphs: Engine) -> None:
    before = num_graphs(from_graphs)
    say(from_graphs)
    gc.collect()
    held = torch.cuda.memory_allocated(device)
    for _ in range(NUM_ROUNDS):
        say(from_graphs)
    gc.collect()
    assert torch.cuda.memory_allocated(device) == held
    assert num_graphs(from_graphs) == before


def test_a_full_card_ends_the_streams_that_needed_more_and_no_later_ones(device: str, directory: Path) -> None:
    engine = load_engine(directory, graphs=False, device=device, dtype=torch.float32)
    say(engine)
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    hog = []
    while free_bytes > LEFT_BYTES:
        try:
            hog.append(torch.empty(free_bytes, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            free_bytes //= 2
    open_streams(engine, dict(enumerate(VOICES[:2])), "welcome to the service line")
    done = endings(run(engine))
    assert sorted(done) == [0, 1]
    assert all(isinstance(each.error, EngineFailed) for each in done.values())
    hog.clear()
    torch.cuda.empty_cache()
    open_streams(engine, dict(enumerate(VOICES[:2])), "welcome to the service line")
    assert endings(run(engine)) == {0: StreamDone(0), 1: StreamDone(1)}
    runner = runner_of(engine)
    assert (len(runner.decode({}, 0)), runner.num_free_pages) == (0, runner.num_pages)
