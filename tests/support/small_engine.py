"""The batched engine with the small model on any device, and streams in the usual disorder."""

from collections.abc import Iterable, Mapping, MutableMapping
from collections.abc import Sequence as Row
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.batched import BatchedConfig, BatchedLoader
from cc_tts.engines.cosyvoice.engine import engine as engine_module
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.device import Speaking, SpeakJob
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.engine.executor import Executor
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall
from cc_tts.engines.cosyvoice.runners.runner import ModelRunner
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.engines.engine_core import StepOut, StreamDone, StreamRequest
from lab.cosyvoice.schedule import double_hop
from tests.support.stepped_streams import endings, pcm_of, run
from tests.support.tiny_speakers import tiny_speaker

MAX_STREAMS: Final = 3
VOICES: Final = ("zero_shot", "cross_lingual", "instruct", "builtin")
MEMORY_BYTES: Final = 64 << 20
STAGES: Final = {"packed": "prefill", "window": "flow", "mel": "vocoder"}
_CALLS: Final = WeakKeyDictionary[Engine, Mapping[str, GraphedCall]]()


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
    with pytest.MonkeyPatch.context() as patch:
        calls = noted_calls(patch)
        engine = loader.load(lambda _: None)
    assert engine is not None
    _CALLS[engine] = calls
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
    runner, begun = runner_of(engine), list[Row[SpeakJob]]()
    speak = runner.speak

    def noting(jobs: Row[SpeakJob]) -> Speaking:
        begun.append(jobs)
        return speak(jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "speak", noting)
        open_streams(engine, dict(enumerate(VOICES[:MAX_STREAMS])), "welcome to the service line")
        while not begun:
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
    assert isinstance(engine.device, ModelRunner)
    return engine.device


def let_hops_double(patch: pytest.MonkeyPatch) -> None:
    """Hops of engines that are made from now on double, whatever the listener holds: crossfades lie where hops end."""

    def make(*given: Any, choose_hop: object, **options: Any) -> Executor:
        return Executor(*given, choose_hop=double_hop, **options)

    patch.setattr(engine_module, "Executor", make)


def stage_of(tensors: Iterable[str]) -> str:
    """The stage whose calls are given tensors of these names."""
    return next((STAGES[name] for name in tensors if name in STAGES), "decode")


def noted_calls(patch: pytest.MonkeyPatch) -> MutableMapping[str, GraphedCall]:
    """What makes the calls of each stage, as far as it is in use."""
    noted = WeakValueDictionary[str, GraphedCall]()
    call = GraphedCall.call

    def noting(graphed: GraphedCall, key: tuple[int, ...], **tensors: Tensor) -> tuple[Tensor, ...]:
        noted[stage_of(tensors)] = graphed
        return call(graphed, key, **tensors)

    patch.setattr(GraphedCall, "call", noting)
    return noted


def num_graphs(engine: Engine) -> dict[str, int]:
    """How many graphs of each stage there are, for an engine of :func:`load_engine`."""
    return {stage: len(graphed) for stage, graphed in _CALLS[engine].items()}
