"""The resource ``speechsynth`` of one session: its requests, its queue and its events (RFC 6787 §8).

::

    request ─▸ handle ─▸ response, or events later
    SPEAK ─▸ queue ─▸ StartSpeech ─▸ Line ─▸ played ─▸ SPEAK-COMPLETE ─▸ the next of the queue

What a client may write is checked here, except for the text and the voice, which the server knows. Runs on: the event loop.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.media.playout_events import PlayoutOverflow
from cc_tts.mrcp.control import params
from cc_tts.mrcp.control.message import Header, Request, RequestState, StatusCode, event, response
from cc_tts.mrcp.control.states import SYNTH_TABLE, SynthEvent, SynthState
from cc_tts.mrcp.messages import (
    MAX_LEXICONS,
    AboutOne,
    CloseSpeech,
    DefineLexicon,
    JumpSpeech,
    Markup,
    OpenSpeech,
    SpeechAudio,
    SpeechJumped,
    SpeechMark,
    SpeechOver,
    StartSpeech,
    Taken,
)
from cc_tts.mrcp.rtp.line import RtpLine
from cc_tts.processes.channel import Message
from cc_tts.state_machine import StateMachine

RESOURCE: Final = "speechsynth"
_NTP_EPOCH_S: Final = 2_208_988_800
"""NTP time begins in 1900, Unix time in 1970 (RFC 5905 §6)."""
_TYPES: Final[dict[str, Markup]] = {
    "text/plain": "text",
    "application/ssml+xml": "ssml",
    "application/ssml": "ssml",
    "application/synthesis+ssml": "ssml",
}
"""The last one is from MRCPv1; old platforms still send it."""
_OF_PARAMETERS: Final = (SynthEvent.SET_PARAMS, SynthEvent.GET_PARAMS)
_LEXICON_TYPE: Final = "application/pls+xml"
_ID_LIST: Final = re.compile(r"\d{1,10}(?: *, *\d{1,10})*")
_STATUS_OF: Final = {
    "unknown_voice": StatusCode.UNSUPPORTED_VALUE,
    "text_too_long": StatusCode.TOO_LARGE,
}
_CAUSES: Final = {
    "ssml_malformed": "002 parse-failure",
    "nothing_to_say": "002 parse-failure",
    "malformed": "002 parse-failure",
    "language_unsupported": "005 language-unsupported",
    "unknown_lexicon": "006 lexicon-load-failure",
    "lexicon_malformed": "006 lexicon-load-failure",
}
_CHARSETS: Final = {
    "utf-8": "utf-8-sig", "utf8": "utf-8-sig", "us-ascii": "ascii", "iso-8859-1": "iso-8859-1",
    "windows-1252": "windows-1252", "gb2312": "gb18030", "gbk": "gb18030", "gb18030": "gb18030", "big5": "big5",
    "utf-16": "utf-16",
}  # fmt: skip
"""GB 18030 includes GBK and GB 2312."""
_CHARSET: Final = re.compile(r"; *charset *= *\"?([\w.:-]{1,40})", re.IGNORECASE | re.ASCII)
_XML_ENCODING: Final = re.compile(r"\s*<\?xml[^>]{0,100}\sencoding\s*=\s*[\"']([\w.:-]{1,40})", re.ASCII)
_MAX_DECLARATION_BYTES: Final = 200  # unmeasured
_UNQUOTED: Final = str.maketrans({'"': "'", "\\": "/"})
NORMAL: Final = "000 normal"
_URI_FAILURE: Final = "003 uri-failure"
_ERROR: Final = "004 error"
_LEXICON_FAILURE: Final = "006 lexicon-load-failure"

log = logs.get(__name__)


@dataclass(slots=True, eq=False)
class _Speak:
    """A SPEAK request in progress, or waiting."""

    request_id: int
    speech_id: int
    parameters: dict[str, str]
    is_answered: bool = False
    is_taken: bool = False
    has_begun: bool = False
    control: Request | None = None
    """The CONTROL request that waits for its answer: audio that arrives before it is discarded."""
    last_mark: str = ""


class Synthesizer:
    """The synthesiser. ``tell`` sends a message to the server, ``send`` bytes to the client. ``numbers`` are for its
    speeches and lexicons, and ``by_number`` has it for each of them that the server may still tell of.
    """

    def __init__(
        self,
        channel_id: str,
        *,
        mrcp_call_id: str,
        line: RtpLine,
        tell: Callable[[Message, bytes], None],
        send: Callable[[bytes], None],
        numbers: Iterator[int],
        by_number: dict[int, "Synthesizer"],
        clock: Clock,
        max_queued: int,
    ) -> None:
        self.channel_id = channel_id
        self._mrcp_call_id = mrcp_call_id
        self._line = line
        self._tell = tell
        self._send = send
        self._numbers = numbers
        self._by_number = by_number
        self._clock = clock
        self._max_queued = max_queued
        self._machine = StateMachine(SYNTH_TABLE, SynthState.IDLE)
        self._queue: list[_Speak] = []
        """The first one is being spoken."""
        self._parameters: dict[str, str] = {}
        self._lexicons: list[str] = []
        """The loaded ones, in order of arrival."""
        self._defining: dict[int, tuple[Request, str]] = {}

    @property
    def state(self) -> SynthState:
        """The state as RFC 6787 §8.1 defines it."""
        return self._machine.state

    # --- requests --------------------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> None:
        handlers: dict[SynthEvent, Callable[[Request], None]] = {
            SynthEvent.SPEAK: self._speak,
            SynthEvent.STOP: self._stop,
            SynthEvent.PAUSE: self._pause,
            SynthEvent.RESUME: self._resume,
            SynthEvent.BARGE_IN: self._barge_in,
            SynthEvent.CONTROL: self._control,
            SynthEvent.DEFINE_LEXICON: self._define_lexicon,
            SynthEvent.SET_PARAMS: self._set_params,
            SynthEvent.GET_PARAMS: self._get_params,
        }
        method = next((each for each in handlers if each == request.method), None)
        if method is None:
            self._answer(request, StatusCode.NOT_ALLOWED)
        elif wrong := params.illegal(request.headers) if method is not SynthEvent.GET_PARAMS else []:
            self._answer(request, StatusCode.ILLEGAL_VALUE, wrong)
        elif not self._machine.can(method):
            self._answer(request, StatusCode.WRONG_STATE)
        elif unknown := params.unsettable(request.headers) if method in _OF_PARAMETERS else []:
            self._answer(request, StatusCode.UNSUPPORTED_HEADER, unknown)
        else:
            handlers[method](request)

    def _speak(self, request: Request) -> None:
        content_type = request.media_type
        charset = _charset_of(request)
        written = request.header("Speak-Length") or ""
        length = params.length_of(written)
        if not request.body:
            status = StatusCode.FAILED if content_type else StatusCode.MISSING_HEADER
            self._answer(request, status, _cause("002 parse-failure", "the request has no text"))
        elif content_type == "text/uri-list":
            self._answer(request, StatusCode.FAILED, _cause(_URI_FAILURE, "texts are not fetched from URIs"))
        elif content_type not in _TYPES:
            status = StatusCode.UNSUPPORTED_ENTITY if content_type else StatusCode.MISSING_HEADER
            self._answer(request, status, [("Content-Type", content_type)])
        elif charset is None:
            self._answer(
                request, StatusCode.UNSUPPORTED_ENTITY, [("Content-Type", request.header("Content-Type") or "")]
            )
        elif written and (length is None or length[1] != "second" or length[0] <= 0):
            self._answer(request, StatusCode.UNSUPPORTED_VALUE, [("Speak-Length", written)])
        elif self._line.rate_hz is None:
            self._answer(request, StatusCode.FAILED, _cause(_ERROR, "the session has no audio"))
        elif len(self._queue) >= self._max_queued:
            self._answer(request, StatusCode.FAILED, _cause(_ERROR, f"{self._max_queued} requests wait"))
        elif any(each.request_id == request.request_id for each in self._queue):
            self._answer(request, StatusCode.FAILED, _cause(_ERROR, "the request-id is in use"))
        else:
            max_ms = None if length is None else length[0] * 1000
            self._take(request, _TYPES[content_type], charset, self._line.rate_hz, max_ms)

    def _take(self, request: Request, markup: Markup, charset: str, rate_hz: int, max_ms: int | None) -> None:
        parameters = params.merged(self._parameters, request)
        speak = _Speak(request.request_id, self._new_number(), parameters)
        order = params.lexicon_order(parameters)
        opened = OpenSpeech(
            speak.speech_id,
            self._mrcp_call_id,
            markup,
            params.style_of(parameters),
            rate_hz,
            max_ms,
            tuple(self._lexicons if order is None else order),
            charset,
        )
        self._queue.append(speak)
        self._machine.fire(SynthEvent.SPEAK)
        self._tell(opened, request.body)
        if len(self._queue) == 1:
            self._start()

    def _stop(self, request: Request) -> None:
        wanted = self._wanted(request)
        if wanted is None:
            self._answer(request, StatusCode.ILLEGAL_VALUE, [("Active-Request-Id-List", "")])
            return
        self._answer_stopped(request, [each for each in self._queue if not wanted or each.request_id in wanted])

    def _wanted(self, request: Request) -> set[int] | None:
        """Return the requests that STOP names; an empty set means all. ``None`` if the list is malformed."""
        written = request.header("Active-Request-Id-List")
        if written is None:
            return set()
        return {int(each) for each in written.split(",")} if _ID_LIST.fullmatch(written) else None

    def _barge_in(self, request: Request) -> None:
        """End the spoken request if it may be interrupted, and with it the whole queue (RFC 6787 §8.8)."""
        kills = bool(self._queue) and params.kills_on_barge_in(self._queue[0].parameters)
        self._answer_stopped(request, list(self._queue) if kills else [])

    def _answer_stopped(self, request: Request, stopped: list[_Speak]) -> None:
        """End these requests, answer, and continue with the rest of the queue."""
        is_current = bool(stopped) and stopped[0] is self._queue[0]
        marker = self._marker() if is_current else []
        for each in stopped:
            self._answer_speak(each)
            self._forget(each, "cancelled")
        if is_current:
            self._machine.fire(SynthEvent.STOP)
        ids = [("Active-Request-Id-List", ",".join(str(each.request_id) for each in stopped))] if stopped else []
        self._answer(request, StatusCode.SUCCESS, [*ids, *marker])
        if is_current:
            self._line.cut()
            self._line.resume()
            self._next()

    def _pause(self, request: Request) -> None:
        self._machine.fire(SynthEvent.PAUSE)
        self._line.pause()
        self._answer_active(request)

    def _resume(self, request: Request) -> None:
        self._machine.fire(SynthEvent.RESUME)
        self._line.resume()
        self._answer_active(request)

    def _answer_active(self, request: Request, extra: tuple[Header, ...] = ()) -> None:
        active = ("Active-Request-Id-List", str(self._queue[0].request_id))
        self._answer(request, StatusCode.SUCCESS, [active, *extra, *self._marker()])

    def _control(self, request: Request) -> None:
        speak = self._queue[0]
        changes = params.settable(request.headers)
        written = request.header("Jump-Size") or ""
        jump = params.length_of(written)
        if written and jump is None:
            self._answer(request, StatusCode.UNSUPPORTED_VALUE, [("Jump-Size", written)])
        elif not changes and jump is None:
            self._answer(request, StatusCode.MISSING_HEADER)
        elif not speak.is_taken or speak.control is not None:
            self._answer(request, StatusCode.FAILED, _cause(_ERROR, "the request cannot be controlled yet"))
        else:
            speak.control = request
            count, unit = jump or (0, "second")
            style = params.style_of({**speak.parameters, **changes})
            self._tell(JumpSpeech(speak.speech_id, self._line.played_ms, count, unit, style), b"")
            self._line.cut()

    def _define_lexicon(self, request: Request) -> None:
        content_type = request.media_type
        name = (request.header("Content-ID") or "").strip("<> ")
        if not request.body or not name:
            self._answer(request, StatusCode.MISSING_HEADER)
        elif content_type == "text/uri-list":
            self._answer(request, StatusCode.FAILED, _cause(_URI_FAILURE, "lexicons are not fetched from URIs"))
        elif content_type != _LEXICON_TYPE:
            self._answer(request, StatusCode.UNSUPPORTED_ENTITY, [("Content-Type", content_type)])
        elif len(self._lexicons) + len(self._defining) >= MAX_LEXICONS:
            self._answer(request, StatusCode.FAILED, _cause(_LEXICON_FAILURE, f"{MAX_LEXICONS} lexicons are defined"))
        else:
            number = self._new_number()
            self._defining[number] = request, f"session:{name}"
            self._tell(DefineLexicon(number, self._mrcp_call_id, f"session:{name}"), request.body)

    def _set_params(self, request: Request) -> None:
        self._parameters.update(params.settable(request.headers))
        self._answer(request, StatusCode.SUCCESS)

    def _get_params(self, request: Request) -> None:
        names = list(params.settable(request.headers)) or list(params.SETTABLE)
        values = {params.KILL_ON_BARGE_IN: "true", **self._parameters}
        self._answer(request, StatusCode.SUCCESS, [(name, values[name]) for name in names if name in values])

    # --- what the server and the line tell ---------------------------------------------------------------------------------

    def take(self, message: AboutOne, payload: bytes = b"") -> None:
        """Handle a message of the server about a speech or a lexicon. Audio is dropped if the line plays another speech."""
        match message:
            case Taken(number=number) if number in self._defining:
                self._lexicon_taken(message)
                return
            case Taken():
                self._taken(message)
                return
            case SpeechJumped():
                self._jumped(message)
                return
            case _ if not self.takes_audio(message.number):
                return
        speak = self._queue[0]
        match message:
            case SpeechAudio():
                try:
                    self._line.write(payload)
                except (PlayoutOverflow, ValueError) as error:
                    log.error("playout_failed", detail=str(error))
                    self._complete(speak, _cause(_ERROR, f"audio was lost: {error}"), "error")
            case SpeechMark(name=name):
                speak.last_mark = name
                self._send_event("SPEECH-MARKER", speak, RequestState.IN_PROGRESS, self._marker())
            case SpeechOver(code="", detail=_):
                self._line.finish()
            case SpeechOver(code=code, detail=detail):  # its audio broke off
                self._line.cut()
                self._complete(speak, _cause(_CAUSES.get(code, _ERROR), detail), code)

    def takes_audio(self, number: int) -> bool:
        """Return whether the line now plays the audio of this speech."""
        speak = self._queue[0] if self._queue else None
        return speak is not None and speak.speech_id == number and speak.control is None

    def _taken(self, taken: Taken) -> None:
        if (speak := self._named(taken.number)) is None:
            return
        if not taken.code:
            speak.is_taken = True
            self._answer_speak(speak)
            return
        status, headers = _refusal(taken.code, taken.detail, speak.parameters.get("Voice-Name", ""))
        if not speak.is_answered:
            self._send_response(speak.request_id, status, RequestState.COMPLETE, headers)
        self._end(speak, taken.code)

    def _jumped(self, jumped: SpeechJumped) -> None:
        """Continue with the audio from another place, or from the same one if the jump was not possible."""
        speak = self._named(jumped.number)
        if speak is None or (request := speak.control) is None:
            return
        speak.control = None
        self._line.begin(speak.speech_id, jumped.at_ms)
        if jumped.code:
            wanted = params.settable(request.headers)
            self._answer(request, *_refusal(jumped.code, jumped.detail, wanted.get("Voice-Name", "")))
            return
        speak.parameters.update(params.settable(request.headers))
        self._answer_active(request, (("Speak-Restart", "true"),) if jumped.restarts else ())

    def _lexicon_taken(self, taken: Taken) -> None:
        del self._by_number[taken.number]
        request, name = self._defining.pop(taken.number)
        if taken.code:
            self._answer(request, StatusCode.FAILED, _cause(_LEXICON_FAILURE, taken.detail))
            return
        if (request.header("Load-Lexicon") or "true").lower() == "true" and name not in self._lexicons:
            self._lexicons.append(name)
        self._answer(request, StatusCode.SUCCESS, _cause(NORMAL))

    def on_played(self, unsent: str = "") -> None:
        """End a request when all of it, and the silence after it, was played; ``unsent``: why no packet of it
        could be sent.
        """
        if self._queue:
            cause = _cause(_ERROR, f"no RTP could be sent: {unsent}") if unsent else _cause(NORMAL)
            self._complete(self._queue[0], cause, "error" if unsent else "")

    def close(self, reason: str) -> None:
        self._line.cut()
        for each in list(self._queue):
            self._forget(each, reason)
        for number in self._defining:
            del self._by_number[number]
        self._machine = StateMachine(SYNTH_TABLE, SynthState.IDLE)

    # ---------------------------------------------------------------------------------------------------------------------

    def _new_number(self) -> int:
        number = next(self._numbers)
        self._by_number[number] = self
        return number

    def _named(self, speech_id: int) -> _Speak | None:
        return next((each for each in self._queue if each.speech_id == speech_id), None)

    def _start(self) -> None:
        speak = self._queue[0]
        speak.has_begun = True
        self._line.begin(speak.speech_id)
        self._tell(StartSpeech(speak.speech_id), b"")

    def _next(self) -> None:
        if self._queue:
            self._machine.fire(SynthEvent.SPEAK)
            self._start()

    def _complete(self, speak: _Speak, cause: list[Header], code: str) -> None:
        self._answer_speak(speak)
        self._send_event("SPEAK-COMPLETE", speak, RequestState.COMPLETE, [*cause, *self._marker()])
        self._end(speak, code)

    def _end(self, speak: _Speak, code: str) -> None:
        """End a request; if it was being spoken, the next one begins."""
        is_current = speak is self._queue[0]
        self._forget(speak, code or "normal")
        if is_current:
            self._machine.fire(SynthEvent.COMPLETE)
            self._line.cut()
            self._line.resume()
            self._next()

    def _forget(self, speak: _Speak, reason: str) -> None:
        if speak.control is not None:
            self._answer(speak.control, StatusCode.SUCCESS)
            speak.control = None
        played_ms = self._line.played_ms if speak.has_begun else 0.0
        self._queue.remove(speak)
        del self._by_number[speak.speech_id]
        self._tell(CloseSpeech(speak.speech_id, played_ms, reason), b"")

    def _answer_speak(self, speak: _Speak) -> None:
        if speak.is_answered:
            return
        speak.is_answered = True
        state = RequestState.IN_PROGRESS if speak.has_begun else RequestState.PENDING
        self._send_response(speak.request_id, StatusCode.SUCCESS, state, _timestamp(self._ntp))

    @property
    def _ntp(self) -> int:
        """Return the time as a 64-bit NTP timestamp (RFC 6787 §8.4.8)."""
        return int((self._clock.wall_s() + _NTP_EPOCH_S) * 2**32)

    def _marker(self) -> list[Header]:
        """Return the position in the spoken request: the time, and the last mark of its text."""
        mark = self._queue[0].last_mark if self._queue else ""
        return _timestamp(self._ntp, mark)

    def _answer(self, request: Request, status: StatusCode, headers: list[Header] | None = None) -> None:
        self._send_response(request.request_id, status, RequestState.COMPLETE, headers or [])

    def _send_response(self, request_id: int, status: StatusCode, state: RequestState, headers: list[Header]) -> None:
        self._send(response(request_id, status, state, [("Channel-Identifier", self.channel_id), *headers]))

    def _send_event(self, name: str, speak: _Speak, state: RequestState, headers: list[Header]) -> None:
        self._send(event(name, speak.request_id, state, [("Channel-Identifier", self.channel_id), *headers]))


def _charset_of(request: Request) -> str | None:
    """Return the encoding of the text: that of Content-Type, else that of the XML declaration, else UTF-8. ``None`` if it is
    not supported.
    """
    header, beginning = request.header("Content-Type") or "", request.body[:_MAX_DECLARATION_BYTES]
    named = _CHARSET.search(header) or _XML_ENCODING.match(beginning.decode("ascii", "replace"))
    return _CHARSETS.get(named[1].lower()) if named is not None else "utf-8-sig"


def _cause(cause: str, reason: str = "") -> list[Header]:
    found = [("Completion-Cause", cause)]
    return [*found, ("Completion-Reason", f'"{reason[:200].translate(_UNQUOTED)}"')] if reason else found


def _refusal(code: str, detail: str, voice: str) -> tuple[StatusCode, list[Header]]:
    named = [("Voice-Name", voice)] if code == "unknown_voice" else []
    return _STATUS_OF.get(code, StatusCode.FAILED), [*named, *_cause(_CAUSES.get(code, _ERROR), detail)]


def _timestamp(ntp: int, mark: str = "") -> list[Header]:
    return [("Speech-Marker", f"timestamp={ntp};{mark}" if mark else f"timestamp={ntp}")]
