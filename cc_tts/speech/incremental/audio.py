"""The audio of one utterance that is played while it arrives: a client appends, and the call's player takes.

::

    append · mark · end ──▸ pending ──▸ take ──▸ chunks ──▸ line
                                └─ nothing there, and the line about to run dry: a chunk that says so, which is no underrun
                                └─ nothing for idle_end_s: the utterance ends, since it keeps the prompts behind it waiting

The line starts with ``start_ms`` of audio, or with less when no more comes for that long: what a client sends as it is
spoken comes unevenly, and this much of unevenness is not heard. Runs on: the event loop.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from cc_tts.audio import PTIME_MS, AudioFormat
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.media.half_band import HalfBand
from cc_tts.media.listener_clock import ListenerClock
from cc_tts.speech.chunks import CHUNK_MS, now_ms
from cc_tts.speech.incremental.source import IncrementalSource

LEAD_S: Final = PTIME_MS / 1000
"""How long before the line runs dry the playout buffer is told that no more audio is there."""


class IncrementalAudio(IncrementalSource):
    """PCM, and marks between its samples. It arrives at ``rate_hz``, and is taken at the line's rate."""

    def __init__(
        self,
        audio_format: AudioFormat,
        *,
        rate_hz: int,
        start_ms: float,
        idle_end_s: float,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(on_taken)
        self.format = audio_format
        self.start_ms = start_ms
        self.idle_end_s = idle_end_s
        self._sent = AudioFormat(rate_hz)
        self._filter = HalfBand(rate_hz, audio_format.rate_hz)
        self._pending: deque[memoryview | str] = deque()
        self._num_bytes = 0

    @property
    def num_pending(self) -> float:
        return self._sent.ms_for_bytes(self._num_bytes)

    def append(self, pcm: bytes) -> None:
        self._pending.append(memoryview(pcm))
        self._num_bytes += len(pcm)
        self._changed.set()

    def mark(self, name: str) -> None:
        self._pending.append(name)
        self._changed.set()

    def end(self) -> None:
        if tail := self._filter.tail:
            self.append(tail)
        super().end()

    def forget(self) -> None:
        self._pending.clear()
        self._num_bytes = 0

    def take(self) -> SpeechChunk | None:
        """Return the next chunk, up to the next mark; ``None`` if there is nothing."""
        marks: list[tuple[float, str]] = []
        parts: list[memoryview] = []
        left = self._sent.bytes_for_ms(CHUNK_MS)
        while self._pending and left > 0:
            item = self._pending[0]
            if isinstance(item, str):
                if parts:
                    break
                marks.append((0.0, item))
            else:
                parts.append(item[:left])
                if len(item) > left:
                    self._pending[0] = item[left:]
                    break
                left -= len(item)
            self._pending.popleft()
        if not parts and not marks:
            return None
        data = b"".join(parts)
        self._num_bytes -= len(data)
        self._on_taken()
        return SpeechChunk(self._filter.process(data), "" if marks else None, marks=tuple(marks))


class IncrementalAudioStream:
    def __init__(self, audio: IncrementalAudio) -> None:
        self._audio = audio
        self._is_cancelled = False
        self._told_dry = False
        self._begun_ms = now_ms()
        self._waiting_since_ms: float | None = None
        """When the first audio came, while the line waits for its start threshold."""
        self._waiting_ms = 0.0
        """The audio with which it waits, ms."""
        self._listener = ListenerClock()

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """See the contract. The line's reports are up to 100 ms old, so this stream keeps its own count."""

    async def cancel(self) -> None:
        self._is_cancelled = True
        self._audio.forget()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        audio = self._audio
        while not self._is_cancelled:
            chunk = audio.take()
            if chunk is not None:
                self._count(audio.format.ms_for_bytes(len(chunk.data)))
                yield chunk
            elif audio.has_ended:
                audio.is_over = True
                return
            elif self._told_dry:
                if not await audio.changed(max(0.0, self._left_ms / 1000 + audio.idle_end_s)):
                    audio.end()
            elif (wait_s := self._left_ms / 1000 - LEAD_S) <= 0 or not await audio.changed(wait_s):
                self._start()
                self._told_dry = True
                yield SpeechChunk(awaits_text=True)

    @property
    def _left_ms(self) -> float:
        """Return the audio that the line still has to play or, while it waits, the time until it starts without more."""
        if self._waiting_since_ms is not None:
            return self._waiting_since_ms + self._audio.start_ms + LEAD_S * 1000 - now_ms()
        return max(self._listener.left_ms(now_ms()), self._begun_ms - now_ms())

    def _count(self, given_ms: float) -> None:
        """Predict the effect of a chunk on the playout buffer."""
        if not given_ms:
            return
        self._told_dry = False
        if self._waiting_since_ms is None and self._left_ms <= 0.0:
            self._waiting_since_ms = now_ms()
        self._waiting_ms += given_ms
        if self._waiting_since_ms is None or self._waiting_ms >= self._audio.start_ms:
            self._start()

    def _start(self) -> None:
        self._listener.sent(now_ms(), self._waiting_ms)
        self._waiting_since_ms, self._waiting_ms = None, 0.0
