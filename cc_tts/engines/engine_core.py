"""The engine core inside a worker process. One thread advances it step by step.

::

    open · push · end · cancel · taken ──▸ EngineCore ──▸ step() ──▸ SpeechChunk · StreamDone

Nothing here waits: its driver looks for messages between two steps. Runs on: the thread that owns the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import field

from cc_tts.engines.speech_chunk import SpeechChunk, WorkerReport
from cc_tts.errors import CcTtsError
from cc_tts.processes.channel import Message
from cc_tts.voices.voice import Voice


class StreamCommand(Message, frozen=True):
    """A message from a server to a worker, about one stream. A server never uses a ``stream_id`` twice."""

    stream_id: int


class StreamRequest(StreamCommand, frozen=True, omit_defaults=True):
    """One utterance to be spoken. ``traceparent``: the span of a trace that it belongs to; chunks then say ``made_ms``."""

    voice: str
    speed: float = 1.0  # 0.5 to 2
    instructions: str = ""
    """How to speak, in words; ignored by voices that take none."""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class StreamDone:
    """A stream is over and its resources are free: it was spoken to its end, or ``error`` says why not."""

    stream_id: int
    error: CcTtsError | None = None


StepOut = SpeechChunk | StreamDone


class EngineLoad(WorkerReport, frozen=True, kw_only=True):
    """How busy the engine is, for admission and for metrics. Sent with every change, and periodically while the engine
    works. Times in ms.
    """

    num_streams: int
    first_audio_ms: float  # predicted, of a stream opened now
    utilisation: float
    """The share of the device's time that the running streams need, 0 to 1 and above."""
    room: int = 1_000_000  # how many streams opened at this instant would be taken
    refusal: str = ""  # why a stream opened now would be refused; empty when it would be taken
    retry_after_s: int = 1
    slots_used: int = 0
    slots_total: int = 0
    pages_used: int = 0
    pages_total: int = 0
    num_not_finite: int = 0  # chunks whose numbers were not finite, since the start
    num_underruns: int = 0  # how often audio came after its listener had run dry, since the start
    num_runaways: dict[str, int] = field(default_factory=dict)
    """How often runaway speech was stopped since the start, by cause."""


class EngineDescription(WorkerReport, frozen=True):
    """The abilities of the worker; sent after ``Ready`` and after ``RefreshVoices``."""

    voices: tuple[Voice, ...]
    languages: tuple[str, ...] = ()
    """The languages that every voice speaks in addition to its own."""
    variants: tuple[str, ...] = ()
    """The names that may follow every voice after a plus sign."""
    faults: tuple[str, ...] = ()
    """The voice files that cannot be used, and why: a sentence each."""


class DeviceLost(Exception):
    """The device does not respond any more, so the process must end. Never sent to the server."""


class EngineLoader(Protocol):
    """Makes an :class:`EngineCore`, and knows its voices afterwards."""

    @property
    def description(self) -> EngineDescription:
        """The voices and what they can do, once loaded."""

    def refresh(self, on_done: Callable[[], None]) -> None:
        """Look for voices that were added or removed. ``on_done`` is called, from any thread, once they are described.
        Running streams continue, also with a removed voice.
        """

    def load(self, on_progress: Callable[[str], None]) -> "EngineCore | None":
        """Load the weights and warm up; ``None`` where only the voices are wanted. ``on_progress`` is called with a few
        words about the next step. Raises ``CcTtsError`` with a message that says what to do.
        """


class EngineCore(Protocol):
    """An engine that is advanced by :meth:`step`."""

    def open(self, request: StreamRequest) -> None:
        """Begin a stream. Raises ``UnknownVoice``, and ``EngineOverloaded`` when admission refuses it."""

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        """Append a text chunk. Unknown streams are ignored, here and below, since they may just have ended."""

    def end(self, stream_id: int) -> None:
        """No more text will come."""

    def cancel(self, stream_id: int) -> None:
        """Free everything that the stream holds. No more audio and no :class:`StreamDone` follow."""

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        """The reader has taken this much audio since the stream began, and has not played ``ahead_ms`` of it; ``None`` if
        unknown.
        """

    def step(self) -> Sequence[StepOut]:
        """Do the most urgent piece of work, if there is any, and return the results. Raises ``DeviceLost``."""

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do something."""

    def load_report(self) -> EngineLoad:
        """Return how busy the engine is."""

    def close(self) -> None:
        """Free everything that the engine holds."""
