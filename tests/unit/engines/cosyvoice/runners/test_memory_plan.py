"""Memory is shared out between slots and pages."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from cc_tts.engines.cosyvoice.model.loader import SpeechModel, load_model
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.runners.kv_cache import FlowArena
from cc_tts.engines.cosyvoice.runners.lm import LmRunner
from cc_tts.engines.cosyvoice.runners.memory_plan import MemoryPlan, plan_memory, usable_bytes
from cc_tts.errors import ConfigError
from lab.cosyvoice.tiny_model import make_tiny_model

pytestmark = pytest.mark.unit

NUM_POSITIONS = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SpeechModel:
    directory: Path = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    return load_model(directory, device="cpu")


def plan(model: SpeechModel, free_bytes: int = 1 << 30, *, max_streams: int = 16, memory_bytes: int = 0) -> MemoryPlan:
    return plan_memory(
        model,
        free_bytes=free_bytes,
        max_streams=max_streams,
        num_positions=NUM_POSITIONS,
        memory_bytes=memory_bytes,
    )


def test_a_slot_costs_what_it_takes(model: SpeechModel, monkeypatch: pytest.MonkeyPatch) -> None:
    slot_bytes = plan(model).slot_bytes
    cache_bytes, new_cache = [0], SpeechLm.new_cache

    def counted(lm: SpeechLm, *sizes: int) -> torch.Tensor:
        cache = new_cache(lm, *sizes)
        cache_bytes[0] += cache.nbytes
        return cache

    monkeypatch.setattr(SpeechLm, "new_cache", counted)
    LmRunner(model.lm, num_slots=3, num_positions=NUM_POSITIONS)
    arena = FlowArena(model.flow, num_slots=4, num_pages=1)
    assert slot_bytes * 4 == pytest.approx(cache_bytes[0] + 4 * arena.bytes_per_slot, rel=0.02)


def test_with_enough_there_is_a_slot_for_each_stream_and_some_more(model: SpeechModel) -> None:
    full = plan(model)
    assert (full.num_streams, full.num_slots) == (16, 18)
    assert plan(model, memory_bytes=1 << 50).num_pages == 40 * 18, "no more than can be of use"
    page_bytes = FlowArena(model.flow, num_slots=1, num_pages=1).bytes_per_page
    assert plan(model, memory_bytes=50 * page_bytes + 1).num_pages == 50
    assert "16 streams, 18 slots" in str(full)


@pytest.mark.parametrize(("num_fitting", "num_streams"), [(17, 15), (8, 7), (2, 1), (1, 1)])
def test_with_less_there_are_fewer_streams(model: SpeechModel, num_fitting: int, num_streams: int) -> None:
    slot_bytes = plan(model).slot_bytes
    small = plan(model, 2 * num_fitting * slot_bytes + 2, memory_bytes=1 << 30)
    assert (small.num_slots, small.num_streams) == (num_fitting, num_streams)


def test_too_little_for_one_stream_is_told_with_keys_that_help(model: SpeechModel) -> None:
    with pytest.raises(ConfigError, match=r"1,000 bytes are free .* one stream needs .*tts\.devices.*dtype") as told:
        plan(model, 1000)
    assert "state_memory_bytes" not in told.value.detail, "nobody has set it"


def test_too_little_memory_for_pages_is_refused(model: SpeechModel) -> None:
    with pytest.raises(ConfigError, match=r"state_memory_bytes: .* hold 8 pages of .* at least 9 are needed"):
        plan(model, memory_bytes=9 * FlowArena(model.flow, num_slots=1, num_pages=1).bytes_per_page - 1)


def test_more_streams_than_the_memory_suits_leave_the_pages_of_one(model: SpeechModel) -> None:
    page_bytes = FlowArena(model.flow, num_slots=1, num_pages=1).bytes_per_page
    slot_bytes = plan(model).slot_bytes
    small = plan(model, 9 * page_bytes + 2 * slot_bytes, max_streams=256)
    assert (small.num_slots, small.num_pages) == (2, 9)


def test_what_is_free_here_is_some_of_the_machine() -> None:
    assert 0 < usable_bytes(torch.device("cpu")) < 2**50
