"""ElevenLabs' WebSockets: several texts over one connection, or one.

::

    text ─▸ context ─▸ SpeechContext ─▸ Aligner ─▸ encoder ─▸ outbox ─▸ {"audio", "alignment", "contextId"}
    flush · close_context · close_socket                                {"isFinal", "contextId"}

A context that is closed behind a flush without text is spoken to its end; one that is closed otherwise, or closed again, is
interrupted: Pipecat and LiveKit end a turn so, and interrupt it so. Every context ends with ``isFinal`` or ``error``.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from cc_tts import logs
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.route import RouteTable
from cc_tts.api.media.connection import Connection, serve
from cc_tts.api.plugs.alignment import AlignedAudio, Aligner
from cc_tts.api.plugs.elevenlabs.shapes import (
    IGNORED,
    INACTIVITY,
    LANGUAGE,
    OUTPUT_FORMAT,
    Incoming,
    Output,
    in_milliseconds,
    inactivity_s,
    words_of,
)
from cc_tts.api.plugs.encoder import Encoder
from cc_tts.api.plugs.response import in_its_place
from cc_tts.api.plugs.speech_context import ERRORS, Speech, SpeechContext
from cc_tts.api.schemas import check_text
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.errors import CapacityExceeded, CcTtsError, MalformedRequest
from cc_tts.speech.prompt import PromptDefaults

MAX_FRAME_IN_BYTES: Final = 65_536  # unmeasured
MAX_CONTEXTS: Final = 20
"""Contexts that may be open on a connection (unmeasured); ElevenLabs has 5, which quick interruptions exceed."""
MAX_QUEUED_OUT: Final = 200  # unmeasured
"""Messages that wait for a client that does not read; synthesis waits at half of it."""
ONLY: Final = ""
"""The id of the only context, and of one that the client gives no id."""

_QUERY: Final = (OUTPUT_FORMAT, LANGUAGE, INACTIVITY, *IGNORED)
_OPTIONS: Final[dict[str, Any]] = {
    "scope": "call",
    "status": 101,
    "content_types": (),
    "query": _QUERY,
    "errors": (UpgradeRequired, *ERRORS),
    "for_tenants": True,
    "streams": True,
}
_DECODER: Final = msgspec.json.Decoder(Incoming)

ROUTES: Final = RouteTable("ElevenLabs")

log = logs.get(__name__)


@ROUTES.add("GET", "/v1/text-to-speech/{voice}/multi-stream-input", **_OPTIONS)
async def speak_texts(request: web.Request) -> web.StreamResponse:
    """Several texts that are spoken as they arrive, over a WebSocket."""
    return await serve(request, lambda: ManyContexts(request), max_frame_bytes=MAX_FRAME_IN_BYTES)


@ROUTES.add("GET", "/v1/text-to-speech/{voice}/stream-input", **_OPTIONS)
async def speak_text(request: web.Request) -> web.StreamResponse:
    """One text that is spoken as it arrives, over a WebSocket."""
    return await serve(request, lambda: OneContext(request), max_frame_bytes=MAX_FRAME_IN_BYTES)


@dataclass(slots=True)
class _Open:
    """A context that was not told to be final yet."""

    speech: SpeechContext
    task: asyncio.Task[None]
    was_flushed: bool = False
    """The last message was a flush without text."""
    is_closing: bool = False


class ManyContexts(Connection[Mapping[str, Any]]):
    """A client of several texts, each in a context."""

    end = (WSCloseCode.OK, b"")

    def __init__(self, request: web.Request) -> None:
        super().__init__(Outbox(MAX_QUEUED_OUT), kind="speech")
        self._request = request
        self._output = Output.of(request)
        self._idle_timeout_s = inactivity_s(request)
        self._open: dict[str, _Open] = {}
        self._is_closing = False
        self._current_id = ONLY
        """The context of the message that is being followed."""
        words = words_of(request, None)
        request.app[CONTEXT].speech_source.check_defaults(PromptDefaults(voice=words.voice, language=words.language))

    def follow(self, message: WSMessage) -> None:
        if message.type is WSMsgType.BINARY:
            raise MalformedRequest("messages are JSON in text frames")
        incoming = _DECODER.decode(message.data)
        self._current_id = incoming.id or ONLY
        check_text(incoming.text or "", "/text")
        self.obey(incoming, self._current_id)

    def obey(self, incoming: Incoming, context_id: str) -> None:
        """Do what a message says."""
        if incoming.close_socket:
            self.end_all()
        elif incoming.close_context:
            self._close_context(context_id)
        elif not self._is_closing and (incoming.text or incoming.flush or incoming.voice_settings):
            self.say(incoming, context_id)

    def say(self, incoming: Incoming, context_id: str) -> None:
        """Take the text of a message into its context, which is opened if there is none."""
        context = self._open.get(context_id)
        if context is None or context.speech.has_ended:
            context = self._opened(incoming, context_id)
        text = incoming.text or ""
        context.speech.append(text)
        context.was_flushed = bool(incoming.flush) and not text.strip()
        if incoming.flush:
            context.speech.flush()

    def end_all(self) -> None:
        """Close when everything that came is spoken."""
        self._is_closing = True
        for context in self._open.values():
            context.speech.end()
        if not self._open:
            self.outbox.close()

    def refuse(self, error: CcTtsError) -> None:
        self._tell_error(error, self._current_id)

    def close(self) -> None:
        for context in self._open.values():
            context.task.cancel()

    def fields_of(self, context_id: str) -> dict[str, Any]:
        """The fields of a message that say which context it is about: Pipecat reads the one, LiveKit the other."""
        return {"contextId": context_id, "context_id": context_id}

    # -----------------------------------------------------------------------------------------------------------------

    def _opened(self, incoming: Incoming, context_id: str) -> _Open:
        if len(self._open) >= MAX_CONTEXTS:
            raise CapacityExceeded(f"{MAX_CONTEXTS} contexts are open on this connection", retry_after_s=1)
        words = words_of(self._request, incoming.voice_settings)
        speech = SpeechContext(self._request, words, rate_hz=self._output.rate_hz, idle_timeout_s=self._idle_timeout_s)
        context = _Open(speech, asyncio.create_task(self._run(speech, context_id)))
        self._open[context_id] = context
        return context

    def _close_context(self, context_id: str) -> None:
        context = self._open.get(context_id)
        if context is None:
            return
        if context.was_flushed and not context.is_closing:
            context.is_closing = True
            context.speech.end()
            return
        context.task.cancel()
        self._finish(context_id, context.speech)

    def _finish(self, context_id: str, speech: SpeechContext, error: CcTtsError | None = None) -> None:
        """Tell how a context ended, once."""
        context = self._open.get(context_id)
        if context is None or context.speech is not speech:
            return
        del self._open[context_id]
        if error is None:
            self.outbox.put({"audio": "", "isFinal": True, **self.fields_of(context_id)})
        else:
            self._tell_error(error, context_id)
        if self._is_closing and not self._open:
            self.outbox.close()

    def _tell_error(self, error: CcTtsError, context_id: str) -> None:
        told = {"error": error.code, "message": error.detail, "code": int(WSCloseCode.POLICY_VIOLATION)}
        self.outbox.put(told | self.fields_of(context_id))

    async def _run(self, context: SpeechContext, context_id: str) -> None:
        """Speak the text of a context to its end."""
        try:
            async with context.speech() as speech:
                try:
                    await self._speak(speech, context_id)
                except CcTtsError as error:
                    speech.reason, speech.error = CompletionCause.ERROR, error.code
                    raise
        except CcTtsError as error:
            self._finish(context_id, context, error)
        except ConnectionError:
            log.debug("speech_stream_client_gone")
        except Exception:  # of a task that nobody waits for
            log.exception("speech_stream_failed")
            self._finish(context_id, context, CcTtsError("something unexpected happened; the log has the details"))
        else:
            self._finish(context_id, context)

    async def _speak(self, speech: Speech, context_id: str) -> None:
        output, aligner = self._output, Aligner(self._output.rate_hz)
        label = speech.id, self._request.app[CONTEXT].config.tts.producer
        make = partial(output.format.encoder, output.rate_hz, label, bits_per_s=output.bits_per_s)
        encoder = await in_its_place(output.format, make)
        async for chunk in speech.chunks():
            await self._send(aligner.add(chunk), encoder, context_id)
        await self._send(aligner.finish(), encoder, context_id)
        self._put(await in_its_place(output.format, encoder.finish), None, context_id)

    async def _send(self, pieces: list[AlignedAudio], encoder: Encoder, context_id: str) -> None:
        for piece in pieces:
            audio = await in_its_place(self._output.format, partial(encoder.encode, piece.pcm))
            await self.outbox.has_room()
            self._put(audio, piece, context_id)

    def _put(self, audio: bytes, piece: AlignedAudio | None, context_id: str) -> None:
        characters = None if piece is None else piece.characters
        if not audio and characters is None:
            return
        alignment = None if characters is None else in_milliseconds(characters)
        told = {"audio": base64.b64encode(audio).decode(), "alignment": alignment, "normalizedAlignment": alignment}
        self.outbox.put(told | self.fields_of(context_id))


class OneContext(ManyContexts):
    """A client of one text, which ends with an empty one."""

    def obey(self, incoming: Incoming, context_id: str) -> None:  # noqa: ARG002
        if incoming.text == "" and not incoming.flush:
            self.end_all()
        elif not self._is_closing:
            self.say(incoming, ONLY)

    def fields_of(self, context_id: str) -> dict[str, Any]:  # noqa: ARG002
        return {}
