"""An engine worker: ``python -m cc_tts.engines.worker --channel-fd N``, its settings as JSON on standard input.

Threads: this one owns the device and moves the engine on; the reader thread takes records off the channel.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from cc_tts import logs
from cc_tts.clock import MonotonicClock, ms_between
from cc_tts.engines.engine_core import DeviceLost, EngineLoad, EngineLoader
from cc_tts.engines.worker.loop import WAKE, Inbox, WorkerLoop
from cc_tts.engines.worker.messages import TO_WORKER, EngineDescription, WorkerSettings
from cc_tts.errors import CcTtsError, ProcessFailed
from cc_tts.processes import child
from cc_tts.processes.channel import (
    PROTOCOL_VERSION,
    ChildChannel,
    Hello,
    Message,
    Ready,
    Shutdown,
    StartFailed,
    Starting,
)

EXIT_DEVICE_LOST: Final = 5
MAX_REASON_CHARS: Final = 500  # unmeasured

log = logs.get("cc_tts.engines.worker")


def main() -> int:
    """Run until a shutdown is asked for or the server is gone; returns the exit status."""
    channel, settings = child.begin(WorkerSettings, TO_WORKER)
    loaded = threading.Event()
    level = settings.log.level if settings.purpose == "serve" else "critical"  # a command prints itself what is wrong
    logs.configure(level=level, json=settings.log.json, process="worker")
    clock = MonotonicClock()
    try:
        build = {"engine": settings.tts.engine, "device": settings.device}
        channel.send(Hello(protocol=PROTOCOL_VERSION, process="worker", pid=os.getpid(), build=build))
        started_ns = clock.now_ns()
        try:
            inbox: Inbox = queue.SimpleQueue()
            reader = threading.Thread(target=_read, args=(channel, inbox, loaded), name="reader", daemon=True)
            reader.start()  # before torch is imported, which may take longer than anybody waits for an end
            loader = _loader(settings, wake=lambda: inbox.put(WAKE))

            def report(what: str) -> None:
                log.info("loading", what=what, ms=round(ms_between(started_ns, clock.now_ns())))
                channel.send(Starting(what))

            engine = loader.load(report)
        except Exception as error:  # noqa: BLE001 - whatever torch throws, the reason must reach the operator
            detail = error.detail if isinstance(error, CcTtsError) else f"{type(error).__name__}: {error}"
            log.error("worker_cannot_start", detail=detail)
            with contextlib.suppress(ProcessFailed):
                channel.send(StartFailed(detail=detail[:MAX_REASON_CHARS]))
            return child.EXIT_NO_START
        if engine is None:
            _describe(channel, loader)
            channel.send(EngineLoad(num_streams=0, first_audio_ms=0.0, utilisation=0.0))
            reader.join()  # it ends the process when the server has what it wants to know
            return child.EXIT_SERVER_GONE
        loop = WorkerLoop(engine, channel, clock=clock, inbox=inbox)
        log.info("loaded", num_voices=len(loader.voices), ms=ms_between(started_ns, clock.now_ns()))
        signal.signal(signal.SIGTERM, lambda *_: loop.stop())  # before, it ends the process at once
        loaded.set()
        _describe(channel, loader)
        loop.tick(wait=False)  # the first report
        if not loop.run():
            return child.EXIT_SERVER_GONE
        engine.close()
        channel.flush()
    except DeviceLost as error:  # what it holds is freed by the end of the process only; the supervisor starts another
        log.error("device_lost", detail=str(error))
        return EXIT_DEVICE_LOST
    except ProcessFailed as error:
        log.error("server_gone", detail=error.detail)
        return child.EXIT_SERVER_GONE
    finally:
        channel.close()
    return 0


def _loader(settings: WorkerSettings, *, wake: Callable[[], None]) -> EngineLoader:
    """The loader of the engine that ``tts.engine`` names; ``wake`` is for one with threads of its own."""
    if settings.tts.engine in {"onnx", "espeak"}:
        from cc_tts.engines.cpu.engine import CpuEngine
        from cc_tts.engines.cpu.voices import find_espeak, find_models

        find = find_espeak if settings.tts.engine == "espeak" else find_models
        return CpuEngine(settings, clock=MonotonicClock(), wake=wake, find_models=find)
    try:
        from cc_tts.engines.cosyvoice2.worker_engine import make_loader
    except ImportError as error:
        raise CcTtsError(
            f"the engine cosyvoice2 needs packages that are not installed here ({error.name}): "
            "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `make neural`"
        ) from error
    return make_loader(settings)


def _describe(channel: ChildChannel, loader: EngineLoader) -> None:
    channel.send(Ready())
    channel.send(EngineDescription(tuple(loader.voices), tuple(loader.languages), tuple(loader.variants)))


def _read(channel: ChildChannel, inbox: Inbox, loaded: threading.Event) -> None:
    """Fill the inbox. While the engine loads nobody empties it, so a shutdown ends the process here.

    Runs on: the reader thread.
    """

    def on_record(message: Message, _payload: bytes) -> None:
        if isinstance(message, Shutdown) and not loaded.is_set():
            os._exit(0)
        inbox.put(message)

    child.read(channel, on_record)
    if not loaded.is_set():
        os._exit(child.EXIT_SERVER_GONE)
    inbox.put(None)


if __name__ == "__main__":
    sys.exit(main())
