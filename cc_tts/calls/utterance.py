"""One prompt on one call, from acceptance to completion, with its marks."""

import dataclasses
from bisect import bisect_right
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Final

from cc_tts.calls.call_state import UTTERANCE_TABLE, UtteranceEvent, UtteranceState
from cc_tts.clock import ms_between
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.state_machine import StateMachine
from cc_tts.text.characters import has_speech
from cc_tts.text.language import is_unspaced

SPACED_CHARS_PER_S: Final = 13.0
"""How fast text is spoken, about, in a script that puts spaces between words; used while nothing better is known."""
UNSPACED_CHARS_PER_S: Final = 4.0
_ROUNDING_S: Final = 1e-9


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
    origin_ns: int
    """Start of the time to first audio: the request's acceptance, or the ACK for a prompt that came in the INVITE. A queued
    utterance counts from the moment its turn came, and one that is spoken in the call's lead-in from the end of that.
    """
    first_pcm_ns: int | None = None
    first_speech_ns: int | None = None
    completed_ns: int | None = None
    interrupted_ns: int | None = None
    """When the key was pressed that interrupted it."""
    machine: StateMachine[UtteranceState, UtteranceEvent] = field(
        default_factory=lambda: StateMachine(UTTERANCE_TABLE, UtteranceState.PENDING)
    )
    completion_cause: CompletionCause | None = None
    cached: bool = False
    has_waited: bool = False
    """Another prompt was to be played to its end before it, so its clock starts at its turn."""
    fed_ms: float = 0.0
    """Audio sent to the line, ms."""
    played_ms: float = 0.0
    discard_cause: CompletionCause | None = None
    """Set while the line is asked to silence it; it completes with this cause."""
    underruns: int = 0
    error_code: str | None = None
    error_detail: str | None = None
    spans: list[SpokenSpan] = field(default_factory=list)
    text_chars: int = 0
    """Characters of the text; 0 for tones and silence."""
    context: Context = field(default_factory=copy_context, repr=False)
    """Of the request that asked for it, so that log lines about this utterance have the ids of that request."""
    _spoken_text: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.prompt.content, TextContent):
            self.text_chars = len(self.prompt.content.text)

    def forget_text(self) -> None:
        """Keep only the spoken part of the text: many complete utterances are kept for a while."""
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
        return self._since_origin_ms(self.first_pcm_ns)

    @property
    def time_to_first_audio_ms(self) -> float | None:
        """From the origin to the first frame that carries speech (sound, for tones), ms."""
        return self._since_origin_ms(self.first_speech_ns)

    def _since_origin_ms(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else max(0.0, ms_between(self.origin_ns, at_ns))

    @property
    def spoken_text(self) -> str:
        """What the caller heard: the text as it was sent, up to where it was played. Whole spans, and of the last one the
        share of its words that was played; the text's last blanks once all of it was heard.
        """
        if self._spoken_text is not None:
            return self._spoken_text
        text = self.prompt.content.text if isinstance(self.prompt.content, TextContent) else ""
        heard = ""
        for span in self.spans:
            if self.played_ms <= span.start_ms:
                return heard.rstrip()
            if span.end_ms is None or self.played_ms < span.end_ms - 1:
                return (heard + _share(span, self.played_ms)).rstrip()
            heard += span.source
        if heard and text.startswith(heard) and not has_speech(text[len(heard) :]):
            return text
        return heard.rstrip()


def _share(span: SpokenSpan, played_ms: float) -> str:
    """The part of a span that was heard, in whole words; a word that was cut off does not count."""
    source, heard_ms = span.source, played_ms - span.start_ms
    cut = _heard_by_words(span, heard_ms) if span.words else _heard_by_pace(span, heard_ms)
    while 0 < cut < len(source) and _are_one_word(source[cut - 1], source[cut]):
        cut -= 1
    return source[:cut]


def _heard_by_words(span: SpokenSpan, heard_ms: float) -> int:
    """Characters of a span whose words the engine has timed."""
    begun = [share for offset_ms, share in span.words if offset_ms <= heard_ms]
    return round(len(span.source) * min(1.0, begun[-1])) if begun else 0


def _heard_by_pace(span: SpokenSpan, heard_ms: float) -> int:
    """Characters by the usual pace of their script, stretched to the length of the audio where that is known."""
    paces = (UNSPACED_CHARS_PER_S if is_unspaced(each) else SPACED_CHARS_PER_S for each in span.source)
    spoken_s = list(accumulate(1 / pace for pace in paces))
    heard_s = heard_ms / 1000
    if span.end_ms is not None and spoken_s:
        heard_s = spoken_s[-1] * heard_ms / max(span.end_ms - span.start_ms, 1.0)
    return bisect_right(spoken_s, heard_s + _ROUNDING_S)


def _are_one_word(character: str, following: str) -> bool:
    return not any(each.isspace() or is_unspaced(each) for each in (character, following))
