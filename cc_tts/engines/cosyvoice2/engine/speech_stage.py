"""A call of flow and vocoder: the tokens of those whose next piece is most urgent become audio. No torch here.

Runs on: the thread that owns the device.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Row
from typing import Final

from cc_tts import logs
from cc_tts.engines.cosyvoice2.engine.capacity import StageCosts
from cc_tts.engines.cosyvoice2.engine.device import Device, PagesExhausted, SpeakJob, Spoken, SpokenBatch
from cc_tts.engines.cosyvoice2.engine.scheduler import FlowCandidate
from cc_tts.engines.cosyvoice2.engine.sequence import Sequence
from cc_tts.engines.cosyvoice2.engine.stream_table import StreamTable
from cc_tts.engines.stepped import DeviceLost, SpeechOut
from cc_tts.errors import EngineFailed

BYTES_PER_MS: Final = 48.0
"""16-bit mono at 24 kHz."""

log = logs.get(__name__)


class SpeechStage:
    """Speaks, and gives the audio out.

    Args:
        table: who is there.
        device: what speaks.
        costs: learn what it took.
        choose_hop: sets the next hop of a sequence that goes on.
        now_ms: the instant.

    """

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

    def candidates(self) -> list[FlowCandidate]:
        """Whom a call could be for."""
        return [
            FlowCandidate(
                key=head.key,
                deadline_ms=stream.clock.deadline_ms,
                num_frames=head.num_frames,
                num_keys=head.num_keys,
                is_first=stream.clock.is_first,
            )
            for stream, head in self._table.heads
            if head.is_ready and not head.is_well_ahead
        ]

    def speak(self, keys: Iterable[int]) -> None:
        """One call for these candidates, the most urgent first."""
        sequences = [self._table.sequences[key] for key in keys]
        if not sequences:
            return
        num_frames = len(sequences) * max(each.num_frames for each in sequences)
        num_keys = max(each.num_keys for each in sequences)
        indices = [sequence.index_now for sequence in sequences]
        jobs = [_job(sequence) for sequence in sequences]
        try:
            batch = self._speak_within_memory(jobs)
        except DeviceLost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the device throws, it ends these streams and no other
            self._table.fail_all([sequence.stream for sequence in sequences], "flow or vocoder", error)
            return
        self._costs.observe_call(num_frames, num_keys, batch.flow_ms, batch.vocoder_ms)
        for sequence, index, job, piece in zip(sequences, indices, jobs, batch.pieces, strict=True):
            self._emit(sequence, sequence.last_index if job.is_last else index, piece, is_last=job.is_last)

    def _speak_within_memory(self, jobs: Row[SpeakJob]) -> SpokenBatch:
        """Sequences without room for their state go on without it, the least urgent first.

        Raises:
            PagesExhausted: it is not enough that none of them has pages.

        """
        slots = [job.slot for job in reversed(jobs) if job.slot not in self._table.recomputed]
        while True:
            try:
                return self._device.speak(jobs)
            except PagesExhausted:
                if not slots:
                    raise
                slot = slots.pop(0)
                log.warning("flow_recomputed", slot=slot, free_pages=self._device.num_free_pages)
                self._device.recompute(slot)
                self._table.recomputed.add(slot)

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
            self._table.give_out(SpeechOut(stream.stream_id, piece.pcm, index))
        if is_last:
            self._table.finish(sequence)
        else:
            self._choose_hop(sequence, now_ms)


def _job(sequence: Sequence) -> SpeakJob:
    """The next call of a sequence, which takes its tokens."""
    call = sequence.hops.poll(len(sequence.tokens), finished=sequence.is_drawn)
    assert call is not None
    tokens = sequence.tokens[sequence.num_flowed : call.num_tokens]
    is_first = sequence.num_given == 0
    sequence.num_flowed = call.num_tokens
    sequence.num_given += call.num_new
    return SpeakJob(
        slot=sequence.slot,
        tokens=tokens,
        is_first=is_first,
        is_last=call.finalize,
        seed=sequence.seed,
        speed=sequence.stream.speed,
    )
