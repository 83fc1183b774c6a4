"""The engine in the types of a V100, which has no bfloat16: no operator gets or gives one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.model import loader
from cc_tts.engines.cosyvoice.model.sizes import Generation
from cc_tts.engines.engine_core import StreamDone
from lab.cosyvoice.tiny_model import make_tiny_model
from tests.support.small_engine import load_engine, open_streams, runner_of
from tests.support.stepped_streams import endings, pcm_of, run
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

_one_thread = pytest.fixture(scope="module", autouse=True)(one_thread)


class NoBfloat16(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators by the half types among what they get and give; one of bfloat16 is an error."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_half = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = func(*args, **(kwargs or {}))
        dtypes = {each.dtype for each in tree_leaves((args, kwargs, given)) if isinstance(each, torch.Tensor)}
        if torch.bfloat16 in dtypes:
            raise TypeError(f"{func} of bfloat16")
        self.num_half += torch.float16 in dtypes
        return given


def engine_of(directory: Path, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> Engine:
    """On a CPU, in the types that a card of this capability is given."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    dtype = loader.dtype_for(torch.device("cuda"))
    monkeypatch.setattr(loader, "dtype_for", lambda _: dtype)
    return load_engine(directory, graphs=False, flow_steps=5)


@pytest.mark.parametrize("generation", [2, 3])
def test_on_a_v100_nothing_is_computed_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: "Generation"
) -> None:
    directory = make_tiny_model(tmp_path / "model", generation)
    with NoBfloat16() as mode:
        engine = engine_of(directory, monkeypatch, (7, 0))
        open_streams(engine, {0: "zero_shot"}, "hello")
        outs = run(engine)
    assert endings(outs) == {0: StreamDone(0)}
    assert mode.num_half > 1000
    assert len(set(pcm_of(outs, 0))) > 100
    assert runner_of(engine).num_not_finite == 0


def test_on_a_newer_card_it_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_tiny_model(tmp_path / "model")
    with NoBfloat16(), pytest.raises(TypeError, match="of bfloat16"):
        engine_of(directory, monkeypatch, (8, 0))
