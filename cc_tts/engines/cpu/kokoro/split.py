"""Kokoro in two parts: the front gives the frames of a sentence, and the vocoder turns windows of them into samples.

Silence at both ends is not synthesised, and the first audio leaves after the first window. Runs on: the synthesis threads.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

from cc_tts import logs
from cc_tts.clock import NS_PER_MS, MonotonicClock
from cc_tts.engines.cpu.kokoro.model import inputs_of, tokens_input
from cc_tts.engines.cpu.kokoro.statistics import Sentence, Statistics, largest, silent_frames
from cc_tts.engines.cpu.kokoro.vocoder_graph import (
    AUDIO,
    FRAMES,
    HEADROOM,
    SAMPLES_A_FRAME,
    SOURCE,
    SOURCE_A_FRAME,
    Array,
    Graph,
    part_of,
    weights_of,
)
from cc_tts.engines.cpu.networks import PROVIDERS, Samples, one_thread

log = logs.get(__name__)

_FRAMES_OF_MODEL: Final = "/decoder/decoder/decode.3/Div_4_output_0"
_SOURCE_OF_MODEL: Final = "/decoder/decoder/generator/Concat_3_output_0"
_WINDOWS: Final = (32, 64, 128)
"""Frames of 12.5 ms in the first windows and in all others: first audio after 0.4 s of speech (unmeasured)."""
_CONTEXT: Final = 6
"""Frames around a window: what it gives differs from the whole by -44 to -62 dB (measured, decision 0025)."""
_LEAD_MARGIN: Final = 6  # unmeasured
_TRAIL_MARGIN: Final = 12
"""Frames nearer to speech than the silence that was measured, at least: 75 and 150 ms; unmeasured."""
_TINY: Final = 1e-9
_QUIET: Final = 33 / 32768
_LEAST_SNR_DB: Final = 6.0
"""Integers whose samples are further from those of floats are wrong; 14.8 dB was measured."""
_STYLE_OF_VOCODER: Final = 128


def runner_of(model: Any, *, keeps_memory: bool = True) -> Any:
    """A session that keeps the memory of a run for the next one, or one that takes little of it."""
    options = one_thread()
    options.enable_cpu_mem_arena = keeps_memory
    if not keeps_memory:
        # in the default order the durations come last, so a sentence of 4 s keeps everything: 2.4 GB instead of 0.6
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)


class SplitModel:
    """Raises ``KeyError`` or ``ConfigError`` if the model is built in another way than the published 8-bit export."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path)
        self._weights = weights_of(model)
        self._front = runner_of(part_of(model, {}, {_FRAMES_OF_MODEL: FRAMES, _SOURCE_OF_MODEL: SOURCE}))
        self._tokens = tokens_input(self._front, path)
        self._graph = Graph(self._weights, is_measuring=False).whole()
        self._ranges: Mapping[str, Array] = {}
        self._vocoder: Any = None
        self._is_integer: bool | None = None

    def measure(self, spoken: list[tuple[list[int], Samples]]) -> Statistics:
        """The statistics of a voice from whole sentences, each with its row of the voice's styles."""
        graph = Graph(self._weights, is_measuring=True).whole()
        runner = runner_of(graph.model(), keeps_memory=False)
        return Statistics.of([self._measured(graph, runner, *each) for each in spoken])

    def _measured(self, graph: Graph, runner: Any, tokens: list[int], style: Samples) -> Sentence:
        frames, source = self._frames(tokens, style, 1.0)
        gains: dict[str, Array] = {}
        for norm in graph.norms:
            gains |= norm.inputs(style[:_STYLE_OF_VOCODER], np.float32(0.0), np.float32(1.0))
        found = dict(zip(graph.outputs, runner.run(None, {FRAMES: frames, SOURCE: source, **gains}), strict=True))
        lead, trail = silent_frames(found[AUDIO], SAMPLES_A_FRAME)
        return Sentence(
            frames.shape[2],
            {norm.name: found[f"{norm.name}.mean"].reshape(-1) for norm in graph.norms},
            {norm.name: found[f"{norm.name}.variance"].reshape(-1) for norm in graph.norms},
            {name.removesuffix(".max"): found[name] for name in graph.outputs if name.endswith(".max")},
            lead,
            trail,
        )

    def admit(self, statistics: Statistics, tokens: list[int], style: Samples) -> None:
        """Make the vocoder speak with one more voice. A sentence of the voice shows whether integers are faster."""
        known = self._ranges
        if self._vocoder is None or any(np.any(v > HEADROOM * known[k]) for k, v in statistics.ranges.items()):
            self._ranges = largest([known, statistics.ranges])
            self._vocoder = self._made(statistics, tokens, style)

    def _made(self, statistics: Statistics, tokens: list[int], style: Samples) -> Any:
        """The vocoder in 8-bit integers, or in floats where that is faster or integers saturate (x86 without VNNI)."""
        if self._is_integer is False:
            return self._vocoder
        ranges = {
            name: each for name, each in self._ranges.items() if not name.startswith(("conv_post", "noise_convs"))
        }
        integers = runner_of(Graph(self._weights, is_measuring=False, ranges=ranges).whole().model())
        if self._is_integer is None:
            floats = runner_of(self._graph.model(), keeps_memory=False)
            self._is_integer = self._are_better(integers, floats, statistics, tokens, style)
            if not self._is_integer:
                return floats
        return integers

    def _are_better(
        self, integers: Any, floats: Any, statistics: Statistics, tokens: list[int], style: Samples
    ) -> bool:
        frames, source = self._frames(tokens, style, 1.0)
        gains = self._gains(statistics, style, frames.shape[2])
        clock, elapsed_ms, audio = MonotonicClock(), [], []
        for runner in (floats, integers):
            for _turn in range(2):  # the first run takes longer
                started_ns = clock.now_ns()
                samples = _window(runner, frames, source, gains, 0, _WINDOWS[-1])
            elapsed_ms.append((clock.now_ns() - started_ns) / NS_PER_MS)
            audio.append(samples)
        noise = float(np.square(audio[0] - audio[1]).sum())
        snr_db = 10.0 * math.log10(max(float(np.square(audio[0]).sum()), _TINY) / max(noise, _TINY))
        log.info(
            "kokoro_vocoder", floats_ms=round(elapsed_ms[0]), integers_ms=round(elapsed_ms[1]), snr_db=round(snr_db, 1)
        )
        return elapsed_ms[1] < elapsed_ms[0] and snr_db > _LEAST_SNR_DB

    def speak(self, tokens: list[int], style: Samples, speed: float, statistics: Statistics) -> Iterator[Samples]:
        """The samples of a sentence in windows, without most of the silence at its ends."""
        frames, source = self._frames(tokens, style, speed)
        num_frames = frames.shape[2]
        gains = self._gains(statistics, style, num_frames * speed)
        position = max(0, int((statistics.lead - _LEAD_MARGIN) / max(speed, 1.0)))
        end = max(num_frames - max(0, int((statistics.trail - _TRAIL_MARGIN) / speed)), position)
        sizes = iter(_WINDOWS)
        size = 0
        while position < num_frames:
            size = next(sizes, size)
            stop = position + size if position < end - size - size // 2 else end
            stop = min(max(stop, position + _WINDOWS[0]), num_frames)
            samples = _window(self._vocoder, frames, source, gains, position, stop)
            yield samples
            position = stop
            if position >= end and float(np.abs(samples[-SAMPLES_A_FRAME:]).max()) <= _QUIET:
                return

    def _gains(self, statistics: Statistics, style: Samples, num_frames: float) -> dict[str, Array]:
        gains: dict[str, Array] = {}
        for norm in self._graph.norms:
            gains |= norm.inputs(style[:_STYLE_OF_VOCODER], *statistics.at(norm.name, num_frames))
        return gains

    def _frames(self, tokens: list[int], style: Samples, speed: float) -> tuple[Array, Array]:
        inputs = inputs_of(tokens, style, speed, tokens_name=self._tokens)
        frames, source = self._front.run(None, inputs)
        return frames, source


def _window(vocoder: Any, frames: Array, source: Array, gains: dict[str, Array], start: int, stop: int) -> Samples:
    first, last = max(0, start - _CONTEXT), min(frames.shape[2], stop + _CONTEXT)
    inputs = {
        FRAMES: frames[:, :, first:last],
        SOURCE: source[:, :, SOURCE_A_FRAME * first : SOURCE_A_FRAME * last + 1],
        **gains,
    }
    audio: Samples = vocoder.run(None, inputs)[0]
    return audio[SAMPLES_A_FRAME * (start - first) : SAMPLES_A_FRAME * (stop - first)]
