"""A WebSocket client that has texts spoken, each in a context. The plugs define the messages.

::

    message ─▸ say ─▸ SpeechContext ─▸ Aligner ─▸ encoder ─▸ outbox ─▸ the plug's message
               flush · finish · interrupt · end_all                      └─ the last of a context says how it ended

Every context ends with one message, ``final`` or ``failed``, unless all are interrupted together. What still comes of a text
that has failed is dropped, up to its next flush. An id may be used again at once: its texts are spoken one after the other.
Runs on: the event loop.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from cc_tts import logs
from cc_tts.api.context import CONTEXT
from cc_tts.api.events.websocket import as_json
from cc_tts.api.http import bodies
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.media import connection
from cc_tts.api.media.connection import StreamConnection
from cc_tts.api.plugs.alignment import AlignedAudio
from cc_tts.api.plugs.encoder import Output
from cc_tts.api.plugs.speech_context import ERRORS, ROUTE, SpeechContext, refuse_if_draining
from cc_tts.api.schemas import check_text
from cc_tts.calls.events.outbox import Outbox
from cc_tts.errors import CapacityExceeded, CcTtsError, MalformedRequest, NothingToSay
from cc_tts.speech.prompt import PromptDefaults, TextContent

MAX_FRAME_IN_BYTES: Final = 65_536  # unmeasured
MAX_CONTEXTS: Final = 20
"""The most open contexts of a connection (unmeasured). ElevenLabs allows 5, which quick interruptions exceed."""
MAX_QUEUED_OUT: Final = 200  # unmeasured
"""The most messages that wait for a client that does not read; synthesis waits at half of it."""
ONLY: Final = ""
"""The id of the only context, or of one to which the client gives no id."""

SOCKET_ROUTE: Final = ROUTE | {"status": 101, "content_types": (), "errors": (UpgradeRequired, *ERRORS)}
"""The options of a route with a WebSocket."""

log = logs.get(__name__)

Message = bytes | dict[str, Any]
"""One message for a client: audio, or an object that is sent as JSON."""
Messages = Sequence[Message]


class SpeechConnection(StreamConnection[Message]):
    """``takes_turns``: a context is spoken after the previous one, since the client cannot tell their audio apart."""

    end = (WSCloseCode.OK, b"")
    takes_turns: ClassVar = False

    def __init__(self, request: web.Request, words: TextContent, output: Output, *, idle_timeout_s: float) -> None:
        super().__init__(Outbox(MAX_QUEUED_OUT), kind="speech")
        self._request = request
        self._output = output
        self._idle_timeout_s = idle_timeout_s
        self._contexts: list[SpeechContext] = []
        """The contexts whose last message was not sent yet, or that have failed while more of their text arrives."""
        self._is_closing = False
        self.current_id = ONLY
        """The context of the current message, as far as it is known."""
        refuse_if_draining(request)
        self.check(words)

    # --- the plug's messages -----------------------------------------------------------------------------------------

    @abstractmethod
    def handle(self, incoming: Any) -> None:
        """Carry out a message, one of ``frames``; raises ``CcTtsError``."""

    @abstractmethod
    def audio(self, context: SpeechContext, audio: bytes, piece: AlignedAudio | None) -> Messages:
        """Return the messages for more audio; ``audio`` may be empty."""

    @abstractmethod
    def final(self, context: SpeechContext) -> Messages:
        """Return the messages for a context that is complete."""

    @abstractmethod
    def failed(self, context_id: str, error: CcTtsError) -> Messages:
        """Return the messages for a context that could not be spoken, or a message that could not be carried out."""

    def began(self, context: SpeechContext) -> Messages:  # noqa: ARG002
        return ()

    def last(self) -> Messages:
        """Return the messages that are sent before the connection closes, when everything has been spoken."""
        return ()

    def dropped(self, context: SpeechContext) -> Messages:  # noqa: ARG002
        return ()

    # --- what a client asks for --------------------------------------------------------------------------------------

    def check(self, words: TextContent) -> None:
        """Refuse a voice or a language that does not exist; raises ``UnknownVoice`` and ``LanguageUnsupported``."""
        defaults = PromptDefaults(voice=words.voice, language=words.language)
        self._request.app[CONTEXT].services.source.check_defaults(defaults)

    @property
    def has_open(self) -> bool:
        return bool(self._contexts)

    def is_open(self, context_id: str) -> bool:
        return self._growing(context_id) is not None

    def say(self, context_id: str, text: str, words: TextContent, *, is_timed: bool = False) -> None:
        """Append text to a context. The context is opened in the style of ``words`` if it does not exist. ``is_timed``: if
        it is opened, the client is told when its characters are heard.

        Raises:
            CapacityExceeded: more than :data:`MAX_CONTEXTS` are open.
            TextTooLong, QuotaExceeded, Unprocessable: the text is not taken.
        """
        check_text(text, "/text")
        if self._is_closing:
            return
        context = self._growing(context_id) or self._open(context_id, words, is_timed=is_timed)
        if not context.has_failed:
            context.append(text)

    def keep(self, context_id: str) -> None:
        """Keep a context waiting for text."""
        if (context := self._growing(context_id)) is not None:
            context.keep()

    def flush(self, context_id: str) -> None:
        if (context := self._growing(context_id)) is None:
            return
        context.flush()
        if context.has_failed:
            self._over(context, self.dropped(context))

    def finish(self, context_id: str) -> None:
        """Speak a context to its end; no more text comes."""
        if (context := self._growing(context_id)) is not None:
            context.end()
            if context.has_failed:
                self._over(context, self.dropped(context))

    def interrupt(self, context_id: str) -> None:
        for context in [each for each in self._contexts if each.id == context_id]:
            context.cancel()
            self._over(context, self.dropped(context) if context.has_failed else self.final(context))

    def interrupt_all(self) -> int:
        """Drop the unsent audio of all contexts, including audio in binary messages; return the bytes of the latter. The
        contexts get no last message.
        """
        contexts, self._contexts = self._contexts, []
        for context in contexts:
            context.cancel()
        return sum(map(len, self.outbox.drop(lambda message: isinstance(message, bytes))))

    def end_all(self) -> None:
        self._is_closing = True
        for context in tuple(self._contexts):
            self.finish(context.id)

    def tell(self, messages: Messages) -> None:
        for message in messages:
            self.outbox.put(message)

    # --- of the connection -------------------------------------------------------------------------------------------

    def follow(self, message: WSMessage) -> None:
        if message.type is WSMsgType.BINARY:
            raise MalformedRequest("messages are JSON in text frames")
        self.current_id = ONLY
        # clients send the tokens of a model, which end anywhere
        self.handle(bodies.parsed(message.data, self.frames))
        self._close_when_over()  # the message may have ended or interrupted the last context

    def refuse(self, error: CcTtsError) -> None:
        self.tell(self.failed(self.current_id, error))

    def encode(self, item: Message) -> list[str | bytes]:
        return [item] if isinstance(item, bytes) else as_json(item)

    def close(self) -> None:
        self.interrupt_all()

    # -----------------------------------------------------------------------------------------------------------------

    def _growing(self, context_id: str) -> SpeechContext | None:
        return next((each for each in self._contexts if each.id == context_id and not each.has_ended), None)

    def _open(self, context_id: str, words: TextContent, *, is_timed: bool) -> SpeechContext:
        if len(self._contexts) >= MAX_CONTEXTS:
            self._forget_failed()
        context = SpeechContext(
            self._request, context_id, words, rate_hz=self._output.rate_hz, idle_timeout_s=self._idle_timeout_s
        )
        context.is_timed = is_timed
        before = [each.task for each in self._contexts if each.task and (self.takes_turns or each.id == context_id)]
        context.task = asyncio.create_task(self._run(context, before))
        self._contexts.append(context)
        return context

    def _forget_failed(self) -> None:
        """Remove the oldest failed context to make room."""
        failed = next((each for each in self._contexts if each.has_failed), None)
        if failed is None:
            raise CapacityExceeded(f"{MAX_CONTEXTS} contexts are open on this connection", retry_after_s=1)
        self._contexts.remove(failed)

    def _over(self, context: SpeechContext, messages: Messages) -> None:
        if context not in self._contexts:
            return
        self._contexts.remove(context)
        self.tell(messages)
        self._close_when_over()

    def _close_when_over(self) -> None:
        if self._is_closing and not self._contexts and not self.outbox.is_closed:
            self.tell(self.last())
            self.outbox.close()

    def _fail(self, context: SpeechContext, error: CcTtsError) -> None:
        """Report that a context cannot be spoken, and drop the rest of its text."""
        if context not in self._contexts:
            return
        context.has_failed = True
        self.tell(self.failed(context.id, error))
        if context.has_ended:
            self._over(context, self.dropped(context))

    async def _run(self, context: SpeechContext, before: Sequence[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        try:
            if await context.begins():
                with suppress(NothingToSay):  # the protocols end a text without audio as they end any other
                    await self._speak(context)
        except CcTtsError as error:
            self._fail(context, error)
        except ConnectionError:
            log.debug("speech_stream_client_gone")
        except Exception:  # nobody awaits this task, so its error is logged here
            log.exception("speech_stream_failed")
            self._fail(context, CcTtsError("something unexpected happened; the log has the details"))
        else:
            self._over(context, self.final(context))

    async def _speak(self, context: SpeechContext) -> None:
        async with context.speech() as speech:
            self.tell(self.began(context))
            pieces = context.aligner.pieces(speech.chunks())
            async for audio, piece in self._output.encoded(pieces, speech.label):
                await self.outbox.has_room()
                self.tell(self.audio(context, audio, piece))


class TextsInTurn(SpeechConnection):
    """A client whose texts have no ids. Each text ends with a flush, and its audio comes in binary messages before that of
    the next text.
    """

    takes_turns = True

    def __init__(self, request: web.Request, words: TextContent, output: Output, *, idle_timeout_s: float) -> None:
        super().__init__(request, words, output, idle_timeout_s=idle_timeout_s)
        self._words = words
        self._number = 0

    @property
    def text_id(self) -> str:
        return str(self._number)

    def add(self, text: str) -> None:
        """Append to the text; raises as :meth:`say`."""
        self.say(self.text_id, text, self._words)

    def change_speed(self, speed: float) -> None:
        """Speak later texts at another speed."""
        self._words = replace(self._words, speed=speed)

    def end_text(self) -> None:
        """Speak the text to its end; further input is another text."""
        self.finish(self.text_id)
        self.begin_text()

    def begin_text(self) -> None:
        """Treat further input as another text."""
        self._number += 1

    def audio(self, context: SpeechContext, audio: bytes, piece: AlignedAudio | None) -> Messages:  # noqa: ARG002
        return [audio] if audio else ()


async def serve(request: web.Request, open_connection: Callable[[web.Request], SpeechConnection]) -> web.StreamResponse:
    return await connection.serve(request, lambda: open_connection(request), max_frame_bytes=MAX_FRAME_IN_BYTES)
