"""A stream of an engine in which every text chunk is heard: one for which the engine gives no audio is said by a stand-in.

::

    chunk 0 ─▸ audio · chunk 1 ─▸ nothing · chunk 2 ─▸ audio     by the engine
                            └─▸ stand-in ─▸ audio                else NoAudio

Every text chunk has a letter or a digit in it, so silence in its place would be a fault that nobody sees. Runs on: the event
loop.
"""

from collections.abc import AsyncIterator, Callable

from cc_tts import logs
from cc_tts.engines.engine import SpeechStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import NoAudio

log = logs.get(__name__)


class HeardStream:
    """See :class:`cc_tts.engines.engine.SpeechStream`. ``open_stand_in`` opens a stream of another engine, if there is one.
    ``tells_chunks``: the engine says of all audio to which text chunk it belongs; else only a text of which nothing is
    heard is told from others. ``on_no_audio`` is called for each chunk without audio.
    """

    def __init__(
        self,
        stream: SpeechStream,
        open_stand_in: Callable[[], SpeechStream | None],
        *,
        voice: str,
        tells_chunks: bool,
        on_no_audio: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._open_stand_in = open_stand_in
        self._voice = voice
        self._tells_chunks = tells_chunks
        self._on_no_audio = on_no_audio
        self._texts: list[str] = []
        self._stand_in: SpeechStream | None = None
        self._is_cancelled = False

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        self._texts.append(spoken_text)
        self._stream.push(spoken_text, text_chunk_index=text_chunk_index)

    def end(self) -> None:
        self._stream.end()

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self._stream.set_buffered_ms(buffered_ms)

    async def cancel(self) -> None:
        self._is_cancelled = True
        if self._stand_in is not None:
            await self._stand_in.cancel()
        await self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        num_heard = 0
        silence: list[SpeechChunk] = []
        async for chunk in self._stream:
            if chunk.text_chunk_index >= num_heard and not _has_sound(chunk):
                silence.append(chunk)
                continue
            for missed in range(num_heard, chunk.text_chunk_index if self._tells_chunks else 0):
                async for other in self._said_instead(missed):
                    yield other
            for silent in silence:
                if silent.text_chunk_index == chunk.text_chunk_index:
                    yield silent
            silence = []
            num_heard = max(num_heard, chunk.text_chunk_index + 1)
            yield chunk
        for missed in range(num_heard, len(self._texts) if self._tells_chunks or not num_heard else 0):
            async for other in self._said_instead(missed):
                yield other

    async def _said_instead(self, index: int) -> AsyncIterator[SpeechChunk]:
        if self._is_cancelled:
            return
        text, is_heard = self._texts[index], False
        self._on_no_audio()
        self._stand_in = self._open_stand_in()
        log.error("no_audio", voice=self._voice, text_chars=len(text), has_stand_in=self._stand_in is not None)
        if self._stand_in is not None:
            self._stand_in.push(text, text_chunk_index=index)
            self._stand_in.end()
            try:
                async for chunk in self._stand_in:
                    is_heard |= _has_sound(chunk)
                    chunk.is_resumed = True
                    yield chunk
            finally:
                await self._stand_in.cancel()
        if not is_heard and not self._is_cancelled:
            raise NoAudio(f"the voice {self._voice} gave no audio for a text of {len(text)} characters")


def _has_sound(chunk: SpeechChunk) -> bool:
    """Whether any sample of it is not zero."""
    return bool(chunk.data.strip(b"\0"))
