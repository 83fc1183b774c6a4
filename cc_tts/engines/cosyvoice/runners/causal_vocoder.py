"""Chunks of mel of many streams become chunks of PCM together, with the causal vocoder (v3 §5; engine-performance §5.1).

::

    rows ─▸ by length, padded ─▸ mel ─▸ vocoder ─▸ int16 ─▸ ONE copy ─▸ PCM
                                  ▲        │
                                  └── state of each slot: four frames, past inputs, phase ◂─┘

A row does not depend on its batch. Nothing is made twice and nothing is faded: four frames wait for those behind them.

Runs on: the thread that owns the device.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.layers import within
from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import (
    LOOKAHEAD_FRAMES,
    OPEN_SAMPLES,
    CausalVocoder,
    Piece,
    final_samples,
)
from cc_tts.engines.cosyvoice.runners.graphs import batches, bucket_of
from cc_tts.engines.cosyvoice.runners.lanes import upload
from cc_tts.engines.cosyvoice.runners.vocoder import (
    ROW_BUCKETS,
    SlotVocoder,
    VocoderBatches,
    VocoderRow,
    most_rows,
    pcm_and_finite,
    shapes_up_to,
)

FRAME_BUCKETS: Final = (20, 30, 46, 50, 100, 200, 208)
"""Frames that become audio: first hops of 12 and of 25 tokens without their last four frames, hops of 25 to 100 tokens,
and a last call of up to two more tokens, with the four frames that waited.
"""


def fixed_uniform(num_samples: int) -> Tensor:
    """The noise of every source, [samples, harmonics]: not in the checkpoint, but the same for everybody (v3 §5.3).

    It is what one generator gives after the numbers with which the reference fills other tensors first.
    """
    generator = torch.Generator(device="cpu").manual_seed(0)
    for shape in ((1, 80, 15_000), (6561, 80)):
        torch.randn(shape, generator=generator)
    torch.rand(3_328_090, generator=generator)
    return torch.rand((num_samples, 9), generator=generator)


class CausalVocoderRunner(SlotVocoder):
    """The vocoder of the third generation, with the states of its slots.

    ``noise``: [samples, harmonics], at best of the longest stream; a longer one repeats it.
    """

    def __init__(
        self, vocoder: CausalVocoder, *, num_slots: int, noise: Tensor, graphs: bool = False, compiles: bool = False
    ) -> None:
        config, device, hop = vocoder.config, vocoder.conv_pre.weight.device, vocoder.config.hop_samples
        super().__init__(self._run_batch, num_slots=num_slots, hop=hop, device=device, graphs=graphs, compiles=compiles)
        vocoder.keep_constants()
        self._vocoder = vocoder
        self._num_mels = config.num_mels
        self._noise = noise.to(self._device)
        self._state = vocoder.new_state(num_slots + 1)  # the last one is read and written by rows that fill a batch up

    def keys(self, max_rows: int, *, step: int = 1) -> list[tuple[int, int]]:
        """Rows and frames of what there can be at speed 1, the largest first."""
        return shapes_up_to(max_rows, FRAME_BUCKETS, step=step)

    @torch.inference_mode()
    def begin(self, rows: Sequence[VocoderRow]) -> VocoderBatches:
        """All but a last chunk leave four frames for the next one, so the first has as many."""
        started = []
        for bucket, batch in batches(rows, self._num_frames, FRAME_BUCKETS, most_rows):
            num_rows, num_frames = self._run.fit((bucket_of(len(batch), ROW_BUCKETS), bucket))
            if not self._has_buckets:
                num_rows, num_frames = len(batch), max(1, *(self._num_frames(row) for row in batch))
            new = [self._new_samples(row) for row in batch]
            started.append((batch, new, self._call(batch, num_rows, num_frames)))
        return VocoderBatches(self, rows, started)

    @staticmethod
    def _num_frames(row: VocoderRow) -> int:
        """Frames that become audio: those that waited come first, and as many wait again unless it is the last chunk."""
        waited = 0 if row.is_first else LOOKAHEAD_FRAMES
        return max(0, row.mel.shape[1] + waited - (0 if row.is_last else LOOKAHEAD_FRAMES))

    def _new_samples(self, row: VocoderRow) -> slice:
        is_first = row.is_first or not self._num_done[row.slot]
        return final_samples(self._num_frames(row), self._hop, is_first=is_first, is_last=row.is_last)

    def _call(self, batch: Sequence[VocoderRow], *key: int) -> Tensor:
        num_rows, num_frames = key
        mel = torch.zeros((num_rows, self._num_mels, num_frames + LOOKAHEAD_FRAMES), device=self._device)
        numbers = [[self._num_slots, 0, 1, 1, 0, 0]] * num_rows
        for place, row in enumerate(batch):
            num_done = 0 if row.is_first else self._num_done[row.slot]
            waited = 0 if row.is_first else LOOKAHEAD_FRAMES
            mel[place, :, waited : waited + row.mel.shape[1]] = row.mel
            count = self._num_frames(row)
            numbers[place] = [row.slot, count, row.is_first, num_done == 0, row.is_last, num_done]
            self._num_done[row.slot] = num_done + count
            if row.is_last:
                del self._num_done[row.slot]
        packed = upload(torch.tensor(numbers), self._device)
        return self._run.call(key, mel=mel, numbers=packed)[0][: len(batch)]

    def _run_batch(self, _num_rows: int, _num_frames: int, *, mel: Tensor, numbers: Tensor) -> tuple[Tensor]:
        num_frames = mel.shape[2] - LOOKAHEAD_FRAMES
        slots, counts, begins, is_first, is_last, starts = numbers.unbind(dim=1)  # [B] each
        piece, begins = Piece(counts, is_first.bool(), is_last.bool()), begins.bool()
        state = self._state.at(slots, begins)
        waited = torch.where(begins[:, None, None], mel[:, :, :LOOKAHEAD_FRAMES], state.mel)
        mel = torch.cat((waited, mel[:, :, LOOKAHEAD_FRAMES:]), dim=2)
        steps = torch.arange((num_frames + 1) * self._hop, device=mel.device)
        noise = self._noise[(starts[:, None] * self._hop + steps) % self._noise.shape[0]]  # [B, samples, harmonics]
        made = self._vocoder(mel, noise, piece, state)
        self._state.put(slots, made.state)

        known = within(counts, num_frames)  # [B, T]
        heard = within(counts * self._hop, made.audio.shape[1])
        finite = (made.audio.isfinite() | ~heard).all(dim=1)
        finite &= (mel[:, :, :num_frames].isfinite() | ~known[:, None]).all(dim=2).all(dim=1)
        assert made.audio.shape == (len(slots), OPEN_SAMPLES + num_frames * self._hop)
        return (pcm_and_finite(made.audio, finite),)
