"""A call of flow and vocoder: the tokens of those whose next piece is most urgent become audio."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Row
from typing import Final

from cc_tts.engines.cosyvoice2.engine.capacity import StageCosts
from cc_tts.engines.cosyvoice2.engine.device import Device, Spoken
from cc_tts.engines.cosyvoice2.engine.schedule import CHUNK_TOKENS
from cc_tts.engines.cosyvoice2.engine.scheduler import FlowCandidate
from cc_tts.engines.cosyvoice2.engine.sequence import Sequence
from cc_tts.engines.cosyvoice2.engine.stream_table import StreamTable
from cc_tts.engines.stepped import SpeechOut
from cc_tts.errors import EngineFailed

BYTES_PER_MS: Final = 48.0
"""16-bit mono at 24 kHz."""
_MAX_RESERVED_SHARE: Final = 4  # a quarter of few pages


class SpeechStage:
    """Speaks, and gives the audio out; ``choose_hop`` sets the next hop of a sequence that is not over."""

    def __init__(
        self,
        table: StreamTable,
        device: Device,
        costs: StageCosts,
        *,
        choose_hop: Callable[[Sequence, float], None],
        now_ms: Callable[[], float],
    ) -> None:
        self._table = table
        self._device = device
        self._costs = costs
        self._choose_hop = choose_hop
        self._now_ms = now_ms
        longest = -(-device.max_tokens // CHUNK_TOKENS)
        self.num_reserved_pages = min(longest, device.num_pages // _MAX_RESERVED_SHARE)
        """So many are left free for a sequence under way: no longer speech than they hold ever lacks pages."""

    def candidates(self) -> list[FlowCandidate]:
        """Sequences that a call could be for.

        A call that would take reserved pages waits. As long as one does, no other sequence begins, and the oldest under way
        may take them and is spoken to its end, which frees its pages: so every sequence gets its turn.
        """
        ready = [head for head in self._table.heads if head.is_ready and not head.is_well_ahead]
        num_free = self._device.num_free_pages
        fitting = [head for head in ready if self._fits(head, num_free)]
        if len(fitting) < len(ready):
            turn = self._turn(num_free)
            turn.may_use_reserve = True
            fitting = [head for head in fitting if head.num_flowed and head is not turn] + [turn] * turn.is_ready
        return [
            FlowCandidate(
                key=head.key,
                deadline_ms=head.stream.clock.deadline_ms,
                num_frames=head.num_frames,
                num_keys=head.num_keys,
                is_first=head.stream.clock.is_first,
            )
            for head in fitting
        ]

    def _fits(self, sequence: Sequence, num_free: int) -> bool:
        num_reserved = 0 if sequence.may_use_reserve else self.num_reserved_pages
        return sequence.num_new_pages + num_reserved <= num_free

    def _turn(self, num_free: int) -> Sequence:
        """The oldest sequence under way for which there are pages, or else the oldest of all: it fails if there are none."""
        moving = [head for head in self._table.heads if head.is_ready or head.is_sampling]
        under_way = [head for head in moving if head.num_flowed]
        fitting = [head for head in under_way if head.num_new_pages <= num_free]
        return min(fitting or under_way or moving, key=lambda head: head.key)

    def speak(self, keys: Iterable[int]) -> None:
        """One call for these candidates, the most urgent first."""
        sequences = self._within_memory([self._table.sequences[key] for key in keys])
        if not sequences:
            return
        num_frames = len(sequences) * max(each.num_frames for each in sequences)
        num_keys = max(each.num_keys for each in sequences)
        indices = [sequence.index_now for sequence in sequences]
        jobs = [sequence.next_job() for sequence in sequences]
        with self._table.failing("flow or vocoder", [sequence.stream for sequence in sequences]):
            batch = self._device.speak(jobs)
            self._costs.observe_call(num_frames, num_keys, batch.flow_ms, batch.vocoder_ms)
            for sequence, index, job, piece in zip(sequences, indices, jobs, batch.pieces, strict=True):
                self._emit(sequence, sequence.last_index if job.is_last else index, piece, is_last=job.is_last)

    def _within_memory(self, sequences: Row[Sequence]) -> Row[Sequence]:
        """As many of them, in their order, as there are pages for; the first alone, if for none."""
        num_free = self._device.num_free_pages
        fitting = []
        for sequence in sequences:
            if self._fits(sequence, num_free):
                fitting.append(sequence)
                num_free -= sequence.num_new_pages
        return fitting or sequences[:1]

    def _emit(self, sequence: Sequence, index: int, piece: Spoken, *, is_last: bool) -> None:
        stream = sequence.stream
        if piece.failed:
            error = EngineFailed("flow or vocoder broke off: numbers that are not finite")
            self._table.fail(stream, error, wipe=True)
            return
        now_ms = self._now_ms()
        if not stream.clock.is_first and piece.pcm:
            self._table.slacks.add(now_ms, stream.clock.left_ms(now_ms))
        if stream.clock.sent(now_ms, len(piece.pcm) / BYTES_PER_MS) > 0.0:
            self._table.num_underruns += 1
        if piece.pcm:
            self._table.outs.append(SpeechOut(stream.stream_id, piece.pcm, index))
        if is_last:
            self._table.finish(sequence)
        else:
            self._choose_hop(sequence, now_ms)
