"""The part of an agent that legs and lines share: commands and reports, and a server that may be gone for a while.

Runs on: the thread of the loop, except :meth:`Agent.media`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.media.playout_events import PlayoutOverflow
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.process.call_media import CallMedia
from cc_tts.ua.process.served_call import ServedCall
from cc_tts.ua.recording.recordings import LegRecordings

log = logs.get(__name__)


C = TypeVar("C", bound=ServedCall)


class Agent(ABC, Generic[C]):
    """The calls of the process."""

    def __init__(self, settings: messages.UaSettings, clock: Clock, send: Callable[[Message], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._send = send
        self._calls: dict[str, C] = {}
        self._accepting = True
        self._server_silent = False
        self._retry_after_s = settings.sip.retry_after_s
        self._unanswered: set[str] = set()  # calls that were reported to the server, which has not reacted yet
        self._heard: set[str] = set()  # calls that somebody listens to
        self._tails: list[tuple[int, messages.Hangup]] = []
        self._recordings = LegRecordings(AudioFormat(settings.rtp.clock_rate_hz), settings.log, send)

    @property
    @abstractmethod
    def num_calls(self) -> int:
        """The number of calls that have not ended."""

    @abstractmethod
    def start(self) -> dict[str, str]:
        """Open the listeners; return a description of what it runs on, for people, and how many calls it takes."""

    @abstractmethod
    def poll(self) -> None:
        """Do one turn of work."""

    def wake(self) -> None:
        """End the wait of :meth:`poll`, if it can be long. Runs on: the reader thread."""

    @abstractmethod
    def stop(self) -> None:
        """End all calls, and close what is open."""

    @abstractmethod
    def _execute(self, call: C, message: messages.CallCommand) -> None:
        """Carry out a command on a call that is not over."""

    def _execute_other(self, message: Message) -> None:
        """Carry out a command that is not about one call, or that only this kind of process knows."""
        log.error("unexpected_command", command=type(message).__name__)

    def command(self, message: Message) -> None:
        """Carry out a command of the server."""
        match message:
            case messages.SetAccepting():
                self._accepting, self._retry_after_s = message.accepting, message.retry_after_s
                self._send(messages.AcceptingSet(accepting=message.accepting))
            case messages.Hangup(tail_ms=tail_ms) if tail_ms:
                hangup = msgspec.structs.replace(message, tail_ms=0)
                self._tails.append((self._clock.now_ns() + tail_ms * NS_PER_MS, hangup))
            case messages.StartRecording() | messages.SetRecordingPaused() | messages.StopRecording():
                call = self._calls.get(message.call_id)
                self._recordings.command(message, None if call is None or call.is_over else call.media.record)
            case messages.CallCommand(call_id=call_id):
                if not isinstance(message, messages.KeepRecord | messages.AllowRefers | messages.MeasureLevels):
                    self._unanswered.discard(call_id)
                call = self._calls.get(call_id)
                if call is None or call.is_over:
                    return  # it ended while the command was on its way; CallEnded reports that
                if isinstance(message, messages.SetListening):
                    (self._heard.add if message.directions else self._heard.discard)(call_id)
                try:
                    self._execute(call, message)
                except Exception as error:  # a fault with one call: the others must not end with it
                    log.exception("command_failed", call_id=call_id, command=type(message).__name__)
                    name, detail = type(message).__name__.lower(), f"{type(error).__name__}: {error}"
                    self._send(messages.CommandFailed(call_id, command=name, detail=detail))
            case _:
                self._execute_other(message)

    def _end_tails(self) -> None:
        """Carry out the hang-ups whose silence has been sent."""
        now_ns = self._clock.now_ns()
        for tail in tuple(self._tails):
            if tail[0] <= now_ns:
                self._tails.remove(tail)
                self.command(tail[1])

    def media(self, message: Message, payload: bytes) -> bool:
        """Feed a playout buffer; returns whether ``message`` is about media. Runs on: the reader thread."""
        if not isinstance(message, messages.CallCommand) or (feed := MEDIA_COMMANDS.get(type(message))) is None:
            return False
        call = self._calls.get(message.call_id)
        if call is None:
            return True  # it ended while the message was on its way
        try:
            feed(call.media, message, payload)
        except (PlayoutOverflow, ValueError, KeyError) as error:
            log.error("media_refused", call_id=call.call_id, command=type(message).__name__, detail=str(error))
            call.media.cut(None)
        return True

    def forward_audio(self, put: Callable[[Message, bytes], None]) -> None:
        """Pass the frames of calls with listeners to ``put``, in one message for each call since the last time. While this
        is not called, because the server does not read, frames beyond two seconds are dropped.
        """
        for call_id in self._heard:
            if (call := self._calls.get(call_id)) is not None:
                for message, pcm in call.media.take_audio():
                    put(message, pcm)

    def set_server_silent(self, *, silent: bool) -> None:
        """While the server is silent, refuse new calls, and end those without an answer with 503."""
        if silent == self._server_silent:
            return
        self._server_silent = silent
        log.warning("server_silent" if silent else "server_back", new_calls="503" if silent else "welcome")
        for call_id in tuple(self._unanswered) if silent else ():
            self.command(messages.Hangup(call_id=call_id, sip_code=503, retry_after_s=self._retry_after_s))

    def detach_server(self) -> None:
        """The server is gone: refuse new calls until :class:`messages.SetAccepting` comes; the other calls play what they
        have.
        """
        self._accepting = self._server_silent = False
        self._heard.clear()
        for call in self._live_calls():
            self._detach(call)

    @abstractmethod
    def _detach(self, call: C) -> None:
        """Detach one call from the server."""

    def attach_server(self) -> list[messages.CallSnapshot]:
        """A new server is there: return a snapshot of each call. Prompts that are not in it are reported as over."""
        return [call.snapshot() for call in self._live_calls()]

    def snapshot(self, call_id: str) -> messages.CallSnapshot | None:
        """Return the state of a live or ended call; ``None`` if it is not known."""
        call = self._calls.get(call_id)
        return None if call is None else call.snapshot()

    def _forget(self, call_id: str) -> None:
        """Remove a call that is over."""
        self._calls.pop(call_id, None)
        self._heard.discard(call_id)
        self._unanswered.discard(call_id)

    def _live_calls(self) -> list[C]:
        return [call for call in self._calls.values() if not call.is_over]


MEDIA_COMMANDS: Final[dict[type[messages.CallCommand], Callable[[CallMedia, Any, bytes], None]]] = {
    messages.BeginUtterance: lambda media, begin, _: media.buffer.begin(begin.utterance_id, begin.start_threshold_ms),
    messages.Audio: lambda media, audio, pcm: media.buffer.write(audio.utterance_id, pcm),
    messages.ExpectUnderrun: lambda media, more, _: media.buffer.await_more(more.utterance_id),
    messages.FinishUtterance: lambda media, finish, _: media.buffer.finish(finish.utterance_id),
    messages.CutUtterance: lambda media, cut, _: media.cut(cut.utterance_id),
    messages.SetPaused: lambda media, pause, _: media.set_paused(
        pause.by, paused=pause.paused, restart=(pause.utterance_id, pause.from_ms) if pause.utterance_id else None
    ),
}
"""The commands that the reader thread carries out on a call."""
