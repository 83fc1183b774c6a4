"""The vocoder of the third generation, whose convolutions look to one side (v3 §5).

A frame needs four mel frames behind it; apart from that everything looks backwards, so the audio of an utterance is made
piece by piece, without a fade, and is what one run over the whole gives. What a piece leaves for the next one is a
:class:`CausalState`. The whole is one piece from a state of zeros.

::

    mel F … F+T+3 ─▸ pitch F … F+T ─▸ source of as many frames ─▸ spectra 120F-14 … 120(F+T) ─┐
        │                                                                                     ▼
        └─▸ conv_pre F … F+T-1 ─▸ ups · source_downs · resblocks ─▸ spectra 120F … 120(F+T) ─▸ samples 480F-4 … 480(F+T)-5

A piece runs the pitch and the source of one frame more than it keeps, and one spectrum; the next piece runs them again.

Weights are plain: weight norm is multiplied out when they are loaded. The pitch is float64, its phase is a running sum.

Runs on: the thread that owns the device.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.vocoder.source import F0Predictor, Source
from cc_tts.engines.cosyvoice.model.networks.vocoder.spectrum import overlapped, spectra
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import (
    AUDIO_LIMIT,
    POST_SLOPE,
    UP_SLOPE,
    VocoderResBlock,
    spectrum_of,
)
from cc_tts.engines.cosyvoice.model.sizes import VocoderConfig

LOOKAHEAD_FRAMES: Final = 4  # that conv_pre needs behind a frame; the pitch needs one less
OPEN_SAMPLES: Final = 4  # at the end of a piece that the next spectrum changes
_SOURCE_TAIL: Final = 64  # samples of the source before a piece that its first spectra reach back to
_PAST_SPECTRA: Final = 14  # of the source before a piece, that source_downs.0 reaches back to
_SECOND_DOWN: Final = 12  # of these, that source_downs.1 leaves out
_PAST_WINDOWS: Final = 2  # of the result before a piece, whose ends lie in it


@dataclass(frozen=True, slots=True)
class CausalState:
    """The state of some utterances after their last piece, a row each; zeros before the first one."""

    mel: Tensor  # [B, mels, 4]: frames that are not audio yet
    pitch: Tensor  # [B, n], float64: past inputs of the pitch's convolutions, side by side
    turns: Tensor  # [B, harmonics], float64: turns of each harmonic so far, in samples' worth
    source: Tensor  # [B, 64]: last samples of the source
    convs: Tensor  # [B, n]: past inputs of all other convolutions, side by side
    delayed: Tensor  # [B, channels, 1]: last input of the last stage
    spectra: Tensor  # [B, n_fft + 2, 2]: last ones of the result

    def at(self, slots: Tensor, fresh: Tensor) -> "CausalState":
        """Copies of the rows ``slots`` [B], zeros where ``fresh`` [B] says that the utterance begins."""
        rows = (part.index_select(0, slots) for part in self.parts)
        return CausalState(*(part.masked_fill(_beside(fresh, part), 0.0) for part in rows))

    def put(self, slots: Tensor, rows: "CausalState") -> None:
        """Write copies back to their rows."""
        for part, new in zip(self.parts, rows.parts, strict=True):
            part[slots] = new

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Piece:
    """Where the next pieces of some utterances lie, a row each; T is the longest of them."""

    num_frames: Tensor  # [B]: frames that become audio
    is_first: Tensor  # [B], bool
    is_last: Tensor  # [B], bool: the mel is padded with four frames of zeros


@dataclass(frozen=True, slots=True)
class Voiced:
    f0: Tensor  # [B, T + 1], Hz, float64
    source: Tensor  # [B, hop (T + 1)]
    audio: Tensor  # [B, 4 + hop T]: from four samples before the piece; see :func:`final_samples`
    state: CausalState


def final_samples(num_frames: int, hop: int, *, is_first: bool, is_last: bool) -> slice:
    """Return which of the samples of a piece are new and final: all but the last four of a piece are."""
    begin = OPEN_SAMPLES if is_first else 0
    end = hop * num_frames + (OPEN_SAMPLES if is_last else 0)
    return slice(begin, max(begin, end))


class _Past:
    """Past inputs of the convolutions of one call, side by side in a tensor [B, n]."""

    def __init__(self, flat: Tensor, convs: "Sequence[LeftConv]", num_frames: Tensor) -> None:
        self._seen = torch.split(flat, [conv.num_kept for conv in convs], dim=1)
        self._left = list(self._seen)
        self._num_frames = num_frames
        self._last: dict[tuple[int, int], Tensor] = {}

    def before(self, x: Tensor, conv: "LeftConv") -> Tensor:
        """New inputs [B, C, T] with those it sees before them: [B, C, past + T]."""
        seen = self._seen[conv.index].view(x.shape[0], x.shape[1], conv.num_past)
        joined = torch.cat((seen, x), dim=2)
        key = conv.scale, conv.num_past
        if key not in self._last:  # where the inputs before the next piece lie
            steps = torch.arange(conv.num_past, device=x.device)
            self._last[key] = self._num_frames[:, None] * conv.scale + steps
        last = self._last[key][:, None].expand(-1, x.shape[1], -1)
        self._left[conv.index] = joined.gather(2, last).flatten(1)
        return joined

    def left(self) -> Tensor:
        """Past inputs of the next piece, once every convolution has been run."""
        return torch.cat(self._left, dim=1)


class LeftConv(nn.Conv1d):
    """A convolution that sees its own position and those before it; ``index`` is its place among those of a network."""

    index: int = 0

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, scale: int, dilation: int = 1) -> None:
        super().__init__(in_channels, out_channels, kernel, dilation=dilation)
        self.scale = scale  # inputs of a frame
        self.num_past = (kernel - 1) * dilation

    @property
    def num_kept(self) -> int:
        """Past inputs of all channels."""
        return self.in_channels * self.num_past

    def after(self, x: Tensor, past: _Past) -> Tensor:
        """Map [B, in, T] to [B, out, T]."""
        return cast("Tensor", self(past.before(x, self)))


class LeftUp(LeftConv):
    """Every input is repeated and the repetitions are convolved (v3 §5.4).

    Taps that fall on the same input are added up, for each place among the repetitions: a convolution of few taps.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, rate: int, *, scale: int) -> None:
        super().__init__(in_channels, out_channels, kernel, scale=scale)
        self.rate = rate
        self.num_past = -(-(kernel - 1) // rate)
        self._phases: Tensor | None = None

    def keep_phases(self) -> None:
        """Precompute the sums of the taps, on one device: call it when the weight is there."""
        self._phases = self.phases()

    def phases(self) -> Tensor:
        """Sums of the taps, [out * rate, in, past + 1]."""
        kernel = self.kernel_size[0]
        taps = torch.arange(kernel, device=self.weight.device)
        summed = []
        for place in range(self.rate):
            on = (place - kernel + 1 + taps).div(self.rate, rounding_mode="floor") + self.num_past  # [kernel]
            empty = self.weight.new_zeros((*self.weight.shape[:2], self.num_past + 1), dtype=torch.float64)
            summed.append(empty.index_add(2, on, self.weight.to(torch.float64)))
        return torch.stack(summed, dim=1).flatten(0, 1).to(self.weight.dtype)

    def after(self, x: Tensor, past: _Past) -> Tensor:
        """Map [B, in, T] to [B, out, rate T]."""
        weight = self.phases() if self._phases is None else self._phases
        made = functional.conv1d(past.before(x, self), weight)  # [B, out * rate, T]
        made = made.view(made.shape[0], self.out_channels, self.rate, -1).transpose(2, 3).flatten(2)
        assert self.bias is not None
        return made + self.bias[:, None]


class HeldSource(Source):
    """Harmonics of the pitch, whose phase is held for a frame, and noise (v3 §5.2)."""

    def held(self, f0: Tensor, turns: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Excitation [B, hop T] of a pitch ``f0`` [B, T] in Hz, and the turns of each harmonic before each frame and behind
        the last one, [B, T + 1, harmonics]. ``turns``: those before the first frame, [B, harmonics]; ``noise``: uniform
        numbers [B, hop T, harmonics].

        The turns of a frame are rounded to float32 as the reference rounds them, and so is the phase.
        """
        hop = self.config.hop_samples
        f0 = f0.to(torch.float32)
        ends = turns[:, None] + self.turns(f0).to(torch.float64).cumsum(dim=1)
        phase = ends.to(torch.float32) * 2 * math.pi * hop  # [B, T, harmonics]
        held = self.excited(f0[..., None, None], phase[:, :, None], noise.view(*f0.shape, hop, -1))  # [B, T, hop, 1]
        return held.flatten(1), torch.cat((turns[:, None], ends), dim=1)


class CausalVocoder(nn.Module):
    """Mel frames in, audio out, piece by piece (v3 §5)."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.num_hidden_f0
        self._pitch_convs = [LeftConv(width, width, config.kernel_f0, scale=1) for _ in range(config.num_convs_f0 - 1)]
        first = nn.Conv1d(config.num_mels, width, config.first_kernel_f0)
        self.f0_predictor = F0Predictor([first, *_numbered(self._pitch_convs)])  # in float64 (v3 §5.1)
        self.m_source = HeldSource(config)
        self.conv_pre = nn.Conv1d(config.num_mels, config.channels, config.first_kernel)
        self.ups = nn.ModuleList()
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        scale = 1
        for stage, (kernel, rate) in enumerate(zip(config.up_kernels, config.up_rates, strict=True)):
            width = config.channels >> stage + 1
            self.ups.append(LeftUp(2 * width, width, kernel, rate, scale=scale))
            scale *= rate
            long, stride = config.source_kernels[stage], config.source_strides[stage]
            self.source_downs.append(nn.Conv1d(config.n_fft + 2, width, long, stride))
            self.source_resblocks.append(self._res_block(width, config.source_res_kernels[stage], scale))
            for size in config.res_kernels:
                self.resblocks.append(self._res_block(width, size, scale))
        self.conv_post = LeftConv(width, config.n_fft + 2, config.edge_kernel, scale=scale)
        others = (self.ups, self.source_resblocks, self.resblocks, self.conv_post)
        self._convs = _numbered([each for part in others for each in part.modules() if isinstance(each, LeftConv)])

    def _res_block(self, channels: int, kernel: int, scale: int) -> VocoderResBlock:
        return VocoderResBlock(
            channels,
            self.config.dilations,
            lambda each: LeftConv(channels, channels, kernel, scale=scale, dilation=each),
        )

    def keep_constants(self) -> None:
        """Precompute what depends on weights alone. Call it when the weights are where they will be used."""
        for up in self.ups:
            cast("LeftUp", up).keep_phases()

    def new_state(self, num_rows: int) -> CausalState:
        config, zeros = self.config, self.conv_pre.weight.new_zeros
        wide = partial(zeros, dtype=torch.float64)
        num_pitch, num_convs = (sum(conv.num_kept for conv in convs) for convs in (self._pitch_convs, self._convs))
        return CausalState(
            mel=zeros((num_rows, config.num_mels, LOOKAHEAD_FRAMES)),
            pitch=wide((num_rows, num_pitch)),
            turns=wide((num_rows, config.num_harmonics)),
            source=zeros((num_rows, _SOURCE_TAIL)),
            convs=zeros((num_rows, num_convs)),
            delayed=zeros((num_rows, self.conv_post.in_channels, 1)),
            spectra=zeros((num_rows, config.n_fft + 2, _PAST_WINDOWS)),
        )

    def forward(self, mel: Tensor, noise: Tensor, piece: Piece, state: CausalState, f0: Tensor | None = None) -> Voiced:
        """Make audio of ``mel`` [B, mels, T + 4], which begins with the frames that the state holds.

        ``noise``: uniform numbers of the piece and of a frame behind it, [B, hop (T + 1), harmonics]. ``f0`` [B, T + 1]
        takes the place of the pitch that the mel has.
        """
        pitch_past = _Past(state.pitch, self._pitch_convs, piece.num_frames)
        pitch = self.f0_predictor(mel.to(torch.float64), partial(_after, pitch_past))
        f0 = pitch if f0 is None else f0
        source, turns = self.m_source.held(f0, state.turns, noise)
        past = _Past(state.convs, self._convs, piece.num_frames)
        samples = torch.cat((state.source, source), dim=1)  # from 64 before the piece
        seen = self._spectra(samples, piece, mel.shape[2] - LOOKAHEAD_FRAMES)
        made, delayed = self._shape(mel, seen, piece, past, state.delayed)
        whole = torch.cat((state.spectra, made), dim=2)  # from 2 before the piece
        left = CausalState(
            mel=_cut(mel, piece.num_frames, LOOKAHEAD_FRAMES),
            pitch=pitch_past.left(),
            turns=_cut(turns.mT, piece.num_frames, 1)[..., 0],
            source=_cut(samples[:, None], piece.num_frames * self.config.hop_samples, _SOURCE_TAIL)[:, 0],
            convs=past.left(),
            delayed=delayed,
            spectra=_cut(whole, piece.num_frames * self.conv_post.scale, _PAST_WINDOWS),
        )
        return Voiced(f0, source, self._samples(whole, piece), left)

    def _spectra(self, samples: Tensor, piece: Piece, num_frames: int) -> Tensor:
        """Spectra of the source from 14 before the piece to the one behind it, [B, n_fft + 2, 14 + scale T + 1].

        An utterance is mirrored at its two ends, and there is nothing before its first spectrum.
        """
        hop, n_fft = self.config.hop_samples, self.config.n_fft
        places = torch.arange(_SOURCE_TAIL + hop * num_frames + n_fft // 2, device=samples.device)
        begins = piece.is_first[:, None] & (places < _SOURCE_TAIL)
        mirrored = torch.where(begins, 2 * _SOURCE_TAIL - places, places)
        end = _SOURCE_TAIL + hop * piece.num_frames[:, None]
        mirrored = torch.where(piece.is_last[:, None] & (places >= end), 2 * (end - 1) - places, mirrored)
        found = spectra(samples.gather(1, mirrored.clamp(min=0)), n_fft)
        is_before = torch.arange(found.shape[2], device=samples.device) < _PAST_SPECTRA
        return found.masked_fill((piece.is_first[:, None] & is_before)[:, None], 0.0)

    def _shape(self, mel: Tensor, source: Tensor, piece: Piece, past: _Past, delayed: Tensor) -> tuple[Tensor, Tensor]:
        """Spectra of the result from the first of the piece to the one behind it, [B, n_fft + 2, scale T + 1], and the last
        input of the last stage, which comes one sample later, with the second sample of the utterance before the first (v3
        §5.4).
        """
        config = self.config
        x = self.conv_pre(mel)
        seen = (source, source[:, :, _SECOND_DOWN:], source[:, :, _PAST_SPECTRA:])
        convolve = partial(_after, past)
        num_kernels = len(config.res_kernels)
        for stage, up in enumerate(self.ups):
            x = cast("LeftUp", up).after(functional.leaky_relu(x, UP_SLOPE), past)
            if stage == len(self.ups) - 1:
                x = torch.cat((torch.where(piece.is_first[:, None, None], x[:, :, 1:2], delayed), x), dim=2)
                delayed = _cut(x, piece.num_frames * self.conv_post.scale, 1)
            x = x + self.source_resblocks[stage](self.source_downs[stage](seen[stage]), convolve)
            blocks = (block(x, convolve) for block in self.resblocks[stage * num_kernels : (stage + 1) * num_kernels])
            x = reduce(torch.add, blocks) / num_kernels
        made = self.conv_post.after(functional.leaky_relu(x, POST_SLOPE), past)
        return spectrum_of(made), delayed

    def _samples(self, whole: Tensor, piece: Piece) -> Tensor:
        """Samples of spectra that begin two before the piece: [B, 4 + hop T] from four samples before it."""
        places = torch.arange(whole.shape[2], device=whole.device)
        end = piece.num_frames[:, None] * self.conv_post.scale + _PAST_WINDOWS
        real = ~(piece.is_first[:, None] & (places < _PAST_WINDOWS)) & ~(piece.is_last[:, None] & (places > end))
        sums, weights = overlapped(whole, real, self.config.n_fft)
        begin = _PAST_WINDOWS * self.config.n_fft // 4 + self.config.n_fft // 2 - OPEN_SAMPLES
        inside = slice(begin, begin + (whole.shape[2] - 1 - _PAST_WINDOWS) * self.config.n_fft // 4 + OPEN_SAMPLES)
        sums, weights = sums[:, inside], weights[:, inside]
        audio = sums / torch.where(weights > 0, weights, 1.0)
        return audio.clamp(-AUDIO_LIMIT, AUDIO_LIMIT)


def _after(past: _Past, conv: nn.Module, x: Tensor) -> Tensor:
    """A convolution behind its past, if it has one."""
    return conv.after(x, past) if isinstance(conv, LeftConv) else cast("Tensor", conv(x))


def _numbered(convs: list[LeftConv]) -> list[LeftConv]:
    for index, conv in enumerate(convs):
        conv.index = index
    return convs


def _cut(x: Tensor, starts: Tensor, width: int) -> Tensor:
    """``width`` places of ``x`` [B, C, T] from ``starts`` [B] on."""
    places = starts[:, None]
    if width > 1:
        places = places + torch.arange(width, device=x.device)
    return x.gather(2, places[:, None].expand(-1, x.shape[1], -1))


def _beside(rows: Tensor, like: Tensor) -> Tensor:
    return rows.view(-1, *(1,) * (like.ndim - 1))
