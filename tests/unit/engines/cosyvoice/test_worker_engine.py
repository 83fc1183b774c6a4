"""From a worker's settings to its engine."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.captured_logs import capture_logs

pytest.importorskip("torch")

import torch

from cc_tts.config.sections.log import LogConfig
from cc_tts.engines.cosyvoice import worker_engine
from cc_tts.engines.cosyvoice.batched import BatchedConfig
from cc_tts.engines.cosyvoice.worker_engine import (
    check_build,
    choose_device,
    load_speakers,
    make_loader,
)
from cc_tts.engines.worker.messages import WorkerSettings
from cc_tts.errors import ConfigError
from tests.support.neural_settings import neural_settings

pytestmark = pytest.mark.unit


Made = tuple[Callable[[], Mapping[str, Any]], BatchedConfig]
"""What a loader is made of: where it reads its voices, and its settings."""


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    def make(device: str = "cpu", **tts: Any) -> Made:
        made: list[Made] = []
        monkeypatch.setattr(
            worker_engine, "BatchedLoader", lambda _, speakers, config, **__: made.append((speakers, config))
        )
        section = neural_settings("/nonexistent", **tts)
        make_loader(WorkerSettings(device=device, tts=section, log=LogConfig()))
        return made[0]

    return make


def test_settings_reach_the_engine(make: Callable[..., Made]) -> None:
    _, config = make(
        max_streams=7,
        interleaved_text=True,
        first_audio_target_ms=120.0,
        max_utilisation=0.5,
        state_memory_bytes=1234,
        first_hop_tokens=15,
        flow_steps=6,
        flow_context_s=4,
        num_threads=2,
        graphs=False,
        overlap=False,
    )
    engine = config.engine
    assert (engine.max_streams, engine.interleaved, engine.first_audio_target_ms) == (7, True, 120.0)
    assert (engine.max_utilisation, engine.first_hop_tokens, engine.admits_all) == (0.5, 15, False)
    assert (config.memory_bytes, config.num_threads, config.graphs) == (1234, 2, False)
    assert (config.flow_steps, config.flow_context, config.overlaps) == (6, 4, False)
    assert config.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("dtype", "can", "expected"), [("auto", True, True), ("auto", False, False), ("float32", True, False)]
)
def test_a_cpu_has_the_language_model_in_8_bits_where_it_can_and_no_type_is_asked_for(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch, dtype: str, can: bool, expected: bool
) -> None:
    monkeypatch.setattr(worker_engine, "can_quantise", lambda: can)
    _, config = make(dtype=dtype)
    assert config.int8 is expected


def test_the_default_voice_is_the_first(make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_engine, "load_speakers", lambda *_: {"anna": 1, "ben": 2, "cleo": 3})
    for voice, expected in (("ben", ["ben", "anna", "cleo"]), ("", ["anna", "ben", "cleo"])):
        speakers, _ = make(voice=voice)
        assert list(speakers()) == expected


@pytest.mark.parametrize(
    ("wanted", "num_devices", "expected"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda:1", 2, "cuda:1")],
)
def test_the_device_is_the_one_asked_for(
    monkeypatch: pytest.MonkeyPatch, wanted: str, num_devices: int, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_devices)
    assert choose_device(wanted) == torch.device(expected)


def test_a_cpu_in_place_of_a_gpu_is_a_warning_that_names_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(worker_engine, "installed_driver", lambda: "550.90.07")
    with capture_logs() as lines:
        choose_device("auto")
        choose_device("cpu")
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("no_gpu", "warning")
    assert "550.90.07" in line["detail"]
    assert "580 or newer" in line["detail"]
    with pytest.raises(ConfigError, match=r"torch sees 0 CUDA devices; driver 550\.90\.07 was found; .*580 or newer"):
        choose_device("cuda:0")


@pytest.mark.parametrize(("wanted", "num_devices"), [("cuda", 0), ("cuda:2", 2)])
def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, wanted: str, num_devices: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_devices)
    with pytest.raises(ConfigError, match=f"there is no {wanted} here: torch sees {num_devices}"):
        choose_device(wanted)


CUDA_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("capability", "built", "is_fine"),
    [
        ((7, 0), CUDA_13, False),
        ((7, 0), ["sm_50", "sm_60", "sm_70", *CUDA_13[:4]], True),
        ((7, 5), CUDA_13, True),
        ((8, 9), CUDA_13, True),
        ((9, 0), ["sm_90a"], True),
        ((9, 0), CUDA_13, True),
        ((12, 1), ["sm_90", "compute_90"], True),
        ((12, 0), ["sm_90"], False),
        ((8, 0), ["sm_86"], False),
        ((9, 0), [], False),
    ],
)
def test_a_build_without_kernels_for_the_device_is_told_at_start(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], built: list[str], is_fine: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla")
    check_build(torch.device("cpu"))
    if is_fine:
        check_build(torch.device("cuda"))
    else:
        with pytest.raises(ConfigError, match=r"is sm_\d+, and this PyTorch .* V100 .*gpu-cuda12"):
            check_build(torch.device("cuda"))


def told(model_dir: Path, voices_dir: Path | None) -> dict[str, str]:
    return {voice_id: str(speaker) for voice_id, speaker in load_speakers(model_dir, voices_dir, []).items()}


def test_enrolled_voices_win_over_those_of_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def built_in(_: Path) -> Mapping[str, str]:
        return {"anna": "built in", "ben": "built in"}

    monkeypatch.setattr(worker_engine, "built_in_speakers", built_in)
    monkeypatch.setattr(worker_engine, "enrolled_speakers", lambda *_, **__: {"anna": "enrolled"})
    assert told(tmp_path, tmp_path) == {"anna": "enrolled", "ben": "built in"}
    assert told(tmp_path, None) == {"anna": "built in", "ben": "built in"}


def test_without_a_voice_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no voice to speak with in tts\.voices_dir, which is empty"):
        load_speakers(tmp_path, None, [])
    with pytest.raises(ConfigError, match=str(tmp_path)):
        load_speakers(tmp_path, tmp_path, [])
