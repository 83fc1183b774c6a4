"""ElevenLabs' WebSockets: several texts over one connection, or one. The key may be in the first message.

A context that is closed behind a flush without text is spoken to its end; one that is closed otherwise, or closed again, is
interrupted: Pipecat and LiveKit end a turn so, and interrupt it so. Every context ends with ``isFinal`` or ``error``.
"""

import asyncio
import base64
from typing import Final

from aiohttp import WSCloseCode, web

from cc_tts.api.http.auth import AUTHENTICATOR, HOLDER, NOBODY
from cc_tts.api.http.route import ELEVENLABS, RouteTable
from cc_tts.api.plugs.alignment import AlignedAudio
from cc_tts.api.plugs.connection import ONLY, SOCKET_ROUTE, Messages, SpeechConnection, serve
from cc_tts.api.plugs.elevenlabs.shapes import (
    INACTIVITY,
    LANGUAGE,
    OUTPUT_FORMAT,
    ElevenLabsMessage,
    in_milliseconds,
    inactivity_s,
    output_of,
    words_of,
)
from cc_tts.api.plugs.speech_context import SpeechContext
from cc_tts.config.schema import Scope
from cc_tts.errors import CcTtsError, Unauthorized
from cc_tts.speech.prompt import TextContent

KEY_TIMEOUT_S: Final = 10.0
"""The time for the first message of a client that sends its key in it (unmeasured)."""
_OPTIONS: Final = SOCKET_ROUTE | {"query": (OUTPUT_FORMAT, LANGUAGE, INACTIVITY), "token_may_follow": True}
_SCOPE: Final[Scope] = "call"

ROUTES: Final = RouteTable("ElevenLabs", ELEVENLABS)


@ROUTES.add("GET", "/v1/text-to-speech/{voice}/multi-stream-input", **_OPTIONS)
async def speak_texts(request: web.Request) -> web.StreamResponse:
    """Several texts that are spoken as they arrive, over a WebSocket."""
    return await serve(request, ManyContexts)


@ROUTES.add("GET", "/v1/text-to-speech/{voice}/stream-input", **_OPTIONS)
async def speak_text(request: web.Request) -> web.StreamResponse:
    """One text that is spoken as it arrives, over a WebSocket."""
    return await serve(request, OneContext)


class ManyContexts(SpeechConnection):
    """A client of several texts, each in a context."""

    frames = ElevenLabsMessage

    def __init__(self, request: web.Request) -> None:
        self._is_stranger = HOLDER.get() is NOBODY
        super().__init__(request, words_of(request, None), output_of(request), idle_timeout_s=inactivity_s(request))
        if self._is_stranger:
            asyncio.get_running_loop().call_later(KEY_TIMEOUT_S, self._refuse_stranger)
        self._flushed: set[str] = set()
        """The contexts whose last message was a flush without text."""

    def handle(self, incoming: ElevenLabsMessage) -> None:
        self.current_id = incoming.id or ONLY
        if self._is_stranger and not self.outbox.is_closed:
            self._admit(incoming.key)
        if not self._is_stranger:
            self.act(incoming, self.current_id)

    def check(self, words: TextContent) -> None:
        if not self._is_stranger:  # a client without a key does not learn which voices exist
            super().check(words)

    def _admit(self, key: str) -> None:
        """Accept the holder of a key as the client, or refuse it."""
        try:
            holder = self._request.app[AUTHENTICATOR].holder_of(key, _SCOPE)
        except CcTtsError as error:
            self._refuse_stranger(error)
            return
        self._is_stranger = False
        HOLDER.set(holder)  # for this task and the tasks that speak its texts

    def _refuse_stranger(self, error: CcTtsError | None = None) -> None:
        """Close the connection of a client without a valid key."""
        if self._is_stranger:
            self.end = (WSCloseCode.POLICY_VIOLATION, b"unauthorized")
            self.refuse(error or Unauthorized("no key came"))
            self.outbox.close()

    def act(self, incoming: ElevenLabsMessage, context_id: str) -> None:
        if incoming.close_socket:
            self.end_all()
        elif incoming.close_context:
            self._close_context(context_id)
        elif incoming.text or incoming.flush or incoming.voice_settings:
            self.speak(incoming, context_id)
        else:
            self.keep(context_id)

    def speak(self, incoming: ElevenLabsMessage, context_id: str) -> None:
        text = incoming.text or ""
        self.say(context_id, text, words_of(self._request, incoming.voice_settings))
        self._flushed.discard(context_id)
        if incoming.flush:
            self.flush(context_id)
            if not text.strip():
                self._flushed.add(context_id)

    def audio(self, context: SpeechContext, audio: bytes, piece: AlignedAudio | None) -> Messages:
        characters = None if piece is None else piece.characters
        if not audio and characters is None:
            return ()
        alignment = None if characters is None else in_milliseconds(characters)
        told = {"audio": base64.b64encode(audio).decode(), "alignment": alignment, "normalizedAlignment": alignment}
        return [told | self.fields_of(context.id)]

    def final(self, context: SpeechContext) -> Messages:
        if not self.is_open(context.id):
            self._flushed.discard(context.id)
        return [{"audio": "", "isFinal": True, **self.fields_of(context.id)}]

    def failed(self, context_id: str, error: CcTtsError) -> Messages:
        told = {"error": error.code, "message": error.detail, "code": int(WSCloseCode.POLICY_VIOLATION)}
        return [told | self.fields_of(context_id)]

    def fields_of(self, context_id: str) -> dict[str, str]:
        """Return the fields that name the context of a message. Pipecat reads one of them, LiveKit the other."""
        return {"contextId": context_id, "context_id": context_id}

    def _close_context(self, context_id: str) -> None:
        was_flushed = context_id in self._flushed
        self._flushed.discard(context_id)
        if was_flushed and self.is_open(context_id):
            self.finish(context_id)
        else:
            self.interrupt(context_id)


class OneContext(ManyContexts):
    """A client of one text, which ends with an empty one."""

    def act(self, incoming: ElevenLabsMessage, context_id: str) -> None:  # noqa: ARG002
        if incoming.text == "" and not incoming.flush:
            self.speak(incoming, ONLY)  # so that the end is reported also if no text came before
            self.end_all()
        else:
            self.speak(incoming, ONLY)

    def fields_of(self, context_id: str) -> dict[str, str]:  # noqa: ARG002
        return {}
