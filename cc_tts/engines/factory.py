"""From the configuration to the engine."""

import difflib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.config.schema import Config, TtsConfig
from cc_tts.engines.auto import AutoEngine
from cc_tts.engines.engine import Engine
from cc_tts.engines.espeak.engine import EspeakEngine
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.messages import Purpose, WorkerSettings
from cc_tts.errors import ConfigError

COSYVOICE2: Final = "cosyvoice2"
ONNX: Final = "onnx"
OnStarting = Callable[[str], None]


def make_engine(
    config: Config,
    *,
    clock: Clock | None = None,
    purpose: Purpose = "serve",
    on_starting: OnStarting = lambda _detail: None,
) -> Engine:
    """Build the engine that ``tts.engine`` names, not yet started.

    Args:
        config: the whole configuration.
        clock: for tests.
        purpose: what it is started for (:class:`cc_tts.engines.worker.messages.WorkerSettings`).
        on_starting: called with a few words on what it does while it starts, if that takes long.

    Raises:
        ConfigError: no engine has this name (the message names the nearest one), or a key that it needs is empty.

    """
    name = config.tts.engine
    maker = _MAKERS.get(name)
    if maker is None:
        near = difflib.get_close_matches(name, _MAKERS, n=1, cutoff=0.0)
        raise ConfigError(
            f"tts.engine: no engine is called {name!r}; did you mean {near[0]!r}? Known: {', '.join(_MAKERS)}"
        )
    return maker(config, clock or MonotonicClock(), purpose, on_starting)


def engine_names(tts: TtsConfig) -> tuple[str, ...]:
    """The engines that ``tts.engine`` stands for, the preferred one first: one, or those of ``auto``."""
    if tts.engine != AutoEngine.name:
        return (tts.engine,)
    return (COSYVOICE2 if tts.model_dir else ONNX, EspeakEngine.name)


def _auto(config: Config, clock: Clock, purpose: Purpose, on_starting: OnStarting) -> Engine:
    """The neural engine that there is something for, and espeak-ng for every other language."""
    each = replace(config, tts=replace(config.tts, voice=""))  # the default voice may be of any; the prompt names it
    return AutoEngine([_MAKERS[name](each, clock, purpose, on_starting) for name in engine_names(config.tts)])


def _espeak(config: Config, clock: Clock, _purpose: Purpose, _on_starting: OnStarting) -> Engine:
    default_voice = config.tts.voice or "en-us"
    return EspeakEngine(default_voice=default_voice, stall_timeout_ms=config.tts.stall_timeout_ms, clock=clock)


def _cosyvoice2(config: Config, clock: Clock, purpose: Purpose, on_starting: OnStarting) -> Engine:
    tts = config.tts
    devices = tts.devices[:1] if purpose == "say" else tts.devices
    return WorkerEngine(
        COSYVOICE2,
        [worker_settings(config, device, purpose) for device in devices],
        clock=clock,
        default_voice=tts.voice,
        start_timeout_s=tts.worker_start_timeout_s,
        on_starting=on_starting,
        # a file may take the time that a CPU needs: nobody listens, and the engine was not measured
        stall_timeout_ms=tts.stall_timeout_ms if purpose == "serve" else tts.worker_start_timeout_s * 1000,
    )


def _onnx(config: Config, clock: Clock, purpose: Purpose, on_starting: OnStarting) -> Engine:
    tts = config.tts
    settings = WorkerSettings(
        device="cpu",
        purpose=purpose,
        tts=replace(
            tts,
            engine=ONNX,
            voices_dir=str(_voices_dir(config) or ""),
            num_threads=tts.num_threads or max(1, len(os.sched_getaffinity(0)) - 1),
            max_streams=1 if purpose == "say" else tts.max_streams,
        ),
        log=config.log,
    )
    return WorkerEngine(
        ONNX,
        [settings],
        clock=clock,
        default_voice=tts.voice,
        start_timeout_s=tts.worker_start_timeout_s,
        on_starting=on_starting,
        stall_timeout_ms=tts.stall_timeout_ms,
    )


def _voices_dir(config: Config) -> Path | None:
    written = config.tts.voices_dir
    voices_dir = Path(written).expanduser().resolve() if written else None
    if voices_dir is not None and not voices_dir.is_dir():
        raise ConfigError(f"tts.voices_dir: {written}: no such directory; `cc-tts voices enrol` makes it")
    return voices_dir


def worker_settings(config: Config, device: str, purpose: Purpose = "serve") -> WorkerSettings:
    """What the worker of a device needs to know.

    Raises:
        ConfigError: ``tts.model_dir`` or ``tts.voices_dir`` is empty, no directory, or lacks files.

    """
    tts = config.tts
    if not tts.model_dir:
        raise ConfigError(
            "tts.engine is cosyvoice2 but tts.model_dir is empty; `cc-tts model download` fetches the model and says where"
        )
    model_dir = Path(tts.model_dir).expanduser().resolve()
    if not model_dir.is_dir():
        raise ConfigError(f"tts.model_dir: {tts.model_dir}: no such directory")
    voices_dir = _voices_dir(config)
    return WorkerSettings(
        device=device,
        purpose=purpose,
        tts=replace(
            tts,
            engine=COSYVOICE2,
            model_dir=str(model_dir),
            voices_dir=str(voices_dir or ""),
            num_threads=tts.num_threads or _cores_each(len(tts.devices)),
            max_streams=1 if purpose == "say" else tts.max_streams,
            graphs=tts.graphs and purpose == "serve",
        ),
        log=config.log,
    )


def _cores_each(num_workers: int) -> int:
    return max(1, len(os.sched_getaffinity(0)) // num_workers)


_MAKERS: Final[dict[str, Callable[[Config, Clock, Purpose, OnStarting], Engine]]] = {
    AutoEngine.name: _auto,
    EspeakEngine.name: _espeak,
    ONNX: _onnx,
    COSYVOICE2: _cosyvoice2,
}
