"""The streams, their sequences, and the device slots of those.

::

    streams ─▸ text chunks ─▸ begin_texts ─▸ sequences … finish ─▸ settle ─▸ StreamDone
                                                 └─ remove (cancelled) · fail (with an error) ─▸ all is free at once
"""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cc_tts import logs
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.device import Device, PrefillFront
from cc_tts.engines.cosyvoice.engine.schedule import ALL_AT_ONCE, exact_hop
from cc_tts.engines.cosyvoice.engine.sequence import MAX_AHEAD_MS, Sequence, Stream
from cc_tts.engines.cosyvoice.model.special_tokens import has_words
from cc_tts.engines.cosyvoice.prefill import Prefill
from cc_tts.engines.cosyvoice.runaway import Alarm, RunawayGuard
from cc_tts.engines.engine_core import DeviceLost, StepOut, StreamDone
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import CcTtsError, EngineFailed
from cc_tts.media.listener_clock import SlackWindow

log = logs.get(__name__)


class StreamTable:
    """The streams of an engine, by id, and their sequences, by key.

    A slot is kept for each of ``max_streams``, those included that have not come yet. What the device has beyond that goes
    to second sequences, so that the next text chunk is sampled while the one before is still spoken.
    """

    def __init__(self, device: Device, front: PrefillFront, config: EngineConfig) -> None:
        self.streams: dict[int, Stream] = {}
        self.sequences: dict[int, Sequence] = {}
        self.outs: list[StepOut] = []  # what came of the step, in its order
        self.num_underruns = 0
        self.num_runaways: dict[str, int] = {}  # by their cause
        self.slacks = SlackWindow()
        self.free_slots = list(range(device.num_slots))
        self._device = device
        self._front = front
        self._config = config
        self._next_key = 0

    def begin_texts(self) -> None:
        """Turn text chunks into sequences, or extend one that is interleaved (§3.5), the most urgent stream first."""
        for stream in sorted(self.streams.values(), key=lambda each: each.clock.deadline_ms):
            with self.failing("text", [stream]):
                while self._can_begin(stream):
                    if stream.is_interleaved:
                        self._interleave(stream)
                    else:
                        self._begin_sequence(stream)
                if _lacks_end(stream):
                    stream.sequences[-1].end_text()

    def has_text_work(self, stream: Stream) -> bool:
        """Return whether :meth:`begin_texts` would do something for the stream."""
        return self._can_begin(stream) or _lacks_end(stream)

    def _can_begin(self, stream: Stream) -> bool:
        if not stream.texts:
            return False
        if stream.sampling is not None:
            return stream.sampling.takes_text
        if stream.ahead_ms >= MAX_AHEAD_MS:
            return False
        num_owed = self._config.max_streams - sum(1 for each in self.streams.values() if each.sequences)
        return not stream.sequences or len(self.free_slots) > num_owed

    def _begin_sequence(self, stream: Stream) -> None:
        index, whole = stream.texts.popleft()
        text, rest = self._front.cut(whole, stream.instruction)
        if rest.strip():
            stream.texts.appendleft((index, rest))
        if index != stream.cut_chunk[0]:
            stream.cut_chunk = index, len(whole)
        num_chars = stream.cut_chunk[1]
        more_follows = bool(stream.texts) or not stream.has_ended
        prefill = self._front.prepare(stream.voice_id, text, more_follows=more_follows, instruction=stream.instruction)
        if prefill is not None:
            sequence = self._new_sequence(stream, index, text)
            sequence.prefill = prefill
            span = 1.0 - len(whole) / num_chars, 1.0 - len(rest) / num_chars
            sequence.guard = self._guard(prefill, span)

    def _interleave(self, stream: Stream) -> None:
        """Add the next text chunk to the sequence that takes text; if that has reached its limit, begin a new sequence."""
        sequence = stream.sampling
        index, text = stream.texts.popleft()
        before = stream.held_text if sequence is None else sequence.last_text
        piece = stream.held_text + _joint(before, text) + text
        if sequence is None and not has_words(piece):
            stream.held_text = piece  # nothing to say until a word comes
            return
        voice_id, instruction = stream.voice_id, stream.instruction
        ids = self._front.text_ids(voice_id, piece, instruction)
        if sequence is not None and sequence.num_text + len(ids) > self._front.max_interleaved(voice_id, instruction):
            stream.texts.appendleft((index, text))
            sequence.end_text()
            return
        stream.held_text = ""
        if sequence is None:
            sequence = self._new_sequence(stream, index, "")
            sequence.bistream = self._front.begin_interleaved(voice_id, instruction)
            sequence.guard = self._guard()
        sequence.add_text(ids, text_chunk_index=index)
        sequence.last_text = text or before

    def _guard(self, whole: Prefill | None = None, span: tuple[float, float] = (0.0, 1.0)) -> RunawayGuard | None:
        config = self._config
        return RunawayGuard(whole, span, judges=config.stops_runaways) if config.ends_speech else None

    def _new_sequence(self, stream: Stream, text_chunk_index: int, text: str) -> Sequence:
        """Return a new sequence in the lowest free slot."""
        num_prompt = self._front.num_flow_prompt(stream.voice_id)
        sequence = Sequence(
            key=self._next_key,
            stream=stream,
            seed=self._front.seed(stream.voice_id, text),
            slot=heapq.heappop(self.free_slots),
            num_prompt=num_prompt,
            hop=exact_hop(num_prompt, self._config.first_hop_tokens) if stream.speed == 1.0 else ALL_AT_ONCE,
            silent_tokens=self._device.silent_tokens,
            marks=[(0, text_chunk_index)],
        )
        self._next_key += 1
        self.sequences[sequence.key] = sequence
        stream.sequences.append(sequence)
        return sequence

    def stop_runaway(self, sequence: Sequence, alarm: Alarm) -> None:
        """Let the model say the runaway part again, or end it there; the fallback engine says what is left."""
        num_sampled, index, texts = len(sequence.tokens), sequence.marks[-1][1], sequence.stream.texts
        is_again = sequence.turn_back(alarm)
        is_rest_unsaid = any(share < 1.0 for _, share in sequence.unsaid)
        if is_rest_unsaid and texts and texts[0][0] == index:  # the rest of a text chunk that was cut
            texts.popleft()
        self.num_runaways[alarm.cause] = self.num_runaways.get(alarm.cause, 0) + 1
        log.warning(
            "speech_ran_away", cause=alarm.cause, stream_id=sequence.stream.stream_id, text_chunk=index, again=is_again,
            num_sampled=num_sampled, num_kept=len(sequence.tokens), num_given=sequence.num_given,
        )  # fmt: skip

    def finish(self, sequence: Sequence) -> None:
        for index, share in sequence.unsaid:
            stream_id = sequence.stream.stream_id
            self.outs.append(SpeechChunk(stream_id=stream_id, text_chunk_index=index, gave_up_after=share))
        sequence.stream.sequences.remove(sequence)
        self._free(sequence, wipe=False)

    def remove(self, stream_id: int, *, wipe: bool = False) -> bool:
        """Free all that a stream holds; return whether it was open."""
        stream = self.streams.pop(stream_id, None)
        if stream is None:
            return False
        for sequence in stream.sequences:
            self._free(sequence, wipe=wipe)
        return True

    def fail(self, stream: Stream, error: CcTtsError, *, wipe: bool = False) -> None:
        """End the stream with an error; ``wipe``: its numbers were not finite, or may not be."""
        if self.remove(stream.stream_id, wipe=wipe):
            self.outs.append(StreamDone(stream.stream_id, error))

    @contextmanager
    def failing(self, stage: str, streams: Iterable[Stream]) -> Iterator[None]:
        """An error inside this context ends these streams and no other, except ``DeviceLost``."""
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
        """Drop sequences without a sound, stop the clocks of streams that owe nothing, and end streams that have said
        everything.
        """
        for stream in list(self.streams.values()):
            while (head := stream.head) is not None and head.is_empty:
                self.finish(head)
            if stream.owes_nothing:
                stream.clock.text_spoken()
            if stream.is_over:
                del self.streams[stream.stream_id]
                self.outs.append(StreamDone(stream.stream_id))

    def _free(self, sequence: Sequence, *, wipe: bool) -> None:
        del self.sequences[sequence.key]
        heapq.heappush(self.free_slots, sequence.slot)
        self._device.release(sequence.slot, wipe=wipe or sequence.is_speaking)


def _lacks_end(stream: Stream) -> bool:
    """Return whether an interleaved sequence has not been told yet that no more text will come."""
    return stream.has_ended and not stream.texts and stream.sampling is not None and stream.sampling.takes_text


def _joint(before: str, after: str) -> str:
    """Return the text between two text chunks: a space if their words are written with spaces."""
    is_joined = not before or not after or before[-1].isspace() or after[0].isspace()
    return "" if is_joined or not (before[-1].isascii() and after[0].isascii()) else " "
