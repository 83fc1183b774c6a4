import math
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.loader import fold_weight_norm
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.runners.vocoder import (
    FRAME_BUCKETS,
    SourceNoise,
    VocoderRow,
    VocoderRunner,
    crossfade,
    crossfade_window,
    source_noise,
)
from lab.cosyvoice.chunked_vocoder import ChunkedVocoder, Crossfade
from lab.cosyvoice.networks import vocoder_of
from lab.cosyvoice.tiny_model import tiny_states
from lab.cosyvoice.whole_vocoder import no_noise, vocode
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

HOP: Final = 480

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def vocoder() -> Vocoder:
    """A small network whose pitch is voiced in places; more of it would make more of how it is rounded."""
    state = fold_weight_norm(tiny_states()["hift"])
    state["f0_predictor.classifier.weight"] = 10.0 * state["f0_predictor.classifier.weight"]
    return vocoder_of(state)


def mel_of(num_frames: int, seed: int) -> Tensor:
    mel: Tensor = 2.0 * torch.randn((80, num_frames), generator=torch.Generator().manual_seed(seed)) - 3.0
    return mel


def cuts(num_frames: int, rng: random.Random) -> list[int]:
    """Sizes of chunks: a first one that is longer than the crossfade, then any; the last one may be empty."""
    sizes = [min(num_frames, rng.randint(8, 30))]
    while (rest := num_frames - sum(sizes)) > 0:
        sizes.append(min(rest, rng.randint(1, 40)))
    return sizes + [0] * (rng.random() < 0.4)


def alone(
    vocoder: Vocoder, mel: Tensor, sizes: Sequence[int], seed: int, noise: SourceNoise = source_noise
) -> list[Tensor]:
    """Audio of each chunk of one stream, [samples]."""
    chunked, crossfade, done = ChunkedVocoder(partial(vocode, vocoder)), None, 0
    parts: list[Tensor] = []
    for number, size in enumerate(sizes):
        start = done - (0 if crossfade is None else 8)
        new = mel[None, :, done : done + size]
        draws = noise(torch.tensor([seed]), torch.tensor([start]), done + size - start, vocoder.config)
        audio, crossfade = push(chunked, new, crossfade, draws, is_last=number == len(sizes) - 1)
        parts.append(audio[0])
        done += size
    return parts


def push(
    chunked: ChunkedVocoder, mel: Tensor, crossfade: Crossfade | None, draws: Tensor | None, *, is_last: bool
) -> tuple[Tensor, Crossfade | None]:
    return chunked.push(mel, crossfade, is_last=is_last, draws=draws)


def assert_same(out: bytes | None, audio: Tensor) -> None:
    """Within one step of 16 bits."""
    assert out is not None
    samples = np.frombuffer(out, "<i2").astype(np.float64)
    assert samples.shape == tuple(audio.shape)
    expected = audio.clamp(-1.0, 1.0).double().numpy() * 32767.0
    assert np.abs(samples - expected).max(initial=0.0) <= 1.0


def rows_of(mel: Tensor, sizes: Sequence[int], slot: int, seed: int) -> list[VocoderRow]:
    places = np.cumsum([0, *sizes]).tolist()
    last = len(sizes) - 1
    return [
        VocoderRow(slot, mel[:, places[i] : places[i + 1]], is_first=i == 0, is_last=i == last, seed=seed)
        for i in range(len(sizes))
    ]


# --- in company as alone


@pytest.mark.parametrize("noise", [source_noise, no_noise])
@pytest.mark.parametrize("buckets", [True, False])
def test_streams_that_come_and_go_sound_as_they_do_alone(vocoder: Vocoder, noise: SourceNoise, buckets: bool) -> None:
    rng = random.Random(buckets)
    runner = VocoderRunner(vocoder, num_slots=4, noise=noise, graphs=buckets)
    waiting = list(range(9))
    running: dict[int, list[tuple[VocoderRow, Tensor]]] = {}
    num_chunks = 0
    while waiting or running:
        for slot in set(range(4)) - running.keys():
            if waiting and rng.random() < 0.6:
                seed = waiting.pop() - 4
                mel = mel_of(rng.randint(1, 90), seed)
                sizes = cuts(mel.shape[1], rng)
                expected = alone(vocoder, mel, sizes, seed, noise)
                running[slot] = list(zip(rows_of(mel, sizes, slot, seed), expected, strict=True))
        chosen = [slot for slot in running if rng.random() < 0.7]
        rng.shuffle(chosen)
        chunks = [running[slot].pop(0) for slot in chosen]
        for out, (_, audio) in zip(runner.synthesise([row for row, _ in chunks]), chunks, strict=True):
            assert_same(out, audio)
        num_chunks += len(chunks)
        running = {slot: rest for slot, rest in running.items() if rest}
    assert num_chunks > 18
    assert runner.num_not_finite == 0


def test_all_that_goes_in_comes_out(vocoder: Vocoder) -> None:
    runner = VocoderRunner(vocoder, num_slots=1)
    outs = [runner.synthesise([row])[0] for row in rows_of(mel_of(50, 1), [8, 1, 20, 19, 2, 0], 0, 7)]
    assert [len(out or b"") // 2 // HOP for out in outs] == [0, 1, 20, 19, 2, 8]
    samples = np.frombuffer(b"".join(out or b"" for out in outs), "<i2")
    assert np.abs(samples).max() > 1000


def test_a_stream_of_one_short_chunk_and_one_of_nothing(vocoder: Vocoder) -> None:
    runner = VocoderRunner(vocoder, num_slots=2)
    short, nothing = mel_of(3, 1), mel_of(0, 1)
    outs = runner.synthesise([VocoderRow(0, short, True, True, 1), VocoderRow(1, nothing, True, True)])
    assert_same(outs[0], alone(vocoder, short, [3], 1)[0])
    assert outs[1] == b""


@pytest.mark.parametrize(
    ("buckets", "calls"),
    [
        (True, [(2, 16, False), (1, 24, False), (16, 58, True), (16, 58, True), (2, 58, True), (1, 50, True)]),
        (False, [(2, 16, False), (1, 17, True), (16, 58, True), (16, 58, True), (2, 58, True), (1, 50, True)]),
    ],
)
def test_rows_of_a_kind_are_run_together(
    vocoder: Vocoder, monkeypatch: pytest.MonkeyPatch, buckets: bool, calls: list[tuple[int, int, bool]]
) -> None:
    called: list[tuple[int, int, bool]] = []

    def counted(_vocoder: Vocoder, mel: Tensor, _source: Tensor, ends: Tensor | None) -> Tensor:
        called.append((len(mel), mel.shape[2], ends is None))
        return torch.ones((len(mel), mel.shape[2] * HOP))

    monkeypatch.setattr(Vocoder, "synthesize", counted)
    runner = VocoderRunner(vocoder, num_slots=70, noise=no_noise, graphs=buckets)
    sizes = [10, 16, 17, *[58] * 34, 50]
    rows = [VocoderRow(slot, torch.zeros(80, size), True, True) for slot, size in enumerate(sizes)]
    assert [len(out or b"") for out in runner.synthesise(rows)] == [2 * HOP * size for size in sizes]
    assert called == calls


def test_what_is_too_loud_is_clipped(vocoder: Vocoder, monkeypatch: pytest.MonkeyPatch) -> None:
    loud = torch.zeros(1, 20 * HOP)
    loud[0, :1000], loud[0, 1000:2000] = 9.0, -9.0
    monkeypatch.setattr(Vocoder, "synthesize", lambda *_: loud)
    (out,) = VocoderRunner(vocoder, num_slots=1).synthesise([VocoderRow(0, mel_of(20, 1), True, True)])
    samples = np.frombuffer(out or b"", "<i2")
    assert (samples[:1000] == 32767).all()
    assert (samples[1000:2000] == -32767).all()
    assert not samples[2000:].any()


def test_no_value_leaves_the_device(vocoder: Vocoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors without values can go through: nothing asks for one, so all can be recorded."""
    monkeypatch.setattr("cc_tts.engines.cosyvoice.runners.vocoder.FRAME_BUCKETS", FRAME_BUCKETS[:1])
    state = {key: value.to("meta") for key, value in vocoder.state_dict().items()}
    runner = VocoderRunner(vocoder_of(state), num_slots=2)
    runner.warm_up(max_rows=2)


# --- noise


def test_noise_is_normal_and_depends_on_seed_and_place_alone(vocoder: Vocoder) -> None:
    seeds = torch.tensor([5, 5, -6])
    draws = source_noise(seeds, torch.tensor([0, 3, 0]), 20, vocoder.config)
    assert draws.shape == (3, 20 * HOP, 9)
    assert torch.equal(draws[0, 3 * HOP :], draws[1, : -3 * HOP])
    different = draws[::2].flatten(1)
    assert abs(float(torch.corrcoef(different)[0, 1])) < 0.02
    assert float(different.mean()) == pytest.approx(0.0, abs=0.01)
    assert float(different.var()) == pytest.approx(1.0, abs=0.02)
    assert float(different.pow(4).mean()) == pytest.approx(3.0, abs=0.15)
    neighbours = torch.stack((draws[0, :-1].flatten(), draws[0, 1:].flatten()))
    assert abs(float(torch.corrcoef(neighbours)[0, 1])) < 0.02
    assert abs(float(torch.corrcoef(draws[0].T).fill_diagonal_(0.0).abs().max())) < 0.05


def test_a_seed_is_heard(vocoder: Vocoder) -> None:
    runner = VocoderRunner(vocoder, num_slots=3)
    mel = mel_of(12, 1)
    first, again, other = runner.synthesise([VocoderRow(slot, mel, True, True, slot // 2) for slot in range(3)])
    assert first == again
    assert first != other


# --- slots


def test_numbers_that_are_not_finite_stay_in_their_row(vocoder: Vocoder) -> None:
    runner = VocoderRunner(vocoder, num_slots=3)
    mels = [mel_of(30, slot) for slot in range(3)]
    mels[1][5, 20] = torch.inf
    rows = [rows_of(mel, [16, 14], slot, slot) for slot, mel in enumerate(mels)]
    assert None not in runner.synthesise([first for first, _ in rows])
    outs = runner.synthesise([second for _, second in rows])
    assert outs[1] is None
    assert runner.num_not_finite == 1
    for slot in (0, 2):
        assert_same(outs[slot], alone(vocoder, mels[slot], [16, 14], slot)[1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -3.0])
def test_a_stream_that_is_left_leaves_nothing_to_the_next_in_its_slot(vocoder: Vocoder, value: float) -> None:
    runner = VocoderRunner(vocoder, num_slots=1)
    (spoken,) = runner.synthesise([VocoderRow(0, torch.full((80, 20), value), True, False)])
    assert (spoken is not None) == math.isfinite(value)
    mel = mel_of(30, 2)
    for row, audio in zip(rows_of(mel, [16, 14], 0, 3), alone(vocoder, mel, [16, 14], 3), strict=True):
        assert_same(runner.synthesise([row])[0], audio)


def test_warming_up_touches_no_stream(vocoder: Vocoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cc_tts.engines.cosyvoice.runners.vocoder.FRAME_BUCKETS", FRAME_BUCKETS[:2])
    runner = VocoderRunner(vocoder, num_slots=2)
    mel = mel_of(30, 2)
    expected = alone(vocoder, mel, [16, 14], 3)
    for row, audio in zip(rows_of(mel, [16, 14], 1, 3), expected, strict=True):
        assert_same(runner.synthesise([row])[0], audio)
        runner.warm_up(max_rows=2)


def test_no_rows_are_no_audio(vocoder: Vocoder) -> None:
    assert VocoderRunner(vocoder, num_slots=1).synthesise([]) == []


def test_a_crossfade_is_a_little_louder_than_what_it_joins() -> None:
    rise, fall = crossfade_window().chunk(2)
    sums = rise + fall
    assert float(sums.min()) == pytest.approx(1.0798, abs=1e-4)
    assert float(sums.max()) == pytest.approx(1.08, abs=1e-4)


def test_neither_input_is_changed() -> None:
    new, old = torch.ones(1, 5000), torch.ones(1, 3840)
    crossfade(new, old, crossfade_window())
    assert bool((new == 1).all())
    assert bool((old == 1).all())
