"""The one piece of speech that every stage hands on, from the engine to the leg.

::

    engine      data · stream_id · text_chunk_index · spoken_words · gave_up_after
    worker      made_ms
    link        rate_hz
    failover    is_resumed · after_loss
    source      data at the line's rate · begins_source · words · paces
    sequence    marks · awaits_text · refused_because

A chunk belongs to the stage that has read it, which fills in what it knows and hands on the same object. Where several
read the same audio, each gets a copy (:mod:`cc_tts.speech.shared_synthesis`).
"""

from typing import Annotated

import msgspec

from cc_tts.audio import BYTES_PER_SAMPLE, AudioFormat, Pace, WordMark
from cc_tts.processes.channel import Message


class Report(Message, frozen=True):
    """A message from a worker to its server."""


class SpeechChunk(Report, frozen=False, omit_defaults=True):  # type: ignore[misc]  # msgspec allows what dataclasses forbid
    """Signed 16-bit little-endian mono PCM, and what begins in it. The chunks of a stream follow without gap or overlap."""

    data: bytes = b""
    begins_source: str | None = None
    """The caller's words, if a new text chunk begins here."""
    words: tuple[tuple[float, float], ...] = ()
    """The words that begin here, as in :class:`cc_tts.speech.timing.spans.SpokenSpan`."""
    cached: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """SSML's, in the words that begin here: which share of them lies before, 0 to 1, and the name."""
    awaits_text: bool = False
    """Nothing follows until more of the text comes, which is nobody's delay."""
    is_resumed: bool = False
    """The worker that spoke before was lost, and this may repeat audio, or be of another voice."""
    after_loss: bool = False
    """It is the first one in place of the lost worker."""
    gave_up_after: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """The voice ran away, and was stopped after about this share of the text chunk; its audio ends there. 1: the words were
    likely said.
    """
    refused_because: str = ""
    """Why the words that would begin here are not spoken: no voice speaks their language."""
    paces: tuple[Pace, ...] = ()
    """The pace of ``begins_source``, for engines that do not time words."""
    stream_id: int = 0
    text_chunk_index: Annotated[int, msgspec.Meta(ge=0)] = 0
    spoken_words: tuple[WordMark, ...] = ()
    """The words that begin here in the text chunk as it is spoken, where the engine knows them."""
    made_ms: float = 0.0
    """The time from the first text in the worker to this chunk, ms; 0 for a stream that is not traced."""
    rate_hz: int = 0
    """The rate of the voice, as long as the audio has that rate."""

    def __post_init__(self) -> None:
        if len(self.data) % BYTES_PER_SAMPLE:
            raise ValueError(f"PCM must be whole 16-bit samples, got {len(self.data)} bytes")

    @property
    def duration_ms(self) -> float:
        """The duration of audio at the rate of the voice, ms."""
        return AudioFormat(self.rate_hz).ms_for_bytes(len(self.data))

    def follow(self, held: "SpeechChunk") -> None:
        """Say also what ``held``, the chunk before, says besides audio, as it has none."""
        if held.begins_source is not None:
            self.begins_source = held.begins_source + (self.begins_source or "")
        self.words = held.words + self.words
        self.marks = held.marks + self.marks
        self.paces = held.paces + self.paces
        self.after_loss |= held.after_loss
        self.gave_up_after = held.gave_up_after if self.gave_up_after is None else self.gave_up_after

    def begin_with(self, unspoken: str) -> None:
        """Put text before its words that is not spoken."""
        if self.paces:
            self.paces = ((len(unspoken), 0.0, True), *self.paces)
        self.begins_source = unspoken + (self.begins_source or "")
