"""Makes the engine that the configuration names."""

import difflib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.config.sections.models import TtsConfig, of_model
from cc_tts.engines.remote import wire
from cc_tts.engines.remote.connection import CONNECT_TIMEOUT_S
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.worker.client import PLAIN_VOICE, WorkerEngine
from cc_tts.engines.worker.link import HUNG_FACTOR, WorkerLink, child_worker
from cc_tts.engines.worker.messages import Purpose, WorkerSettings
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics

AUTO: Final = "auto"
COSYVOICE2: Final = "cosyvoice2"
ESPEAK: Final = "espeak"
ONNX: Final = "onnx"
ENGINES: Final = (AUTO, ESPEAK, ONNX, COSYVOICE2)
VOICES_KEY: Final = "tts.voices_dir"
ESPEAK_HUNG_FACTOR: Final = 1.0
"""espeak-ng is fast, so a passage that lasts for the stall timeout will never end."""
ESPEAK_MAX_STREAMS: Final = 512
"""The listeners that one thread can supply: it speaks 900 times faster than real time (decision 0004)."""


def make_engine(
    config: Config,
    *,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    purpose: Purpose = "serve",
    on_starting: Callable[[str], None] = lambda _detail: None,
) -> WorkerEngine:
    """Build the engine that ``tts.engine`` names, not yet started, for a ``purpose`` of :class:`WorkerSettings`.

    ``metrics`` gets what its workers report. ``on_starting`` is called with a few words on what it does while it starts, if
    that takes long.

    Raises:
        ConfigError: no engine has this name (the message names the nearest one), or a key that it needs is empty.
    """
    tts, clock, metrics = config.tts, clock or MonotonicClock(), metrics or Metrics()
    if tts.engine not in ENGINES:
        near = difflib.get_close_matches(tts.engine, ENGINES, n=1, cutoff=0.0)
        known = ", ".join(ENGINES)
        raise ConfigError(f"tts.engine: no engine is called {tts.engine!r}; did you mean {near[0]!r}? Known: {known}")
    is_auto, is_espeak = tts.engine == AUTO, tts.engine == ESPEAK
    # the default voice may be of espeak-ng with auto; the prompt names it
    named = replace(config, tts=replace(tts, engine=engine_names(tts)[0], voice="" if is_auto else tts.voice))
    make_links = partial(_links, purpose=purpose, clock=clock, metrics=metrics, on_starting=on_starting)
    children, plain = make_links(named, load_metrics=metrics), None
    falls_back = purpose == "serve" and tts.fallback_engine in ((ESPEAK, AUTO) if is_auto else (ESPEAK,))
    if is_auto or (falls_back and not is_espeak):
        # its load is kept out of the metrics of the neural workers, on which alerts and scaling are based
        here = replace(config, tts=replace(tts, engine=ESPEAK, voice="", devices=("cpu",), workers=()))
        (plain,) = make_links(here, load_metrics=Metrics())
    if purpose != "serve" and children:
        named = replace(named, tts=replace(named.tts, workers=()))
    return WorkerEngine(
        replace(named.tts, engine=tts.engine, voice=named.tts.voice or (PLAIN_VOICE if is_espeak else "")),
        children,
        remote_workers(named, purpose, clock=clock, metrics=metrics),
        metrics=metrics,
        fallback=plain if falls_back else None,
        beside=plain if is_auto else None,
    )


def _links(
    config: Config,
    *,
    purpose: Purpose,
    clock: Clock,
    metrics: Metrics,
    load_metrics: Metrics,
    on_starting: Callable[[str], None],
) -> list[WorkerLink]:
    """Return the workers of this machine that speak with the engine of ``config``."""
    tts, settings = config.tts, worker_settings(config, purpose)
    # cosyvoice2 may take the time that a CPU needs for a file: nobody listens, and it was not measured
    is_patient = tts.engine == COSYVOICE2 and purpose != "serve"
    return [
        WorkerLink(
            name,
            child_worker(name, each, clock=clock, on_starting=on_starting),
            clock=clock,
            metrics=metrics,
            stall_timeout_ms=tts.worker_start_timeout_s * 1000 if is_patient else tts.stall_timeout_ms,
            hung_factor=hung_factor(tts.engine),
            load_metrics=load_metrics,
        )
        for name, each in zip(_process_names(settings), settings, strict=True)
    ]


def remote_workers(config: Config, purpose: Purpose, *, clock: Clock, metrics: Metrics) -> RemoteWorkers:
    """Return the workers of ``tts.workers``; raises ``ConfigError`` if a package is not installed, or a file
    cannot be read.
    """
    if config.tts.workers:
        wire.check(config.remote)
    if purpose != "serve":  # somebody waits for the result of a command
        patience_s = min(config.tts.worker_start_timeout_s, CONNECT_TIMEOUT_S)
        config = replace(config, tts=replace(config.tts, worker_start_timeout_s=patience_s))
    return RemoteWorkers(config, clock=clock, metrics=metrics)


def hung_factor(engine: str) -> float:
    """Return after how many times ``tts.stall_timeout_ms`` a worker counts as hung that answers pings and owes audio."""
    return ESPEAK_HUNG_FACTOR if engine == ESPEAK else HUNG_FACTOR


def engine_names(tts: TtsConfig) -> tuple[str, ...]:
    """Return the engines that ``tts.engine`` stands for, the preferred one first: one, or those of ``auto``."""
    if tts.engine != AUTO:
        return (tts.engine,)
    return (COSYVOICE2 if tts.models else ONNX, ESPEAK)


def with_one_model(config: Config, name: str = "") -> Config:
    """Return the configuration of a worker with one model by the preferred engine: the model of this ``name``, or the only
    one. Raises ``ConfigError`` if that is ambiguous.
    """
    engine, models = engine_names(config.tts)[0], config.tts.models
    tts = replace(config.tts, engine=engine)
    if engine != COSYVOICE2 or not models:
        if name:
            raise ConfigError(f"--model {name[:80]}: there is no [tts.models.{name[:80]}] for the engine {engine}")
        return replace(config, tts=tts)
    if name not in models and (name or len(models) > 1):
        wanted = f"{name[:80]!r} is not one of them" if name else "there are several"
        raise ConfigError(f"a worker speaks with one model, and {wanted}: give --model with one of {', '.join(models)}")
    return replace(config, tts=of_model(tts, name or next(iter(models))))


def worker_settings(config: Config, purpose: Purpose = "serve") -> list[WorkerSettings]:
    """The settings of each worker, one model after the other; raises ``ConfigError`` if a folder is missing, or two models
    would take the same GPU. None where every worker is on another machine (``tts.devices`` is empty).
    """
    tts = config.tts
    if tts.engine == COSYVOICE2:
        return _neural_settings(config, "check" if purpose in ("load", "measure") else purpose)
    if not tts.devices:
        return []
    tts, num_threads = replace(tts, models={}), _num_cores()
    if tts.engine == ESPEAK:
        tts = replace(tts, voices_dir="", max_streams=ESPEAK_MAX_STREAMS)
        tts, num_threads = replace(tts, num_threads=1), 1  # the library has no threads
        purpose = "check" if purpose in ("load", "measure") else purpose
    return _settings(replace(config, tts=tts), purpose, ("cpu",), num_threads)


def _neural_settings(config: Config, purpose: Purpose) -> list[WorkerSettings]:
    models = config.tts.models
    if config.tts.devices and not models:
        raise ConfigError(
            "tts.engine is cosyvoice2 but there is no model: set model_dir in [tts.models.main]; `cc-tts model download` "
            "fetches one and says where it is"
        )
    by_model = {name: of_model(config.tts, name) for name in models}
    num_workers = sum(len(tts.devices) for tts in by_model.values())
    found = []
    for name, tts in by_model.items():
        if not tts.devices:
            continue
        folder = _folder(f"tts.models.{name}.model_dir", models[name].model_dir)
        model = replace(tts.models[name], model_dir=folder, graphs=models[name].graphs and purpose == "serve")
        devices = tts.devices[:1] if purpose == "say" else tts.devices
        key = f"tts.models.{name}.voices_dir" if models[name].voices_dir else VOICES_KEY
        of_one = replace(config, tts=replace(tts, models={name: model}))
        found += _settings(of_one, purpose, devices, _num_cores() // max(1, num_workers), voices_key=key)
    _must_fit(found)
    return found


def _settings(
    config: Config, purpose: Purpose, devices: Sequence[str], num_threads: int, *, voices_key: str = VOICES_KEY
) -> list[WorkerSettings]:
    tts = config.tts
    filled_in = replace(
        tts,
        voices_dir=_folder(voices_key, tts.voices_dir, "; `cc-tts voices add` or `cc-tts voices enrol` makes it"),
        num_threads=tts.num_threads or max(1, num_threads),
        max_streams=1 if purpose == "say" else tts.max_streams,
    )
    return [WorkerSettings(device=device, purpose=purpose, tts=filled_in, log=config.log) for device in devices]


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def _must_fit(workers: Sequence[WorkerSettings]) -> None:
    """Refuse models that would each take the rest of the same GPU."""
    owners: dict[str, TtsConfig] = {}
    for each in workers:
        device = "cuda:0" if each.device in {"auto", "cuda"} else each.device
        both = {**owners.setdefault(device, each.tts).models, **each.tts.models}
        has_bounds = each.tts.max_streams and all(model.state_memory_bytes for model in both.values())
        if len(both) > 1 and device != "cpu" and not has_bounds:
            raise ConfigError(
                f"the models {' and '.join(both)} are on the same device ({each.device}), and each would take what is left "
                "of it: name other devices in [tts.models.NAME], or set tts.max_streams and the state_memory_bytes of both"
            )


def _process_names(settings: Sequence[WorkerSettings]) -> list[str]:
    """Return the names of the workers: with the model where there are several, and with numbers where names are equal."""
    has_several = len({name for each in settings for name in each.tts.models}) > 1
    stems = [
        "espeak" if each.tts.engine == ESPEAK else "-".join(["worker", *(each.tts.models if has_several else ())])
        for each in settings
    ]
    counts, numbers = Counter(stems), Counter[str]()
    names = []
    for stem in stems:
        names.append(stem if counts[stem] == 1 else f"{stem}-{numbers[stem]}")
        numbers[stem] += 1
    return names


def _folder(key: str, configured: str, remedy: str = "") -> str:
    """Return its absolute path; empty if none is configured."""
    if not configured:
        return ""
    folder = Path(configured).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"{key}: {configured}: no such directory{remedy}")
    return str(folder)
