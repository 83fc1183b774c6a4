"""The piece of speech that every stage passes on, from the engine to the leg.

::

    engine      data · stream_id · text_chunk_index · spoken_words · gave_up_after
    worker      made_ms
    link        rate_hz
    failover    is_resumed · after_loss
    source      data at the line's rate · begins_source · words · paces
    sequence    marks · awaits_text · refused_because

A chunk belongs to the stage that has read it, which fills in what it knows and hands on the same object. Where several
read the same audio, each gets a copy (:mod:`cc_tts.speech.cache.shared_synthesis`).
"""

from typing import Annotated

import msgspec

from cc_tts.audio import BYTES_PER_SAMPLE, AudioFormat, Pace, WordMark
from cc_tts.processes.channel import Message


class WorkerReport(Message, frozen=True):
    """A message from a worker to its server."""


class SpeechChunk(WorkerReport, frozen=False, omit_defaults=True):  # type: ignore[misc]  # msgspec allows what dataclasses forbid
    """Signed 16-bit little-endian mono PCM, with the words and marks that begin in it. The chunks of a stream follow each
    other without gap or overlap.
    """

    data: bytes = b""
    begins_source: str | None = None
    """The caller's words of the text chunk that begins here, if one does."""
    words: tuple[tuple[float, float], ...] = ()
    """The words that begin here, in the form of :class:`cc_tts.speech.timing.spans.SpokenSpan`."""
    cached: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """The marks of SSML among the words that begin here: the share of the words before the mark, 0 to 1, and its name."""
    awaits_text: bool = False
    """Whether nothing follows until more text arrives; this is no delay of the engine."""
    is_resumed: bool = False
    """Whether the previous worker was lost, so that this may repeat audio or be of another voice."""
    after_loss: bool = False
    """Whether it is the first chunk after a worker was lost."""
    gave_up_after: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Runaway speech was stopped after about this share of the text chunk, whose audio ends there. 1: the words were
    probably said.
    """
    refused_because: str = ""
    """Why the words that begin here are not spoken: no voice speaks their language."""
    paces: tuple[Pace, ...] = ()
    """The pace of ``begins_source``, for engines that report no word times."""
    stream_id: int = 0
    text_chunk_index: Annotated[int, msgspec.Meta(ge=0)] = 0
    spoken_words: tuple[WordMark, ...] = ()
    """The words of the normalised text chunk that begin here, if the engine knows them."""
    made_ms: float = 0.0
    """The time from the first text in the worker to this chunk, ms; 0 for a stream that is not traced."""
    rate_hz: int = 0
    """The sample rate of the voice, as long as the audio has that rate."""

    def __post_init__(self) -> None:
        if len(self.data) % BYTES_PER_SAMPLE:
            raise ValueError(f"PCM must be whole 16-bit samples, got {len(self.data)} bytes")

    @property
    def duration_ms(self) -> float:
        """The duration of the audio at the voice's rate, ms."""
        return AudioFormat(self.rate_hz).ms_for_bytes(len(self.data))

    def follow(self, held: "SpeechChunk") -> None:
        """Take over the metadata of ``held``, the chunk before, which has no audio."""
        if held.begins_source is not None:
            self.begins_source = held.begins_source + (self.begins_source or "")
        self.words = held.words + self.words
        self.marks = held.marks + self.marks
        self.paces = held.paces + self.paces
        self.after_loss |= held.after_loss
        self.gave_up_after = held.gave_up_after if self.gave_up_after is None else self.gave_up_after

    def begin_with(self, unspoken: str) -> None:
        """Prepend text that is not spoken to its words."""
        if self.paces:
            self.paces = ((len(unspoken), 0.0, True), *self.paces)
        self.begins_source = unspoken + (self.begins_source or "")
