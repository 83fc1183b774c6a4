"""One prompt on one call, from acceptance to completion, with its marks."""

from dataclasses import dataclass, field
from enum import StrEnum

from cc_tts.calls.call_state import UTTERANCE_TABLE, StateMachine, UtteranceEvent, UtteranceState
from cc_tts.calls.prompt import Prompt, TextContent
from cc_tts.clock import ms_between


class CompletionCause(StrEnum):
    """Why an utterance is complete (after RFC 6787 §8.4.11)."""

    NORMAL = "normal"
    BARGE_IN = "barge_in"
    CANCELLED = "cancelled"
    CALL_ENDED = "call_ended"
    ERROR = "error"
    DURATION_EXCEEDED = "duration_exceeded"


@dataclass(slots=True)
class SpokenSpan:
    """The caller's own words of one text chunk and where their audio lies in the utterance, ms from its start."""

    source: str
    start_ms: float
    end_ms: float | None = None


@dataclass(slots=True)
class Marks:
    """Instants on CLOCK_MONOTONIC, ns. ``origin_ns`` is the start of the time to first audio: the request's acceptance,
    or the ACK for a prompt that came in the INVITE; a queued utterance counts from the moment its turn came."""

    origin_ns: int
    first_pcm_ns: int | None = None
    first_frame_ns: int | None = None
    first_speech_ns: int | None = None
    completed_ns: int | None = None


@dataclass(slots=True, kw_only=True)
class Utterance:
    """One prompt on one call (RFC 6787 §7: a speak request). Changed only on the event loop."""

    id: str
    call_id: str
    prompt: Prompt
    voice: str
    engine: str
    accepted_at_s: float
    marks: Marks
    barge_in_dtmf: bool
    machine: StateMachine[UtteranceState, UtteranceEvent] = field(
        default_factory=lambda: StateMachine(UTTERANCE_TABLE, UtteranceState.PENDING)
    )
    completion_cause: CompletionCause | None = None
    cached: bool = False
    played_ms: float = 0.0
    underruns: int = 0
    error_code: str | None = None
    error_detail: str | None = None
    spans: list[SpokenSpan] = field(default_factory=list)

    @property
    def state(self) -> UtteranceState:
        """Where it stands."""
        return self.machine.state

    @property
    def is_complete(self) -> bool:
        """Whether nothing more will be heard of it."""
        return self.machine.state is UtteranceState.COMPLETE

    @property
    def text_chars(self) -> int:
        """Characters of the text; 0 for tones and silence."""
        return len(self.prompt.content.text) if isinstance(self.prompt.content, TextContent) else 0

    @property
    def time_to_first_pcm_ms(self) -> float | None:
        """From the origin to the engine's first PCM, ms; 0 if it was there before the utterance's turn."""
        first = self.marks.first_pcm_ns
        return None if first is None else max(0.0, ms_between(self.marks.origin_ns, first))

    @property
    def time_to_first_audio_ms(self) -> float | None:
        """From the origin to the first frame that carries speech (sound, for tones), ms."""
        first = self.marks.first_speech_ns
        return None if first is None else max(0.0, ms_between(self.marks.origin_ns, first))

    @property
    def spoken_text(self) -> str:
        """What the caller heard, in the caller's own words: whole spans, and of the last one the share of its words that
        was played."""
        heard: list[str] = []
        for span in self.spans:
            if self.played_ms <= span.start_ms:
                break
            if span.end_ms is not None and self.played_ms >= span.end_ms - 1:
                heard.append(span.source)
                continue
            heard.append(_share(span, self.played_ms))
            break
        return "".join(heard).strip()


def _share(span: SpokenSpan, played_ms: float) -> str:
    """The part of a span's words that ``played_ms`` covers; nothing is claimed while the span's length is unknown and
    under a word could have been said."""
    length_ms = (span.end_ms if span.end_ms is not None else played_ms + 1000) - span.start_ms
    fraction = min(1.0, max(0.0, (played_ms - span.start_ms) / max(length_ms, 1.0)))
    cut = int(len(span.source) * fraction)
    head = span.source[:cut]
    if cut < len(span.source) and " " in span.source and not span.source[cut].isspace():
        head = head.rpartition(" ")[0]
    return head
