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
from cc_tts.engines.remote import wire
from cc_tts.engines.remote.connection import CONNECT_TIMEOUT_S
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.link import WorkerLink, child_worker
from cc_tts.engines.worker.messages import Purpose, WorkerSettings
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics

COSYVOICE2: Final = "cosyvoice2"
ONNX: Final = "onnx"
ENGINES: Final = (AutoEngine.name, EspeakEngine.name, ONNX, COSYVOICE2)


def make_engine(
    config: Config,
    *,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    purpose: Purpose = "serve",
    on_starting: Callable[[str], None] = lambda _detail: None,
    on_elsewhere: Callable[[RemoteWorkers], object] = lambda _workers: None,
) -> Engine:
    """Build the engine that ``tts.engine`` names, not yet started, for a ``purpose`` of :class:`WorkerSettings`.

    ``metrics`` gets what its workers report. ``on_starting`` is called with a few words on what it does while it starts, if
    that takes long. ``on_elsewhere`` gets the workers of other machines, if there are to be some: those of a pool have to be
    named to them. Raises ``ConfigError`` if no engine has this name (the message names the nearest one), or a key that it
    needs is empty.
    """
    tts, clock, metrics = config.tts, clock or MonotonicClock(), metrics or Metrics()
    if tts.engine not in ENGINES:
        near = difflib.get_close_matches(tts.engine, ENGINES, n=1, cutoff=0.0)
        known = ", ".join(ENGINES)
        raise ConfigError(f"tts.engine: no engine is called {tts.engine!r}; did you mean {near[0]!r}? Known: {known}")
    name = engine_names(tts)[0]
    is_auto = tts.engine == AutoEngine.name
    espeak = EspeakEngine(
        default_voice=(tts.voice if name == EspeakEngine.name else "") or "en-us",
        stall_timeout_ms=tts.stall_timeout_ms,
        clock=clock,
    )
    if name == EspeakEngine.name:
        return espeak
    if is_auto:  # the default voice may be of any of them; the prompt names it
        config = replace(config, tts=replace(tts, engine=name, voice=""))
    has_fallback = tts.fallback_engine == EspeakEngine.name or (is_auto and tts.fallback_engine == AutoEngine.name)
    fallback = espeak if has_fallback and purpose == "serve" else None
    neural = _worker_engine(
        config,
        clock=clock,
        metrics=metrics,
        purpose=purpose,
        on_starting=on_starting,
        on_elsewhere=on_elsewhere,
        fallback=fallback,
        starts_fallback=not is_auto,
    )
    return AutoEngine([neural, espeak]) if is_auto else neural


def _worker_engine(
    config: Config,
    *,
    clock: Clock,
    metrics: Metrics,
    purpose: Purpose,
    on_starting: Callable[[str], None],
    on_elsewhere: Callable[[RemoteWorkers], object],
    fallback: Engine | None,
    starts_fallback: bool,
) -> WorkerEngine:
    tts = config.tts
    # cosyvoice2 may take the time that a CPU needs for a file: nobody listens, and it was not measured
    is_patient = tts.engine == COSYVOICE2 and purpose != "serve"
    settings = worker_settings(config, purpose)
    names = ["worker"] if len(settings) == 1 else [f"worker-{number}" for number in range(len(settings))]
    children = [
        WorkerLink(
            name,
            child_worker(name, each, clock=clock, on_starting=on_starting),
            clock=clock,
            metrics=metrics,
            stall_timeout_ms=tts.worker_start_timeout_s * 1000 if is_patient else tts.stall_timeout_ms,
        )
        for name, each in zip(names, settings, strict=True)
    ]
    is_elsewhere = tts.workers and (purpose == "serve" or not children)
    elsewhere = remote_workers(config, purpose, clock=clock, metrics=metrics) if is_elsewhere else None
    if elsewhere is not None:
        on_elsewhere(elsewhere)
    return WorkerEngine(
        tts, children, metrics=metrics, elsewhere=elsewhere, fallback=fallback, starts_fallback=starts_fallback
    )


def remote_workers(config: Config, purpose: Purpose, *, clock: Clock, metrics: Metrics) -> RemoteWorkers:
    """Those of ``tts.workers``; raises ``ConfigError`` if what they need is not installed, or a file cannot be read."""
    wire.check(config.remote)
    if purpose != "serve":  # somebody waits for the answer
        patience_s = min(config.tts.worker_start_timeout_s, CONNECT_TIMEOUT_S)
        config = replace(config, tts=replace(config.tts, worker_start_timeout_s=patience_s))
    return RemoteWorkers(config, clock=clock, metrics=metrics)


def engine_names(tts: TtsConfig) -> tuple[str, ...]:
    """The engines that ``tts.engine`` stands for, the preferred one first: one, or those of ``auto``."""
    if tts.engine != AutoEngine.name:
        return (tts.engine,)
    return (COSYVOICE2 if tts.model_dir else ONNX, EspeakEngine.name)


def worker_settings(config: Config, purpose: Purpose = "serve") -> list[WorkerSettings]:
    """What each worker of a neural engine needs to know; raises ``ConfigError`` if a folder is missing. None where every
    worker is on another machine (``tts.devices`` is empty).
    """
    tts, num_cores = config.tts, len(os.sched_getaffinity(0))
    if not tts.devices:
        return []
    devices = tts.devices[:1] if purpose == "say" else tts.devices
    if tts.engine == ONNX:
        devices, model_dir, num_threads = ("cpu",), tts.model_dir, num_cores - 1
    elif tts.model_dir:
        model_dir, num_threads = _folder("tts.model_dir", tts.model_dir), num_cores // len(tts.devices)
    else:
        raise ConfigError(
            "tts.engine is cosyvoice2 but tts.model_dir is empty; `cc-tts model download` fetches the model and says where"
        )
    filled_in = replace(
        tts,
        model_dir=model_dir,
        voices_dir=_folder("tts.voices_dir", tts.voices_dir, "; `cc-tts voices add` or `cc-tts voices enrol` makes it"),
        num_threads=tts.num_threads or max(1, num_threads),
        max_streams=1 if purpose == "say" else tts.max_streams,
        graphs=tts.graphs and purpose == "serve",
    )
    return [WorkerSettings(device=device, purpose=purpose, tts=filled_in, log=config.log) for device in devices]


def _folder(key: str, configured: str, remedy: str = "") -> str:
    """Its absolute path; empty if none is configured."""
    if not configured:
        return ""
    folder = Path(configured).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"{key}: {configured}: no such directory{remedy}")
    return str(folder)
