"""The VAD process: ``python -m cc_tts.vad --channel-fd N``, its settings as JSON on standard input.

It is a process because the model would hold up the event loop of the server and the media clock of the user agent. All audio
that has come is judged at once, so that under load the batches grow.

Threads: this one listens; the reader thread takes records off the channel.
"""

import os
import queue
import sys
import threading
from typing import Final

from cc_tts import logs
from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.clock import NS_PER_MS, Clock, MonotonicClock
from cc_tts.errors import ConfigError, ProcessFailed
from cc_tts.processes import child
from cc_tts.processes.channel import (
    PROTOCOL_VERSION,
    ChildChannel,
    Hello,
    Message,
    Ping,
    Pong,
    Ready,
    Record,
    Shutdown,
    StartFailed,
)
from cc_tts.vad.detector import LegAudio, VoiceDetector
from cc_tts.vad.messages import TO_VAD, Ignore, LegFrames, Listen, SpeechEdge, VadSettings
from cc_tts.vad.silero import SileroModel, find_model

MAX_AGE_NS: Final = 5000 * NS_PER_MS
"""Older audio is left out. Judging a second of 100 calls takes a twentieth of one, so that this process catches up."""

Inbox = queue.SimpleQueue[Record | None]
"""Records that the reader thread took off the channel; ``None`` means the server is gone."""

log = logs.get("cc_tts.vad")


def main() -> int:
    """Run until asked to shut down or the server is gone; returns the exit status."""
    channel, settings = child.begin(VadSettings, TO_VAD)
    logs.configure(level=settings.log.level, json=settings.log.json, process="vad")
    try:
        channel.send(Hello(protocol=PROTOCOL_VERSION, process="vad", pid=os.getpid()))
        try:
            model = SileroModel(find_model(settings.vad.model_file), settings.rate_hz)
        except ConfigError as error:
            channel.send(StartFailed(error.detail))
            return child.EXIT_NO_START
        inbox: Inbox = queue.SimpleQueue()
        threading.Thread(target=_read, args=(channel, inbox), name="reader", daemon=True).start()
        channel.send(Ready())
        ear = VadWorker(VoiceDetector(model, settings.rate_hz), channel, MonotonicClock())
        return 0 if ear.serve(inbox) else child.EXIT_SERVER_GONE
    except ProcessFailed as error:
        log.error("server_gone", detail=error.detail)
        return child.EXIT_SERVER_GONE
    finally:
        channel.close()


class VadWorker:
    """Passes messages to the detector and its findings to the server."""

    def __init__(self, detector: VoiceDetector, channel: ChildChannel, clock: Clock) -> None:
        self._detector = detector
        self._channel = channel
        self._clock = clock
        self._is_behind = False

    def serve(self, inbox: Inbox) -> bool:
        """Work; returns whether the server is still there.

        Raises:
            ProcessFailed: the server is gone or has stopped reading.
        """
        while True:
            records = [inbox.get()]
            while not inbox.empty():
                records.append(inbox.get())
            frames: list[LegAudio] = []
            for record in records:
                if record is None:
                    return False
                if isinstance(record[0], Shutdown):
                    return True
                self._take(*record, frames)
            for leg, edge in self._detector.push(self._recent(frames)):
                self._channel.put(SpeechEdge(leg, edge))
            self._channel.flush()

    def _take(self, message: Message, payload: bytes, frames: list[LegAudio]) -> None:
        """Audio goes to ``frames``; anything else is done at once."""
        match message:
            case LegFrames(leg=leg, is_sent=is_sent, at_ns=at_ns):
                whole = payload[: len(payload) // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE]
                frames.append(LegAudio(leg, is_sent, at_ns, whole))
            case Listen(leg=leg, listening=listening):
                self._detector.listen(leg, listening)
            case Ignore(leg=leg):
                self._detector.ignore(leg)
            case Ping(serial=serial):
                self._channel.put(Pong(serial=serial))

    def _recent(self, frames: list[LegAudio]) -> list[LegAudio]:
        """The frames that are not too old."""
        horizon_ns = self._clock.now_ns() - MAX_AGE_NS
        recent = [frame for frame in frames if frame.at_ns >= horizon_ns]
        is_behind = len(recent) < len(frames)
        if is_behind and not self._is_behind:
            log.warning("audio_left_out", num_frames=len(frames) - len(recent))
        self._is_behind = is_behind
        return recent


def _read(channel: ChildChannel, inbox: Inbox) -> None:
    """Runs on: the reader thread."""
    child.read(channel, lambda message, payload: inbox.put((message, payload)))
    inbox.put(None)


if __name__ == "__main__":
    sys.exit(main())
