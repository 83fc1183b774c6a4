"""One prompt on one call, from acceptance to completion, with its marks."""

import dataclasses
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from msgspec import UNSET

from cc_tts.audio import Pace
from cc_tts.calls.call_state import UTTERANCE_TABLE, UtteranceEvent, UtteranceState
from cc_tts.clock import ms_between
from cc_tts.config.schema import BargeInBySpeech, SpeechBargeIn
from cc_tts.speech.prompt import IncrementalContent, Prompt, text_of, without_text
from cc_tts.state_machine import StateMachine
from cc_tts.text.characters import has_speech
from cc_tts.text.language import is_unspaced, spoken_s

_ROUNDING_S: Final = 1e-9  # unmeasured
_ROUNDING_MS: Final = 1.0  # unmeasured
_WORD: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3000-\u30ff\u3400-\u9fff]+"
)
"""One of a script that parts words by spaces, or one character of another."""


class CompletionCause(StrEnum):
    """Why an utterance is complete (after RFC 6787 §8.4.11)."""

    NORMAL = "normal"
    BARGE_IN = "barge_in"
    CANCELLED = "cancelled"
    CALL_ENDED = "call_ended"
    ERROR = "error"


Interrupter = Literal["dtmf", "speech", "clear", "replace", "stop"]
"""The cause of an interruption: a key, speech, the text stream that it comes from, a prompt in its place, or ``stop``."""


class UtteranceWatcher:
    """The stream that an utterance comes from, which is told how far it is; by itself it does nothing about that."""

    def on_started(self, utterance: "Utterance") -> None:
        """The first frame that carries speech was sent."""

    def on_progress(self, utterance: "Utterance", marks: Sequence[tuple[str, float]]) -> None:
        """More of it was played, and these marks were reached: the name and the place in the audio, ms."""

    def on_refused(self, utterance: "Utterance", words: str, detail: str) -> None:
        """No voice speaks these words of it."""

    def on_complete(self, utterance: "Utterance") -> None:
        """Nothing more will be heard of it; its text is forgotten after this."""


@dataclass(slots=True)
class SpokenSpan:
    """The caller's own words of one text chunk and where their audio lies in the utterance, ms from its start.

    ``words``: for each word the engine reported, when it begins (ms from the span's start) and which share of the text
    lies before it, 0 to 1. ``paces``: how long its parts take, used where there are no such words. ``marks``: for each
    mark of SSML that was not reached yet, the same share and its name.
    """

    source: str
    start_ms: float
    end_ms: float | None = None
    words: list[tuple[float, float]] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    paces: tuple[Pace, ...] = ()
    is_refused: bool = False
    """No voice speaks it, so the caller does not hear it."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word that was played: where it stands in the text that was sent (for SSML its text content), and when it is heard,
    from the start of the utterance's audio. ``engine``: the engine reported it; ``estimated`` is off by some 150 ms.
    """

    text: str
    char_start: int
    char_end: int
    start_ms: int
    end_ms: int
    source: Literal["engine", "estimated"]


@dataclass(frozen=True, slots=True)
class UtteranceError:
    """Why an utterance failed: a stable word and a sentence."""

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
    """How speech interrupts it; ``None``: not at all."""
    origin_ns: int
    """Start of the time to first audio: the request's acceptance, or the ACK for a prompt that came in the INVITE. A queued
    utterance counts from the moment its turn came, and one that is spoken in the call's lead-in from the end of that.
    """
    first_pcm_ns: int | None = None
    first_speech_ns: int | None = None
    completed_ns: int | None = None
    interrupted_ns: int | None = None
    """When the key was pressed, or the speech began, that interrupted it."""
    is_disclosure: bool = False
    """It tells that a machine speaks, before the first words of one."""
    interrupted_by: Interrupter | None = None
    speech_id: str | None = None
    """The id of the speech that interrupted it."""
    watcher: UtteranceWatcher | None = None
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
    error: UtteranceError | None = None
    spans: list[SpokenSpan] = field(default_factory=list)
    text_chars: int = 0
    """Characters of the text, as far as it has come; 0 for tones and silence."""
    context: Context = field(default_factory=copy_context, repr=False)
    """The context of the request that asked for it, so that log lines about this utterance have the ids of that request."""
    _spoken_text: str | None = None

    def __post_init__(self) -> None:
        self.text_chars = len(text_of(self.prompt.content))

    def forget_text(self) -> None:
        """Keep only the spoken part of the text: many complete utterances are kept for a while."""
        self._spoken_text = self.spoken_text
        self.spans = [span for span in self.spans if span.start_ms < self.played_ms]
        self.prompt = dataclasses.replace(self.prompt, content=without_text(self.prompt.content))

    @property
    def event_fields(self) -> dict[str, Any]:
        """The fields of every event about it: its id and the client's own state."""
        client_state = UNSET if self.prompt.client_state is None else self.prompt.client_state
        return {"utterance_id": self.id, "client_state": client_state}

    @property
    def state(self) -> UtteranceState:
        """The state of the utterance."""
        return self.machine.state

    @property
    def is_complete(self) -> bool:
        """Whether nothing more will be heard of it."""
        return self.machine.state is UtteranceState.COMPLETE

    @property
    def time_to_first_pcm_ms(self) -> float | None:
        """The time from the origin to the engine's first PCM, ms; 0 if it was there before the utterance's turn."""
        return self._since_origin_ms(self.first_pcm_ns)

    @property
    def time_to_first_audio_ms(self) -> float | None:
        """The time from the origin to the first frame that carries speech (sound, for tones), ms."""
        return self._since_origin_ms(self.first_speech_ns)

    @property
    def text_ready_ns(self) -> int:
        """When enough of its text had come to begin with it; 0 where all of it came at once."""
        content = self.prompt.content
        return content.incremental.ready_ns or 0 if isinstance(content, IncrementalContent) else 0

    def _since_origin_ms(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else max(0.0, ms_between(self.origin_ns, at_ns))

    @property
    def spoken_text(self) -> str:
        """The text that the caller heard, as it was sent, up to where it was played. Whole spans, and of the last one the
        share of its words that was played; the text's last blanks once all of it was heard.
        """
        return self._spoken_text if self._spoken_text is not None else self._heard[0]

    @property
    def pending_text(self) -> str:
        """The text that the caller did not hear: what no voice speaks, and what was not played."""
        return self._heard[1]

    @property
    def _heard(self) -> tuple[str, str]:
        text, heard, refused, position = text_of(self.prompt.content), "", "", 0
        for span in self.spans:
            if span.is_refused:
                refused, position = refused + span.source, position + len(span.source)
                continue
            if self.played_ms <= span.start_ms:
                break
            is_whole = span.end_ms is not None and self.played_ms >= span.end_ms - 1
            source = span.source if is_whole else _share(span, self.played_ms)
            heard, position = heard + source, position + len(source)
            if not is_whole:
                break
        else:
            if heard and text.startswith(heard) and not has_speech(text[len(heard) :]):
                return text, ""
        spoken = heard.rstrip()
        return spoken, refused + text[position:] if refused else text.removeprefix(spoken)

    @property
    def words(self) -> list[Word]:
        """The words that were played, as far as they have begun."""
        return WordReader(self).take()

    def take_marks(self) -> list[tuple[str, float]]:
        """The marks that were reached since the last time, each with its place in the audio, ms."""
        taken: list[tuple[str, float]] = []
        for span in self.spans:
            places = _offsets_ms(span, [share for share, _ in span.marks])
            for at_ms in places:
                if span.start_ms + at_ms > self.played_ms + _ROUNDING_MS:
                    return taken
                taken.append((span.marks.pop(0)[1], span.start_ms + at_ms))
        return taken


class WordReader:
    """Gives each word of an utterance once, when its sound has begun."""

    def __init__(self, utterance: Utterance) -> None:
        self._utterance = utterance
        self._num_spans = self._num_chars = self._num_words = 0
        """Spans that were read whole, the characters in them, and the words that were given of the next one."""

    def take(self) -> list[Word]:
        """The words that have begun since the last time."""
        found: list[Word] = []
        played_ms = self._utterance.played_ms
        for span in self._utterance.spans[self._num_spans :]:
            words = _words_of(span, self._num_chars)[self._num_words :]
            begun = [word for word in words if word.start_ms < played_ms]
            found += begun
            if span.end_ms is None or played_ms < span.end_ms - _ROUNDING_MS:
                self._num_words += len(begun)
                break
            self._num_spans, self._num_chars, self._num_words = (
                self._num_spans + 1,
                self._num_chars + len(span.source),
                0,
            )
        return found


def _share(span: SpokenSpan, played_ms: float) -> str:
    """The part of a span that was heard, in whole words; a word that was cut off does not count."""
    source, heard_ms = span.source, played_ms - span.start_ms
    cut = _heard_by_words(span, heard_ms) if span.words else _heard_by_pace(span, heard_ms)
    while 0 < cut < len(source) and _are_one_word(source[cut - 1], source[cut]):
        cut -= 1
    return source[:cut]


def _words_of(span: SpokenSpan, num_chars: int) -> list[Word]:
    """The words of a span, ``num_chars`` characters into the text; none of those that hold nothing to say."""
    if span.is_refused:
        return []
    source = span.source
    found = [match.span() for match in _WORD.finditer(source) if has_speech(match.group())]
    *starts_ms, end_ms = _offsets_ms(span, [*(start / len(source) for start, _ in found), 1.0])
    return [
        Word(
            source[start:end],
            num_chars + start,
            num_chars + end,
            round(span.start_ms + start_ms),
            round(span.start_ms + (next_ms if start_ms < next_ms < math.inf else start_ms)),
            "engine" if span.words else "estimated",
        )
        for (start, end), start_ms, next_ms in zip(found, starts_ms, [*starts_ms, end_ms][1:], strict=True)
        if start_ms < math.inf
    ]


def _offsets_ms(span: SpokenSpan, shares: Sequence[float]) -> list[float]:
    """When the places at ``shares`` of a span's text are spoken, ms from its start; infinite where that is not known yet."""
    if not shares:
        return []
    length_ms = math.inf if span.end_ms is None else span.end_ms - span.start_ms
    if span.words:
        return [_reported_ms(span, share, length_ms) for share in shares]
    ends_s = [0.0, *_paces(span)]
    stretch = 1000.0 if math.isinf(length_ms) else length_ms / max(ends_s[-1], _ROUNDING_S)
    return [ends_s[round(share * len(span.source))] * stretch for share in shares]


def _reported_ms(span: SpokenSpan, share: float, length_ms: float) -> float:
    """When the word begins that is nearest to a place."""
    if share >= 1.0 or (math.isinf(length_ms) and share > span.words[-1][1]):
        return length_ms
    return min(span.words, key=lambda word: abs(word[1] - share))[0]


def _paces(span: SpokenSpan) -> list[float]:
    """Seconds up to the end of each character, at the usual pace of the words that are said for it."""
    paces = span.paces
    if sum(num_chars for num_chars, _, _ in paces) != len(span.source):
        paces = tuple((1, spoken_s(each), False) for each in span.source)
    seconds, ends = 0.0, list[float]()
    for num_chars, length_s, _ in paces:
        ends += (seconds + length_s * each / num_chars for each in range(1, num_chars + 1))
        seconds += length_s
    return ends


def _heard_by_words(span: SpokenSpan, heard_ms: float) -> int:
    """Characters of a span whose words the engine has timed."""
    begun = [share for offset_ms, share in span.words if offset_ms <= heard_ms]
    return round(len(span.source) * min(1.0, begun[-1])) if begun else 0


def _heard_by_pace(span: SpokenSpan, heard_ms: float) -> int:
    """Characters by the usual pace of their script, stretched to the length of the audio where that is known."""
    ends_s = _paces(span)
    heard_s = heard_ms / 1000
    if span.end_ms is not None and ends_s:
        heard_s = ends_s[-1] * heard_ms / max(span.end_ms - span.start_ms, 1.0)
    cut = bisect_right(ends_s, heard_s + _ROUNDING_S)
    start = 0
    for num_chars, _, is_whole in span.paces:
        if is_whole and start < cut < start + num_chars:
            return start
        start += num_chars
    return cut


def _are_one_word(character: str, following: str) -> bool:
    return not any(each.isspace() or is_unspaced(each) for each in (character, following))


def policy_of(*wishes: BargeInBySpeech | None) -> SpeechBargeIn | None:
    """The nearest wish, first of all that is not ``None``; ``None``: speech interrupts nothing."""
    wish = next((each for each in wishes if each is not None), False)
    return SpeechBargeIn() if wish is True else wish or None
