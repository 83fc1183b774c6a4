from pathlib import Path

import pytest

from cc_tts.config import load as configuration
from cc_tts.config.schema import Config
from cc_tts.engines.engine import Engine
from cc_tts.engines.factory import engine_names, make_engine, worker_settings
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.messages import Purpose
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit


def config(**tts: object) -> Config:
    return configuration.from_tree({"tts": tts})


def engines_behind(engine: Engine) -> dict[str, str]:
    """The name of each worker process, and of the engine that it belongs to."""
    assert isinstance(engine, WorkerEngine)
    found = {link.name: engine.name for link in engine._workers}
    for other in engine._others:
        found |= engines_behind(other)
    return found


@pytest.mark.parametrize(
    ("tts", "names"),
    [
        ({}, ("onnx", "espeak")),
        ({"model_dir": "/models/cosyvoice2"}, ("cosyvoice2", "espeak")),
        ({"engine": "onnx"}, ("onnx",)),
        ({"engine": "espeak", "model_dir": "/models/cosyvoice2"}, ("espeak",)),
    ],
)
def test_the_engines_that_are_meant(tts: dict[str, object], names: tuple[str, ...]) -> None:
    assert engine_names(config(**tts).tts) == names


def test_espeak_is_one_worker_of_one_thread_that_nothing_else_speaks_beside() -> None:
    wanted = config(engine="espeak", devices=["cuda:0", "cuda:1"], voices_dir="/nowhere", fallback_engine="espeak")
    engine = make_engine(wanted)
    assert engine.name == "espeak"
    assert engine.not_ready_because() == "the engine is not started"
    assert engines_behind(engine) == {"espeak": "espeak"}
    (settings,) = worker_settings(wanted)
    assert (settings.device, settings.tts.num_threads, settings.tts.max_streams) == ("cpu", 1, 512)


@pytest.mark.parametrize(
    ("tts", "message"),
    [
        ({"engine": "espeek"}, "did you mean 'espeak'"),
        ({"engine": "cosyvoice"}, "did you mean 'cosyvoice2'"),
        ({"engine": ""}, "no engine is called ''"),
        ({"engine": "cosyvoice2"}, "tts.model_dir is empty; `cc-tts model download`"),
        ({"engine": "cosyvoice2", "model_dir": "/nowhere"}, "tts.model_dir: /nowhere: no such directory"),
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
    assert isinstance(engine, WorkerEngine)
    assert [link.name for link in engine._workers] == ["grpc://10.0.0.5:7400"]
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
    assert isinstance(engine, WorkerEngine)
    assert (engine._fallback is not None, engine._beside is not None) == (fallback, beside)
    others = {"espeak": "espeak"} if fallback or beside else {}
    assert engines_behind(engine) == {"worker": str(tts.get("engine", "auto")), **others}


def test_cosyvoice2_is_made_with_a_worker_for_each_device(tmp_path: Path) -> None:
    wanted = config(engine="cosyvoice2", model_dir=str(tmp_path), devices=["cuda:0", "cuda:1"], max_streams=7)
    engine = make_engine(wanted)
    assert isinstance(engine, WorkerEngine)
    assert engine.name == "cosyvoice2"
    assert engine.not_ready_because() == "the engine is not started"
    assert [each.device for each in worker_settings(wanted, "say")] == ["cuda:0"]
    _, settings = worker_settings(wanted)
    assert (settings.device, settings.tts.max_streams, settings.tts.model_dir) == ("cuda:1", 7, str(tmp_path))
    assert settings.tts.num_threads >= 1
