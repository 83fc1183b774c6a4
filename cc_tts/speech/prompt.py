"""A prompt: a request to speak or to play something on a call."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

import msgspec

from cc_tts.config.schema import BargeInBySpeech
from cc_tts.speech.cache.prompt_files import CachedPrompt
from cc_tts.speech.incremental.audio import IncrementalAudio
from cc_tts.speech.incremental.text import IncrementalText
from cc_tts.text.chunker import LOOK_BACK_CHARS
from cc_tts.text.markup.unspoken import AT_BEGINNING, MarkupState, scan, state_of_whole
from cc_tts.text.pronunciation.replacements import Replacement

Then = Literal["stay", "hangup"]
Queueing = Literal["append", "replace"]
FOREVER: Final = sys.maxsize
"""A prompt with this many repetitions is heard until it is stopped."""
NO_DISCLOSURE: Final = "off"
"""A route with this value has no disclosure, whatever the configuration says for other calls."""
STAGED_PREFIX: Final = "prompt:"
"""The prefix of the id of a staged prompt, as in ``play=`` of an RFC 4240 URI."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextContent:
    """Words to be spoken. ``voice``, ``language`` and ``speed`` fall back to the route's, then the config's.

    ``may_cache``: cached audio of the same words may be played, and this audio may be cached. ``strips_markup``: Markdown
    and the like are taken out if ``tts.markdown`` says so. ``rate`` is a factor on the speed and ``gain_db`` on the voice's
    level, minus infinity for silence. What ``voice`` does not speak of it is spoken by another voice, unless it
    ``is_of_one_voice``; ``context_language`` is that of the words before it, for words that tell none. ``marks`` are places
    in the text, as offsets, with their names. ``lexicons`` are asked before those of its voice and of the config. Numbers
    are read by what is said ``before`` it; ``markup`` is in what it goes on. ``is_made_ahead``: its audio is made before it
    is heard, so that a voice may be slower than speech. ``instructions`` tell in words how it is spoken; they are never
    said, and voices that take none ignore them.
    """

    text: str
    voice: str | None = None
    language: str | None = None
    speed: float | None = None
    may_cache: bool = True
    strips_markup: bool = True
    rate: float = 1.0
    gain_db: float = 0.0
    context_language: str | None = None
    is_of_one_voice: bool = False
    replacements: tuple[Replacement, ...] = ()
    marks: tuple[tuple[int, str], ...] = ()
    lexicons: tuple[str, ...] = ()
    before: str = ""
    markup: MarkupState = AT_BEGINNING
    is_made_ahead: bool = False
    instructions: str | None = None

    @property
    def markup_at_start(self) -> MarkupState:
        return state_of_whole(self.text) if self.markup == AT_BEGINNING else self.markup

    def between(self, start: int, end: int) -> "TextContent":
        """Return a part of it. No replacement may cross its edges; a mark at its end belongs to the next part, if there is
        one.
        """
        is_last = end == len(self.text)
        begun = self.text[:start]
        replacements = (
            each
            for each in self.replacements
            if start <= each.start < end or (is_last and each.start == each.end == end)
        )
        return replace(
            self,
            text=self.text[start:end],
            before=(self.before + begun)[-LOOK_BACK_CHARS:],
            markup=scan(begun, self.markup_at_start).state if start else self.markup,
            replacements=tuple(
                msgspec.structs.replace(each, start=each.start - start, end=each.end - start) for each in replacements
            ),
            marks=tuple((at - start, name) for at, name in self.marks if start <= at < end or (is_last and at >= end)),
        )


@dataclass(frozen=True, slots=True)
class RefusedContent:
    """Words that no voice speaks, and the reason as a sentence."""

    text: str
    detail: str
    marks: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ToneContent:
    """A tone by name or specification (see ``media/tones``), at most ``duration_ms`` long; ``None``: once through."""

    tone: str
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SilenceContent:
    silence_ms: int


@dataclass(frozen=True, slots=True)
class MarkContent:
    """A named place between two parts."""

    name: str


Part = TextContent | RefusedContent | ToneContent | SilenceContent | MarkContent


@dataclass(frozen=True, slots=True)
class SsmlWarning:
    """An element or attribute of an SSML document that has no effect, and its line."""

    pointer: str
    line: int
    detail: str


@dataclass(frozen=True, slots=True)
class SequenceContent:
    """Parts that follow each other, from SSML. Between two text parts there is the pause of their punctuation; a silence
    part is exactly as long as it says.
    """

    parts: tuple[Part, ...]
    warnings: tuple[SsmlWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class IncrementalContent:
    """Words that arrive while they are spoken, in the style of ``words``, whose own text is empty."""

    words: TextContent
    incremental: IncrementalText


@dataclass(frozen=True, slots=True)
class AudioContent:
    """A client's audio that arrives while it is played."""

    incremental: IncrementalAudio


@dataclass(frozen=True, slots=True)
class StagedContent:
    """The prompt that is staged under this id (:mod:`cc_tts.speech.staged.prompts`), ``gain_db`` louder. When a call accepts
    it, it is replaced by its words or audio.
    """

    prompt_id: str
    gain_db: float = 0.0


Download = Callable[[], Awaitable[CachedPrompt]]
"""Waits for a file; raises a ``CcTtsError`` if it does not come or cannot be used."""


@dataclass(frozen=True, slots=True)
class UrlContent:
    """The audio file at a URL (:mod:`cc_tts.speech.staged.urls`), ``gain_db`` louder. It gets its download when a call
    accepts it.
    """

    url: str = field(repr=False)
    gain_db: float = 0.0
    download: Download | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReadyContent:
    """Complete audio at the rate of the line, with its words as far as they are known."""

    audio: CachedPrompt
    text: str = ""
    gain_db: float = 0.0


Content = (
    TextContent
    | ToneContent
    | SilenceContent
    | SequenceContent
    | IncrementalContent
    | AudioContent
    | StagedContent
    | UrlContent
    | ReadyContent
)


def texts_of(content: Content) -> tuple[TextContent, ...]:
    """Return the parts of a content that are words, in order."""
    match content:
        case SequenceContent(parts):
            return tuple(each for each in parts if isinstance(each, TextContent))
        case IncrementalContent(words, incremental):
            return (replace(words, text=incremental.text),)
    return (content,) if isinstance(content, TextContent) else ()


def text_of(content: Content) -> str:
    """Return all the words of a content, without the marks and pauses of SSML."""
    if isinstance(content, ReadyContent):
        return content.text
    return "".join(each.text for each in texts_of(content))


def without_text(content: Content) -> Content:
    """Return the content of a completed prompt: its kind, without words, audio and URL."""
    if isinstance(content, ReadyContent):
        return ReadyContent(CachedPrompt(()))
    if isinstance(content, UrlContent):
        return UrlContent("")
    content = content.words if isinstance(content, IncrementalContent) else content
    return with_texts(content, lambda text: replace(text, text="", replacements=()))


def with_texts(content: Content, change: Callable[[TextContent], TextContent]) -> Content:
    """Return the content with all text parts replaced."""
    match content:
        case TextContent():
            return change(content)
        case SequenceContent(parts):
            changed = (change(each) if isinstance(each, TextContent) else each for each in parts)
            return replace(content, parts=tuple(changed))
        case IncrementalContent(words):
            return replace(content, words=change(words))
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Text to speak or a sound to play, and its place in the call's queue.

    ``barge_in_dtmf`` and ``barge_in_speech`` ``None`` mean the config's default. ``repeat``/``delay_ms``/
    ``max_duration_ms`` are those of RFC 4240 §3 (how often in all, silence between repeats, ceiling of the whole).
    ``unattended``: the prompt came with the INVITE and nobody may be there to end the call, so ``then`` also follows an
    interruption. ``client_state`` is the client's own, for the events of this prompt.
    """

    content: Content
    queue: Queueing = "append"
    utterance_id: str | None = None
    barge_in_dtmf: bool | None = None
    barge_in_speech: BargeInBySpeech | None = None
    then: Then = "stay"
    repeat: int = 1
    delay_ms: int = 0
    max_duration_ms: int | None = None
    unattended: bool = False
    client_state: str | None = None


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Words that tell the caller that a machine speaks, in the call's voice: ``text``, or the prompt ``prompt_id``."""

    text: str = ""
    prompt_id: str = ""

    @classmethod
    def of(cls, *keys: str) -> Self | None:
        """Return the disclosure in the first value that is not empty: words, ``prompt:ID``, or ``off``."""
        value = next(filter(None, keys), NO_DISCLOSURE)
        if value == NO_DISCLOSURE:
            return None
        prompt_id = value.removeprefix(STAGED_PREFIX)
        return cls(value) if prompt_id == value else cls(prompt_id=prompt_id)

    @property
    def content(self) -> Content:
        return StagedContent(self.prompt_id) if self.prompt_id else TextContent(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptDefaults:
    """The defaults of a call's prompts; ``None`` means the configuration's. ``lexicons`` come after the prompt's own."""

    voice: str | None = None
    language: str | None = None
    speed: float | None = None
    instructions: str | None = None
    lexicons: tuple[str, ...] = ()
    barge_in_dtmf: bool | None = None
    barge_in_speech: BargeInBySpeech | None = None

    def applied_to(self, prompt: Prompt) -> Prompt:
        if self == PromptDefaults():
            return prompt
        return replace(
            prompt,
            content=with_texts(prompt.content, self._filled),
            barge_in_dtmf=self.barge_in_dtmf if prompt.barge_in_dtmf is None else prompt.barge_in_dtmf,
            barge_in_speech=self.barge_in_speech if prompt.barge_in_speech is None else prompt.barge_in_speech,
        )

    def _filled(self, text: TextContent) -> TextContent:
        return replace(
            text,
            voice=self.voice if text.voice is None else text.voice,
            language=self.language if text.language is None else text.language,
            speed=self.speed if text.speed is None else text.speed,
            instructions=self.instructions if text.instructions is None else text.instructions,
            lexicons=text.lexicons + self.lexicons,
        )
