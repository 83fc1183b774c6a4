"""The flow for many sequences that come and go: it runs the new tokens of all of them together (§4.9).

::

    add_voice ──▸ FlowVoice ──open(slot)──▸ step(rows) … step(rows) ──▸ close(slot)
                  pages of the reference     pages of its own, taken as chunks begin

A sequence has a slot, given by the engine, and a table of pages: those of its voice's reference, which all sequences of
the voice share and nobody writes, then its own.

Runs on: the thread that owns the device.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, HOPS
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference
from cc_tts.engines.cosyvoice.model.networks.layers import SINK_CHUNKS
from cc_tts.engines.cosyvoice.model.sizes import FlowConfig
from cc_tts.engines.cosyvoice.runners.graphs import GraphedCall, bucket_of, can_record
from cc_tts.engines.cosyvoice.runners.kv_cache import SCRATCH, FlowArena, PagePool
from cc_tts.engines.cosyvoice.runners.lanes import upload

ROW_BUCKETS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CHUNK_BUCKETS: Final = (1, 2, 3, 4, 5, 6, 8)
MAX_CALL_CHUNKS: Final = max(HOPS) // CHUNK_TOKENS + 1  # of the longest hop, with what is looked ahead to
PAGE_BUCKETS: Final = (8, 16, 24, 32, 48, 64)
"""Few, for each is a graph of its own; multiples of 4 keep the keys of attention aligned."""


class FlowShape(NamedTuple):
    """The numbers on which the shapes of all tensors of a call depend."""

    num_rows: int
    num_tokens: int  # that are run, without the lookahead
    num_pages: int  # that each row looks at

    def bucket(self, chunk: int) -> "FlowShape":
        num_chunks = bucket_of(-(-self.num_tokens // chunk), CHUNK_BUCKETS)
        return FlowShape(
            bucket_of(self.num_rows, ROW_BUCKETS), num_chunks * chunk, bucket_of(self.num_pages, PAGE_BUCKETS)
        )


@dataclass(frozen=True, slots=True)
class FlowRow:
    """The new input of one sequence.

    A chunk can be run once the tokens of lookahead behind it are known; what is left over waits.
    """

    slot: int
    new_tokens: Sequence[int]
    is_last: bool  # no tokens will follow
    partial: bool = False
    """Run the begun chunk too and give its frames out. It is not kept but run again when it is whole, so the frames that
    follow are those of the whole chunk: a hop that ends within a chunk costs exactness there (§4.9).
    """


@dataclass(slots=True, eq=False)
class FlowVoice:
    """A reference whose final chunks have been run: as many as have three tokens behind them."""

    reference: FlowReference
    tokens: tuple[int, ...]  # the P tokens of the reference
    pages: tuple[int, ...]
    num_left_out: int  # pages that no sequence sees
    contexts: tuple[Tensor, ...]  # of convolutions, behind the last page
    speaker: Tensor  # [speaker]


@dataclass(slots=True)
class _Sequence:
    voice: FlowVoice
    tokens: list[int]  # the reference's and those generated
    pages: list[int]
    num_kept: int  # tokens of whole chunks, which are in the pages, or left out
    num_given: int  # tokens whose frames have been given out
    num_left_out: int = 0  # pages behind those at the start that nothing sees any more


@dataclass(frozen=True, slots=True)
class _Work:
    """One row of a batch. The window of a row begins where its pages end; counts are of tokens."""

    slot: int  # of the arena
    sequence: _Sequence
    tokens: list[int]  # from the start of the reference
    run: int  # tokens of the window that are run: the others are looked at, or wait
    kept: int  # those that stay in the pages: whole chunks
    num_frames: int = 0  # that are new, behind those given out before

    @property
    def is_due(self) -> bool:
        """Return whether running it gives frames, or something to remember."""
        return self.num_frames > 0 or self.kept > 0


def _filled(rows: Sequence[Sequence[int]], num_rows: int, width: int) -> npt.NDArray[np.int64]:
    """Rows, [num_rows, width], with zeros behind and below them."""
    filled = np.zeros((num_rows, width), np.int64)
    for place, row in zip(filled, rows, strict=False):
        place[: len(row)] = row
    return filled


def max_pages(config: FlowConfig) -> int:
    """The most pages that a sequence sees in a call of at most :data:`MAX_CALL_CHUNKS`."""
    return SINK_CHUNKS + config.context_chunks + MAX_CALL_CHUNKS if config.context_chunks else sys.maxsize


class FlowRunner:
    """Steps of the flow over sequences of any age. Slots are 0 to ``num_slots - 1``."""

    def __init__(
        self,
        flow: Flow,  # on its device; arena and caches have the dtype of its weights
        *,
        num_slots: int,
        num_pages: int,  # that can be given out, of one chunk each
        noise: Tensor,  # what frames start from, [1, mels, at least ``2 max_tokens``]
        max_tokens: int,  # of a sequence, the reference included; the caller counts them
        graphs: bool = False,  # fill shapes up to buckets, and on a CUDA device record a graph of each
        compiles: bool = False,  # record compiled code
    ) -> None:
        config, weight = flow.config, flow.spk_embed_affine_layer.weight
        self.flow = flow
        flow.keep_constants(-(-max_tokens // config.chunk_tokens))
        self.pool = PagePool(num_pages + 1)
        self.arena = FlowArena(flow, num_slots=num_slots + 1, num_pages=num_pages + 1)
        self._device = weight.device
        self._noise = noise.to(self._device)
        self._noise_rows = self._noise[0].transpose(0, 1).contiguous()  # [frames, mels]
        self._speakers = weight.new_zeros((num_slots + 1, config.estimator.num_mels))
        self._sequences: dict[int, _Sequence] = {}
        self._has_buckets = graphs
        self._graphs = GraphedCall(
            partial(self._solve, flow.run_pages),
            enabled=graphs and can_record(self._device),
            in_few_kernels=partial(self._solve, partial(flow.run_pages, in_few_kernels=True)) if compiles else None,
        )

    def pages_needed(self, num_reference: int, num_tokens: int) -> int:
        """The most pages that a sequence of ``num_tokens`` has besides those of a reference of ``num_reference`` tokens."""
        chunk = self.flow.config.chunk_tokens
        num_pages = -(-(num_reference + num_tokens) // chunk) - self._num_final(num_reference)
        return min(num_pages, max_pages(self.flow.config))

    def pages_of_voice(self, num_reference: int) -> int:
        """Return the pages that a reference of this many tokens needs while it is computed; with a window it keeps fewer."""
        return self._num_final(num_reference)

    @torch.inference_mode()
    def warm_up(self, shapes: Iterable[FlowShape]) -> None:
        """Run the buckets that ``shapes`` fall in once, on scratch, the largest first; only these have graphs then."""
        for bucket in sorted({shape.bucket(self.flow.config.chunk_tokens) for shape in shapes}, reverse=True):
            self.record(bucket)
        self._graphs.freeze()

    @torch.inference_mode()
    def record(self, bucket: FlowShape) -> None:
        """Run and record one shape, on scratch."""
        self._graphs.call(bucket, **self._inputs(bucket, ()))

    @torch.inference_mode()
    def add_voice(self, reference: FlowReference) -> FlowVoice:
        """Run the final chunks of a reference, whose P may be 0, into pages that its sequences share. Raises
        ``PagesExhausted`` if there are not enough; nothing has changed then.
        """
        tokens = reference.token.flatten().tolist()
        num_reference = len(tokens)
        here = FlowReference(
            *(part.to(self._device) for part in (reference.token, reference.feat, reference.embedding))
        )
        pages = self.pool.take(self._num_final(num_reference))
        try:
            voice = FlowVoice(here, tuple(tokens), tuple(pages), 0, (), self.flow.speaker(here.embedding)[0])
            contexts = self.arena.contexts(SCRATCH)
            for context in contexts:
                context.zero_()
            if pages:
                self._speakers[SCRATCH] = voice.speaker
                run = len(pages) * self.flow.config.chunk_tokens
                sequence = _Sequence(voice, tokens, pages, num_kept=0, num_given=num_reference)
                self._run([_Work(SCRATCH, sequence, tokens, run, run)], has_buckets=False)
                sequence.num_kept = run
                self._leave_out(sequence)
                voice.pages, voice.num_left_out = tuple(pages), sequence.num_left_out
            voice.contexts = tuple(context.clone() for context in contexts)
        except BaseException:
            self.pool.release(pages)
            raise
        return voice

    def drop_voice(self, voice: FlowVoice) -> None:
        """No sequence will be opened with ``voice`` any more; its pages are free when the last one has been closed."""
        self.pool.release(voice.pages)

    @torch.inference_mode()
    def open(self, slot: int, voice: FlowVoice) -> None:
        """Begin a sequence in a free slot; takes no pages yet."""
        self.pool.share(voice.pages)
        for context, kept in zip(self.arena.contexts(slot + 1), voice.contexts, strict=True):
            context.copy_(kept)
        self._speakers[slot + 1] = voice.speaker
        num_kept = self._num_final(len(voice.tokens)) * self.flow.config.chunk_tokens
        self._sequences[slot] = _Sequence(
            voice, list(voice.tokens), list(voice.pages), num_kept, len(voice.tokens), voice.num_left_out
        )

    def close(self, slot: int, *, wipe: bool = False) -> None:
        """Free the pages of a sequence; no effect on a slot that is not open.

        ``wipe``: its frames were not finite; write zeros wherever they may have gone, for the sequences after it.
        """
        sequence = self._sequences.pop(slot, None)
        if sequence is None:
            return
        if wipe:
            own = set(sequence.pages).difference(sequence.voice.pages)
            self.arena.wipe((SCRATCH, *own), slot + 1)
        self.pool.release(sequence.pages)

    @torch.inference_mode()
    def step(self, rows: Sequence[FlowRow]) -> list[Tensor]:
        """Run the new tokens of all rows, of different slots, at once; the new frames of each, [mels, n], float32, n perhaps
        0. Raises ``PagesExhausted`` if there are not enough pages for all rows; nothing has changed then.
        """
        works = [self._work(row) for row in rows]
        due = [work for work in works if work.is_due]
        self._take_pages(due)
        mels = iter(self._run(due, has_buckets=self._has_buckets) if due else ())
        for row, work in zip(rows, works, strict=True):
            sequence = self._sequences[row.slot]
            sequence.tokens = work.tokens
            sequence.num_kept += work.kept
            sequence.num_given += work.num_frames // FRAMES_PER_TOKEN
            self._leave_out(sequence)
        nothing = self._noise.new_zeros((self.flow.config.estimator.num_mels, 0))
        return [next(mels) if work.is_due else nothing for work in works]

    def _work(self, row: FlowRow) -> _Work:
        sequence, config = self._sequences[row.slot], self.flow.config
        tokens = [*sequence.tokens, *row.new_tokens]
        known = len(tokens) - sequence.num_kept
        ready = known if row.is_last else max(0, known - config.encoder.lookahead)
        kept = ready // config.chunk_tokens * config.chunk_tokens
        run = ready if row.is_last or row.partial else kept
        num_new = max(0, sequence.num_kept + run - sequence.num_given)
        return _Work(row.slot + 1, sequence, tokens, run, kept, num_new * FRAMES_PER_TOKEN)

    def _leave_out(self, sequence: _Sequence) -> None:
        """Give back the pages that no position of the next call sees."""
        config = self.flow.config
        if config.context_chunks:
            first_seen = sequence.num_kept // config.chunk_tokens - config.context_chunks
            num_new = max(0, first_seen - SINK_CHUNKS - sequence.num_left_out)
            self.pool.release(sequence.pages[SINK_CHUNKS : SINK_CHUNKS + num_new])
            del sequence.pages[SINK_CHUNKS : SINK_CHUNKS + num_new]
            sequence.num_left_out += num_new

    def _take_pages(self, works: Sequence[_Work]) -> None:
        """Extend the pages of the sequences in place; their works see them."""
        chunk = self.flow.config.chunk_tokens
        needs = [
            max(
                0,
                -(-(each.sequence.num_kept + each.run) // chunk)
                - each.sequence.num_left_out
                - len(each.sequence.pages),
            )
            for each in works
        ]
        taken = iter(self.pool.take(sum(needs)))
        for work, need in zip(works, needs, strict=True):
            work.sequence.pages.extend(next(taken) for _ in range(need))

    def _run(self, works: Sequence[_Work], *, has_buckets: bool) -> list[Tensor]:
        """Return what the rows give out, with what their pages remember."""
        num_pages = max(len(work.sequence.pages) for work in works)
        shape = FlowShape(len(works), max(work.run for work in works), num_pages)
        if has_buckets:
            shape = FlowShape(*self._graphs.fit(shape.bucket(self.flow.config.chunk_tokens)))
            (mel,) = self._graphs.call(shape, **self._inputs(shape, works))  # [B, 2 T, mels]
        else:
            (mel,) = self._solve(self.flow.run_pages, **self._inputs(shape, works))
        mels = []
        for row, work in enumerate(works):
            first = (work.sequence.num_given - work.sequence.num_kept) * FRAMES_PER_TOKEN
            mels.append(mel[row, first : first + work.num_frames].transpose(0, 1))
        return mels

    def _inputs(self, shape: FlowShape, works: Sequence[_Work]) -> dict[str, Tensor]:
        """Tensors for :meth:`_solve`; rows without work are zeros and touch nothing but scratch."""
        num_rows, num_tokens, num_pages = shape
        config = self.flow.config
        width, num_frames = num_tokens + config.encoder.lookahead, num_tokens * FRAMES_PER_TOKEN
        cond = torch.zeros((num_rows, num_frames, config.estimator.num_mels), device=self._device)
        windows, counts, pages = [], [], []
        for row, work in enumerate(works):
            sequence, start = work.sequence, work.sequence.num_kept
            windows.append(work.tokens[start : start + width])
            counts.append((start, len(windows[-1]), work.run, work.kept, sequence.num_left_out))
            # Behind its last page a row sees nothing; with that page again it has no part in another row's faults either.
            pages.append([*sequence.pages, *[sequence.pages[-1]] * (num_pages - len(sequence.pages))])
            part = sequence.voice.reference.feat[0, start * FRAMES_PER_TOKEN :][:num_frames]
            if len(part):
                cond[row, : len(part)] = part
        parts = {
            "window": _filled(windows, num_rows, width),  # [B, T + lookahead]
            "counts": _filled(list(zip(*counts, strict=True)), 5, num_rows),  # [5, B]
            "pages": _filled(pages, num_rows, num_pages),  # [B, n]
            "slots": _filled([[work.slot for work in works]], 1, num_rows)[0],  # [B]
        }
        packed = upload(torch.from_numpy(np.concatenate([part.ravel() for part in parts.values()])), self._device)
        numbers = torch.split(packed, [part.size for part in parts.values()])
        views = {name: each.view(part.shape) for (name, part), each in zip(parts.items(), numbers, strict=True)}
        return {**views, "cond": cond}  # [B, 2 T, mels]

    def _solve(
        self,
        run_pages: Callable[..., Tensor],
        *_shape: int,
        window: Tensor,
        counts: Tensor,
        pages: Tensor,
        slots: Tensor,
        cond: Tensor,
    ) -> tuple[Tensor, ...]:
        """Mel [B, 2 T, mels]; see :meth:`Flow.run_pages`. Made of tensors only."""
        places = torch.arange(cond.shape[1], device=self._device)
        places = counts[0][:, None] * FRAMES_PER_TOKEN + places
        mel = run_pages(
            self.arena.encoder,
            self.arena.estimator,
            window,
            counts,
            pages=pages,
            slots=slots,
            speaker=self._speakers.index_select(0, slots),
            cond=cond,
            noise=self._noise_rows[places.clamp(max=self._noise_rows.shape[0] - 1)],
        )
        return (mel,)

    def _num_final(self, num_reference: int) -> int:
        """Chunks of a reference that nothing behind it can change."""
        config = self.flow.config
        return max(0, num_reference - config.encoder.lookahead) // config.chunk_tokens
