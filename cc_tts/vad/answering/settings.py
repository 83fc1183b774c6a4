"""The settings of machine detection, and its findings.

Names, defaults and meanings are those of Asterisk's AMD (app_amd, ``amd.conf``), with ``_ms`` for times. ``long_greeting``,
``greeting_end_silence_ms`` and ``greeting_timeout_ms`` are ours.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

AmdResult = Literal["human", "machine", "fax", "ivr", "unavailable", "silence", "unknown"]
AmdCause = Literal[
    "short_greeting",
    "greeting_ended",
    "long_greeting",
    "many_words",
    "long_word",
    "beep",
    "initial_silence",
    "fax_tone",
    "music",
    "ringback",
    "busy",
    "information_tone",
    "total_analysis",
    "not_heard",
    "call_ended",
    "server_restarted",
]
GreetingEnd = Literal["beep", "silence", "timeout"]
EarlySound = Literal["ringback", "busy", "information_tone", "announcement", "music"]


class Amd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of machine detection."""

    initial_silence_ms: Annotated[
        int, Meta(ge=100, le=20_000, description="Silence of this length after the answer gives the result silence.")
    ] = 2500
    greeting_ms: Annotated[
        int, Meta(ge=100, le=20_000, description="A greeting that is longer is a long one: see long_greeting.")
    ] = 1500
    after_greeting_silence_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=10_000,
            description="Silence of this length after a short greeting gives human. With listen it is longer after a "
            "greeting of more than 600 ms.",
        ),
    ] = 800
    total_analysis_ms: Annotated[
        int,
        Meta(ge=500, le=30_000, description="The longest that is listened, from the first word on, for a result."),
    ] = 5000
    min_word_length_ms: Annotated[int, Meta(ge=20, le=1000, description="Shorter sounds are no words.")] = 100
    between_words_silence_ms: Annotated[
        int, Meta(ge=20, le=1000, description="Silence of this length ends a word.")
    ] = 50
    maximum_number_of_words: Annotated[
        int, Meta(ge=1, le=100, description="A greeting of more words is a long one.")
    ] = 3
    maximum_word_length_ms: Annotated[
        int, Meta(ge=100, le=20_000, description="A word that is longer gives machine.")
    ] = 5000
    silence_threshold: Annotated[
        int, Meta(ge=1, le=32_767, description="Below this mean amplitude, of 32767, all is silence.")
    ] = 256
    long_greeting: Annotated[
        Literal["listen", "machine"],
        Meta(
            description="listen: a long greeting is a person's if silence follows it within total_analysis_ms, and a "
            "machine's if it goes on or a beep comes; machine: it is a machine's at once, as Asterisk has it."
        ),
    ] = "listen"
    greeting_end_silence_ms: Annotated[
        int, Meta(ge=500, le=20_000, description="Silence of this length ends a machine's greeting without a beep.")
    ] = 2500
    greeting_timeout_ms: Annotated[
        int, Meta(ge=1000, le=180_000, description="A machine's greeting is listened to for this long at most.")
    ] = 60_000

    @property
    def longest_ms(self) -> int:
        """The longest time from the answer to a result."""
        return self.initial_silence_ms + self.total_analysis_ms + TONES_MS


TONES_MS = 5000
"""The extra time for a tone that has begun and may be repeated: a fax calls every 3.5 s (ITU-T T.30 §5.1)."""


class _Finding(msgspec.Struct, frozen=True, tag=True):
    """``at_ms``: since the answer, by the audio; 0 before it."""

    at_ms: float


class Answered(_Finding, frozen=True, kw_only=True):
    """The result. ``greeting_ms``: from the first word to the end of the last one so far."""

    result: AmdResult
    cause: AmdCause
    words: int = 0
    greeting_ms: float = 0.0


class GreetingEnded(_Finding, frozen=True, kw_only=True):
    """The greeting of a machine is over."""

    by: GreetingEnd


class EarlyMedia(_Finding, frozen=True, kw_only=True):
    """A sound of the network before the answer."""

    sound: EarlySound


Finding = Answered | GreetingEnded | EarlyMedia
