"""Chunks of mel of many streams become chunks of PCM together (§5; engine-performance §5.1).

::

    rows ─▸ by length, padded ─▸ mel ─▸ pitch ─▸ source ─▸ audio ─▸ crossfade ─▸ int16 ─▸ ONE copy ─▸ PCM
                                  ▲                                 │
                                  └── held back for each slot ◂─────┘

A row does not depend on its batch; its noise depends on its seed and its place in the speech.

Runs on: the thread that owns the device.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.compiling import compiled, vary
from cc_tts.engines.cosyvoice.model.networks.layers import within
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import VocoderConfig
from cc_tts.engines.cosyvoice.runners.counted_random import counted_normals
from cc_tts.engines.cosyvoice.runners.graphs import (
    GraphedCall,
    Work,
    batches,
    bucket_of,
    buckets_up_to,
    can_record,
    thinned,
)
from cc_tts.engines.cosyvoice.runners.lanes import Fetched, upload

CROSSFADE_FRAMES: Final = 8
"""The mel frames that a chunk shares with the one before. Their audio is made twice, held back the first time, and the two
versions are crossfaded (§5.5).
"""
CROSSFADE_SAMPLES: Final = CROSSFADE_FRAMES * 480
ROW_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)
FRAME_BUCKETS: Final = (
    *(CROSSFADE_FRAMES + new for new in (8, 16, 30)),
    50,
    *(CROSSFADE_FRAMES + new for new in (50, 100, 200, 204)),
)
"""24 is a first hop of 12 tokens, which has no crossfade before it; 204 new ones are the last call of a hop of 100 tokens,
which takes up to two more that had not enough behind them for a call of their own.
"""

MOST_FRAMES: Final = 1728
"""The frames of one call, padding included, if it has more than one row. Each of them takes 0.34 MB while the networks run,
so 32 rows of a long hop would take 2.3 GB, more than a card of 24 GB has left for it; these take 0.6 GB.
"""

_FULL_SCALE: Final = 32767.0


@dataclass(frozen=True, slots=True)
class VocoderRow:
    """The next chunk of a stream."""

    slot: int
    mel: Tensor  # [mels, frames], on the device; there may be no frames in the last chunk
    is_first: bool
    is_last: bool
    seed: int = 0  # of the noise; a signed number of 64 bits, the same for all chunks of a stream

    @property
    def num_crossfade(self) -> int:
        """Frames of the chunk before that are run again."""
        return 0 if self.is_first else CROSSFADE_FRAMES

    @property
    def num_frames(self) -> int:
        return self.num_crossfade + self.mel.shape[1]


SourceNoise = Callable[[Tensor, Tensor, int, VocoderConfig], Tensor]
"""Returns the numbers of the source, [B, samples, harmonics], for seeds [B], first frames [B] and a number of frames."""

Started = tuple[Sequence[VocoderRow], Sequence[slice], Tensor]
"""A batch that is under way: its rows, which samples of each are given out, and the samples of all, [rows, samples + 1]."""


class VocoderBatches:
    """Batches that are under way; their samples come to the host in one copy."""

    def __init__(self, vocoder: "SlotVocoder", rows: Sequence[VocoderRow], started: Sequence[Started]) -> None:
        self._vocoder = vocoder
        self._rows = rows
        self._started = [(batch, given, samples.shape) for batch, given, samples in started]
        self.fetched = Fetched(torch.cat([samples.flatten() for *_, samples in started]))

    def spoken(self) -> list[bytes | None]:
        """The audio of each row, in their order; None: its numbers were not finite. Here it waits for the device."""
        done: dict[int, bytes | None] = {}
        samples = self.fetched.numbers().astype("<i2", copy=False)
        for batch, given, shape in self._started:
            ours, samples = np.split(samples, [shape.numel()])
            for row, part, pcm in zip(batch, given, ours.reshape(shape), strict=True):
                failed = not pcm[-1]
                self._vocoder.num_not_finite += failed
                done[row.slot] = None if failed else pcm[part].tobytes()
        return [done[row.slot] for row in self._rows]


def crossfade_window(num_samples: int = CROSSFADE_SAMPLES) -> Tensor:
    """Rise and fall of a fade over ``num_samples``: a symmetric Hamming window twice as long, float64.

    Its halves add up to 1.08, so a crossfade is 0.67 dB louder than what it joins. So it is in the reference.
    """
    return torch.hamming_window(2 * num_samples, periodic=False, dtype=torch.float64, device="cpu")


def crossfade(new: Tensor, old: Tensor, window: Tensor) -> Tensor:
    """Fade the end of ``old`` [B, n] out under the beginning of ``new`` [B, m], which comes back whole; ``window``: rise and
    fall, float64, half of which is faded over.
    """
    half = window.shape[0] // 2
    rise, fall = window.to(new.device).chunk(2)
    faded = new[..., :half] * rise + old[..., -half:] * fall
    return torch.cat((faded.to(new.dtype), new[..., half:]), dim=-1)


def source_noise(seeds: Tensor, starts: Tensor, num_frames: int, config: VocoderConfig) -> Tensor:
    """Standard normal numbers, a function of seed and place in the speech; see :data:`SourceNoise`."""
    frames = starts[:, None] + torch.arange(num_frames, device=starts.device)  # [B, T]
    of_each = (seeds[:, None].expand_as(frames).flatten(), frames.flatten())
    normals = counted_normals(*of_each, config.hop_samples * config.num_harmonics)
    return normals.view(len(seeds), -1, config.num_harmonics)


def pcm_and_finite(audio: Tensor, finite: Tensor) -> Tensor:
    """Samples from -1 to 1 as int16, and behind those of each row whether they are ``finite`` [B]: [B, samples + 1]."""
    pcm = (audio.nan_to_num(0.0).clamp(-1.0, 1.0) * _FULL_SCALE).round()
    return torch.cat((pcm, finite[:, None].to(pcm.dtype)), dim=1).to(torch.int16)


def _varying(run: Work) -> Work:
    def varying(*key: int, mel: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
        vary(mel, 0, 2)
        vary(numbers, 0)
        return run(*key, mel=mel, numbers=numbers)

    return varying


def most_rows(num_frames: int) -> int:
    """Return the most rows of a call whose rows have ``num_frames``."""
    return max((rows for rows in ROW_BUCKETS if rows * num_frames <= MOST_FRAMES), default=1)


def shapes_up_to(max_rows: int, frame_buckets: Sequence[int], *, step: int) -> list[tuple[int, int]]:
    """Rows and frames of the calls of up to ``max_rows``, the largest first; of each number of frames every ``step``-th
    number of rows, its greatest among them.
    """
    shapes = [
        (num_rows, num_frames)
        for num_frames in frame_buckets
        for num_rows in thinned(buckets_up_to(min(max_rows, most_rows(num_frames)), ROW_BUCKETS), step)
    ]
    return sorted(shapes, key=math.prod, reverse=True)


class SlotVocoder(ABC):
    """The runner of a vocoder whose streams have slots, of which there is a fixed number; its user chooses them. With
    ``graphs`` shapes are filled up to buckets, and on a CUDA device a graph of each is recorded.
    """

    def __init__(
        self, run: Work, *, num_slots: int, hop: int, device: torch.device, graphs: bool, compiles: bool
    ) -> None:
        self.num_not_finite = 0  # chunks whose numbers were not
        self._num_slots = num_slots
        self._hop = hop
        self._device = device
        self._num_done: dict[int, int] = {}  # frames so far of the streams that go on; a first row starts from none
        self._has_buckets = graphs
        in_few_kernels = _varying(compiled(run)) if compiles else None
        self._run = GraphedCall(run, enabled=graphs and can_record(device), in_few_kernels=in_few_kernels)

    @abstractmethod
    def keys(self, max_rows: int, *, step: int = 1) -> Sequence[tuple[int, ...]]:
        """The shapes that there can be at speed 1, the largest first; ``step`` as of :meth:`warm_up`."""

    @torch.inference_mode()
    def record(self, key: tuple[int, ...]) -> None:
        """Run and record one shape, on scratch."""
        self._call([], *key)

    @abstractmethod
    def _call(self, batch: Sequence[VocoderRow], *key: int) -> Tensor:
        """Samples of a batch, and behind those of each row whether they are finite: [rows, samples + 1], int16."""

    @abstractmethod
    def begin(self, rows: Sequence[VocoderRow]) -> VocoderBatches:
        """Begin the audio of one row or more. One whose numbers are not finite fails alone."""

    def synthesise(self, rows: Sequence[VocoderRow]) -> list[bytes | None]:
        """The audio of each row, in their order; ``None``: its numbers were not finite."""
        return self.begin(rows).spoken() if rows else []

    @torch.inference_mode()
    def warm_up(self, *, max_rows: int = ROW_BUCKETS[-1], step: int = 1) -> None:
        """Run each shape of up to ``max_rows`` rows once; only these have graphs then. Running streams are not touched.

        ``step``: the distance between two numbers of rows.
        """
        for key in self.keys(max_rows, step=step):
            self.record(key)
        self._run.freeze()


class VocoderRunner(SlotVocoder):
    """The vocoder of the second generation, with the crossfades of its slots."""

    def __init__(
        self,
        vocoder: Vocoder,
        *,
        num_slots: int,
        noise: SourceNoise = source_noise,
        graphs: bool = False,
        compiles: bool = False,
    ) -> None:
        config, device, hop = vocoder.config, vocoder.conv_pre.weight.device, vocoder.config.hop_samples
        super().__init__(self._run_batch, num_slots=num_slots, hop=hop, device=device, graphs=graphs, compiles=compiles)
        self._vocoder = vocoder
        self._config = config
        self._noise = noise
        self._window = crossfade_window(CROSSFADE_FRAMES * self._hop).to(self._device)
        # One slot more than there are: rows that only fill a batch up read and write there.
        num_samples = CROSSFADE_FRAMES * self._hop
        self._crossfade_mel = torch.zeros((num_slots + 1, self._config.num_mels, CROSSFADE_FRAMES), device=self._device)
        self._crossfade_source = torch.zeros((num_slots + 1, 1, num_samples), device=self._device)
        self._crossfade_audio = torch.zeros((num_slots + 1, num_samples), device=self._device)

    def keys(self, max_rows: int, *, step: int = 1) -> list[tuple[int, int, int]]:
        """Rows, frames and evenness of what there can be at speed 1, the largest first."""
        shapes = shapes_up_to(max_rows, FRAME_BUCKETS, step=step)
        return [(*shape, is_even) for shape in shapes for is_even in (0, 1)]

    @torch.inference_mode()
    def begin(self, rows: Sequence[VocoderRow]) -> VocoderBatches:
        """All chunks but the last hold back the audio of their last eight frames, and have at least eight."""
        started = []
        for bucket, batch in batches(rows, lambda row: row.num_frames, FRAME_BUCKETS, most_rows):
            num_rows, num_frames, _ = self._run.fit((bucket_of(len(batch), ROW_BUCKETS), bucket, 0))
            if not self._has_buckets:
                num_rows, num_frames = len(batch), max(CROSSFADE_FRAMES, *(row.num_frames for row in batch))
            is_even = int(all(row.num_frames == num_frames for row in batch))
            given = [self._given(row) for row in batch]
            started.append((batch, given, self._call(batch, num_rows, num_frames, is_even)))
        return VocoderBatches(self, rows, started)

    def _given(self, row: VocoderRow) -> slice:
        return slice(0, self._hop * (row.num_frames - (0 if row.is_last else CROSSFADE_FRAMES)))

    def _call(self, batch: Sequence[VocoderRow], *key: int) -> Tensor:
        """Samples as above. The last number of the key says that no row is shorter than the frames of the call, so that
        nothing needs to be blanked behind its end.
        """
        num_rows, num_frames, _ = key
        mel = torch.zeros((num_rows, self._config.num_mels, num_frames), device=self._device)
        numbers = [[self._num_slots, 0, 0, 0, 0]] * num_rows
        for place, row in enumerate(batch):
            before = self._num_done.pop(row.slot, 0)
            num_done = 0 if row.is_first else before
            mel[place, :, row.num_crossfade : row.num_frames] = row.mel
            numbers[place] = [row.slot, row.num_frames, not row.is_first, num_done - row.num_crossfade, row.seed]
            if not row.is_last:
                self._num_done[row.slot] = num_done + row.mel.shape[1]
        packed = upload(torch.tensor(numbers), self._device)
        return self._run.call(key, mel=mel, numbers=packed)[0][: len(batch)]

    def _run_batch(
        self, _num_rows: int, _num_frames: int, is_even: int, *, mel: Tensor, numbers: Tensor
    ) -> tuple[Tensor]:
        num_frames = mel.shape[2]
        slots, lengths, has_crossfade, starts, seeds = numbers.unbind(dim=1)  # [B] each
        ends = None if is_even else lengths
        joins = has_crossfade.bool()[:, None]  # [B, 1]
        num_held = CROSSFADE_FRAMES * self._hop
        old_mel, new_mel = self._crossfade_mel[slots], mel[:, :, :CROSSFADE_FRAMES]
        mel = torch.cat((torch.where(joins[..., None], old_mel, new_mel), mel[:, :, CROSSFADE_FRAMES:]), dim=2)

        noise = self._noise(seeds, starts, num_frames, self._config)
        source = self._vocoder.source(self._vocoder.f0(mel, ends), noise=noise)  # [B, 1, samples]
        begun = torch.where(joins[..., None], self._crossfade_source[slots], source[:, :, :num_held])
        source = torch.cat((begun, source[:, :, num_held:]), dim=2)
        audio = self._vocoder.synthesize(mel, source, ends)  # [B, samples]
        audio = torch.where(joins, crossfade(audio, self._crossfade_audio[slots], self._window), audio)

        held = torch.arange(CROSSFADE_FRAMES, device=mel.device)
        frames = (lengths[:, None] - CROSSFADE_FRAMES).clamp(min=0) + held  # [B, 8]
        samples = (lengths[:, None] * self._hop - num_held).clamp(min=0) + torch.arange(num_held, device=mel.device)
        self._crossfade_mel[slots] = mel.gather(2, frames[:, None].expand(-1, mel.shape[1], -1))
        self._crossfade_source[slots] = source.gather(2, samples[:, None])
        self._crossfade_audio[slots] = audio.gather(1, samples)

        known = within(lengths, num_frames)  # [B, T]
        finite = audio.isfinite().all(dim=1) & (mel.isfinite() | ~known[:, None]).all(dim=2).all(dim=1)
        assert audio.shape == (len(slots), num_frames * self._hop)
        return (pcm_and_finite(audio, finite),)
