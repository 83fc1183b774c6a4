"""All calls: dispatches the reports of the user agent, keeps ended calls for a while, and drains. Runs on:
the event loop.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from cc_tts import logs
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.call_table import CallTable
from cc_tts.calls.ending import Ending
from cc_tts.calls.events import types
from cc_tts.calls.incoming import IncomingCalls, MediaConnector
from cc_tts.calls.originate import OriginateRequest, OutgoingCalls
from cc_tts.calls.relay.relays import Relays
from cc_tts.calls.services import CallServices
from cc_tts.calls.transfers.referrals import Referrals
from cc_tts.calls.transfers.warm import end_unbriefed
from cc_tts.clock import ms_between
from cc_tts.engines.gate import LOOK_S, EngineGate
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import STOPPED
from cc_tts.ua import messages

OVERLOAD_EVENT_INTERVAL_S: Final = 1.0
"""No more than one event ``server.overloaded`` is published in this time; unmeasured."""
HANGUP_TIMEOUT_S: Final = 3.0
"""The time that the last calls may take to end after our BYE; unmeasured."""

log = logs.get(__name__)


class CallRegistry:
    """All calls: live ones, and ended ones that are still known."""

    def __init__(self, services: CallServices, connect_media: MediaConnector) -> None:
        self.services = services
        self._metrics = services.metrics
        self._table = CallTable(services)
        self.relays = Relays(services)
        self.incoming = IncomingCalls(services, self._table, relays=self.relays, connect_media=connect_media)
        self.outgoing = OutgoingCalls(services, self._table)
        self.referrals = Referrals(services, self._table, self.outgoing)
        self._overload_ns: int | None = None
        self._gate = EngineGate(services.clock)
        self._was_degraded = False
        self._handlers: Mapping[type[Message], Callable[[Any], None]] = {
            messages.IncomingCall: self.incoming.take,
            messages.CallSnapshot: self._adopt,
            messages.CallEstablished: self._on_established,
            messages.CallEnded: self._on_ended,
            messages.ReferRequested: self._on_refer,
            messages.RecordingStarted: services.recordings.on_report,
            messages.RecordingOver: services.recordings.on_report,
            messages.RecorderLost: services.recordings.on_report,
            messages.InviteRefused: self._on_refused,
            messages.MediaLateness: self._note_lateness,
            messages.RegistrationChanged: self._note_registration,
            messages.RequestsRefused: self._count_refused_requests,
            messages.AssertionsFailed: self._count_failed_assertions,
            messages.HepCounts: self._count_hep_packets,
            messages.ReportsPublished: self._count_quality_reports,
        }
        """These handle reports; all others go to the live call that they are about."""
        services.ua.listener = self

    @property
    def draining(self) -> bool:
        """Whether no new calls are taken, since the server is about to end."""
        return self._table.draining

    # --- what the API asks -------------------------------------------------------------------------------------------

    @property
    def not_ready_because(self) -> str | None:
        """Why a new call could not be answered and spoken to now; ``None`` if it could."""
        if self.draining:
            return "draining"
        if not self.services.ua.is_ready:
            return "the SIP user agent does not answer" if self.services.ua.build else "the SIP user agent is starting"
        engine_reason = self.services.source.engine.not_ready_because()
        if engine_reason is not None:
            return f"the speech engine: {engine_reason}"
        if not (self._gate.is_open and self.services.ua.lets_calls_in):
            return "the speech engine: it takes prompts again, for less than a second"
        if self.services.ua.is_full:
            return f"all {self.services.ua.max_calls} lines are busy"
        if self.services.config.registration.registrar and self.services.ua.registered is False:
            return "not registered with the PBX"
        return self.services.trunks.not_ready_because

    @property
    def num_calls(self) -> int:
        return len(self._table.live)

    def calls(self, state: CallState | None = None, sip_call_id: str | None = None) -> list[Call]:
        """Return live calls and ended ones that are still known, oldest first; if asked, only those in a state or of a SIP
        Call-ID. A call to ourselves is two calls with one Call-ID.
        """
        everyone = [*self._table.ended.values(), *self._table.live.values()]
        wanted = [call for call in everyone if state in (None, call.state) and sip_call_id in (None, call.sip_call_id)]
        return sorted(wanted, key=lambda call: call.created_at_s)

    def call(self, call_id: str) -> Call:
        """Return the call of this id.

        Raises:
            CallNotFound: unknown, or ended and forgotten.
        """
        return self._table.find(call_id)

    async def trace(self, call: Call) -> messages.CallTrace:
        """Return the SIP messages of a call; raises ``UserAgentUnavailable``, ``LineUnsupported`` if it has no SIP."""
        call.check_sip("SIP messages", instead="")
        return await self.services.ua.trace(call.id, call.sip_call_id)

    def has(self, id_: str) -> bool:
        return id_ in self._table or id_ in self.services.utterances

    async def originate(self, request: OriginateRequest) -> Call:
        """Place a call; its progress comes as events.

        Raises:
            Draining, UserAgentUnavailable, CapacityExceeded: not now.
            DuplicateId: the call id is taken.
            QuotaExceeded: the tenant has as many calls as it may.
            Unprocessable: nothing can be sent to ``to`` from here, or it is not trusted with an asserted identity.
            TextTooLong, NothingToSay, UnknownVoice, LanguageUnsupported, Unprocessable: the prompt is of no use.
            SpeechNotHeard: who answers is to be found out, and nothing here hears speech.
        """
        if request.amd is not None:
            await self.services.vad.ready()
        return self.outgoing.place(request)

    def start_drain(self) -> bool:
        """Take no new calls from now on; return whether this call began the drain."""
        if self.draining:
            return False
        self._table.draining = True
        self._metrics.draining.set(1)
        self._admit()
        self.services.events.publish(types.ServerDraining(calls=len(self._table.live)))
        log.info("draining", calls=len(self._table.live))
        return True

    async def follow_engine(self) -> None:
        """Refuse new calls with 503 while the engine cannot speak, as :class:`EngineGate` decides. Runs until cancelled."""
        while True:
            self._poll_engine()
            await asyncio.sleep(LOOK_S)

    def _poll_engine(self) -> None:
        engine = self.services.source.engine
        reason = engine.not_ready_because()
        if self._gate.poll(is_ready=reason is None, is_full=engine.is_full()):
            self._admit()
            if reason is None:
                log.info("new_calls_taken")
            else:
                log.warning("new_calls_refused", reason=reason)
        if (degraded := engine.degraded_because is not None) != self._was_degraded:
            self._was_degraded = degraded
            log.warning("speech_degraded" if degraded else "speech_restored", reason=engine.degraded_because)

    def _admit(self) -> None:
        """Tell the UA processes whether to accept new calls."""
        self.services.ua.set_accepting(accepting=self._gate.is_open and not self.draining)

    async def drained(self, *, timeout_s: float) -> bool:
        """Wait until the last call has ended; end the others after ``timeout_s``. Returns whether all ended
        by themselves.
        """
        await self._table.until_empty(timeout_s)
        left = list(self._table.live.values())
        for call in left:
            if call.waits_for_answer:
                call.end("draining", sip_code=503, retry_after_s=self.services.config.sip.retry_after_s)
            else:
                call.end("draining")
        await self._table.until_empty(HANGUP_TIMEOUT_S)
        return not left

    # --- what the UA process reports -------------------------------------------------------------------------------------

    def on_ua_ready(self, build: Mapping[str, str]) -> None:
        log.info("sip_ready", **build)

    def on_ua_down(self, reason: str, call_ids: Collection[str]) -> None:
        for call_id in call_ids:
            if (call := self._table.live.get(call_id)) is not None:
                call.terminate(Ending("failed", "ua_process_died"))
                self._table.retire(call)
        self._note_lateness()
        if reason == STOPPED:
            return
        self._metrics.process_restarts.labels(process="ua").inc()
        log.error("sip_down", reason=reason)

    def on_ua_message(self, message: Message, payload: bytes = b"") -> None:
        try:
            if (handle := self._handlers.get(type(message))) is not None:
                handle(message)
            elif (
                isinstance(message, messages.CallReport) and (call := self._table.live.get(message.call_id)) is not None
            ):
                if isinstance(message, messages.CallAudio):
                    call.audio.deliver(message, payload)
                else:
                    call.on_report(message)
        except Exception:
            log.exception("report_failed", report=type(message).__name__)

    # ----------------------------------------------------------------------------------------------------------------------

    def _on_established(self, established: messages.CallEstablished) -> None:
        if (call := self._table.live.get(established.call_id)) is not None:
            call.on_report(established)
            self.outgoing.answered(call)

    def _on_ended(self, ended: messages.CallEnded) -> None:
        if (call := self._table.live.get(ended.call_id)) is None:
            self.services.ua.note_end(ended.call_id)  # it was not adopted
        elif not self.outgoing.fail_over(call, ended):
            call.on_report(ended)
            self._table.retire(call)
            self.outgoing.over(call)

    def _on_refer(self, asked: messages.ReferRequested) -> None:
        if (call := self._table.live.get(asked.call_id)) is not None:
            self.referrals.take(call, asked)

    def _adopt(self, snapshot: messages.CallSnapshot) -> None:
        if (call := self.incoming.adopt(snapshot)) is None:
            return
        if call.state is CallState.ESTABLISHED and call.local_reason is None:
            self.outgoing.answered(call)  # while there was no server
        self.referrals.adopt(call)
        end_unbriefed(call)

    def _note_registration(self, message: messages.RegistrationChanged) -> None:
        log.info("registration", trunk=message.trunk, registered=message.registered, sip_code=message.sip_code)
        if message.trunk:
            self.services.trunks.note_registration(message.trunk, registered=message.registered)
            return
        self.services.ua.registered = message.registered
        registrar = self.services.config.registration.registrar
        self._metrics.registered.labels(registrar=registrar).set(message.registered)

    def _note_lateness(self, _lateness: messages.MediaLateness | None = None) -> None:
        self._metrics.ua_media_lateness.set(self.services.ua.lateness.p99_ms / 1000)
        self._metrics.ua_refusing_lateness.set(self.services.ua.lateness.refusing)

    def _count_refused_requests(self, refused: messages.RequestsRefused) -> None:
        for cause, count in refused.counts.items():
            self._metrics.sip_refused.labels(cause=cause).inc(count)

    def _count_quality_reports(self, published: messages.ReportsPublished) -> None:
        for result, count in published.counts.items():
            self._metrics.quality_reports.labels(result=result).inc(count)

    def _count_failed_assertions(self, failed: messages.AssertionsFailed) -> None:
        self._metrics.ua_failed_assertions.inc(failed.count)

    def _count_hep_packets(self, counted: messages.HepCounts) -> None:
        self._metrics.hep_packets.labels(result="sent").inc(counted.sent)
        self._metrics.hep_packets.labels(result="dropped").inc(counted.dropped)

    def _on_refused(self, _refused: messages.InviteRefused) -> None:
        self._metrics.calls_ended.labels(direction="inbound", result="rejected", reason="overload").inc()
        now_ns = self.services.clock.now_ns()
        if self._overload_ns is None or ms_between(self._overload_ns, now_ns) >= OVERLOAD_EVENT_INTERVAL_S * 1000:
            self._overload_ns = now_ns
            self.services.events.publish(types.ServerOverloaded(calls=len(self._table.live), draining=self.draining))
