"""The recorder process: ``python -m cc_tts.recorder --channel-fd N``, its settings as JSON on standard input.

The UA process starts it with the first recording, sends it the frames, and must not wait for a disk. So it outlives a
server, and where the UA process dies it completes its files. While the disk does not keep up nothing is read from the
channel, and the UA process leaves out frames.

Threads: this one writes; a few complete files, since the last write waits for the disk.
"""

import contextlib
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from cc_tts import logs
from cc_tts.errors import ProcessFailed
from cc_tts.processes import child
from cc_tts.processes.channel import ChildChannel, Message
from cc_tts.recorder.info import Ending, FileState, RecordingPlan
from cc_tts.recorder.messages import (
    TO_RECORDER,
    CloseRecording,
    OpenRecording,
    RecordedFrames,
    RecorderSettings,
    RecordingClosed,
    RecordingOpened,
)
from cc_tts.recorder.writer import RecordingFile, failure_of

NICE: Final = 5
"""The priority is below that of processes whose delays callers hear (unmeasured)."""
NUM_FINISHERS: Final = 4
"""The most files that wait for the disk at the same time (unmeasured)."""

log = logs.get("cc_tts.recorder")


def main() -> int:
    """Run until the UA process is gone; returns the exit status."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a service manager's: this process ends after the calls do
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    channel, _ = child.begin("recorder", RecorderSettings, TO_RECORDER)
    recorder = Recorder(channel)
    log.info("recorder_ready", pid=os.getpid())
    try:
        child.read(channel, recorder.take)
    finally:
        recorder.close("user_agent_died")
        channel.close()
    return 0


class Recorder:
    """All recordings of a UA process."""

    def __init__(self, channel: ChildChannel) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._files: dict[str, RecordingFile] = {}
        self._finishers = ThreadPoolExecutor(NUM_FINISHERS, "finisher")

    def take(self, message: Message, payload: bytes) -> None:
        """Carry out a command of the UA process. Frames of a recording that is over are ignored."""
        match message:
            case RecordedFrames(recording_id=recording_id, num_lost=num_lost):
                if (file := self._files.get(recording_id)) is not None:
                    self._write(recording_id, file, payload, num_lost)
            case OpenRecording(plan=plan):
                self._open(plan)
            case CloseRecording(recording_id=recording_id, reason=reason):
                self._finish(recording_id, reason)

    def close(self, reason: Ending) -> None:
        for recording_id in tuple(self._files):
            self._finish(recording_id, reason)
        self._finishers.shutdown()

    def _open(self, plan: RecordingPlan) -> None:
        info = plan.info
        try:
            self._files[info.recording_id] = RecordingFile(plan)
        except OSError as error:
            log.error("recording_failed", recording_id=info.recording_id, detail=str(error))
            self._send(RecordingClosed(msgspec.structs.replace(info, state="failed", reason=failure_of(error))))
        else:
            self._send(RecordingOpened(info.recording_id))

    def _write(self, recording_id: str, file: RecordingFile, pcm: bytes, num_lost: int) -> None:
        try:
            ending = file.take(pcm, num_lost)
        except OSError as error:
            log.error("recording_failed", recording_id=recording_id, detail=str(error))
            self._finish(recording_id, failure_of(error), "failed")
        else:
            if ending is not None:
                self._finish(recording_id, ending)

    def _finish(self, recording_id: str, reason: Ending, state: FileState = "saved") -> None:
        if (file := self._files.pop(recording_id, None)) is not None:
            self._finishers.submit(lambda: self._send(RecordingClosed(file.finish(reason, state))))

    def _send(self, message: Message) -> None:
        with self._sending, contextlib.suppress(ProcessFailed):  # the files say the same
            self._channel.send(message)


if __name__ == "__main__":
    sys.exit(main())
