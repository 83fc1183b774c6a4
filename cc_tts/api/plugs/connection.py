"""A client that has texts spoken over a WebSocket, each in a context; the plugs say in which messages.

::

    message ─▸ say ─▸ SpeechContext ─▸ Aligner ─▸ encoder ─▸ outbox ─▸ the plug's message
               flush · finish · interrupt · end_all                      └─ the last of a context says how it ended

Every context ends with one message, ``final`` or ``failed``, unless all are interrupted together. Runs on: the event loop.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from cc_tts import logs
from cc_tts.api.context import CONTEXT
from cc_tts.api.media.connection import Connection
from cc_tts.api.plugs.alignment import AlignedAudio, Aligner
from cc_tts.api.plugs.encoder import AudioFileFormat, Encoder
from cc_tts.api.plugs.response import in_its_place
from cc_tts.api.plugs.speech_context import Speech, SpeechContext
from cc_tts.api.schemas import check_text
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.errors import CapacityExceeded, CcTtsError, MalformedRequest
from cc_tts.speech.prompt import PromptDefaults, TextContent

MAX_FRAME_IN_BYTES: Final = 65_536  # unmeasured
MAX_CONTEXTS: Final = 20
"""Contexts that may be open on a connection (unmeasured); ElevenLabs has 5, which quick interruptions exceed."""
MAX_QUEUED_OUT: Final = 200  # unmeasured
"""Messages that wait for a client that does not read; synthesis waits at half of it."""
ONLY: Final = ""
"""The id of the only context, and of one that the client gives no id."""

log = logs.get(__name__)

Messages = Sequence[str | bytes]


@dataclass(frozen=True, slots=True)
class Output:
    """The audio that a client has asked for."""

    format: AudioFileFormat
    rate_hz: int
    bits_per_s: int | None = None


@dataclass(slots=True)
class _Open:
    """A context whose last message was not sent yet."""

    speech: SpeechContext
    task: asyncio.Task[None]


class SpeechConnection(Connection[str | bytes]):
    """``takes_turns``: a context is spoken when the one before is over, since the client cannot tell their audio apart."""

    end: ClassVar = (WSCloseCode.OK, b"")
    takes_turns: ClassVar = False

    def __init__(self, request: web.Request, words: TextContent, output: Output, *, idle_timeout_s: float) -> None:
        super().__init__(Outbox(MAX_QUEUED_OUT), kind="speech")
        self._request = request
        self._output = output
        self._idle_timeout_s = idle_timeout_s
        self._contexts: dict[str, _Open] = {}
        self._is_closing = False
        self.check(words)

    # --- the plug's messages -----------------------------------------------------------------------------------------

    @abstractmethod
    def take(self, data: str) -> None:
        """Follow a message; raises what is in :data:`cc_tts.errors.UNREADABLE`, and ``CcTtsError``."""

    @abstractmethod
    def audio(self, context_id: str, audio: bytes, piece: AlignedAudio | None) -> Messages:
        """Return the messages of more audio; ``audio`` may be empty."""

    @abstractmethod
    def final(self, context_id: str) -> Messages:
        """Return the messages of a context that is over."""

    @abstractmethod
    def failed(self, context_id: str, error: CcTtsError) -> Messages:
        """Return the messages of a context that is over since it could not be spoken."""

    # --- what a client asks for --------------------------------------------------------------------------------------

    def check(self, words: TextContent) -> None:
        """Refuse a voice or a language that nobody speaks; raises ``UnknownVoice`` and ``LanguageUnsupported``."""
        defaults = PromptDefaults(voice=words.voice, language=words.language)
        self._request.app[CONTEXT].speech_source.check_defaults(defaults)

    def is_open(self, context_id: str) -> bool:
        """Return whether a context takes text."""
        context = self._contexts.get(context_id)
        return context is not None and not context.speech.has_ended

    def say(self, context_id: str, text: str, words: TextContent) -> None:
        """Take more text of a context, which is opened with ``words`` if it is not there.

        Raises:
            CapacityExceeded: more than :data:`MAX_CONTEXTS` are open.
            TextTooLong, QuotaExceeded, Unprocessable: the text is not taken.
        """
        check_text(text, "/text")
        if self._is_closing:
            return
        if not self.is_open(context_id):
            self._open(context_id, words)
        self._contexts[context_id].speech.append(text)

    def flush(self, context_id: str) -> None:
        """Have the text of a context spoken that has come."""
        if self.is_open(context_id):
            self._contexts[context_id].speech.flush()

    def finish(self, context_id: str) -> None:
        """Speak a context to its end: no more text comes."""
        if self.is_open(context_id):
            self._contexts[context_id].speech.end()

    def interrupt(self, context_id: str) -> None:
        """Drop what was not sent of a context."""
        context = self._contexts.get(context_id)
        if context is not None:
            context.task.cancel()
            self._over(context_id, context.speech, self.final(context_id))

    def interrupt_all(self) -> None:
        """Drop what was not sent of all contexts. None of them has a last message."""
        contexts, self._contexts = self._contexts, {}
        for context in contexts.values():
            context.task.cancel()

    def end_all(self) -> None:
        """Close when everything that came is spoken."""
        self._is_closing = True
        for context_id in tuple(self._contexts):
            self.finish(context_id)
        if not self._contexts:
            self.outbox.close()

    def tell(self, messages: Messages) -> None:
        """Send messages to the client."""
        for message in messages:
            self.outbox.put(message)

    # --- of the connection -------------------------------------------------------------------------------------------

    def follow(self, message: WSMessage) -> None:
        if message.type is WSMsgType.BINARY:
            raise MalformedRequest("messages are JSON in text frames")
        self.take(message.data)

    def encode(self, item: str | bytes) -> list[str | bytes]:
        return [item]

    def close(self) -> None:
        for context in self._contexts.values():
            context.task.cancel()

    # -----------------------------------------------------------------------------------------------------------------

    def _open(self, context_id: str, words: TextContent) -> None:
        if len(self._contexts) >= MAX_CONTEXTS:
            raise CapacityExceeded(f"{MAX_CONTEXTS} contexts are open on this connection", retry_after_s=1)
        speech = SpeechContext(self._request, words, rate_hz=self._output.rate_hz, idle_timeout_s=self._idle_timeout_s)
        before = [context.task for context in self._contexts.values()] if self.takes_turns else []
        task = asyncio.create_task(self._run(speech, context_id, before))
        self._contexts[context_id] = _Open(speech, task)

    def _over(self, context_id: str, speech: SpeechContext, messages: Messages) -> None:
        """Tell how a context ended, once."""
        context = self._contexts.get(context_id)
        if context is None or context.speech is not speech:
            return
        del self._contexts[context_id]
        self.tell(messages)
        if self._is_closing and not self._contexts:
            self.outbox.close()

    async def _run(self, context: SpeechContext, context_id: str, before: Sequence[asyncio.Task[None]]) -> None:
        """Speak the text of a context to its end."""
        if before:
            await asyncio.wait(before)
        try:
            async with context.speech() as speech:
                try:
                    await self._speak(speech, context_id)
                except CcTtsError as error:
                    speech.reason, speech.error = CompletionCause.ERROR, error.code
                    raise
        except CcTtsError as error:
            self._over(context_id, context, self.failed(context_id, error))
        except ConnectionError:
            log.debug("speech_stream_client_gone")
        except Exception:  # of a task that nobody waits for
            log.exception("speech_stream_failed")
            failure = CcTtsError("something unexpected happened; the log has the details")
            self._over(context_id, context, self.failed(context_id, failure))
        else:
            self._over(context_id, context, self.final(context_id))

    async def _speak(self, speech: Speech, context_id: str) -> None:
        output, aligner = self._output, Aligner(self._output.rate_hz)
        label = speech.id, self._request.app[CONTEXT].config.tts.producer
        make = partial(output.format.encoder, output.rate_hz, label, bits_per_s=output.bits_per_s)
        encoder = await in_its_place(output.format, make)
        async for chunk in speech.chunks():
            await self._send(aligner.add(chunk), encoder, context_id)
        await self._send(aligner.finish(), encoder, context_id)
        self.tell(self.audio(context_id, await in_its_place(output.format, encoder.finish), None))

    async def _send(self, pieces: list[AlignedAudio], encoder: Encoder, context_id: str) -> None:
        for piece in pieces:
            audio = await in_its_place(self._output.format, partial(encoder.encode, piece.pcm))
            await self.outbox.has_room()
            self.tell(self.audio(context_id, audio, piece))
