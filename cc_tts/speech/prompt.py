"""A prompt: something to be spoken or played on a call, as it was asked for."""

from dataclasses import dataclass
from typing import Literal

Then = Literal["stay", "hangup"]
Queueing = Literal["append", "replace"]


@dataclass(frozen=True, slots=True)
class TextContent:
    """Words to be spoken. ``voice``, ``language`` and ``speed`` fall back to the route's, then the config's.

    ``may_cache``: cached audio of the same words may be played, and this audio may be cached.
    """

    text: str
    voice: str | None = None
    language: str | None = None
    speed: float | None = None
    may_cache: bool = True


@dataclass(frozen=True, slots=True)
class ToneContent:
    """A tone by name or specification (see ``media/tones``), at most ``duration_ms`` long."""

    tone: str
    duration_ms: int = 1000


@dataclass(frozen=True, slots=True)
class SilenceContent:
    """Silence."""

    silence_ms: int


Content = TextContent | ToneContent | SilenceContent


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What to speak or play, and how it stands in the call's queue.

    ``barge_in_dtmf`` ``None`` means the config's default. ``repeat``/``delay_ms``/``max_duration_ms`` are those of
    RFC 4240 §3 (how often in all, silence between repeats, ceiling of the whole). ``unattended``: the prompt came with the
    INVITE and nobody may be there to end the call, so ``then`` also follows an interruption.
    """

    content: Content
    queue: Queueing = "append"
    utterance_id: str | None = None
    barge_in_dtmf: bool | None = None
    then: Then = "stay"
    repeat: int = 1
    delay_ms: int = 0
    max_duration_ms: int | None = None
    unattended: bool = False
