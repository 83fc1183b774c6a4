"""Messages between the server process and the MRCP process.

::

    OpenSpeech · StartSpeech · JumpSpeech · SpeechProgress · CloseSpeech ──▸ server ──▸ Taken · SpeechJumped ·
    DefineLexicon · Sessions                                              ──▸        ──▸ SpeechAudio · SpeechMark ·
                                                                                        SpeechOver · Renew · Accept

A speech begins with ``OpenSpeech``, whose payload is the text, and ends with ``CloseSpeech``, whatever came before. The
MRCP process numbers speeches and lexicons in one sequence.
"""

from typing import Final, Literal

import msgspec

from cc_tts.config.schema import SipConfig, TlsConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.mrcp import MrcpConfig
from cc_tts.processes.channel import Message

Unit = Literal["second", "word", "sentence", "paragraph"]
Markup = Literal["text", "ssml"]
MAX_LEXICONS: Final = 16  # unmeasured
"""The most lexicons in a session: the MRCP process refuses more, and so does the server."""


class MrcpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Written to the child's standard input as JSON."""

    log: LogConfig
    sip: SipConfig
    tls: TlsConfig
    mrcp: MrcpConfig
    start_threshold_ms: int = 40
    """The audio that must have arrived before a speech begins (``playout.start_threshold_min_ms``)."""


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How a client wants a text to be spoken; empty or ``None`` where it has no wish."""

    voices: tuple[str, ...] = ()
    """Names, in order of preference."""
    gender: Literal["", "female", "male"] = ""
    language: str = ""
    rate: float | None = None
    gain_db: float | None = None


class OpenSpeech(Message, frozen=True):
    """A SPEAK request has arrived. ``max_ms``: the most audio that is wanted; ``lexicons``: those of the session."""

    speech_id: int
    mrcp_call_id: str
    markup: Markup
    style: Style
    rate_hz: int
    max_ms: int | None = None
    lexicons: tuple[str, ...] = ()
    charset: str = "utf-8-sig"


class StartSpeech(Message, frozen=True):
    """Start this speech: it is next in its session."""

    speech_id: int


class JumpSpeech(Message, frozen=True):
    """Continue from another place, or in another style: ``count`` units from the played position. The audio that was sent so
    far is discarded.
    """

    speech_id: int
    played_ms: float
    count: int
    unit: Unit
    style: Style


class SpeechProgress(Message, frozen=True):
    """How much of its audio was played, and how much waits."""

    speech_id: int
    played_ms: float
    buffered_ms: float


class CloseSpeech(Message, frozen=True):
    """The speech is over: no more audio is needed."""

    speech_id: int
    played_ms: float
    reason: str


class DefineLexicon(Message, frozen=True):
    """A client defines a lexicon (the payload) for its session."""

    number: int
    mrcp_call_id: str
    name: str


class Sessions(Message, frozen=True):
    """The current number of sessions. ``over`` has ended just now, and its lexicons with it; empty if one has begun."""

    num: int
    over: str = ""


class AboutOne(Message, frozen=True):
    """About one speech or lexicon, by its number."""

    number: int


class Taken(AboutOne, frozen=True):
    """Whether the text can be spoken, or the lexicon is valid: ``code`` is empty if so, else that of an error."""

    code: str = ""
    detail: str = ""


class SpeechJumped(AboutOne, frozen=True):
    """The following audio begins at another place. ``restarts``: it begins at the beginning, since an earlier place was
    wanted. ``code`` is empty, or that of an error, after which the text continues as before.
    """

    at_ms: float
    restarts: bool
    code: str = ""
    detail: str = ""


class SpeechAudio(AboutOne, frozen=True):
    """The next audio of a speech (the payload)."""


class SpeechMark(AboutOne, frozen=True):
    """A mark in the text was reached."""

    name: str


class SpeechOver(AboutOne, frozen=True):
    """No more audio will come; ``code`` is empty if all was sent, else that of an error."""

    code: str = ""
    detail: str = ""


class Renew(Message, frozen=True):
    """The configuration was read again: who may connect, and TLS for new connections."""

    allowed_peers: tuple[str, ...]
    tls: TlsConfig


class Accept(Message, frozen=True):
    """Whether new sessions are accepted."""

    accepting: bool


FROM_MRCP: Final[tuple[type[Message], ...]] = (
    OpenSpeech, StartSpeech, JumpSpeech, SpeechProgress, CloseSpeech, DefineLexicon, Sessions,
)  # fmt: skip
TO_MRCP: Final[tuple[type[Message], ...]] = (
    Taken, SpeechJumped, SpeechAudio, SpeechMark, SpeechOver, Renew, Accept,
)  # fmt: skip
