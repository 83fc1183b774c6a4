"""The comparisons with ``features.npz`` and with the acceptance data of the specification in ``spec/`` (§11).

They have inputs and a rule for weights of their own, which are the same for every directory, so they depend on neither
the size nor the salt. What is not in the directory is left out.
"""

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.loader import fold_weight_norm
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.flow.ode import euler_grid
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmRequest
from cc_tts.engines.cosyvoice.model.networks.vocoder.source import exactly_convolved
from cc_tts.engines.cosyvoice.model.sizes import TEXT_EMBEDDING, TIED_HEAD, FlowConfig, LmConfig, Part, VocoderConfig
from cc_tts.engines.cosyvoice.runners.sampler import NO_TOKEN, WINDOW, sample_ras
from cc_tts.engines.cosyvoice.runners.vocoder import crossfade, crossfade_window
from cc_tts.engines.cosyvoice.voice import features
from lab.cosyvoice.golden_fill import fill_by_hash
from lab.cosyvoice.networks import flow_of, lm_of, shapes_for, vocoder_of
from lab.cosyvoice.whole_flow import encode, whole_mel
from lab.cosyvoice.whole_vocoder import ALWAYS_FLOAT32, vocode, with_coarse_phase
from tests.parity.cases import FEATURE_TOLERANCE, WAV_TOLERANCE
from tests.parity.generation import ForcedTokens, speak
from tests.parity.result import EXACT, Array, Comparison, Comparisons

_MEL: Final = 2e-5
_LOG_PROBS: Final = 2e-5
_PITCH: Final = 1e-4
_PITCH_ROUNDED: Final = (
    5e-4  # in float32 at 43 to 230 Hz: one CPU's convolutions are off by 1.7e-4, the record by 0.6e-4
)
_SOURCE: Final = 2e-6
_WAVE: Final = 1e-6
_WAVE_OF_OWN_PITCH: Final = 2e-5
_SPECTRUM: Final = 2e-5
_FILTER_BANK: Final = 5e-4  # where a bin is far below its neighbours, the reference's own rounding shows
_WINDOW: Final = 1e-15
_TIMES: Final = 1e-6
_FULL: Final = FEATURE_TOLERANCE["full"]
_FEW_DRAWS: Final = 10
_DEVIATIONS: Final = 3.5
_LLM_TINY: Final = LmConfig(num_layers=2, text_vocab_size=3000)


class SpecData:
    """The files of a directory, and the networks with the weights of the specification.

    On another device than the CPU the tolerances of §11, which are for the CPU, give way to those of the golden README
    for another order of operations: 2e-3, and 1e-3 for samples.
    """

    def __init__(
        self, directory: Path, device: torch.device, dtype: torch.dtype, vocoder_dtype: torch.dtype = torch.float32
    ) -> None:
        self._directory = directory
        self._dtype = dtype
        self._vocoder_dtype = vocoder_dtype
        self.device = device

    def has(self, name: str) -> bool:
        return (self._directory / name).is_file()

    def arrays(self, name: str) -> dict[str, Array]:
        with np.load(self._directory / name) as file:
            return {key: file[key] for key in file.files}

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The arrays of a file on the device."""
        return {key: torch.from_numpy(value).to(self.device) for key, value in self.arrays(name).items()}

    def placed(self, part: Part, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights on the device, in their types."""
        dtype = self._vocoder_dtype if part == "hift" else self._dtype
        kept = ALWAYS_FLOAT32 if part == "hift" else ()
        return {
            key: value.to(self.device, torch.float32 if key.startswith(kept) else dtype) for key, value in state.items()
        }

    def allowed(self, on_cpu: float, elsewhere: float) -> float:
        """The tolerance of the device."""
        return on_cpu if self.device.type == "cpu" else max(on_cpu, elsewhere)


def groups(data: SpecData) -> Iterator[tuple[str, Comparisons]]:
    """Everything of which the file is there."""
    sources: tuple[tuple[str, str, Callable[[SpecData], Comparisons]], ...] = (
        ("features", "features.npz", feature_extraction),
        ("cross-fade", "features.npz", fade_of_features),
        ("sampler", "features.npz", sampler_frequencies),
        ("spec llm", "spec/llm_tiny.npz", language_model),
        ("spec flow", "spec/flow.npz", flow),
        ("spec hift", "spec/hift.npz", vocoder),
        ("spec fade", "spec/fade.npz", fade),
    )
    for name, file, compare in sources:
        if data.has(file):
            yield name, compare(data)


def absent(data: SpecData) -> list[str]:
    """Optional files that are not there."""
    names = ("features.npz", "spec/llm_tiny.npz", "spec/flow.npz", "spec/hift.npz", "spec/fade.npz")
    return [name for name in names if not data.has(name)]


def feature_extraction(data: SpecData) -> Comparisons:
    """What the networks read of a prompt's audio; computed with numpy, whatever the device."""
    golden = data.arrays("features.npz")
    yield Comparison(
        "whisper_log_mel_128", features.whisper_log_mel(golden["audio_16k"]), golden["whisper_log_mel_128"], _SPECTRUM
    )
    yield Comparison(
        "kaldi_fbank_80", features.kaldi_fbank(golden["audio_16k"]), golden["kaldi_fbank_80"], _FILTER_BANK
    )
    yield Comparison("mel_24k", features.reference_mel(golden["audio_24k"]), golden["mel_24k"][0].T, _SPECTRUM)


def fade_of_features(data: SpecData) -> Comparisons:
    """The cross-fade of two recorded pieces."""
    golden = data.tensors("features.npz")
    window = crossfade_window(golden["fade_out"].shape[-1])
    faded = crossfade(golden["fade_in"], golden["fade_out"], window)
    yield Comparison("fade_result", faded, golden["fade_result"], _WAVE)


def sampler_frequencies(data: SpecData) -> Comparisons:
    """How often each token is drawn: the chi-square sum as a share of what chance allows at 3.5 deviations."""
    golden = data.arrays("features.npz")
    for number in range(sum(key.startswith("ras") and key.endswith("_counts") for key in golden)):
        log_probs = torch.from_numpy(golden[f"ras{number}_logp"]).to(data.device)
        counts = golden[f"ras{number}_counts"]
        history = [NO_TOKEN] * WINDOW + [int(token) for token in golden[f"ras{number}_decoded"]]
        num_draws = int(counts.sum())
        steps = torch.arange(num_draws, device=data.device)
        window = torch.tensor([history[-WINDOW:]], device=data.device).expand(num_draws, -1)
        same = torch.full_like(steps, 7)
        for how, seeds, at in (("frequencies", same, steps), ("frequencies of seeds", steps, same)):
            drawn = sample_ras(log_probs.expand(num_draws, -1), window, seeds, at)
            ours = drawn.bincount(minlength=len(counts)).cpu().numpy()
            yield Comparison(f"ras{number} {how}", np.array([_strangeness(ours, counts)]), np.zeros(1), 1.0)


def _strangeness(ours: Array, theirs: Array) -> float:
    """Chi-square of two sets of counts over the limit that Wilson and Hilferty give (1931); rare tokens are one."""
    both = ours + theirs
    often = both >= _FEW_DRAWS
    rows = np.stack([np.append(counts[often], counts[~often].sum()).astype(float) for counts in (ours, theirs)])
    rows = rows[:, rows.sum(axis=0) > 0]
    degrees = max(1, rows.shape[1] - 1)
    spread = 2.0 / (9.0 * degrees)
    limit = degrees * (1.0 - spread + _DEVIATIONS * math.sqrt(spread)) ** 3
    return float((np.square(rows[0] - rows[1]) / rows.sum(axis=0)).sum() / limit)


def language_model(data: SpecData) -> Comparisons:
    """Two layers and 3000 words; the tied head was filled last, so it counts."""
    golden = data.arrays("spec/llm_tiny.npz")
    state = fill_by_hash({key: shape for key, shape in shapes_for(_LLM_TINY).items() if key != TEXT_EMBEDDING})
    state[TEXT_EMBEDDING] = state[TIED_HEAD]
    del state[TIED_HEAD]
    lm = lm_of(data.placed("llm", state), head_dim=_LLM_TINY.head_dim)
    text, prompt_text, prompt_speech = (
        golden[key].ravel().tolist() for key in ("text", "prompt_text", "prompt_speech")
    )
    sampler = ForcedTokens(golden["greedy"].tolist())
    tokens = speak(lm, LmRequest(text, prompt_text=prompt_text, prompt_speech=prompt_speech), sampler, compat=True)
    for _ in golden["greedy"]:
        next(tokens)
    log_probs = torch.stack(sampler.log_probs)
    yield Comparison("spec llm logp", log_probs, golden["logp"], data.allowed(_LOG_PROBS, _FULL))
    if lm.dtype is torch.float32:  # in half precision two tokens may change places
        yield Comparison("spec llm greedy", log_probs.argmax(dim=-1), golden["greedy"], EXACT)


def flow(data: SpecData) -> Comparisons:
    """The flow in its real size: grid, encoder, one call of the estimator, mel."""
    golden = data.tensors("spec/flow.npz")
    network = flow_of(data.placed("flow", fill_by_hash(shapes_for(FlowConfig()))), FlowConfig().estimator.head_dim).to(
        data.device
    )
    dtype, tolerance = network.encoder_proj.weight.dtype, data.allowed(_MEL, _FULL)
    moments = [moment for moment, _ in euler_grid(len(golden["t_span"]) - 1)]
    yield Comparison("spec t_span", np.array(moments), golden["t_span"][:-1], _TIMES)
    prompt, token = golden["prompt_token"].long(), golden["token"].long()
    whole = torch.cat((prompt, token), dim=1)
    lengths = torch.full((whole.shape[0],), whole.shape[1], device=data.device)
    x, mu, cond = (golden[name].mT.to(dtype) for name in ("est_x", "est_mu", "est_cond"))
    start = fixed_noise().to(data.device)
    for streaming in (0, 1):
        for finalize, name in ((True, "final"), (False, "lookahead")):
            hidden = encode(network, whole, lengths, streaming=bool(streaming), finalize=finalize)
            key = f"mu_streaming{streaming}_{name}"
            yield Comparison(f"spec {key}", network.encoder_proj(hidden), golden[key], tolerance)
        frames = torch.full((x.shape[0],), x.shape[1], device=data.device)
        span = PositionSpan.of(frames, x.shape[1], chunk=network.config.chunk_frames if streaming else None)
        out = network.estimator(
            x, mu, network.estimator.shifts(golden["est_t"]), golden["est_spks"].to(dtype), cond, span, None
        )
        key = f"est_out_streaming{streaming}"
        yield Comparison(f"spec {key}", out.mT, golden[key], tolerance)
        for finalize in (False, True):
            voice = FlowReference(prompt, golden["prompt_feat"], golden["embedding"])
            mel = whole_mel(network, token, voice, streaming=bool(streaming), finalize=finalize, noise=start)
            key = f"mel_streaming{streaming}_finalize{int(finalize)}"
            yield Comparison(f"spec {key}", mel, golden[key], tolerance)


def vocoder(data: SpecData) -> Comparisons:
    """The vocoder in its real size; pitch, source of the recorded pitch, samples of the recorded source."""
    golden = data.tensors("spec/hift.npz")
    state = fold_weight_norm(fill_by_hash(shapes_for(VocoderConfig()), vocoder=True))
    network = with_coarse_phase(vocoder_of(data.placed("hift", state))).to(data.device)

    def compare(
        key: str, ours: Tensor, on_cpu: float, elsewhere: float = WAV_TOLERANCE, *, how: str = ""
    ) -> Comparison:
        return Comparison(f"spec {key}{how}", ours, golden[key], data.allowed(on_cpu, elsewhere))

    exact = copy.deepcopy(network.f0_predictor).to(torch.float64)
    pitch = exact(golden["mel"].to(torch.float64), partial(exactly_convolved, None))
    yield compare("f0", pitch, _PITCH, _FULL, how=" in float64")
    yield compare("f0", network.f0(golden["mel"]), _PITCH_ROUNDED, _FULL)
    yield compare("source", network.source(golden["f0"], noise=golden["noise"]), _SOURCE)
    yield compare("wave", network.synthesize(golden["mel"], golden["source"]), _WAVE)
    audio, _ = vocode(network, golden["mel"], cache_source=golden["cache_source"], draws=golden["noise"])
    yield compare("wave_with_cache", audio, _WAVE_OF_OWN_PITCH)


def fade(data: SpecData) -> Comparisons:
    golden = data.tensors("spec/fade.npz")
    yield Comparison("spec fade window", crossfade_window(), golden["window"], _WINDOW)
    faded = crossfade(golden["new"], golden["old"], crossfade_window())
    yield Comparison("spec fade", faded, golden["out"], data.allowed(EXACT, _WAVE))
