"""The vocoder of Kokoro as a graph of its own, with small random weights: its windows join, and its two forms agree."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cc_tts.engines.cpu.kokoro import statistics

pytestmark = pytest.mark.unit

Array = npt.NDArray[np.float32]
CHANNELS = (512, 8, 4)
CONTEXT = 12
SAMPLES_A_FRAME, SOURCE_A_FRAME = 300, 60


def graphs() -> Any:
    pytest.importorskip("onnx.helper")  # of "onnx" alone, a folder of the tests would do
    return importlib.import_module("cc_tts.engines.cpu.kokoro.vocoder_graph")


def random_weights() -> dict[str, Array]:
    rng = np.random.default_rng(5)

    def some(*shape: int, scale: float = 0.2) -> Array:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    weights = {
        "ups.0.weight": some(CHANNELS[0], CHANNELS[1], 20, scale=0.03), "ups.0.bias": some(CHANNELS[1]),
        "ups.1.weight": some(CHANNELS[1], CHANNELS[2], 12), "ups.1.bias": some(CHANNELS[2]),
        "noise_convs.0.weight": some(CHANNELS[1], 22, 12), "noise_convs.0.bias": some(CHANNELS[1]),
        "noise_convs.1.weight": some(CHANNELS[2], 22, 1), "noise_convs.1.bias": some(CHANNELS[2]),
        "conv_post.weight": some(22, CHANNELS[2], 7), "conv_post.bias": some(22),
        "stft.istft.stft.inverse_basis": some(22, 1, 20),
    }  # fmt: skip
    blocks = {"noise_res.0": (1, 7), "noise_res.1": (2, 11)}
    blocks |= {f"resblocks.{index}": (1 + index // 3, (3, 7, 11)[index % 3]) for index in range(6)}
    for block, (stage, width) in blocks.items():
        channels = CHANNELS[stage]
        for kind in "12":
            for index in range(3):
                weights[f"{block}.convs{kind}.{index}.weight"] = some(channels, channels, width, scale=0.1)
                weights[f"{block}.convs{kind}.{index}.bias"] = some(channels)
                weights[f"{block}.adain{kind}.{index}.weight"] = some(128, 2 * channels, scale=0.05)
                weights[f"{block}.adain{kind}.{index}.fc.bias"] = some(2 * channels)
                weights[f"{block}.alpha{kind}.{index}"] = np.full((1, channels, 1), 0.8, np.float32)
    return weights


class Vocoder:
    """A sentence, what was measured of it, and the vocoder that is told those statistics."""

    def __init__(self, num_frames: int = 60) -> None:
        onnxruntime: Any = importlib.import_module("onnxruntime")
        module, rng = graphs(), np.random.default_rng(7)
        self.frames = rng.standard_normal((1, 512, num_frames)).astype(np.float32)
        self.source = rng.standard_normal((1, 22, SOURCE_A_FRAME * num_frames + 1)).astype(np.float32)
        style = rng.standard_normal(128).astype(np.float32)
        weights = random_weights()
        measuring = module.Graph(weights, is_measuring=True).whole()
        found = self._run(onnxruntime, measuring, measuring.norms, style, None)
        self.measured: dict[str, Array] = dict(zip(measuring.outputs, found, strict=True))
        self.whole = self.measured["audio"]
        ranges = {name[:-4]: value for name, value in self.measured.items() if name.endswith(".max")}
        self.graph = module.Graph(weights, is_measuring=False).whole()
        skipped = ("conv_post", "noise_convs")
        some_ranges = {name: value for name, value in ranges.items() if not name.startswith(skipped)}
        self.integers = module.Graph(weights, is_measuring=False, ranges=some_ranges).whole()
        self._onnxruntime, self._style = onnxruntime, style

    def _run(self, onnxruntime: Any, graph: Any, norms: Any, style: Array, statistics: Any, *span: int) -> list[Array]:
        first, last = span or (0, self.frames.shape[2])
        session = onnxruntime.InferenceSession(graph.model().SerializeToString())
        inputs = {"frames": self.frames[:, :, first:last]}
        inputs["source"] = self.source[:, :, SOURCE_A_FRAME * first : SOURCE_A_FRAME * last + 1]
        for norm in norms:
            mean, variance = (0.0, 1.0) if statistics is None else statistics(norm.name)
            inputs |= norm.inputs(style, np.float32(mean) if statistics is None else mean, variance)
        audio: list[Array] = session.run(None, inputs)
        return audio

    def window(self, first: int, last: int, *, graph: Any = None) -> Array:
        """The samples of these frames, as the vocoder gives them that is told the statistics of the whole."""

        def known(name: str) -> tuple[Array, Array]:
            return self.measured[f"{name}.mean"].reshape(-1), self.measured[f"{name}.variance"].reshape(-1)

        graph = graph or self.graph
        return self._run(self._onnxruntime, graph, graph.norms, self._style, known, first, last)[0]


@pytest.fixture(scope="module")
def vocoder() -> Vocoder:
    return Vocoder()


def test_it_says_the_same_when_it_is_told_what_it_would_measure(vocoder: Vocoder) -> None:
    np.testing.assert_allclose(vocoder.window(0, 60), vocoder.whole, atol=1e-3 * np.abs(vocoder.whole).max())


def test_windows_with_context_join_to_the_whole(vocoder: Vocoder) -> None:
    parts = []
    for start in range(0, 60, 20):
        first, last = max(0, start - CONTEXT), min(60, start + 20 + CONTEXT)
        audio = vocoder.window(first, last)
        parts.append(audio[SAMPLES_A_FRAME * (start - first) : SAMPLES_A_FRAME * (start + 20 - first)])
    np.testing.assert_allclose(np.concatenate(parts), vocoder.whole, atol=1e-3 * np.abs(vocoder.whole).max())


def test_integers_are_near_floats(vocoder: Vocoder) -> None:
    audio = vocoder.window(0, 60, graph=vocoder.integers)
    noise = np.square(audio - vocoder.whole).sum() / np.square(vocoder.whole).sum()
    assert 10 * np.log10(noise) < -15


def test_a_sentence_is_measured_without_keeping_all_of_it() -> None:
    onnx_graphs, num_frames = graphs(), 4000
    split = importlib.import_module("cc_tts.engines.cpu.kokoro.split")
    graph = onnx_graphs.Graph(random_weights(), is_measuring=True).whole()
    runner = split.runner_of(graph.model(), keeps_memory=False)
    inputs = {name: np.ones(shape, np.float32) for name, shape in graph.inputs.items() if len(shape) == 1}
    inputs["frames"] = np.zeros((1, 512, num_frames), np.float32)
    inputs["source"] = np.zeros((1, 22, SOURCE_A_FRAME * num_frames + 1), np.float32)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = peak_bytes()
    runner.run(None, inputs)
    layer = SOURCE_A_FRAME * num_frames * CHANNELS[2] * 4
    assert peak_bytes() - before < 175 * layer, "141 were measured, and 211 in the usual order"


def peak_bytes() -> int:
    """The most memory that this process has had."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def sentence(num_frames: int) -> statistics.Sentence:
    """One whose means are 2 in silence and 5 in speech, with a silence of 40 frames."""
    share = np.float32(40 / num_frames)
    mean = np.full(3, 2 * share + 5 * (1 - share), np.float32)
    square = np.full(3, 4 * share + 30 * (1 - share), np.float32)
    ranges = {"conv": np.full(3, num_frames, np.float32)}
    return statistics.Sentence(num_frames, {"norm": mean}, {"norm": square - mean**2}, ranges, 12, 28)


def test_two_sentences_tell_the_statistics_of_a_third() -> None:
    known = statistics.Statistics.of([sentence(100), sentence(400)])
    mean, variance = known.at("norm", 200)
    np.testing.assert_allclose(mean, sentence(200).means["norm"], rtol=1e-4)
    np.testing.assert_allclose(variance, sentence(200).variances["norm"], rtol=1e-3)
    assert known.ranges["conv"].max() == 400


def test_a_variance_stays_above_zero() -> None:
    _mean, variance = statistics.Statistics.of([sentence(100), sentence(400)]).at("norm", 1.0)
    assert variance.min() > 0


def test_what_was_measured_is_kept_in_a_file_and_a_damaged_file_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "voice.npz"
    made = statistics.Statistics.of([sentence(100), sentence(400)])
    statistics.keep(path, made)
    assert not path.exists(), "a voice that was not heard"
    statistics.keep(path, replace(made, level_dbfs=-21.46))
    known = statistics.load(path)
    assert known is not None
    assert (known.lead, known.trail, known.level_dbfs) == (12, 28, -21.46)
    assert statistics.level_of(path) == -21.5
    np.testing.assert_array_equal(known.ranges["conv"], np.full(3, 400, np.float32))
    path.write_bytes(path.read_bytes()[:100])
    assert statistics.load(path) is None
    assert statistics.level_of(path) is None
    assert statistics.load(tmp_path / "none.npz") is None


def test_silence_at_the_ends_is_counted_in_frames() -> None:
    audio = np.concatenate((np.zeros(650), np.ones(900), np.zeros(1250))).astype(np.float32)
    assert statistics.silent_frames(audio, SAMPLES_A_FRAME) == (2, 3)
    assert statistics.silent_frames(np.zeros(900, np.float32), SAMPLES_A_FRAME) == (0, 0)
