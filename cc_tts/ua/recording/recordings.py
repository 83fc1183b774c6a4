"""The recordings of a user agent: sends their frames to the recorder process. Runs on: the SIP thread.

The process is started with the first recording. It is a child of this one so that it sees when this one dies, and so that
another server may adopt both.
"""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.config.sections.log import LogConfig
from cc_tts.errors import ProcessFailed
from cc_tts.media import g711
from cc_tts.processes.channel import ChildChannel, Message
from cc_tts.recorder.info import Ending, RecordingPlan
from cc_tts.recorder.messages import (
    FROM_RECORDER,
    CloseRecording,
    OpenRecording,
    RecordedFrames,
    RecorderSettings,
    RecordingClosed,
    RecordingOpened,
)
from cc_tts.ua import messages
from cc_tts.ua.recording.tap import RecordingTap

PHASES: Final = 100
"""The frames of each recording are sent in one of this many ticks, so that 400 recordings do not delay the media clock. Two
seconds are sent at once, which costs less than many small messages; if this process is killed, no more of a recording is
lost.
"""
MAX_BACKLOG_BYTES: Final = 24 << 20
"""The frames that the recorder has not read yet, two seconds of 400 calls; beyond this, frames are dropped (unmeasured)."""
LAST_FRAMES_TIMEOUT_S: Final = 1.0
"""The time that the last frames may take when this process ends (unmeasured)."""

log = logs.get(__name__)


Record = Callable[[RecordingTap | None], None]
"""Sends all frames of a call from the next one on to a tap; ``None`` ends this."""


@dataclass(slots=True)
class _Recording:
    recording_id: str
    record: Record
    tap: RecordingTap
    is_encoded: bool
    num_lost: int = 0


class LegRecordings:
    """All recordings, at most one for each call."""

    def __init__(self, audio_format: AudioFormat, log_config: LogConfig, send: Callable[[Message], None]) -> None:
        self._format = audio_format
        self._log_config = log_config
        self._send = send
        self._by_call: dict[str, _Recording] = {}
        self._open: set[str] = set()  # ids of which the recorder has not said that they are over
        self._phases: list[dict[str, _Recording]] = [{} for _ in range(PHASES)]
        self._num_ticks = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: ChildChannel | None = None

    def command(self, message: messages.CallCommand, record: Record | None) -> None:
        """Carry out a command of the server; ``record`` is the call's, ``None`` if the call is over."""
        match message:
            case messages.StartRecording(plan=plan) if record is None:
                info = msgspec.structs.replace(plan.info, state="failed", reason="call_ended")
                self._send(messages.RecordingOver(info))
            case messages.StartRecording(call_id=call_id, plan=plan) if record is not None:
                self._start(call_id, record, plan, is_paused=message.is_paused)
            case messages.SetRecordingPaused(call_id=call_id) if call_id in self._by_call:
                tap = self._by_call[call_id].tap
                tap.set_paused(paused=message.paused, skips=message.skips, delay_ms=message.delay_ms)
            case messages.StopRecording(call_id=call_id, reason=reason):
                self.stop(call_id, reason)

    def _start(self, call_id: str, record: Record, plan: RecordingPlan, *, is_paused: bool) -> None:
        self.stop(call_id, "stopped")  # a recording of an earlier server that ended before it heard of it
        recording_id = plan.info.recording_id
        self._open.add(recording_id)
        try:
            if self._channel is None:
                self._spawn()
            self._put(OpenRecording(plan))
        except (OSError, ProcessFailed) as error:
            log.error("recorder_does_not_start", detail=str(error))
            self._lose()
            return
        tap = RecordingTap(self._format, beeps=plan.beep)
        if is_paused:
            tap.set_paused(paused=True, skips=False)
        recording = self._by_call[call_id] = _Recording(recording_id, record, tap, plan.comes_encoded)
        min(self._phases, key=len)[call_id] = recording
        record(tap)

    def stop(self, call_id: str, reason: Ending) -> None:
        if (recording := self._by_call.get(call_id)) is None:
            return
        with contextlib.suppress(ProcessFailed):  # poll() notices
            self._forward(recording, is_last=True)
            if recording.num_lost:
                self._put(RecordedFrames(recording.recording_id, recording.num_lost))
            self._put(CloseRecording(recording.recording_id, reason))
        self._forget(call_id)

    def tick(self) -> None:
        """Send the frames of the recordings whose turn it is, and handle the recorder's messages. Every 20 ms."""
        self._num_ticks += 1
        if self._channel is None:
            return
        try:
            for recording in self._phases[self._num_ticks % PHASES].values():
                self._forward(recording)
            for message, _ in self._channel.poll():
                self._take(message)
        except ProcessFailed as error:
            log.error("recorder_lost", detail=error.detail)
            self._lose()

    def flush(self) -> None:
        """Send as much as the recorder takes now. Called as often as possible, since its socket holds less than 20 ms of 400
        calls.
        """
        if self._channel is not None and self._channel.has_backlog:
            try:
                self._channel.flush()
            except ProcessFailed as error:
                log.error("recorder_lost", detail=error.detail)
                self._lose()

    def close(self) -> None:
        """Wait until the recorder has the last frames. All calls have ended, and this process is about to."""
        if self._channel is not None:
            with contextlib.suppress(ProcessFailed, OSError):
                self._channel.drain(LAST_FRAMES_TIMEOUT_S)

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            argv = (sys.executable, "-m", "cc_tts.recorder", "--channel-fd", str(theirs.fileno()))
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=(theirs.fileno(),))  # noqa: S603 - our own
        assert process.stdin is not None
        with process.stdin:
            process.stdin.write(msgspec.json.encode(RecorderSettings(log=self._log_config)))
        self._process, self._channel = process, ChildChannel(ours, FROM_RECORDER)

    def _put(self, message: Message, payload: bytes = b"") -> None:
        assert self._channel is not None
        self._channel.put(message, payload)

    def _forward(self, recording: _Recording, *, is_last: bool = False) -> None:
        assert self._channel is not None
        for received, sent, num_lost_after in recording.tap.take(is_last=is_last):
            if self._channel.backlog_bytes > MAX_BACKLOG_BYTES:
                recording.num_lost += len(received) // self._format.frame_bytes
            elif received:
                frames = g711.ulaw_encode(received + sent) if recording.is_encoded else received + sent
                self._put(RecordedFrames(recording.recording_id, recording.num_lost), frames)
                recording.num_lost = 0
            recording.num_lost += num_lost_after

    def _take(self, message: Message) -> None:
        match message:
            case RecordingOpened(recording_id=recording_id):
                self._send(messages.RecordingStarted(recording_id))
            case RecordingClosed(info=info):
                self._open.discard(info.recording_id)
                if (known := self._by_call.get(info.call_id)) is not None and known.recording_id == info.recording_id:
                    self._forget(info.call_id)
                self._send(messages.RecordingOver(info))

    def _forget(self, call_id: str) -> None:
        recording = self._by_call.pop(call_id)
        recording.record(None)
        for phase in self._phases:
            phase.pop(call_id, None)

    def _lose(self) -> None:
        """The recorder is gone, and its recordings are over. The next recording starts a new recorder."""
        for call_id in tuple(self._by_call):
            self._forget(call_id)
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._channel = self._process = None
        lost, self._open = tuple(self._open), set()
        self._send(messages.RecorderLost(lost))
