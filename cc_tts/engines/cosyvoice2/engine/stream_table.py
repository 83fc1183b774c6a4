"""The streams, their sequences, and the slots these have on the device.

::

    add ─▸ new_sequence … finish ─▸ settle ─▸ StreamDone
               └─ remove (cancelled) · fail (with an error) ─▸ slots, pages and state are free at once
"""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cc_tts import logs
from cc_tts.engines.cosyvoice2.engine.device import Device
from cc_tts.engines.cosyvoice2.engine.listener_clock import SlackWindow
from cc_tts.engines.cosyvoice2.engine.schedule import ALL_AT_ONCE, exact_hop
from cc_tts.engines.cosyvoice2.engine.sequence import Sequence, Stream
from cc_tts.engines.stepped import DeviceLost, StepOut, StreamDone
from cc_tts.errors import CcTtsError, EngineFailed

log = logs.get(__name__)


class StreamTable:
    """The streams of an engine.

    A slot is kept for each of ``max_streams``, those included that have not come yet. What the device has beyond that goes
    to second sequences, so that the next text chunk is sampled while the one before is still spoken.
    """

    def __init__(self, device: Device, *, max_streams: int, first_hop_tokens: int) -> None:
        self.streams: dict[int, Stream] = {}
        self.sequences: dict[int, Sequence] = {}
        """By key."""
        self.outs: list[StepOut] = []
        """What came of the step, in its order."""
        self.num_underruns = 0
        self.slacks = SlackWindow()
        self._device = device
        self._max_streams = max_streams
        self._first_hop_tokens = first_hop_tokens
        self._free_slots = list(range(device.num_slots))
        self._next_key = 0

    @property
    def num_free_slots(self) -> int:
        """Slots that no sequence has."""
        return len(self._free_slots)

    @property
    def heads(self) -> Iterator[Sequence]:
        """Of each stream the sequence whose audio comes next."""
        return (stream.sequences[0] for stream in self.streams.values() if stream.sequences)

    def has_slot_for(self, stream: Stream) -> bool:
        """Whether the stream may have one more sequence now."""
        if not stream.sequences:
            return bool(self._free_slots)
        num_with_one = sum(1 for each in self.streams.values() if each.sequences)
        return len(self._free_slots) > self._max_streams - num_with_one

    def new_sequence(self, stream: Stream, text_chunk_index: int, *, seed: int, num_prompt: int) -> Sequence:
        """A sequence in the lowest free slot; ``num_prompt`` is of the flow."""
        sequence = Sequence(
            key=self._next_key,
            stream=stream,
            slot=heapq.heappop(self._free_slots),
            seed=seed,
            num_prompt=num_prompt,
            hop=exact_hop(num_prompt, self._first_hop_tokens) if stream.speed == 1.0 else ALL_AT_ONCE,
            silent_tokens=self._device.silent_tokens,
            marks=[(0, text_chunk_index)],
        )
        self._next_key += 1
        self.sequences[sequence.key] = sequence
        stream.sequences.append(sequence)
        return sequence

    def finish(self, sequence: Sequence) -> None:
        """All of it was given out."""
        sequence.stream.sequences.remove(sequence)
        self._free(sequence, wipe=False)

    def remove(self, stream_id: int) -> None:
        """Free all that a stream holds; one that is not open is ignored."""
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self._drop(stream, wipe=False)

    def fail(self, stream: Stream, error: CcTtsError, *, wipe: bool = False) -> None:
        """End the stream with an error; ``wipe``: its numbers were not finite, or may not be."""
        if self.streams.pop(stream.stream_id, None) is not None:
            self._drop(stream, wipe=wipe)
            self.outs.append(StreamDone(stream.stream_id, error))

    @contextmanager
    def failing(self, stage: str, streams: Iterable[Stream]) -> Iterator[None]:
        """Whatever is raised inside ends these streams and no other.

        Raises:
            DeviceLost: no stream can go on.

        """
        try:
            yield
        except DeviceLost:
            raise
        except Exception as error:
            known = error if isinstance(error, CcTtsError) else EngineFailed(f"{stage}: {type(error).__name__}")
            log.error("step_failed", stage=stage, code=known.code, exc_info=error)
            known = known.with_traceback(None)  # whose frames would hold on to tensors
            for stream in streams:
                self.fail(stream, known, wipe=True)

    def settle(self) -> None:
        """Drop sequences without a sound, stop clocks of streams that owe nothing, and end streams that have said all."""
        for stream in list(self.streams.values()):
            while (head := stream.head) is not None and head.is_empty:
                self.finish(head)
            if stream.owes_nothing:
                stream.clock.text_spoken()
            if stream.is_over:
                del self.streams[stream.stream_id]
                self.outs.append(StreamDone(stream.stream_id))

    def _drop(self, stream: Stream, *, wipe: bool) -> None:
        stream.texts.clear()
        while stream.sequences:
            self._free(stream.sequences.popleft(), wipe=wipe)

    def _free(self, sequence: Sequence, *, wipe: bool) -> None:
        del self.sequences[sequence.key]
        heapq.heappush(self._free_slots, sequence.slot)
        self._device.release(sequence.slot, wipe=wipe)
