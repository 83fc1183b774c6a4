"""Deepgram's ``/v2/speak``: turns over a WebSocket, with what was heard of one that is interrupted; and one text over HTTP.

::

    Speak … Flush ─▸ SpeechStarted ─▸ audio ─▸ SpeechMetadata ─▸ Flushed
    Interrupt ─▸ SpeechInterrupted: where the client was in the audio, what was heard of the text, and what was not

A client counts the audio of all turns; what it did not play of an interrupted one counts no more.
"""

import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from cc_tts.api.context import CONTEXT
from cc_tts.api.http.route import DEEPGRAM, RouteTable
from cc_tts.api.plugs.alignment import AlignedAudio
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
from cc_tts.api.plugs.encoder import FORMATS, Output
from cc_tts.api.plugs.speech_context import SpeechContext
from cc_tts.audio import AudioFormat
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import CcTtsError, FieldError, MalformedRequest, TextTooLong, Unprocessable
from cc_tts.speech.timing.spans import heard_and_pending

MAX_TURNS: Final = 20
"""The most turns whose audio the client may still be playing (unmeasured)."""
STREAMED: Final = ("linear16", "mulaw", "alaw")
NO_CONTROLS: Final = {"pronunciations_applied": 0, "breaks_applied": 0, "pronunciation_warnings": 0}

ROUTES: Final = RouteTable("Deepgram", DEEPGRAM)


class Offset(msgspec.Struct, frozen=True):
    """How much of the audio of all turns the client has played."""

    value: Annotated[int, Meta(ge=0)]
    type: Literal["time_ms"] = "time_ms"


class FluxMessage(msgspec.Struct, frozen=True):
    """A message of a client. Unknown fields have no effect."""

    type: Literal["Speak", "Flush", "Interrupt", "Configure", "Close"]
    text: str = ""
    speed: float | None = None
    playback_offset: Offset | None = None


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn that takes text, or whose audio was made. ``begins_ms`` is the start of its audio within that of all turns."""

    id: str
    said: str = ""
    """The text as it was received."""
    context: SpeechContext | None = None
    begins_ms: float = 0.0
    audio_ms: float = 0.0

    @property
    def text(self) -> str:
        """The text as it is spoken, with a blank between sentences."""
        return self.said if self.context is None else self.context.text

    def heard_and_pending(self, at_ms: float) -> tuple[str, str]:
        """Return the part of the text that the client had heard at ``at_ms`` in the audio of all turns, and the rest."""
        spans = () if self.context is None else self.context.aligner.spans
        return heard_and_pending(spans, self.text, at_ms - self.begins_ms)

    def metadata(self) -> dict[str, Any]:
        num_chars = len(self.said)
        return {
            "speech_id": self.id,
            "audio_duration_ms": round(self.audio_ms),
            "input_character_count": num_chars,
            "billable_character_count": num_chars,
            "controls_applied": NO_CONTROLS,
        }


@ROUTES.add("POST", "/v2/speak", **HTTP_ROUTE)
async def speak_text_for_flux(request: web.Request, body: DeepgramText) -> web.StreamResponse:
    """Speech of a text as Deepgram's clients of Flux ask for it."""
    return await respond(request, body)


@ROUTES.add("GET", "/v2/speak", query=QUERY, **SOCKET_ROUTE)
async def speak_turns_for_flux(request: web.Request) -> web.StreamResponse:
    """Turns of a client of Deepgram's Flux as they arrive, over a WebSocket."""
    return await serve(request, FluxConnection)


class FluxConnection(TextsInTurn):
    frames = FluxMessage

    def __init__(self, request: web.Request) -> None:
        words, output = words_of(request), _raw_output_of(request)
        super().__init__(request, words, output, idle_timeout_s=IDLE_TIMEOUT_S)
        self._audio_format = AudioFormat(output.rate_hz)
        self._bytes_per_sample = 2 if output.format is FORMATS["pcm"] else 1
        self._turns: dict[str, _Turn] = {}
        """The turns by the id of their context, oldest first."""
        self._total_ms = 0.0
        """The audio that was sent; of interrupted turns, only the part that was played."""
        self._interrupted_ms = 0.0
        """The client's position at the last interruption."""
        self._num_chars = 0
        model = words.voice or ""
        request_id = request.app[CONTEXT].services.nodes.new_id("req")
        self._tell("Connected", request_id=request_id, model_name=model, model_version="", model_uuids=[])

    # --- what a client says ------------------------------------------------------------------------------------------

    def handle(self, incoming: FluxMessage) -> None:
        match incoming.type:
            case "Speak":
                self._take_text(incoming.text)
            case "Flush" if self.text_id in self._turns:
                self.add("")  # so that a turn whose text was all refused still ends
                self.end_text()
            case "Flush":
                self._warn("NO_ACTIVE_SPEECH", "there is no text to flush")
            case "Interrupt":
                self._interrupt(incoming.playback_offset)
            case "Configure":
                self._configure(incoming.speed)
            case "Close":
                self.end_all()

    def _take_text(self, text: str) -> None:
        turn = self._turns.setdefault(self.text_id, _Turn(f"dg_sp_{secrets.token_hex(6)}"))
        self.add(text)
        turn.said += text
        self._num_chars += len(text)

    def _interrupt(self, offset: Offset | None) -> None:
        is_active = self.has_open
        if offset is None and not is_active:
            self._warn("NO_ACTIVE_SPEECH", "no turn is spoken")
        elif not is_active and not self._total_ms:
            self._warn("NO_AUDIO_GENERATED", "there is no audio to interrupt")
        elif not self._turns:
            self._warn("NO_ACTIVE_SPEECH", "no turn is spoken")
        elif offset is not None and self._interrupted_ms and offset.value <= self._interrupted_ms:
            self._warn("INVALID_INTERRUPT_OFFSET", f"the last interruption was at {self._interrupted_ms:.0f} ms")
        else:
            self._cut(offset)

    def _cut(self, offset: Offset | None) -> None:
        """Drop unsent audio, and report what was heard of the turn that the client was playing."""
        self._total_ms -= self._ms_of(self.interrupt_all())
        at_ms = self._total_ms if offset is None else min(float(offset.value), self._total_ms)
        turn = self._turn_at(at_ms)
        told: dict[str, Any] = {"audio_played_ms": round(at_ms) if offset is None else offset.value}
        if offset is not None:
            told["text_spoken"], told["text_remaining"] = turn.heard_and_pending(at_ms)
        self._tell("SpeechInterrupted", **told, metadata=turn.metadata())
        self._turns.clear()
        self._total_ms = self._interrupted_ms = at_ms
        self.begin_text()

    def _turn_at(self, at_ms: float) -> _Turn:
        """Return the turn that the client plays at this position, or played last."""
        turns = list(self._turns.values())
        return next((each for each in reversed(turns) if each.context and each.begins_ms < at_ms), turns[0])

    def _configure(self, speed: float | None) -> None:
        if speed is not None and not MIN_SPEED <= speed <= MAX_SPEED:
            detail = f"speed is {MIN_SPEED} to {MAX_SPEED}"
            self._tell("ConfigureFailure", code="SPEED_OUT_OF_RANGE", field="speed", value=speed, description=detail)
            return
        if speed is not None:
            self.change_speed(speed)
        self._tell("ConfigureSuccess", applied={} if speed is None else {"speed": speed})

    # --- what it is told ---------------------------------------------------------------------------------------------

    def began(self, context: SpeechContext) -> Messages:
        turn = self._turns[context.id]
        turn.context, turn.begins_ms = context, self._total_ms
        return [{"type": "SpeechStarted", "speech_id": turn.id}]

    def audio(self, context: SpeechContext, audio: bytes, piece: AlignedAudio | None) -> Messages:
        length_ms = self._ms_of(len(audio))
        self._turns[context.id].audio_ms += length_ms
        self._total_ms += length_ms
        return super().audio(context, audio, piece)

    def final(self, context: SpeechContext) -> Messages:
        ended = self.dropped(context)
        if self._turns[context.id].audio_ms:
            return ended
        return [_warning("NO_SYNTHESIZABLE_TEXT", "there is nothing to say in the turn"), *ended]

    def failed(self, context_id: str, error: CcTtsError) -> Messages:  # noqa: ARG002
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), error.code)
        return [{"type": "Error", "code": code, "description": error.detail or error.title}]

    def dropped(self, context: SpeechContext) -> Messages:
        turn = self._turns[context.id]
        if context.id == self.text_id:
            self.begin_text()  # the text failed before its flush: begin another
        for oldest in list(self._turns)[: -MAX_TURNS - 1]:
            del self._turns[oldest]
        return [{"type": "SpeechMetadata", **turn.metadata()}, {"type": "Flushed", "speech_id": turn.id}]

    def last(self) -> Messages:
        return [
            {
                "type": "SessionMetadata",
                "total_audio_duration_ms": round(self._total_ms),
                "total_input_character_count": self._num_chars,
                "total_billable_character_count": self._num_chars,
            }
        ]

    # -----------------------------------------------------------------------------------------------------------------

    def _ms_of(self, num_bytes: int) -> float:
        return self._audio_format.ms_for_bytes(num_bytes * 2 // self._bytes_per_sample)

    def _warn(self, code: str, description: str) -> None:
        self.tell([_warning(code, description)])

    def _tell(self, kind: str, **fields: Any) -> None:
        self.tell([{"type": kind, **fields}])


def _warning(code: str, description: str) -> Message:
    return {"type": "Warning", "code": code, "description": description}


_CODES: Final = {MalformedRequest: "MESSAGE-0000", TextTooLong: "BIG-0000", Unprocessable: "DATA-0000"}
"""Deepgram's codes of errors; other errors keep our codes."""


def _raw_output_of(request: web.Request) -> Output:
    """Return the audio format of a WebSocket, which has no container; raises ``Unprocessable``."""
    output = output_of(request, "linear16")
    encoding = request.query.get("encoding", "linear16")
    if encoding not in STREAMED or output.format is FORMATS["wav"]:
        detail = f"over a WebSocket encoding is {' or '.join(STREAMED)}, without a container"
        raise Unprocessable(detail, field_errors=[FieldError("/encoding", detail)])
    return output
