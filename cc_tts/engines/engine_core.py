"""An engine core is what a worker process drives: one thread moves it on, step by step.

::

    open · push · end · cancel · taken ──▸ EngineCore ──▸ step() ──▸ SpeechChunk · StreamDone

Nothing here waits: whoever drives it looks for news between two steps. Runs on: the thread that owns the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import field

from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.engines.speech_chunk import Report, SpeechChunk
from cc_tts.errors import CcTtsError, Unprocessable
from cc_tts.processes.channel import Message
from cc_tts.voices.voice import Voice


class Command(Message, frozen=True):
    """A message from a server to a worker, about one stream. ``stream_id`` is never used twice in the life of a server."""

    stream_id: int


class StreamRequest(Command, frozen=True, omit_defaults=True):
    """One utterance to be spoken. ``traceparent``: the span of a trace that it belongs to; chunks then say ``made_ms``."""

    voice: str
    speed: float = 1.0  # 0.5 to 2
    instructions: str = ""
    """How to speak, in words; without effect where the voice takes none."""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class StreamDone:
    """A stream is over and holds nothing any more: spoken to its end, or ``error`` says why not."""

    stream_id: int
    error: CcTtsError | None = None


StepOut = SpeechChunk | StreamDone


class EngineLoad(Report, frozen=True, kw_only=True):
    """How busy the engine is, for admission and for metrics: sent with every change, and at an interval while it works.
    Times in ms.
    """

    num_streams: int
    first_audio_ms: float  # predicted, of a stream opened now
    utilisation: float
    """Share of the device's time that the running streams need to keep their listeners supplied, 0 to 1 and above."""
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
    """How often speech ran away and was stopped, since the start, by the cause."""


class DeviceLost(Exception):
    """The device answers nothing any more, so the process has to end. Never crosses to the server."""


class EngineLoader(Protocol):
    """It makes an :class:`EngineCore`, and knows its voices afterwards."""

    @property
    def voices(self) -> Sequence[Voice]:
        """Every voice, once loaded."""

    @property
    def languages(self) -> Sequence[str]:
        """BCP 47 primary languages that every voice speaks, whatever its own is."""

    @property
    def variants(self) -> Sequence[str]:
        """Names that every voice takes after a plus sign."""

    @property
    def faults(self) -> Sequence[str]:
        """Files that should be voices and cannot be used, and why."""

    def refresh(self, on_done: Callable[[], None]) -> None:
        """Look for voices that came or went since. ``on_done`` is called once :attr:`voices` has them, from any thread;
        streams go on meanwhile, and to their end with a voice that is gone.
        """

    def load(self, on_progress: Callable[[str], None]) -> "EngineCore | None":
        """Load the weights, warm up; ``None`` where only the voices are wanted. ``on_progress`` is called with a few words
        on what comes next. Raises ``CcTtsError`` when it cannot; the message says what to do.
        """


class EngineCore(Protocol):
    """An engine that is moved on by :meth:`step`."""

    def open(self, request: StreamRequest) -> None:
        """Begin a stream. Raises ``UnknownVoice``, ``Unprocessable`` for a speed out of bounds, and ``EngineOverloaded``
        when admission refuses it.
        """

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        """Append a text chunk. Unknown streams are ignored here and below: they may have ended a moment ago."""

    def end(self, stream_id: int) -> None:
        """No more text will come."""

    def cancel(self, stream_id: int) -> None:
        """Free all that the stream holds; nothing more is given out for it, no :class:`StreamDone` either."""

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        """The listener's side has taken so much audio since the stream began, and not played ``ahead_ms`` of it yet; None
        where nobody knows.
        """

    def step(self) -> Sequence[StepOut]:
        """Do the most urgent piece of work, or nothing; returns what came of it. Raises ``DeviceLost``."""

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do something."""

    def load_report(self) -> EngineLoad:
        """How busy it is."""

    def close(self) -> None:
        """Free everything that the engine holds."""


def check_speed(speed: float) -> None:
    """Raise ``Unprocessable`` if ``speed`` is out of bounds."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise Unprocessable(f"a speed of {speed} is not between {MIN_SPEED} and {MAX_SPEED}")
