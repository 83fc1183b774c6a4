"""These messages cross the boundary between the server process and an engine worker.

::

    server ──▸ StreamRequest · PushText · EndText · CancelStream · PlaybackProgress · RefreshVoices ──▸ worker
    server ◂── EngineDescription · SpeechChunk · StreamEnded · StreamFailed · EngineLoad ◂── worker

The same messages go to workers on other machines. So none of them has an instant in it, only durations. A change that an
older side cannot read raises ``PROTOCOL_VERSION``.
"""

from typing import Final, Literal

import msgspec

from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine_core import StreamCommand
from cc_tts.engines.speech_chunk import WorkerReport
from cc_tts.processes.channel import kinds_of

Purpose = Literal["serve", "say", "check", "load", "measure"]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A worker gets these at its start, as JSON on its standard input: its device, and sections of the configuration, with
    what depends on the machine and the purpose filled in (absolute folders, ``tts.num_threads``). ``tts.models`` has the one
    model that it speaks with.

    ``purpose``: ``serve`` calls; ``say`` one text, for which nothing is measured; or ``check`` what there is, the device and
    the voices, without loading the networks and without speaking. Voices of the CPU also ``load`` for a check, or speak to
    ``measure`` what each costs.
    """

    device: str
    purpose: Purpose = "serve"
    tts: TtsConfig
    log: LogConfig


class PushText(StreamCommand, frozen=True):
    """One more text chunk of a stream."""

    text: str
    text_chunk_index: int


class EndText(StreamCommand, frozen=True):
    """No more text will come."""


class CancelStream(StreamCommand, frozen=True):
    """Free a stream; there is no answer, and the server drops what is still on its way."""


class PlaybackProgress(StreamCommand, frozen=True):
    """The reader has taken this much audio since the start; ``ahead_ms`` of it is not played yet, or unknown (speech without
    a call).
    """

    taken_ms: float
    ahead_ms: float | None = None


class RefreshVoices(StreamCommand, frozen=True):
    """Look for voices that were added or removed; a description follows. It concerns no stream."""

    stream_id: int = 0


class StreamEnded(WorkerReport, frozen=True):
    """All of it was spoken."""

    stream_id: int


class StreamFailed(WorkerReport, frozen=True):
    """The stream broke off or was refused. ``code`` is that of the error (:mod:`cc_tts.errors`). ``is_worker_lost``: the
    engine process behind a worker on another machine has ended.
    """

    stream_id: int
    code: str
    detail: str
    retry_after_s: int | None = None
    is_worker_lost: bool = False


TO_WORKER: Final = kinds_of(StreamCommand)
FROM_WORKER: Final = kinds_of(WorkerReport)
