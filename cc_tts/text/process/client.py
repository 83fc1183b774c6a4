"""The server's side of the text process. Runs on: the event loop."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.config.sections.log import LogConfig
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded, ProcessFailed
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import STOPPED
from cc_tts.processes.supervisor import Supervisor, python_child
from cc_tts.processes.tasks import cancel_all
from cc_tts.processes.threads import BoundedExecutor
from cc_tts.processes.watchdog import Watchdog
from cc_tts.text.chunker import Chunker, Chunking, TextChunk
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.process.messages import FROM_TEXT, CancelText, PrepareText, TextPrepared, TextSettings
from cc_tts.text.pronunciation.replacements import Replacement

PREPARE_TIMEOUT_S: Final = 10.0
"""The time limit for a text, from the request to the last chunk (unmeasured)."""
MAX_TEXTS: Final = 1000
"""The most texts in preparation at the same time (unmeasured)."""
RETRY_AFTER_S: Final = 1  # unmeasured
STALL_TIMEOUT_S: Final = 0.75
"""The process answers after each slice of a text, which takes 82 ms at worst (measured on a busy machine). After this time
without an answer the texts are prepared in the server: a prompt is late by less than a second.
"""
_POLL_S: Final = 0.125
"""The interval of checking whether the process answers, so that a stall is noticed soon after the time above
(unmeasured).
"""

log = logs.get(__name__)


class TextPreparation:
    """One text in preparation: by the text process, or in the server while that does not answer."""

    def __init__(
        self, text: str, chunking: Chunking, replacements: tuple[Replacement, ...], process: "TextProcess"
    ) -> None:
        self.text, self.chunking, self.replacements = text, chunking, replacements
        self.has_placeholder = False
        """The value of :attr:`cc_tts.text.chunker.Chunker.has_placeholder` at the end."""
        self._process = process
        self._position = 0
        self._num_chunks = 0
        self._ready: asyncio.Queue[TextChunk | CcTtsError | None] = asyncio.Queue()

    async def feed(self, take: Callable[[TextChunk], None]) -> None:
        """Pass each chunk to ``take``, in order; returns after the last one.

        Raises:
            EngineFailed: the text could not be prepared, or it took longer than :data:`PREPARE_TIMEOUT_S`.
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
        """Take chunks that the text process has sent."""
        self.has_placeholder = prepared.has_placeholder
        for each in prepared.chunks:
            source = self.text[self._position : self._position + each.num_source_chars]
            spoken = each.spoken.decode("utf-8", "surrogatepass")
            self._put(TextChunk(self._num_chunks, source, spoken, each.language, each.replaced))

    async def prepare_here(self, normalizer: Normalizer, executor: BoundedExecutor, turn: asyncio.Lock) -> None:
        """Prepare what the text process has not delivered. Texts take turns, a slice each."""
        run = partial(asyncio.get_running_loop().run_in_executor, executor)
        async with turn:
            chunker = await run(Chunker, normalizer, self.chunking, self.text, self.replacements)
        slices, is_whole = chunker.slices(), False
        while not is_whole:
            async with turn:
                chunks, is_whole = await run(next, slices)
            for chunk in chunks:
                if chunk.index == self._num_chunks:  # the chunks before it have been delivered
                    self._put(chunk)
        self.has_placeholder = chunker.has_placeholder

    def _put(self, chunk: TextChunk) -> None:
        self._ready.put_nowait(chunk)
        self._position += len(chunk.source)
        self._num_chunks += 1

    def end(self, failure: CcTtsError | None) -> None:
        """Note that there are no more chunks, or that the text failed with ``failure``."""
        self._ready.put_nowait(failure)


class TextProcess:
    """One process for all texts, which is restarted when it dies. While it does not answer, texts are prepared on a thread
    of the server: this delays the event loop by some milliseconds, but otherwise the caller would wait for seconds.
    """

    def __init__(self, *, clock: Clock, log: LogConfig, on_down: Callable[[], None]) -> None:
        self._clock = clock
        self._on_down = on_down
        self._texts: dict[int, TextPreparation] = {}
        """The texts that the process prepares."""
        self._here: dict[TextPreparation, asyncio.Task[None]] = {}
        """The texts that the server prepares."""
        self._normalizer = Normalizer()
        self._executor = BoundedExecutor(1, "text")
        self._turn = asyncio.Lock()
        self._watchdog = Watchdog(clock, max_step_s=2 * _POLL_S)
        self._watcher: asyncio.Task[None] | None = None
        self._next_id = 1
        self.supervisor = Supervisor(
            python_child("text", "cc_tts.text.process", messages=FROM_TEXT, settings=TextSettings(log=log)),
            clock=clock,
            on_message=self._on_message,
            on_ready=lambda _hello: None,
            on_down=self._down,
        )

    @property
    def pid(self) -> int | None:
        """Process id while it lives."""
        return self.supervisor.pid

    @property
    def is_responsive(self) -> bool:
        """Whether the process prepares texts; otherwise the server does."""
        return self.supervisor.is_responsive

    @property
    def num_texts(self) -> int:
        """How many texts are being prepared."""
        return len(self._texts) + len(self._here)

    async def start(self) -> None:
        """Start it and let it load its rules, and the server those for the short texts that it prepares itself.

        Raises:
            ProcessFailed: it does not start.
        """
        rules = self._executor.submit(self._normalizer.load_english)
        await self.supervisor.start()
        await asyncio.wrap_future(rules)

    async def stop(self) -> None:
        await self.supervisor.stop()
        tasks = list(self._here.values())
        await cancel_all(*tasks)
        self._executor.shutdown()

    def prepare(self, text: str, chunking: Chunking, replacements: tuple[Replacement, ...] = ()) -> TextPreparation:
        """Begin to prepare a text; the chunks are those of :class:`cc_tts.text.chunker.Chunker`.

        Raises:
            EngineOverloaded: it takes none now.
        """
        if self.num_texts >= MAX_TEXTS:
            raise EngineOverloaded(f"{MAX_TEXTS} texts are being prepared", retry_after_s=RETRY_AFTER_S)
        preparation = TextPreparation(text, chunking, replacements, self)
        if not (self.is_responsive and self._send(preparation)):
            self._prepare_here(preparation)
        return preparation

    def cancel(self, preparation: TextPreparation) -> None:
        if (task := self._here.pop(preparation, None)) is not None:
            task.cancel()
        for request_id in [each for each, text in self._texts.items() if text is preparation]:
            self._withdraw(request_id)

    def _send(self, preparation: TextPreparation) -> bool:
        """Send a text to the process; return whether it is accepted."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        request = PrepareText(request_id, preparation.chunking, preparation.replacements)
        try:
            self.supervisor.send(request, preparation.text.encode("utf-8", "surrogatepass"))
        except ProcessFailed:
            return False
        if not self._texts:
            self._watchdog.heard()
        self._texts[request_id] = preparation
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="text process")
        return True

    def _withdraw(self, request_id: int) -> TextPreparation:
        with contextlib.suppress(ProcessFailed):
            self.supervisor.send(CancelText(request_id))
        return self._texts.pop(request_id)

    async def _watch(self) -> None:
        """Take the texts back from a process that does not answer."""
        while self._texts and self._watchdog.poll() < STALL_TIMEOUT_S:  # noqa: ASYNC110 - a stall is no event
            await asyncio.sleep(_POLL_S)
        self._watcher = None
        if self._texts:
            log.warning("text_process_stalled", num_texts=len(self._texts), consequence="the server prepares them")
        for request_id in list(self._texts):
            self._prepare_here(self._withdraw(request_id))

    def _prepare_here(self, preparation: TextPreparation) -> None:
        working = preparation.prepare_here(self._normalizer, self._executor, self._turn)
        task = self._here[preparation] = asyncio.create_task(working, name="text")
        task.add_done_callback(lambda _: self._prepared_here(preparation, task))

    def _prepared_here(self, preparation: TextPreparation, task: asyncio.Task[None]) -> None:
        self._here.pop(preparation, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("text_not_prepared", text_chars=len(preparation.text), exc_info=error)
        preparation.end(None if error is None else EngineFailed("the text could not be prepared"))

    def _on_message(self, message: Message, _payload: bytes) -> None:
        self._watchdog.heard()
        if isinstance(message, TextPrepared) and (preparation := self._texts.get(message.request_id)) is not None:
            preparation.deliver(message)
            if message.is_whole:
                del self._texts[message.request_id]
                preparation.end(EngineFailed("the text could not be prepared") if message.has_failed else None)

    def _down(self, reason: str) -> None:
        texts, self._texts = self._texts, {}
        for preparation in texts.values():
            if reason == STOPPED:
                preparation.end(EngineFailed(f"the text process ended: {reason}", retry_after_s=RETRY_AFTER_S))
            else:
                self._prepare_here(preparation)
        if reason != STOPPED:
            self._on_down()
