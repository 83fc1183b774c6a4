"""From the configuration to the engine."""

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.engines.engine import Engine
from cc_tts.engines.espeak.engine import EspeakEngine
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.messages import Purpose, WorkerSettings
from cc_tts.errors import ConfigError

COSYVOICE2: Final = "cosyvoice2"
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
    voices_dir = Path(tts.voices_dir).expanduser().resolve() if tts.voices_dir else None
    if voices_dir is not None and not voices_dir.is_dir():
        raise ConfigError(f"tts.voices_dir: {tts.voices_dir}: no such directory; `cc-tts voices enrol` makes it")
    return WorkerSettings(
        engine=COSYVOICE2,
        model_dir=str(model_dir),
        voices_dir=str(voices_dir or ""),
        device=device,
        dtype=tts.dtype,
        num_threads=tts.num_threads or _cores_each(len(tts.devices)),
        purpose=purpose,
        max_streams=1 if purpose == "say" else tts.max_streams,
        interleaved_text=tts.interleaved_text,
        first_audio_target_ms=tts.first_audio_target_ms,
        max_utilisation=tts.max_utilisation,
        memory_bytes=tts.state_memory_bytes,
        first_hop_tokens=tts.first_hop_tokens,
        graphs=tts.graphs and purpose == "serve",
        log_level=config.log.level if purpose == "serve" else "critical",  # a command says itself what is wrong
        log_json=config.log.json,
    )


def _cores_each(num_workers: int) -> int:
    return max(1, len(os.sched_getaffinity(0)) // num_workers)


_MAKERS: Final[dict[str, Callable[[Config, Clock, Purpose, OnStarting], Engine]]] = {
    EspeakEngine.name: _espeak,
    COSYVOICE2: _cosyvoice2,
}
