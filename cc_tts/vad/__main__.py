"""The VAD process: ``python -m cc_tts.vad --channel-fd N``, its settings as JSON on standard input.

It is a process because the model would hold up the event loop of the server and the media clock of the user agent. All audio
that has come is judged at once, so that under load the batches grow.

Threads: this one listens; the reader thread takes records off the channel.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cc_tts import logs
from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.clock import NS_PER_S, Clock, MonotonicClock
from cc_tts.processes import child
from cc_tts.processes.channel import Message
from cc_tts.vad.detector import LegAudio, VoiceDetector
from cc_tts.vad.messages import TO_VAD, Classify, Ignore, LegFrames, Listen, VadSettings
from cc_tts.vad.silero import SileroModel, find_model

if TYPE_CHECKING:
    from cc_tts.vad.answering.legs import AnsweringLegs

MAX_AGE_NS: Final = 5 * NS_PER_S
"""Older audio is dropped. Judging a second of 100 calls takes a twentieth of a second, so this process catches up."""

log = logs.get("cc_tts.vad")


def main() -> int:
    """Run until asked to shut down or the server is gone; returns the exit status."""
    return child.run("vad", VadSettings, TO_VAD, _start)


def _start(settings: VadSettings, link: child.ChildLink) -> Callable[[], None]:
    model = SileroModel(find_model(settings.vad.model_file), settings.rate_hz)
    return VadWorker(model, settings.rate_hz, link, MonotonicClock()).work


class VadWorker:
    """Passes messages to the detectors, and their findings to the server."""

    def __init__(self, model: SileroModel, rate_hz: int, link: child.ChildLink, clock: Clock) -> None:
        self._model, self._rate_hz = model, rate_hz
        self._detector = VoiceDetector(model, rate_hz)
        self._answering: AnsweringLegs | None = None
        self._link = link
        self._clock = clock
        self._is_behind = False

    def work(self) -> None:
        """Wait for audio, and judge all that has arrived."""
        frames: list[LegAudio] = []
        for message, payload in self._link.news():
            self._take(message, payload, frames)
        channel = self._link.channel
        recent = self._recent(frames)
        for edge in self._detector.push(recent):
            channel.put(edge)
        if self._answering is not None:
            for finding in self._answering.push(recent):
                channel.put(finding)
        channel.flush()

    def _take(self, message: Message, payload: bytes, frames: list[LegAudio]) -> None:
        """Collect audio in ``frames``; handle any other message at once."""
        match message:
            case LegFrames(leg=leg, is_sent=is_sent, at_ns=at_ns):
                whole = payload[: len(payload) // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE]
                frames.append(LegAudio(leg, is_sent, at_ns, whole))
            case Listen(leg=leg, listening=listening):
                self._detector.listen(leg, listening)
            case Classify(leg=leg, settings=settings, origin_ns=origin_ns, is_answered=is_answered):
                self._classifier().classify(leg, settings, origin_ns, is_answered=is_answered)
            case Ignore(leg=leg):
                self._detector.ignore(leg)
                if self._answering is not None:
                    self._answering.ignore(leg)

    def _classifier(self) -> "AnsweringLegs":
        """Return the classifier, which is made for the first call that needs it."""
        if self._answering is None:
            from cc_tts.vad.answering.legs import AnsweringLegs

            self._answering = AnsweringLegs(self._model, self._rate_hz)
        return self._answering

    def _recent(self, frames: list[LegAudio]) -> list[LegAudio]:
        horizon_ns = self._clock.now_ns() - MAX_AGE_NS
        recent = [frame for frame in frames if frame.at_ns >= horizon_ns]
        is_behind = len(recent) < len(frames)
        if is_behind and not self._is_behind:
            log.warning("audio_left_out", num_frames=len(frames) - len(recent))
        self._is_behind = is_behind
        return recent


if __name__ == "__main__":
    sys.exit(main())
