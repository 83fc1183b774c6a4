"""The MRCP process as the server sees it: its speeches, lexicons and sessions. Runs on: the event loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.config.schema import Config
from cc_tts.errors import CcTtsError, LexiconMalformed, ProcessFailed
from cc_tts.metrics import Metrics
from cc_tts.mrcp.messages import (
    FROM_MRCP,
    MAX_LEXICONS,
    Accept,
    CloseSpeech,
    DefineLexicon,
    JumpSpeech,
    MrcpSettings,
    OpenSpeech,
    Renew,
    Sessions,
    SpeechProgress,
    StartSpeech,
    Taken,
)
from cc_tts.mrcp.server.speech import MrcpSpeech, SpeechServices
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import STOPPED, ProcessState
from cc_tts.processes.supervisor import Supervisor, python_child
from cc_tts.processes.tasks import TaskSet
from cc_tts.speech.source import SpeechSource
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import TenantQuotas
from cc_tts.text.pronunciation.lexicon import CompiledLexicon, read_pls
from cc_tts.tracing.span import Span, Value
from cc_tts.tracing.tracer import Tracer

LOOK_S: Final = 0.1  # unmeasured
_ENDS_OF_SESSIONS: Final = ("hangup", "shutdown", "released", "not_connected", "no_ack")

log = logs.get(__name__)


class MrcpProcess:
    """One process for all sessions. Without ``mrcp.enabled`` it is never started."""

    def __init__(
        self,
        config: Config,
        source: SpeechSource,
        *,
        tenants: TenantQuotas,
        accounting: AccountingLog,
        metrics: Metrics,
        clock: Clock,
        new_id: Callable[[], str],
        on_down: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        self._config = config
        self._tracer = tracer or Tracer()
        self._spans: dict[str, Span] = {}
        """The span of each session that has a SPEAK request."""
        self._metrics = metrics
        self._on_down = on_down
        self._accepting = True
        self._speeches: dict[int, MrcpSpeech] = {}
        self._lexicons: dict[str, dict[str, CompiledLexicon]] = {}
        self._tasks = TaskSet()
        self.num_sessions = 0
        self._services = SpeechServices(
            config=config,
            source=source,
            tenants=tenants,
            accounting=accounting,
            metrics=metrics,
            clock=clock,
            new_id=new_id,
            send=self._send,
        )
        self._supervisor = Supervisor(
            python_child("mrcp", "cc_tts.mrcp", messages=FROM_MRCP, settings=_settings_of(config)),
            clock=clock,
            on_message=self.take,
            on_ready=lambda _hello: self._send(Accept(self._accepting)),
            on_down=self._down,
        )

    @property
    def supervisors(self) -> tuple[Supervisor, ...]:
        return (self._supervisor,) if self._config.mrcp.enabled else ()

    async def start(self) -> None:
        """Start the process, if ``mrcp.enabled``. Raises ``ProcessFailed`` if it does not start."""
        if self._config.mrcp.enabled:
            await self._supervisor.start()

    async def stop(self) -> None:
        await self._supervisor.stop()
        self._drop_all()
        await self._tasks.ended()

    def set_accepting(self, *, accepting: bool) -> None:
        """Accept new sessions, or answer them with 503."""
        if accepting != self._accepting:
            self._accepting = accepting
            self._send(Accept(accepting))

    def reload(self, config: Config) -> None:
        """Apply who may connect, and the files of TLS."""
        self._supervisor.set_settings(_settings_of(config))
        self._send(Renew(config.mrcp.allowed_peers, config.tls))

    async def drained(self, *, timeout_s: float) -> None:
        """Wait until the last session is over, for at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.num_sessions:  # noqa: ASYNC110 - the sessions end one by one
                    await asyncio.sleep(LOOK_S)

    def take(self, message: Message, payload: bytes) -> None:
        match message:
            case OpenSpeech():
                self._open(message, payload)
            case StartSpeech(speech_id=number) | JumpSpeech(speech_id=number) | SpeechProgress(speech_id=number):
                if (speech := self._speeches.get(number)) is not None:
                    speech.take(message)
            case CloseSpeech(speech_id=number):
                self._close(number, message.played_ms, message.reason)
            case DefineLexicon():
                known = self._lexicons.setdefault(message.mrcp_call_id, {})  # now: the end of the session is read later
                self._tasks.begin(self._define(message, payload, known), "lexicon")
            case Sessions(num=num, over=mrcp_call_id):
                self.num_sessions = num
                self._metrics.mrcp_sessions.set(num)
                self._lexicons.pop(mrcp_call_id, None)
                self._end_span(mrcp_call_id)

    def _send(self, message: Message, payload: bytes = b"") -> None:
        if self._supervisor.state is ProcessState.READY:
            with contextlib.suppress(ProcessFailed):
                self._supervisor.send(message, payload)

    def _open(self, opened: OpenSpeech, payload: bytes) -> None:
        known = self._lexicons.get(opened.mrcp_call_id, {})
        lexicons = tuple(known[name] for name in opened.lexicons if name in known)
        span = self._span_of(opened.mrcp_call_id)
        speech = self._speeches[opened.speech_id] = MrcpSpeech(opened, payload, lexicons, self._services, span)
        speech.begin()

    def _span_of(self, mrcp_call_id: str) -> Span | None:
        """Begin the span of a SPEAK request as a part of its session's; ``None`` if nothing is exported."""
        whole = self._spans.get(mrcp_call_id) or self._tracer.begin("mrcp.session", kind="server")
        if whole is None:
            return None
        self._spans[mrcp_call_id] = whole
        attributes: dict[str, Value] = {"gen_ai.operation.name": "tts", "gen_ai.output.type": "speech"}
        return whole.child("mrcp.speak", kind="server", attributes=attributes | {"gen_ai.provider.name": "cc-tts"})

    def _end_span(self, mrcp_call_id: str) -> None:
        if (span := self._spans.pop(mrcp_call_id, None)) is not None:
            span.end()
            span.trace.close()

    def _close(self, number: int, played_ms: float, reason: str) -> None:
        if (speech := self._speeches.pop(number, None)) is not None:
            self._metrics.mrcp_speaks.labels(reason=_reason(reason)).inc()
            self._tasks.begin(speech.close(played_ms, reason), "close speech")

    async def _define(self, wanted: DefineLexicon, document: bytes, known: dict[str, CompiledLexicon]) -> None:
        try:
            if len(known) >= MAX_LEXICONS and wanted.name not in known:
                raise LexiconMalformed(f"a session has at most {MAX_LEXICONS} lexicons")
            known[wanted.name] = await asyncio.to_thread(_compiled, document)
        except CcTtsError as error:
            self._send(Taken(wanted.number, error.code, error.detail[:200]))
        else:
            self._send(Taken(wanted.number))

    def _drop_all(self) -> None:
        for number in list(self._speeches):
            self._close(number, 0.0, "process_ended")
        self._lexicons.clear()
        for mrcp_call_id in list(self._spans):
            self._end_span(mrcp_call_id)
        self.num_sessions = 0
        self._metrics.mrcp_sessions.set(0)

    def _down(self, reason: str) -> None:
        self._drop_all()
        if reason != STOPPED:
            self._on_down()


def _settings_of(config: Config) -> MrcpSettings:
    return MrcpSettings(
        log=config.log,
        sip=config.sip,
        tls=config.tls,
        mrcp=config.mrcp,
        start_threshold_ms=config.playout.start_threshold_min_ms,
    )


def _compiled(document: bytes) -> CompiledLexicon:
    """Runs on: a thread."""
    return CompiledLexicon(read_pls(document))


def _reason(reason: str) -> str:
    """Return one of the few values of a label. A session that ends in good order is not an error, whichever side ends it."""
    if reason in _ENDS_OF_SESSIONS:
        return "hangup"
    return reason if reason in ("normal", "cancelled", "process_ended") else "error"
