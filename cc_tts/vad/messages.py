"""Messages between the server process and the VAD process. Instants are CLOCK_MONOTONIC, ns.

::

    server ──▸ Listen · Classify · LegFrames · Ignore ──▸ VAD process
    server ◂── SpeechEdge · AnswerFound ◂── VAD process
"""

from typing import Final

import msgspec

from cc_tts.config.schema import VadConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.processes.channel import Message
from cc_tts.vad.answering.settings import Amd, Finding
from cc_tts.vad.speech import Edge, Listening


class VadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Written to the child's standard input as JSON."""

    log: LogConfig
    vad: VadConfig
    rate_hz: int
    """The sample rate of the audio of every leg."""


class Listen(Message, frozen=True):
    """Listen to a leg from now on, or with other settings."""

    leg: str
    listening: Listening


class Ignore(Message, frozen=True):
    """Stop listening to a leg."""

    leg: str


class Classify(Message, frozen=True):
    """Start machine detection on a leg. Its audio counts from ``origin_ns`` on: the answer, or the INVITE before it."""

    leg: str
    settings: Amd
    origin_ns: int
    is_answered: bool


class LegFrames(Message, frozen=True):
    """Audio of a leg (the payload) from ``at_ns`` on, received or sent."""

    leg: str
    is_sent: bool
    at_ns: int


class SpeechEdge(Message, frozen=True):
    """The caller of a leg began to speak, still speaks, or stopped."""

    leg: str
    edge: Edge


class AnswerFound(Message, frozen=True):
    """The VAD process has found something about who answers a leg."""

    leg: str
    finding: Finding


TO_VAD: Final[tuple[type[Message], ...]] = (Listen, Classify, Ignore, LegFrames)
FROM_VAD: Final[tuple[type[Message], ...]] = (SpeechEdge, AnswerFound)
