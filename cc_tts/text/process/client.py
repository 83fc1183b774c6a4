"""The server's side of the text process. Runs on: the event loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from cc_tts.clock import Clock
from cc_tts.config.schema import LogConfig
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded, ProcessFailed
from cc_tts.processes.channel import Message
from cc_tts.processes.supervisor import STOPPED, ProcessState, Supervisor, python_child
from cc_tts.text.chunker import Chunking, TextChunk
from cc_tts.text.process.messages import FROM_TEXT, CancelText, PrepareText, TextPrepared, TextSettings
from cc_tts.text.pronunciation.replacements import Replacement

PREPARE_TIMEOUT_S: Final = 10.0
"""From the request to the last chunk of a text."""
MAX_TEXTS: Final = 1000
"""In preparation at once."""
RETRY_AFTER_S: Final = 1


class TextPreparation:
    """One text that the text process prepares."""

    def __init__(self, request_id: int, text: str, process: "TextProcess") -> None:
        self.request_id = request_id
        self.has_placeholder = False
        """As :attr:`cc_tts.text.chunker.Chunker.has_placeholder`, at the end."""
        self._text = text
        self._process = process
        self._position = 0
        self._num_chunks = 0
        self._ready: asyncio.Queue[TextChunk | CcTtsError | None] = asyncio.Queue()

    async def feed(self, take: Callable[[TextChunk], None]) -> None:
        """Give each chunk to ``take``, in order; returns after the last.

        Raises:
            EngineFailed: the text process died, or took longer than :data:`PREPARE_TIMEOUT_S`.
        """
        try:
            async with asyncio.timeout(PREPARE_TIMEOUT_S):
                while (chunk := await self._ready.get()) is not None:
                    if isinstance(chunk, CcTtsError):
                        raise chunk
                    take(chunk)
        except TimeoutError:
            raise EngineFailed(f"the text was not prepared within {PREPARE_TIMEOUT_S:.0f} s") from None
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Stop. Safe to call twice and after the end."""
        self._process.cancel(self)
        self.end(None)

    def deliver(self, prepared: TextPrepared) -> None:
        """The text process has sent chunks."""
        self.has_placeholder = prepared.has_placeholder
        for each in prepared.chunks:
            source = self._text[self._position : self._position + each.num_source_chars]
            self._position += each.num_source_chars
            spoken = each.spoken.decode("utf-8", "surrogatepass")
            self._ready.put_nowait(TextChunk(self._num_chunks, source, spoken, each.language, each.replaced))
            self._num_chunks += 1

    def end(self, failure: CcTtsError | None) -> None:
        """There are no more chunks, or the text failed with ``failure``."""
        self._ready.put_nowait(failure)


class TextProcess:
    """One process for all texts; if it dies, what it was preparing fails, and it is started again."""

    def __init__(self, *, clock: Clock, log: LogConfig, on_down: Callable[[], None]) -> None:
        self._on_down = on_down
        self._texts: dict[int, TextPreparation] = {}
        self._next_id = 1
        self._supervisor = Supervisor(
            python_child("text", "cc_tts.text.process", messages=FROM_TEXT, settings=TextSettings(log=log)),
            clock=clock,
            on_message=self._on_message,
            on_ready=lambda _hello: None,
            on_down=self._down,
        )

    @property
    def pid(self) -> int | None:
        """Process id while it lives."""
        return self._supervisor.pid

    @property
    def not_ready_because(self) -> str | None:
        """Why a text could not be prepared now; ``None`` when it could."""
        if self._supervisor.state is not ProcessState.READY:
            return f"the text process is {self._supervisor.state}"
        if len(self._texts) >= MAX_TEXTS:
            return f"{MAX_TEXTS} texts are being prepared"
        return None

    async def start(self) -> None:
        """Start it and let it load its rules.

        Raises:
            ProcessFailed: it does not start.
        """
        await self._supervisor.start()

    async def stop(self) -> None:
        """End it."""
        await self._supervisor.stop()

    def prepare(self, text: str, chunking: Chunking, replacements: tuple[Replacement, ...] = ()) -> TextPreparation:
        """Begin to prepare a text; the chunks are those of :class:`cc_tts.text.chunker.Chunker`.

        Raises:
            EngineOverloaded: it takes none now.
        """
        if (reason := self.not_ready_because) is not None:
            raise EngineOverloaded(reason, retry_after_s=RETRY_AFTER_S)
        preparation = TextPreparation(self._next_id, text, self)
        self._next_id += 1
        request = PrepareText(preparation.request_id, chunking, replacements)
        try:
            self._supervisor.send(request, text.encode("utf-8", "surrogatepass"))
        except ProcessFailed as error:
            raise EngineOverloaded(error.detail, retry_after_s=RETRY_AFTER_S) from error
        self._texts[preparation.request_id] = preparation
        return preparation

    def cancel(self, preparation: TextPreparation) -> None:
        """Stop preparing a text."""
        if self._texts.pop(preparation.request_id, None) is not None:
            with contextlib.suppress(ProcessFailed):
                self._supervisor.send(CancelText(preparation.request_id))

    def _on_message(self, message: Message, _payload: bytes) -> None:
        if isinstance(message, TextPrepared) and (preparation := self._texts.get(message.request_id)) is not None:
            preparation.deliver(message)
            if message.is_whole:
                del self._texts[message.request_id]
                preparation.end(EngineFailed("the text could not be prepared") if message.has_failed else None)

    def _down(self, reason: str) -> None:
        texts, self._texts = self._texts, {}
        for preparation in texts.values():
            preparation.end(EngineFailed(f"the text process ended: {reason}", retry_after_s=RETRY_AFTER_S))
        if reason != STOPPED:
            self._on_down()
