"""An engine worker: ``python -m cc_tts.engines.worker --channel-fd N``, its settings as JSON on standard input.

Threads: this one owns the device and moves the engine on; the reader thread takes records off the channel.
"""

import signal
import sys
from collections.abc import Callable
from typing import Final

from cc_tts import logs
from cc_tts.clock import MonotonicClock, ms_between, thread_cpu_ns
from cc_tts.engines.engine_core import DeviceLost, EngineDescription, EngineLoad, EngineLoader
from cc_tts.engines.worker.loop import WorkerLoop
from cc_tts.engines.worker.messages import TO_WORKER, WorkerSettings
from cc_tts.errors import CcTtsError
from cc_tts.processes import child
from cc_tts.processes.channel import Starting

EXIT_DEVICE_LOST: Final = 5

log = logs.get("cc_tts.engines.worker")


def main() -> int:
    """Run until the server asks for the end or is gone; return the exit status."""
    try:
        return child.run("worker", WorkerSettings, TO_WORKER, _start, build=_build)
    except DeviceLost as error:  # only the end of the process frees its memory; the supervisor starts another process
        log.error("device_lost", detail=str(error))
        return EXIT_DEVICE_LOST


def _build(settings: WorkerSettings) -> dict[str, str]:
    return {"engine": settings.tts.engine, "device": settings.device}


def _start(settings: WorkerSettings, link: child.ChildLink) -> Callable[[], None]:
    if settings.purpose != "serve":  # a command prints itself what is wrong
        logs.configure(level="critical", json=settings.log.json, process="worker")
    clock = MonotonicClock()
    started_ns = clock.now_ns()

    def report(what: str) -> None:
        log.info("loading", what=what, ms=round(ms_between(started_ns, clock.now_ns())))
        link.channel.send(Starting(what))

    loader = _loader(settings, wake=link.wake)
    engine = loader.load(report)
    if engine is None:
        return lambda: _describe(link, loader.description)
    log.info("loaded", num_voices=len(loader.description.voices), ms=ms_between(started_ns, clock.now_ns()))
    signal.signal(signal.SIGTERM, lambda *_: link.stop())  # until here SIGTERM ends the process at once
    return WorkerLoop(engine, link, loader, clock=clock).work


def _describe(link: child.ChildLink, description: EngineDescription) -> None:
    """Send the description of the voices, and wait for the end."""
    link.channel.send(description)
    link.channel.send(EngineLoad(num_streams=0, first_audio_ms=0.0, utilisation=0.0))
    while not link.is_over:
        link.news()


def _loader(settings: WorkerSettings, *, wake: Callable[[], None]) -> EngineLoader:
    """Return the loader of the engine in ``tts.engine``. ``wake`` is for engines with threads of their own."""
    if settings.tts.engine in {"onnx", "espeak"}:
        from cc_tts.engines.cpu.engine import CpuEngine
        from cc_tts.engines.cpu.voices import find_espeak, find_models

        find = find_espeak if settings.tts.engine == "espeak" else find_models
        return CpuEngine(settings, clock=MonotonicClock(), wake=wake, find_models=find, spent_ns=thread_cpu_ns)
    try:
        from cc_tts.engines.cosyvoice.worker_engine import make_loader
    except ImportError as error:
        raise CcTtsError(
            f"the engine cosyvoice2 needs packages that are not installed here ({error.name}): "
            "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `make neural`"
        ) from error
    return make_loader(settings)


if __name__ == "__main__":
    sys.exit(main())
