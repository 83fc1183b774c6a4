"""The server's side of the VAD process. Runs on: the event loop."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.config.schema import Config
from cc_tts.errors import ConfigError, ProcessFailed, Unprocessable
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import STOPPED, ProcessState
from cc_tts.processes.supervisor import Supervisor, python_child
from cc_tts.processes.tasks import cancel_all
from cc_tts.vad.answering.settings import Amd, Finding
from cc_tts.vad.messages import (
    FROM_VAD,
    AnswerFound,
    Classify,
    Ignore,
    LegFrames,
    Listen,
    SpeechEdge,
    VadSettings,
)
from cc_tts.vad.silero import find_model
from cc_tts.vad.speech import Edge, Listening, SpeechStarted, SpeechStopped

log = logs.get(__name__)

RETRY_S: Final = 10.0
"""A process that did not start is not started again before this time (unmeasured)."""
READY_TIMEOUT_S: Final = 10.0
"""The time for which an outgoing call waits for the process, which starts in about 1 s (unmeasured)."""


class SpeechNotHeard(Unprocessable, code="speech_not_heard", title="Speech of callers is not heard"):
    """Speech should interrupt a prompt, and the model that detects it is not installed."""


OnFinding = Callable[[Finding | None], None]
"""Gets the findings of machine detection; ``None``: earlier audio was lost, and nothing more will be found."""
Told = TypeVar("Told")


@dataclass(slots=True)
class _Leg:
    listening: Listening
    on_edge: Callable[[Edge], None]
    speaking_since_ns: int | None = None


class VadProcess:
    """One process for all legs, started with the first leg that is listened to. If it dies it is restarted, and the speech
    that it had reported counts as stopped.
    """

    def __init__(self, config: Config, *, clock: Clock, on_down: Callable[[], None]) -> None:
        self._clock = clock
        self._on_down = on_down
        self._model_file = config.vad.model_file
        self._legs: dict[str, _Leg] = {}
        self._classified: dict[str, tuple[Classify, OnFinding]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self.supervisor = Supervisor(
            python_child(
                "vad",
                "cc_tts.vad",
                messages=FROM_VAD,
                settings=VadSettings(log=config.log, vad=config.vad, rate_hz=config.rtp.clock_rate_hz),
            ),
            clock=clock,
            on_message=self._on_message,
            on_ready=lambda _hello: self._listen_again(),
            on_down=self._down,
        )

    def check(self) -> None:
        """Raise ``SpeechNotHeard`` if the model is not installed."""
        try:
            find_model(self._model_file)
        except ConfigError as error:
            raise SpeechNotHeard(error.detail) from None

    @property
    def pid(self) -> int | None:
        """Process id while it lives."""
        return self.supervisor.pid

    @property
    def is_ready(self) -> bool:
        """Whether legs are listened to now."""
        return self.supervisor.state is ProcessState.READY

    async def start(self) -> None:
        """Start it before it is needed, unless an adopted call has started it already.

        Raises:
            ProcessFailed: it does not start.
        """
        if self.supervisor.state is ProcessState.STOPPED and self._starting is None:
            await self.supervisor.start()

    async def ready(self) -> None:
        """Start it if it does not run, and wait until it listens.

        Raises:
            SpeechNotHeard: the model is not installed, or the process does not start.
        """
        self.check()
        if not self.is_ready:
            self._start_if_stopped()
            try:
                async with asyncio.timeout(READY_TIMEOUT_S):
                    await self._heard.wait()
            except TimeoutError:
                raise SpeechNotHeard("the process that hears speech does not start") from None

    async def stop(self) -> None:
        await cancel_all(self._starting)
        await self.supervisor.stop()

    def listen(self, leg: str, listening: Listening, on_edge: Callable[[Edge], None]) -> None:
        """Listen to a leg from now on, or change the settings. The edges of its speech go to ``on_edge``."""
        known = self._legs.get(leg)
        if known is None:
            self._legs[leg] = _Leg(listening, on_edge)
        elif changed := known.listening != listening:
            known.listening = listening
        if known is None or changed:
            self._send(Listen(leg, listening))
        self._start_if_stopped()

    def classify(
        self,
        leg: str,
        settings: Amd,
        origin_ns: int,
        *,
        is_answered: bool,
        on_finding: OnFinding,
    ) -> None:
        """Start machine detection on a leg, which has a separate name for this."""
        asked = Classify(leg, settings, origin_ns, is_answered)
        self._classified[leg] = asked, on_finding
        self._send(asked)
        self._start_if_stopped()

    def declassify(self, leg: str) -> None:
        """Stop machine detection on a leg."""
        if self._classified.pop(leg, None) is not None:
            self._send(Ignore(leg))

    def _start_if_stopped(self) -> None:
        if self.supervisor.state is ProcessState.STOPPED and self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="start vad")

    def push(self, leg: str, at_ns: int, pcm: bytes, *, is_sent: bool) -> None:
        """Send audio of a leg, from ``at_ns`` on. Dropped while the process is not up."""
        self._send(LegFrames(leg, is_sent, at_ns), pcm)

    def ignore(self, leg: str) -> None:
        """Stop listening to a leg."""
        if self._legs.pop(leg, None) is not None:
            self._send(Ignore(leg))

    async def _start(self) -> None:
        try:
            await self.supervisor.start()
        except ProcessFailed as error:
            log.error("speech_not_heard", detail=error.detail)
            await asyncio.sleep(RETRY_S)
        finally:
            self._starting = None

    def _send(self, message: Message, payload: bytes = b"") -> None:
        if self.is_ready:
            with contextlib.suppress(ProcessFailed):
                self.supervisor.send(message, payload)

    def _listen_again(self) -> None:
        self._heard.set()
        for name, leg in self._legs.items():
            self._send(Listen(name, leg.listening))
        for asked, _ in self._classified.values():
            self._send(asked)

    def _on_message(self, message: Message, _payload: bytes) -> None:
        if isinstance(message, SpeechEdge) and (leg := self._legs.get(message.leg)) is not None:
            match message.edge:
                case SpeechStarted(onset_ns=onset_ns):
                    leg.speaking_since_ns = onset_ns
                case SpeechStopped():
                    leg.speaking_since_ns = None
            _report(leg.on_edge, message.edge)
        elif isinstance(message, AnswerFound) and (known := self._classified.get(message.leg)) is not None:
            _report(known[1], message.finding)

    def _down(self, reason: str) -> None:
        self._heard.clear()
        for _, on_finding in tuple(self._classified.values()):
            _report(on_finding, None)
        now_ns = self._clock.now_ns()
        for leg in tuple(self._legs.values()):
            onset_ns, leg.speaking_since_ns = leg.speaking_since_ns, None
            if onset_ns is not None:
                _report(leg.on_edge, SpeechStopped(onset_ns, now_ns))
        if reason != STOPPED:
            self._on_down()


def _report(listener: Callable[[Told], None], heard: Told) -> None:
    """Call a listener; its errors do not affect other calls."""
    try:
        listener(heard)
    except Exception:
        log.exception("edge_failed")
