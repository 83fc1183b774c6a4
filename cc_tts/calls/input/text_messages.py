"""The messages of a text stream to its client, one struct a type. ``type`` is the name that clients see."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cc_tts.calls.events.types import ClientState, Milliseconds
from cc_tts.calls.prompts.utterance import CompletionCause, Interrupter
from cc_tts.processes.channel import kinds_of

StreamId = Annotated[int, Meta(ge=-(2**53), le=2**53)] | Annotated[str, Meta(max_length=128)]
"""The client's own id of one message."""
TokensStatus = Literal["ok", "full", "interrupted"]


class StreamMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The base of all messages."""


class TokensResult(StreamMessage, frozen=True, kw_only=True, tag="tokens.result"):
    """The answer to the text of one message. ``full``: it was not taken and is to be sent again after ``resumed``.
    ``interrupted``: it was not taken, since it continues an utterance that was interrupted. ``ok`` comes for an ``id``
    only, and only for the first one and for the first after another status.
    """

    id: StreamId | UnsetType = UNSET
    status: TokensStatus
    buffered_chars: Annotated[int, Meta(description="Text of this stream that is not being spoken yet.")]


class Paused(StreamMessage, frozen=True, kw_only=True, tag="paused"):
    """Enough text waits: one message more is taken."""


class Resumed(StreamMessage, frozen=True, kw_only=True, tag="resumed"):
    """Text is taken again."""


class UtteranceMessage(StreamMessage, frozen=True, kw_only=True):
    """Base of what is said about an utterance."""

    utterance_id: str
    client_state: ClientState = UNSET


class StreamSpeakStarted(UtteranceMessage, frozen=True, kw_only=True, tag="speak.started"):
    """The first frame that carries speech was sent."""

    time_to_first_audio_ms: Annotated[
        Milliseconds | None, Meta(description="From the text that completed the first clause, or from its turn.")
    ]
    time_from_first_token_ms: Milliseconds


class StreamWord(msgspec.Struct, frozen=True, kw_only=True):
    """A word that is being heard, and its place in the audio of the utterance."""

    text: str
    start_ms: int
    end_ms: int


class Words(UtteranceMessage, frozen=True, kw_only=True, tag="words"):
    """Words whose sound has begun; only with ``?words=true``."""

    words: list[StreamWord]


class MarkReached(UtteranceMessage, frozen=True, kw_only=True, tag="mark"):
    """The line has come to a mark."""

    name: str
    played_ms: Milliseconds


class StreamSpeakRefused(UtteranceMessage, frozen=True, kw_only=True, tag="speak.refused"):
    """Words that are not heard, since no voice speaks them; they stand in ``pending_text`` at the end too. The rest is
    spoken.
    """

    error: str
    detail: str
    text: str


class StreamSpeakInterrupted(UtteranceMessage, frozen=True, kw_only=True, tag="speak.interrupted"):
    """The utterance is over before its end; ``spoken_text`` and ``pending_text`` are the text that was sent."""

    by: Interrupter | Literal["call_ended"]
    spoken_text: str
    played_ms: Milliseconds
    pending_text: str


class StreamSpeakComplete(UtteranceMessage, frozen=True, kw_only=True, tag="speak.complete"):
    """The utterance is over: heard to its end, or broken off by an ``error``, with the text that was not heard."""

    completion_cause: CompletionCause
    played_ms: Milliseconds
    spoken_text: str
    error: str | UnsetType = UNSET
    pending_text: str | UnsetType = UNSET


class StreamError(StreamMessage, frozen=True, kw_only=True, tag="error"):
    """A message could not be followed; ``id`` is that of ``tokens``, whose text was not taken. The stream stays open."""

    code: str
    detail: str
    id: StreamId | UnsetType = UNSET


MESSAGES: Final = kinds_of(StreamMessage)
"""All messages, in the order in which the documents list them."""
