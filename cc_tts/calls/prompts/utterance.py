"""One prompt on one call, from acceptance to completion, with its marks."""

import dataclasses
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from msgspec import UNSET

from cc_tts.calls.call_state import UTTERANCE_TABLE, UtteranceEvent, UtteranceState
from cc_tts.clock import ms_between
from cc_tts.config.schema import BargeInBySpeech, SpeechBargeIn
from cc_tts.speech.prompt import IncrementalContent, Prompt, text_of, without_text
from cc_tts.speech.timing.spans import ROUNDING_MS, SpokenSpan, Word, heard_and_pending, offsets_ms, words_of
from cc_tts.state_machine import StateMachine
from cc_tts.tracing.span import Span


class CompletionCause(StrEnum):
    """Why an utterance is complete (after RFC 6787 §8.4.11)."""

    NORMAL = "normal"
    BARGE_IN = "barge_in"
    CANCELLED = "cancelled"
    CALL_ENDED = "call_ended"
    ERROR = "error"


Interrupter = Literal["dtmf", "speech", "clear", "replace", "stop"]
"""The cause of an interruption: a key, speech, the utterance's own text stream, a replacing prompt, or ``stop``."""


class UtteranceWatcher:
    """The stream that an utterance comes from. It is told the utterance's progress; the default methods do nothing."""

    def on_started(self, utterance: "Utterance") -> None:
        """The first frame that carries speech was sent."""

    def on_progress(self, utterance: "Utterance", marks: Sequence[tuple[str, float]]) -> None:
        """More was played, and these marks were reached: their names and places in the audio, ms."""

    def on_refused(self, utterance: "Utterance", words: str, detail: str) -> None:
        """No voice speaks these words of the utterance."""

    def on_complete(self, utterance: "Utterance") -> None:
        """Nothing more will be heard of it; its text is forgotten after this."""


@dataclass(frozen=True, slots=True)
class UtteranceError:
    """Why an utterance failed: a stable code and a sentence."""

    code: str
    detail: str


@dataclass(slots=True, kw_only=True, eq=False)
class Utterance:
    """One prompt on one call (RFC 6787 §7: a speak request). Instants are on CLOCK_MONOTONIC, ns. Changed only on the event
    loop.
    """

    id: str
    call_id: str
    prompt: Prompt
    voice: str
    engine: str
    accepted_at_s: float
    barge_in_dtmf: bool
    barge_in_speech: SpeechBargeIn | None = None
    """How speech interrupts the utterance; ``None``: not at all."""
    origin_ns: int
    """The start of the time to first audio: when the request was accepted, or the ACK for a prompt that came with the
    INVITE. A queued utterance counts from its turn, and one in the call's lead-in from the end of that.
    """
    first_pcm_ns: int | None = None
    first_speech_ns: int | None = None
    completed_ns: int | None = None
    interrupted_ns: int | None = None
    """The time of the key or the speech that interrupted it."""
    is_disclosure: bool = False
    """Whether it is the disclosure of its call."""
    interrupted_by: Interrupter | None = None
    speech_id: str | None = None
    """The id of the caller's speech that interrupted it."""
    watcher: UtteranceWatcher | None = None
    machine: StateMachine[UtteranceState, UtteranceEvent] = field(
        default_factory=lambda: StateMachine(UTTERANCE_TABLE, UtteranceState.PENDING)
    )
    completion_cause: CompletionCause | None = None
    cached: bool = False
    has_waited: bool = False
    """Whether a prompt before it is played to its end, so that its clock starts at its turn."""
    fed_ms: float = 0.0
    """Audio sent to the line, ms."""
    played_ms: float = 0.0
    discard_cause: CompletionCause | None = None
    """Set while the leg is asked to cut it; it completes with this cause."""
    underruns: int = 0
    error: UtteranceError | None = None
    spans: list[SpokenSpan] = field(default_factory=list)
    text_chars: int = 0
    """The length of the text so far, in characters; 0 for tones and silence."""
    context: Context = field(default_factory=copy_context, repr=False)
    """The context of the request that asked for it, so that its log lines have the ids of that request."""
    span: Span | None = field(default=None, repr=False)
    _spoken_text: str | None = None

    def __post_init__(self) -> None:
        self.text_chars = len(text_of(self.prompt.content))

    def forget_text(self) -> None:
        """Forget the text except for the spoken part, since many complete utterances are kept for a while."""
        self._spoken_text = self.spoken_text
        self.spans = [span for span in self.spans if span.start_ms < self.played_ms]
        self.prompt = dataclasses.replace(self.prompt, content=without_text(self.prompt.content))

    @property
    def event_fields(self) -> dict[str, Any]:
        """The fields of every event about it: its id and the client state."""
        client_state = UNSET if self.prompt.client_state is None else self.prompt.client_state
        return {"utterance_id": self.id, "client_state": client_state}

    @property
    def state(self) -> UtteranceState:
        return self.machine.state

    @property
    def is_complete(self) -> bool:
        return self.machine.state is UtteranceState.COMPLETE

    @property
    def time_to_first_pcm_ms(self) -> float | None:
        """The time from the origin to the engine's first PCM, ms; 0 if the PCM was there before the utterance's turn."""
        return self._since_origin_ms(self.first_pcm_ns)

    @property
    def time_to_first_audio_ms(self) -> float | None:
        """The time from the origin to the first frame that carries speech (sound, for tones), ms."""
        return self._since_origin_ms(self.first_speech_ns)

    @property
    def text_ready_ns(self) -> int:
        """When enough text had arrived to begin; 0 if the text was complete from the start."""
        content = self.prompt.content
        return content.incremental.ready_ns or 0 if isinstance(content, IncrementalContent) else 0

    def _since_origin_ms(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else max(0.0, ms_between(self.origin_ns, at_ns))

    @property
    def spoken_text(self) -> str:
        """The text that the caller heard, as it was sent: whole spans, and the played share of the words of the last one.
        The final white space is included once everything was heard.
        """
        return self._spoken_text if self._spoken_text is not None else self._heard[0]

    @property
    def pending_text(self) -> str:
        """The text that the caller did not hear: words that no voice speaks, and words that were not played."""
        return self._heard[1]

    @property
    def _heard(self) -> tuple[str, str]:
        return heard_and_pending(self.spans, text_of(self.prompt.content), self.played_ms)

    @property
    def words(self) -> list[Word]:
        """The words that have begun to sound."""
        return WordReader(self).take()

    def take_marks(self) -> list[tuple[str, float]]:
        """Return the marks that were reached since the last call, each with its place in the audio, ms."""
        taken: list[tuple[str, float]] = []
        for span in self.spans:
            places = offsets_ms(span, [share for share, _ in span.marks])
            for at_ms in places:
                if span.start_ms + at_ms > self.played_ms + ROUNDING_MS:
                    return taken
                taken.append((span.marks.pop(0)[1], span.start_ms + at_ms))
        return taken


class WordReader:
    """Returns each word of an utterance once, when it has begun to sound."""

    def __init__(self, utterance: Utterance) -> None:
        self._utterance = utterance
        self._num_spans = self._num_chars = self._num_words = 0
        """The number of spans that were read whole, their characters, and the words of the next span that were returned."""

    def take(self) -> list[Word]:
        """Return the words that have begun since the last call."""
        found: list[Word] = []
        played_ms = self._utterance.played_ms
        for span in self._utterance.spans[self._num_spans :]:
            words = words_of(span, self._num_chars)[self._num_words :]
            begun = [word for word in words if word.start_ms < played_ms]
            found += begun
            if span.end_ms is None or played_ms < span.end_ms - ROUNDING_MS:
                self._num_words += len(begun)
                break
            self._num_spans, self._num_chars, self._num_words = (
                self._num_spans + 1,
                self._num_chars + len(span.source),
                0,
            )
        return found


def policy_of(*wishes: BargeInBySpeech | None) -> SpeechBargeIn | None:
    """Return the first setting that is not ``None``, the most specific first; ``None`` if speech interrupts nothing."""
    wish = next((each for each in wishes if each is not None), False)
    return SpeechBargeIn() if wish is True else wish or None
