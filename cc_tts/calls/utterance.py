"""One prompt on one call, from acceptance to completion, with its marks."""

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cc_tts.calls.call_state import UTTERANCE_TABLE, StateMachine, UtteranceEvent, UtteranceState
from cc_tts.calls.prompt import Prompt, TextContent
from cc_tts.clock import ms_between

SPACED_CHARS_PER_S: Final = 13.0
"""How fast text is spoken, about, in a script that puts spaces between words; used while nothing better is known."""
UNSPACED_CHARS_PER_S: Final = 4.0


class CompletionCause(StrEnum):
    """Why an utterance is complete (after RFC 6787 §8.4.11)."""

    NORMAL = "normal"
    BARGE_IN = "barge_in"
    CANCELLED = "cancelled"
    CALL_ENDED = "call_ended"
    ERROR = "error"


@dataclass(slots=True)
class SpokenSpan:
    """The caller's own words of one text chunk and where their audio lies in the utterance, ms from its start.

    ``words``: for each word the engine reported, when it begins (ms from the span's start) and which share of the text
    lies before it, 0 to 1.
    """

    source: str
    start_ms: float
    end_ms: float | None = None
    words: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True)
class Marks:
    """Instants on CLOCK_MONOTONIC, ns. ``origin_ns`` is the start of the time to first audio: the request's acceptance,
    or the ACK for a prompt that came in the INVITE; a queued utterance counts from the moment its turn came.
    """

    origin_ns: int
    first_pcm_ns: int | None = None
    first_frame_ns: int | None = None
    first_speech_ns: int | None = None
    completed_ns: int | None = None


@dataclass(slots=True, kw_only=True, eq=False)
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
    text_chars: int = 0
    """Characters of the text; 0 for tones and silence."""
    _spoken_text: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.prompt.content, TextContent):
            self.text_chars = len(self.prompt.content.text)

    def forget_text(self) -> None:
        """Keep what was heard and drop what was asked for: complete utterances are kept for a while, many of them."""
        self._spoken_text = self.spoken_text
        self.spans = []
        if isinstance(self.prompt.content, TextContent):
            self.prompt = dataclasses.replace(self.prompt, content=dataclasses.replace(self.prompt.content, text=""))

    @property
    def state(self) -> UtteranceState:
        """Where it stands."""
        return self.machine.state

    @property
    def is_complete(self) -> bool:
        """Whether nothing more will be heard of it."""
        return self.machine.state is UtteranceState.COMPLETE

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
        was played.
        """
        if self._spoken_text is not None:
            return self._spoken_text
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
    """Tell which of a span's words were heard to their end; rather one too few than one too many."""
    heard_ms = played_ms - span.start_ms
    if span.words:
        begun = [share for offset_ms, share in span.words if offset_ms <= heard_ms]
        fraction = begun[-1] if begun else 0.0
    elif span.end_ms is not None:
        fraction = heard_ms / max(span.end_ms - span.start_ms, 1.0)
    else:
        rate = SPACED_CHARS_PER_S if " " in span.source.strip() else UNSPACED_CHARS_PER_S
        fraction = heard_ms / 1000 * rate / max(len(span.source), 1)
    cut = round(len(span.source) * min(1.0, fraction))
    head = span.source[:cut]
    if cut < len(span.source) and " " in span.source.strip() and not span.source[cut].isspace():
        head = head[: head.rfind(" ") + 1]
    return head
