"""From a worker's settings to the ONNX engine. Runs on: the worker's main thread."""

from collections.abc import Callable
from pathlib import Path

from cc_tts.clock import MonotonicClock
from cc_tts.engines.onnx.engine import OnnxEngine
from cc_tts.engines.onnx.voices import find_voices
from cc_tts.engines.stepped import SteppedEngine
from cc_tts.engines.worker.messages import WorkerSettings


def make_onnx_engine(settings: WorkerSettings, *, wake: Callable[[], None]) -> SteppedEngine:
    """Build the engine, not yet loaded."""
    tts = settings.tts
    voices_dir = Path(tts.voices_dir) if tts.voices_dir else None
    return OnnxEngine(
        lambda: find_voices(voices_dir),
        clock=MonotonicClock(),
        wake=wake,
        num_threads=tts.num_threads,
        max_streams=tts.max_streams,
        first_audio_target_ms=tts.first_audio_target_ms,
        max_utilisation=tts.max_utilisation,
        admits_all=settings.purpose == "say",
        checks_only=settings.purpose == "check",
    )
