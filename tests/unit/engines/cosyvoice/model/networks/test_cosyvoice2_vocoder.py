import math
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.loader import fold_weight_norm, new_network, stored_shapes
from cc_tts.engines.cosyvoice.model.networks.vocoder.spectrum import istft, stft
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import VocoderConfig
from lab.cosyvoice.golden_fill import fill_by_hash, fill_by_kind
from lab.cosyvoice.launches import Operators
from lab.cosyvoice.networks import vocoder_of
from lab.cosyvoice.whole_vocoder import vocode, with_coarse_phase
from tests.support.golden import full_shapes, read_tensors, tiny_shapes
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

CLOSE: Final[dict[str, Any]] = {"rtol": 0.0, "atol": 2e-6}
SMALL: Final = VocoderConfig(
    num_mels=4,
    channels=8,
    up_kernels=(6, 5),
    up_rates=(4, 3),
    res_kernels=(3, 5),
    source_kernels=(6, 1),
    source_strides=(3, 1),
    source_res_kernels=(5, 3),
    dilations=(1, 3),
    num_hidden_f0=6,
    num_convs_f0=2,
    num_harmonics=3,
    hop_samples=48,
)

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return read_tensors("tiny.npz")


@pytest.fixture(scope="module")
def spec() -> dict[str, Tensor]:
    return read_tensors("spec/hift.npz")


@pytest.fixture(scope="module")
def tiny() -> Vocoder:
    return with_coarse_phase(vocoder_of(fill_by_kind(tiny_shapes("hift"), "hift.")))


@pytest.fixture(scope="module")
def full() -> Vocoder:
    return with_coarse_phase(vocoder_of(fill_by_hash(full_shapes("hift"), vocoder=True)))


def small_vocoder() -> Vocoder:
    torch.manual_seed(3)
    vocoder = Vocoder(SMALL).eval()
    vocoder.f0_predictor.classifier.bias.add_(200.0)
    vocoder.f0_predictor.classifier.weight.mul_(100.0)
    return vocoder


class TestGolden:
    """Numbers of the reference implementation."""

    def test_the_pitch_is_made_without_convolutions_which_would_take_tf32(self, tiny: Vocoder) -> None:
        mel = torch.randn(2, 80, 6)
        with Operators() as operators:
            pitch = tiny.f0(mel)
        assert operators.counts["baddbmm"] == len(tiny.f0_predictor.condnet)
        assert not any("conv" in name for name in operators.counts)
        for conv in tiny.f0_predictor.condnet.values():
            mel = torch.nn.functional.elu(conv(mel))
        torch.testing.assert_close(pitch, tiny.f0_predictor.classifier(mel.transpose(1, 2)).squeeze(-1).abs())


class TestConfig:
    @pytest.mark.parametrize("shapes", [full_shapes("hift"), tiny_shapes("hift")], ids=["full", "tiny"])
    def test_tensors_are_those_of_the_state_dict(self, shapes: dict[str, list[int]]) -> None:
        assert stored_shapes(new_network("hift", shapes)) == {key: tuple(shape) for key, shape in shapes.items()}

    def test_published_sizes(self) -> None:
        config = VocoderConfig.of(full_shapes("hift"))
        assert config == VocoderConfig()
        assert math.prod(config.up_rates) * config.n_fft // 4 == config.hop_samples


NUM_FRAMES: Final = 2000


class TestSource:
    def test_the_phase_is_the_sum_of_the_pitch(self) -> None:
        """After many turns, too, which 32 bits do not hold."""
        source = small_vocoder().m_source
        f0 = 100 + 300 * torch.rand(2, NUM_FRAMES, generator=torch.Generator().manual_seed(1))
        ends = (f0.to(torch.float64).cumsum(1) * 48 / 24_000).numpy()
        places = np.clip((np.arange(NUM_FRAMES * 48) + 0.5) / 48 - 0.5, 0, NUM_FRAMES - 1)
        turns = np.stack([np.interp(places, np.arange(NUM_FRAMES), row) for row in ends])
        source.l_linear.bias.zero_()
        for harmonic in range(3):
            source.l_linear.weight.copy_(torch.eye(3)[harmonic : harmonic + 1])
            sines = source(f0, None)[:, 0].atanh() / 0.1
            expected = torch.from_numpy(np.sin(2 * np.pi * (harmonic + 1) * turns)).to(torch.float32)
            torch.testing.assert_close(sines, expected, rtol=0.0, atol=1e-5)

    def test_noise_is_strong_only_without_voice(self) -> None:
        source = small_vocoder().m_source
        source.l_linear.weight.fill_(1.0)
        source.l_linear.bias.zero_()
        f0, draws = torch.tensor([[0.0, 200.0]]), torch.ones(1, 96, 3)
        noise = source(f0, draws).atanh() - source(f0, None).atanh()
        torch.testing.assert_close(noise[0, 0, :48], torch.full((48,), 0.1))
        torch.testing.assert_close(noise[0, 0, 48:], torch.full((48,), 0.009), rtol=1e-3, atol=1e-6)


class TestSpectrum:
    """The transform and its inverse, against those of torch."""

    def test_there(self) -> None:
        samples = torch.randn(2, 40, generator=torch.Generator().manual_seed(2))
        window = torch.hann_window(16)
        expected = torch.stft(samples, 16, 4, window=window, return_complex=True)
        ours = stft(samples, torch.tensor([40, 40]), 16)
        torch.testing.assert_close(ours, torch.cat((expected.real, expected.imag), dim=1), rtol=0.0, atol=1e-5)

    def test_and_back(self) -> None:
        parts = torch.randn(2, 18, 11, generator=torch.Generator().manual_seed(2))
        expected = torch.istft(torch.complex(parts[:, :9], parts[:, 9:]), 16, 4, window=torch.hann_window(16))
        torch.testing.assert_close(istft(parts, torch.tensor([40, 40]), 40, 16), expected, rtol=0.0, atol=1e-5)

    def test_a_row_ends_at_its_own_end(self) -> None:
        samples = torch.randn(2, 40, generator=torch.Generator().manual_seed(2))
        spectra = stft(samples, torch.tensor([40, 24]), 16)
        torch.testing.assert_close(spectra[1:, :, :7], stft(samples[1:, :24], torch.tensor([24]), 16))
        back = istft(spectra, torch.tensor([40, 24]), 40, 16)
        torch.testing.assert_close(back[0], samples[0], rtol=0.0, atol=1e-5)
        torch.testing.assert_close(back[1, :24], samples[1, :24], rtol=0.0, atol=1e-5)
        assert not back[1, 24:].any()


@pytest.mark.parametrize("compat", [True, False])
def test_a_batch_gives_what_its_rows_give_alone(compat: bool) -> None:
    vocoder = with_coarse_phase(small_vocoder()) if compat else small_vocoder()
    generator = torch.Generator().manual_seed(4)
    lengths = [9, 4, 13]
    mel = torch.randn(3, 4, 13, generator=generator)
    draws = torch.randn(3, 13 * 48, 3, generator=generator)
    cache = torch.randn(3, 1, 60, generator=generator)
    audio, source = vocode(vocoder, mel, mel_len=torch.tensor(lengths), draws=draws, cache_source=cache)
    assert audio.abs().max() < 0.99
    for row, length in enumerate(lengths):
        one, samples = slice(row, row + 1), length * 48
        alone, its_source = vocode(vocoder, mel[one, :, :length], draws=draws[one, :samples], cache_source=cache[one])
        torch.testing.assert_close(audio[one, :samples], alone, **CLOSE)
        torch.testing.assert_close(source[one, :, :samples], its_source, **CLOSE)
        assert not audio[row, samples:].any()


def test_all_lengths_given_change_nothing() -> None:
    vocoder, mel = small_vocoder(), torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(vocode(vocoder, mel, mel_len=torch.tensor([6, 6]))[0], vocode(vocoder, mel)[0], **CLOSE)


@pytest.mark.parametrize("compat", [True, False])
def test_no_tensor_is_asked_for_its_value(compat: bool) -> None:
    """On the meta device tensors have none; what runs there can be captured in a CUDA graph."""
    with torch.device("meta"):
        vocoder = with_coarse_phase(Vocoder(SMALL)) if compat else Vocoder(SMALL)
        mel, lengths, cache = torch.zeros(2, 4, 5), torch.zeros(2).long(), torch.zeros(2, 1, 60)
        audio, source = vocode(vocoder, mel, mel_len=lengths, cache_source=cache, draws=torch.zeros(2, 240, 3))
    assert (audio.shape, source.shape) == ((2, 240), (2, 1, 240))


def test_pitch_and_source_stay_float32() -> None:
    state = {
        key: value if key.startswith(("f0_predictor.", "m_source.")) else value.to(torch.bfloat16)
        for key, value in fold_weight_norm(fill_by_kind(tiny_shapes("hift"), "hift.")).items()
    }
    vocoder = vocoder_of(state)
    exact = vocoder_of(fill_by_kind(tiny_shapes("hift"), "hift."))
    mel = torch.randn(1, 80, 5, generator=torch.Generator().manual_seed(6))
    audio, source = vocode(vocoder, mel)
    assert (audio.dtype, source.dtype) == (torch.float32, torch.float32)
    expected, expected_source = vocode(exact, mel)
    assert torch.equal(source, expected_source)
    torch.testing.assert_close(audio, expected, rtol=0.0, atol=0.05)
