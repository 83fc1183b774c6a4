"""Text chunks become sequences, or go on feeding one that is interleaved (§3.5)."""

from cc_tts.engines.cosyvoice2.engine.device import TextFront
from cc_tts.engines.cosyvoice2.engine.sequence import Sequence, Stream
from cc_tts.engines.cosyvoice2.engine.stream_table import StreamTable


class TextStage:
    """Begins what can begin, the most urgent stream first."""

    def __init__(self, table: StreamTable, front: TextFront) -> None:
        self._table = table
        self._front = front

    def begin(self) -> None:
        """Turn text chunks into sequences, where there is nothing to be sampled before them and a slot for them."""
        for stream in sorted(self._table.streams.values(), key=lambda each: each.clock.deadline_ms):
            with self._table.failing("text", [stream]):
                self._begin_texts(stream)

    def has_work(self, stream: Stream) -> bool:
        """Whether :meth:`begin` would do something for the stream."""
        return self._can_begin(stream) or _lacks_end(stream)

    def _begin_texts(self, stream: Stream) -> None:
        while self._can_begin(stream):
            if stream.is_interleaved:
                self._interleave(stream)
            else:
                self._begin_sequence(stream)
        if _lacks_end(stream):
            stream.sequences[-1].end_text()

    def _can_begin(self, stream: Stream) -> bool:
        if not stream.texts:
            return False
        drawing = stream.drawing
        if drawing is not None:
            return drawing.takes_text
        return not stream.is_well_ahead and self._table.has_slot_for(stream)

    def _begin_sequence(self, stream: Stream) -> None:
        index, whole = stream.texts.popleft()
        text, rest = self._front.cut(whole)
        if rest.strip():
            stream.texts.appendleft((index, rest))
        goes_on = bool(stream.texts) or not stream.has_ended
        feed = self._front.prepare(stream.voice_id, text, goes_on=goes_on)
        if feed is not None:
            self._new_sequence(stream, index, text).feed = feed

    def _interleave(self, stream: Stream) -> None:
        """The next text chunk, in the sequence that takes text; one that is as long as it may be gives way to a new one."""
        sequence = stream.drawing
        index, text = stream.texts.popleft()
        before = "" if sequence is None else sequence.last_text
        piece = stream.held_text + _joint(before or stream.held_text, text) + text
        if sequence is None and not any(character.isalnum() for character in piece):
            stream.held_text = piece  # nothing to say until a word comes
            return
        ids = self._front.text_ids(stream.voice_id, piece)
        if sequence is not None and sequence.num_text + len(ids) > self._front.max_interleaved(stream.voice_id):
            stream.texts.appendleft((index, text))
            sequence.end_text()
            return
        stream.held_text = ""
        if sequence is None:
            sequence = self._new_sequence(stream, index, "")
            sequence.bistream = self._front.begin_interleaved(stream.voice_id)
        sequence.add_text(ids, text_chunk_index=index)
        sequence.last_text = text or before

    def _new_sequence(self, stream: Stream, index: int, text: str) -> Sequence:
        seed = self._front.seed(stream.voice_id, text)
        num_prompt = self._front.num_flow_prompt(stream.voice_id)
        return self._table.new_sequence(stream, index, seed=seed, num_prompt=num_prompt)


def _lacks_end(stream: Stream) -> bool:
    """Whether an interleaved sequence is to be told that no more text will come."""
    if not stream.has_ended or stream.texts:
        return False
    drawing = stream.drawing
    return drawing is not None and drawing.takes_text


def _joint(before: str, after: str) -> str:
    """What stands between two text chunks: a space between words that are written with them."""
    is_joined = not before or not after or before[-1].isspace() or after[0].isspace()
    return "" if is_joined or not (before[-1].isascii() and after[0].isascii()) else " "
