"""The batched engine with the small model on any device, and streams in the usual disorder."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from cc_tts.engines.cosyvoice.batched import BatchedConfig, BatchedLoader
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SpeechIds
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.runners.runner import ModelRunner
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.engines.engine_core import StepOut, StreamDone, StreamRequest
from tests.support.stepped_streams import endings, pcm_of, run
from tests.support.tiny_speakers import tiny_speaker

MAX_STREAMS: Final = 3
VOICES: Final = ("zero_shot", "cross_lingual", "instruct", "builtin")
MEMORY_BYTES: Final = 64 << 20


def speakers() -> dict[str, Speaker]:
    return {voice: tiny_speaker(voice) for voice in VOICES}


def load_engine(directory: Path, *, graphs: bool, device: str = "cpu", **config: Any) -> Engine:
    defaults: dict[str, Any] = {
        "engine": EngineConfig(max_streams=MAX_STREAMS, first_audio_target_ms=60_000.0, admits_all=True),
        "memory_bytes": MEMORY_BYTES,
        "calibration_rows": (),
        "num_positions": 512,
    }
    merged = defaults | config
    loader = BatchedLoader(directory, speakers, BatchedConfig(device=torch.device(device), graphs=graphs, **merged))
    engine = loader.load(lambda _: None)
    assert engine is not None
    return engine


def open_streams(engine: Engine, voices: dict[int, str], *texts: str) -> None:
    for stream_id, voice in voices.items():
        engine.open(StreamRequest(stream_id=stream_id, voice=voice))
        for index, text in enumerate(texts):
            engine.push(stream_id, text, index)
        engine.end(stream_id)


def say(engine: Engine) -> list[npt.NDArray[np.int32]]:
    """Streams of all voices; one of them is cancelled in the middle and another takes its place. What the others say."""
    open_streams(engine, dict(enumerate(VOICES[:MAX_STREAMS])), "welcome to the service line")
    outs: list[StepOut] = []
    while not any(out.stream_id == 1 for out in outs):
        outs += engine.step()
    engine.cancel(1)
    open_streams(engine, {3: VOICES[3]}, "please hold", "the line")
    outs += run(engine)
    assert endings(outs) == {stream_id: StreamDone(stream_id) for stream_id in (0, 2, 3)}
    return [np.frombuffer(pcm_of(outs, stream_id), "<i2").astype(np.int32) for stream_id in (0, 2, 3)]


def hang_up_during_a_call(engine: Engine) -> None:
    """The streams of a call of flow and vocoder are cancelled before it ends, and others take their places."""
    open_streams(engine, dict(enumerate(VOICES[:MAX_STREAMS])), "welcome to the service line")
    while not engine._executor.call_end_ms:
        engine.step()
    for stream_id in range(MAX_STREAMS):
        engine.cancel(stream_id)
    open_streams(engine, {3: VOICES[0], 4: VOICES[3]}, "please hold")
    assert endings(run(engine)) == {3: StreamDone(3), 4: StreamDone(4)}


def most_apart(some: list[npt.NDArray[np.int32]], others: list[npt.NDArray[np.int32]]) -> int:
    """How far samples are apart; streams must be of the same lengths, and say something."""
    assert [len(each) for each in some] == [len(each) for each in others]
    assert all(len(each) > 0 for each in some)
    return max(int(np.abs(one - other).max()) for one, other in zip(some, others, strict=True))


def runner_of(engine: Engine) -> ModelRunner:
    assert isinstance(engine._device, ModelRunner)
    return engine._device


def tokenizer_of(engine: Engine) -> TextTokenizer:
    return runner_of(engine)._tokenizer


def speech_ids_of(engine: Engine) -> SpeechIds:
    return runner_of(engine)._model.lm.config.speech_ids


def num_graphs(engine: Engine) -> dict[str, int]:
    runner = runner_of(engine)
    return {
        "prefill": len(runner._lm._prefill),
        "decode": len(runner._lm._step),
        "flow": len(runner._flow._graphs),
        "vocoder": len(runner._vocoder._run),
    }
