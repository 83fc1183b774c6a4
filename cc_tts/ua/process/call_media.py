"""The media of legs and of lines. Runs on: the thread of the loop, except where a subclass says otherwise."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.ua import messages
from cc_tts.ua.recording.tap import RecordingTap
from cc_tts.ua.rtp.frame_queue import FrameQueue

PauseReason = Literal["hold", "request", "speech", "unacked"]


class CallMedia(ABC):
    """The audio of a call in both directions. Legs and lines share it."""

    buffer: PlayoutBuffer

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self.lead_in_ms = 0
        """The silence before the first prompt, ms."""
        self.active: messages.MediaActive | None = None
        """The last report about the media."""
        self.held_by: messages.HeldBy = "none"
        self._is_open = False
        self._pause_reasons: set[PauseReason] = set()
        self._listened: dict[messages.AudioDirection, FrameQueue] = {}
        self._tap: RecordingTap | None = None

    @property
    def positions(self) -> tuple[tuple[str, float], ...]:
        """The unfinished utterances, and how much of each was heard, ms."""
        return tuple(self.buffer.positions())

    @abstractmethod
    def cut(self, utterance_id: str | None) -> None:
        """Cut this utterance, or all with ``None``."""

    @abstractmethod
    def set_paused(self, reason: PauseReason, *, paused: bool, restart: tuple[str, float] | None = None) -> None:
        """Stop the prompt's clock while any reason holds; ``restart`` is that of the buffer."""

    @abstractmethod
    def record(self, tap: RecordingTap | None) -> None:
        """Send all frames from the next one on to ``tap``; ``None`` ends the recording."""

    def set_listening(self, directions: tuple[messages.AudioDirection, ...]) -> None:
        """Keep the frames of these directions for :meth:`take_audio`."""
        self._listened = {each: self._listened.get(each) or FrameQueue() for each in directions}

    def take_audio(self) -> Iterator[tuple[messages.CallAudio, bytes]]:
        """Return the frames that were kept since the last time."""
        for direction, queue in self._listened.items():
            while (taken := queue.take()) is not None:
                at_ns, num_dropped, pcm = taken
                yield messages.CallAudio(self._call_id, direction, at_ns, num_dropped), pcm

    def detach_server(self) -> None:
        """Play what is there. Nobody writes or listens any more, or pauses the prompt for the caller's speech."""
        self.buffer.finish_all()
        self.set_paused("speech", paused=False)
        self.set_listening(())
