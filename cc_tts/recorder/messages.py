"""Messages between the UA process and the recorder process, which it has started.

::

    UA ──▸ OpenRecording · RecordedFrames · CloseRecording ──▸ recorder
    UA ◂── RecordingOpened · RecordingClosed ◂── recorder
"""

from typing import Final

import msgspec

from cc_tts.config.sections.log import LogConfig
from cc_tts.processes.channel import Message
from cc_tts.recorder.info import Ending, RecordingInfo, RecordingPlan


class RecorderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Written to the child's standard input as JSON."""

    log: LogConfig


class OpenRecording(Message, frozen=True):
    """Begin the file of a recording."""

    plan: RecordingPlan


class RecordedFrames(Message, frozen=True):
    """Frames of 20 ms, 16-bit PCM or µ-law as the plan says (the payload: all that were received, then as many that were
    sent), after ``num_lost`` that did not come, which are silence in the file.
    """

    recording_id: str
    num_lost: int = 0


class CloseRecording(Message, frozen=True):
    """Complete the file of a recording."""

    recording_id: str
    reason: Ending


class RecordingOpened(Message, frozen=True):
    """The file has been created."""

    recording_id: str


class RecordingClosed(Message, frozen=True):
    """The file is complete, or could not be written; no more messages about this recording follow."""

    info: RecordingInfo


TO_RECORDER: Final[tuple[type[Message], ...]] = (OpenRecording, RecordedFrames, CloseRecording)
FROM_RECORDER: Final[tuple[type[Message], ...]] = (RecordingOpened, RecordingClosed)
