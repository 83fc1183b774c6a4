from pathlib import Path
from typing import Final

import pytest

from cc_tts.config import load as configuration
from cc_tts.config.schema import Config
from cc_tts.engines.factory import engine_names, make_engine, with_one_model, worker_settings
from cc_tts.engines.worker.messages import Purpose
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit


MAIN: Final = {"main": {"model_dir": "/models/cosyvoice2"}}


def config(**tts: object) -> Config:
    return configuration.from_tree({"tts": tts})


def workers_of(config: Config, purpose: Purpose = "serve") -> list[str]:
    return [link.name for link in make_engine(config, purpose=purpose).workers]


@pytest.mark.parametrize(
    ("tts", "names"),
    [
        ({}, ("onnx", "espeak")),
        ({"models": MAIN}, ("cosyvoice2", "espeak")),
        ({"engine": "onnx"}, ("onnx",)),
        ({"engine": "espeak", "models": MAIN}, ("espeak",)),
    ],
)
def test_the_engines_that_are_meant(tts: dict[str, object], names: tuple[str, ...]) -> None:
    assert engine_names(config(**tts).tts) == names


def test_espeak_is_one_worker_of_one_thread_that_nothing_else_speaks_beside() -> None:
    wanted = config(engine="espeak", devices=["cuda:0", "cuda:1"], voices_dir="/nowhere", fallback_engine="espeak")
    engine = make_engine(wanted)
    assert engine.name == "espeak"
    assert engine.not_ready_because() == "the engine is not started"
    assert [link.name for link in engine.workers] == ["espeak"]
    (settings,) = worker_settings(wanted)
    assert (settings.device, settings.tts.num_threads, settings.tts.max_streams) == ("cpu", 1, 512)


@pytest.mark.parametrize(
    ("tts", "message"),
    [
        ({"engine": "espeek"}, "did you mean 'espeak'"),
        ({"engine": "cosyvoice"}, "did you mean 'cosyvoice2'"),
        ({"engine": ""}, "no engine is called ''"),
        ({"engine": "cosyvoice2"}, "there is no model: set model_dir in .* `cc-tts model download`"),
        (
            {"engine": "cosyvoice2", "models": {"a": {"model_dir": "/nowhere"}}},
            "tts.models.a.model_dir: /nowhere: no such",
        ),
        (
            {"engine": "cosyvoice2", "models": {"a": {"model_dir": "/", "voices_dir": "/nowhere"}}},
            "tts.models.a.voices_dir: /nowhere: no such directory",
        ),
    ],
)
def test_what_cannot_be_made(tts: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_engine(config(**tts))


@pytest.mark.parametrize("devices", [[], ["gpu"], ["cuda:x"], ["cpu", "cuda:1;"]])
def test_a_device_must_be_one(devices: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"tts\.devices"):
        config(devices=devices)


def test_an_engine_with_workers_elsewhere_needs_no_model() -> None:
    pytest.importorskip("grpc")
    engine = make_engine(config(engine="cosyvoice2", devices=[], workers=["grpc://10.0.0.5:7400", "dns:workers:7400"]))
    assert [link.name for link in engine.workers] == ["grpc://10.0.0.5:7400"]
    assert engine.name == "cosyvoice2"


@pytest.mark.parametrize(
    ("tts", "purpose", "fallback", "beside"),
    [
        ({}, "serve", True, True),
        ({"fallback_engine": ""}, "serve", False, True),
        ({"engine": "onnx"}, "serve", False, False),
        ({"engine": "onnx", "fallback_engine": "espeak"}, "serve", True, False),
        ({"engine": "onnx", "fallback_engine": "espeak"}, "say", False, False),
        ({}, "say", False, True),
    ],
)
def test_espeak_beside_a_neural_voice_is_a_process_of_its_own(
    tts: dict[str, object], purpose: Purpose, fallback: bool, beside: bool
) -> None:
    engine = make_engine(config(**tts), purpose=purpose)
    assert (engine._fallback is not None, engine._beside is not None) == (fallback, beside)
    assert engine.name == tts.get("engine", "auto")
    assert workers_of(config(**tts), purpose) == ["worker", *(["espeak"] if fallback or beside else [])]


def test_cosyvoice2_is_made_with_a_worker_for_each_device(tmp_path: Path) -> None:
    models = {"main": {"model_dir": str(tmp_path)}}
    wanted = config(engine="cosyvoice2", models=models, devices=["cuda:0", "cuda:1"], max_streams=7)
    engine = make_engine(wanted)
    assert engine.name == "cosyvoice2"
    assert engine.not_ready_because() == "the engine is not started"
    assert [link.name for link in engine.workers] == ["worker-0", "worker-1"]
    assert [each.device for each in worker_settings(wanted, "say")] == ["cuda:0"]
    _, settings = worker_settings(wanted)
    assert (settings.device, settings.tts.max_streams) == ("cuda:1", 7)
    assert settings.tts.models["main"].model_dir == str(tmp_path)
    assert settings.tts.num_threads >= 1


# --- several models


def two_models(tmp_path: Path, **second: object) -> dict[str, dict[str, object]]:
    for name in ("v2", "v3", "voices"):
        (tmp_path / name).mkdir()
    first: dict[str, object] = {"model_dir": str(tmp_path / "v2"), "dtype": "float16", "devices": ["cuda:0", "cuda:1"]}
    return {"v2": first, "v3": {"model_dir": str(tmp_path / "v3"), "voices_dir": str(tmp_path / "voices"), **second}}


def test_each_model_has_its_own_workers_with_its_own_settings(tmp_path: Path) -> None:
    models = two_models(tmp_path, devices=["cuda:2"], flow_steps=5)
    wanted = config(engine="cosyvoice2", models=models)
    assert workers_of(wanted) == ["worker-v2-0", "worker-v2-1", "worker-v3"]
    first, second, third = worker_settings(wanted)
    assert [each.device for each in (first, second, third)] == ["cuda:0", "cuda:1", "cuda:2"]
    assert (list(first.tts.models), first.tts.models["v2"].dtype, first.tts.voices_dir) == (["v2"], "float16", "")
    assert (list(third.tts.models), third.tts.models["v3"].flow_steps) == (["v3"], 5)
    assert third.tts.voices_dir == str(tmp_path / "voices")
    assert [each.device for each in worker_settings(wanted, "say")] == ["cuda:0", "cuda:2"]


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
def test_two_models_on_one_gpu_need_bounds(tmp_path: Path, device: str) -> None:
    models = two_models(tmp_path, devices=[device])
    with pytest.raises(ConfigError, match=r"v2 and v3 are on the same device .* set tts\.max_streams and"):
        make_engine(config(engine="cosyvoice2", models=models))
    bounded = {name: {**model, "state_memory_bytes": 10**9} for name, model in models.items()}
    assert len(worker_settings(config(engine="cosyvoice2", models=bounded, max_streams=8))) == 3
    on_cpu = {name: {**model, "devices": ["cpu"]} for name, model in models.items()}
    assert len(worker_settings(config(engine="cosyvoice2", models=on_cpu))) == 2


def test_a_worker_for_other_machines_speaks_with_one_model(tmp_path: Path) -> None:
    wanted = config(models=two_models(tmp_path, devices=["cuda:2"]))
    for name, message in (
        ("", "there are several: give --model with one of v2, v3"),
        ("v4", "'v4' is not one of them"),
    ):
        with pytest.raises(ConfigError, match=message):
            with_one_model(wanted, name)
    one = with_one_model(wanted, "v3")
    (settings,) = worker_settings(one)
    assert (settings.device, list(settings.tts.models), one.tts.engine) == ("cuda:2", ["v3"], "cosyvoice2")
    assert with_one_model(one) == one
    with pytest.raises(ConfigError, match="--model v3: there is no"):
        with_one_model(config(), "v3")
