"""Drives an engine that is moved on step by step, as a worker with eager listeners would."""

from collections.abc import Sequence
from typing import Final

from cc_tts.audio import AudioFormat
from cc_tts.engines.engine_core import EngineCore, StepOut, StreamDone
from cc_tts.engines.speech_chunk import SpeechChunk

MAX_STEPS: Final = 500


def run(engine: EngineCore) -> list[StepOut]:
    """Step until nothing is left to do; whatever comes is taken at once."""
    outs: list[StepOut] = []
    made_ms: dict[int, float] = {}
    audio_format = AudioFormat(24_000)
    for _ in range(MAX_STEPS):
        if not engine.has_work:
            return outs
        for out in engine.step():
            outs.append(out)
            if isinstance(out, SpeechChunk):
                made_ms[out.stream_id] = made_ms.get(out.stream_id, 0.0) + audio_format.ms_for_bytes(len(out.data))
                engine.taken(out.stream_id, made_ms[out.stream_id], 0.0)
    raise AssertionError("the engine never rests")


def pcm_of(outs: Sequence[StepOut], stream_id: int) -> bytes:
    return b"".join(out.data for out in outs if isinstance(out, SpeechChunk) and out.stream_id == stream_id)


def endings(outs: Sequence[StepOut]) -> dict[int, StreamDone]:
    """How each stream ended; once at most."""
    done = [out for out in outs if isinstance(out, StreamDone)]
    assert len({out.stream_id for out in done}) == len(done)
    return {out.stream_id: out for out in done}


def order(outs: Sequence[StepOut]) -> str:
    """Who spoke when: ``0 1 0`` and so on, ``.`` after the stream that ended."""
    return " ".join(f"{out.stream_id}." if isinstance(out, StreamDone) else str(out.stream_id) for out in outs)
