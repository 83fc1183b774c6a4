"""One utterance across several workers: if one refuses it, the next best gets it; if its worker is lost, another continues
from the current text chunk. Runs on: the event loop.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from cc_tts import logs
from cc_tts.engines.engine import SpeechStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.link import WorkerLost
from cc_tts.errors import CcTtsError, EngineOverloaded

MAX_REFUSALS: Final = 2
"""The workers that may refuse an utterance before it fails (unmeasured)."""
SAID_AGAIN_BELOW_MS: Final = 1500.0
"""A text chunk is not said again if more of it than this was delivered (unmeasured)."""

OpenElsewhere = Callable[[CcTtsError | None], tuple[SpeechStream, bool]]
"""Opens a stream in a worker that this utterance has not used, or in the fallback; the second value says which. Its argument
is why the stream before broke. Raises as :meth:`cc_tts.engines.worker.client.WorkerEngine.open` if there is none.
"""

log = logs.get(__name__)


class FailoverStream:
    """A stream that moves between workers; see :class:`cc_tts.engines.engine.SpeechStream`."""

    def __init__(self, open_elsewhere: OpenElsewhere, *, may_resume: bool, on_resumed: Callable[[], None]) -> None:
        self._open_elsewhere = open_elsewhere
        self._may_resume = may_resume
        self._on_resumed = on_resumed
        self._stream, self._is_altered = open_elsewhere(None)
        """The stream that is read now, and whether its words may differ from those requested."""
        self._texts: deque[tuple[str, int]] = deque()
        """The text chunks from the current one on."""
        self._is_text_whole = False
        self._is_cancelled = False
        self._num_refusals = 0
        self._has_given = False
        """Whether the current stream has delivered audio."""
        self._rate_hz = 0
        self._given_index = -1
        self._given_ms = 0.0
        """The delivered audio of the current text chunk, ms."""
        self._has_listener = False
        self._was_lost = False
        """Whether its worker was lost and no other has delivered anything yet."""

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        """Append one text chunk; see the contract."""
        self._texts.append((spoken_text, text_chunk_index))
        self._stream.push(spoken_text, text_chunk_index=text_chunk_index)

    def end(self) -> None:
        """No more text will come."""
        self._is_text_whole = True
        self._stream.end()

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Note how much audio the listener's side holds that is not played yet, ms."""
        self._has_listener = True
        self._stream.set_buffered_ms(buffered_ms)

    async def cancel(self) -> None:
        """Stop now; see the contract."""
        self._is_cancelled = True
        await self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        goes_on = True
        while goes_on and not self._is_cancelled:
            goes_on = False
            try:
                async for chunk in self._stream:
                    self._note(chunk)
                    chunk.is_resumed, chunk.after_loss = self._is_altered, self._was_lost
                    self._was_lost = False
                    yield chunk
            except EngineOverloaded as refusal:
                goes_on = self._after_refusal(refusal)
            except WorkerLost as loss:
                goes_on = self._after_loss(loss)
        if self._is_altered and not self._has_given and self._given_index >= 0:
            # the worker was lost together with the end: report that here, as no audio will
            yield SpeechChunk(is_resumed=True, text_chunk_index=self._given_index, rate_hz=self._rate_hz)

    def _note(self, chunk: SpeechChunk) -> None:
        self._has_given, self._rate_hz = True, chunk.rate_hz
        if chunk.text_chunk_index != self._given_index:
            self._given_index, self._given_ms = chunk.text_chunk_index, 0.0
            while self._texts and self._texts[0][1] < self._given_index:
                self._texts.popleft()
        self._given_ms += chunk.duration_ms
        if chunk.gave_up_after is not None:  # the reader has the rest of this text chunk spoken by another engine
            self._given_ms = max(self._given_ms, SAID_AGAIN_BELOW_MS)

    def _after_refusal(self, refusal: EngineOverloaded) -> bool:
        """Try another worker, if no audio was delivered; raises ``refusal`` if there is none."""
        if self._is_cancelled:
            return False
        self._num_refusals += 1
        if self._has_given or self._num_refusals >= MAX_REFUSALS:
            raise refusal
        self._move(refusal)
        return True

    def _after_loss(self, loss: WorkerLost) -> bool:
        """Have another worker say the rest; return ``False`` if nothing is left. Raises ``loss`` if there is none."""
        if self._is_cancelled:
            return False
        if not self._may_resume:
            raise loss
        if self._given_ms >= SAID_AGAIN_BELOW_MS and self._texts:
            self._texts.popleft()
        self._is_altered |= self._given_index >= 0
        self._has_given, self._num_refusals = False, 0
        if self._is_text_whole and not self._texts:
            return False
        self._move(loss)
        self._may_resume = False
        self._was_lost = True
        log.warning("speech_resumed", reason="worker_lost", given_ms=round(self._given_ms), num_chunks=len(self._texts))
        self._on_resumed()
        return True

    def _move(self, reason: CcTtsError) -> None:
        try:
            self._stream, is_fallback = self._open_elsewhere(reason)
        except CcTtsError:
            raise reason from None
        self._is_altered |= is_fallback
        self._has_given = False
        for text, index in self._texts:
            self._stream.push(text, text_chunk_index=index)
        if self._is_text_whole:
            self._stream.end()
        if self._has_listener:
            self._stream.set_buffered_ms(0.0)  # the listener has run dry, or is about to
