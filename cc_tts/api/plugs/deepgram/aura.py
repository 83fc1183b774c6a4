"""Deepgram's ``/v1/speak``: one text over HTTP, and texts over a WebSocket.

A client knows no ids: ``Flushed`` follows the last byte of what it flushed, and behind ``Cleared`` nothing comes of what was
sent before.
"""

from typing import Final, Literal

import msgspec
from aiohttp import web

from cc_tts.api.context import CONTEXT
from cc_tts.api.http.route import DEEPGRAM, RouteTable
from cc_tts.api.plugs.connection import SOCKET_ROUTE, Message, Messages, TextsInTurn, serve
from cc_tts.api.plugs.deepgram.shapes import (
    HTTP_ROUTE,
    IDLE_TIMEOUT_S,
    QUERY,
    DeepgramText,
    output_of,
    respond,
    words_of,
)
from cc_tts.api.plugs.speech_context import SpeechContext
from cc_tts.errors import CcTtsError, MalformedRequest

ROUTES: Final = RouteTable("Deepgram", DEEPGRAM)


class AuraMessage(msgspec.Struct, frozen=True):
    """A message of a client. Unknown fields have no effect."""

    type: Literal["Speak", "Flush", "Clear", "Close"]
    text: str = ""


@ROUTES.add("POST", "/v1/speak", **HTTP_ROUTE)
async def speak_for_deepgram(request: web.Request, body: DeepgramText) -> web.StreamResponse:
    """Speech of a text as Deepgram's clients ask for it."""
    return await respond(request, body)


@ROUTES.add("GET", "/v1/speak", query=QUERY, **SOCKET_ROUTE)
async def stream_for_deepgram(request: web.Request) -> web.StreamResponse:
    """Texts of a client of Deepgram as they arrive, over a WebSocket."""
    return await serve(request, DeepgramConnection)


class DeepgramConnection(TextsInTurn):
    frames = AuraMessage

    def __init__(self, request: web.Request) -> None:
        words = words_of(request)
        super().__init__(request, words, output_of(request, "linear16"), idle_timeout_s=IDLE_TIMEOUT_S)
        self._sequence_id = 0
        request_id = request.app[CONTEXT].services.nodes.new_id("req")
        self.tell([{"type": "Metadata", "request_id": request_id, "model_name": words.voice or ""}])

    def handle(self, incoming: AuraMessage) -> None:
        match incoming.type:
            case "Speak":
                self.add(incoming.text)
            case "Flush":
                self.add("")  # so that a flush without text is answered too
                self.end_text()
            case "Clear":
                self.interrupt_all()
                self.begin_text()
                self.tell([self._numbered("Cleared")])
            case "Close":
                self.end_all()

    def final(self, context: SpeechContext) -> Messages:  # noqa: ARG002
        return [self._numbered("Flushed")]

    def failed(self, context_id: str, error: CcTtsError) -> Messages:  # noqa: ARG002
        return [{"type": "Error", "err_code": error.code, "err_msg": error.detail or error.title}]

    def dropped(self, context: SpeechContext) -> Messages:
        return self.final(context)  # each flush is answered

    def refuse(self, error: CcTtsError) -> None:
        if isinstance(error, MalformedRequest):
            self.tell([{"type": "Warning", "warn_code": error.code, "warn_msg": error.detail or error.title}])
        else:
            super().refuse(error)

    def _numbered(self, kind: str) -> Message:
        number, self._sequence_id = self._sequence_id, self._sequence_id + 1
        return {"type": kind, "sequence_id": number}
