"""All calls: passes the UA's reports to them, keeps ended ones for a while, drains. Runs on: the event loop."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from cc_tts import logs
from cc_tts.calls import routing, traces
from cc_tts.calls.adoption import record as records
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.ending import Ending
from cc_tts.calls.events import types
from cc_tts.calls.services import CallServices
from cc_tts.calls.utterance import Utterance
from cc_tts.clock import ms_between
from cc_tts.config.schema import Config
from cc_tts.engines.gate import LOOK_S, EngineGate
from cc_tts.errors import (
    CallNotFound,
    CapacityExceeded,
    CcTtsError,
    ClientError,
    Draining,
    DuplicateId,
    FieldError,
    Unprocessable,
    UserAgentUnavailable,
)
from cc_tts.processes.channel import Message
from cc_tts.processes.supervisor import STOPPED
from cc_tts.speech.prompt import Prompt, PromptDefaults, text_of
from cc_tts.tenants.quotas import Reservation
from cc_tts.tenants.shares import SharedRoom
from cc_tts.ua import messages
from cc_tts.ua.guard.limits import PeerList
from cc_tts.ua.sip import bye
from cc_tts.ua.sip import uri as sip_uri

OVERLOAD_EVENT_INTERVAL_S: Final = 1.0
HANGUP_TIMEOUT_S: Final = 3.0

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginateRequest:
    """A call to place. ``from_`` empty: the account's address."""

    to: str
    from_: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    voice: str | None = None
    prompt: Prompt | None = None
    call_id: str | None = None
    display_name: str | None = None
    asserted_identity: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    client_state: str | None = None
    tenant: str = ""


class CallRegistry:
    """All calls, live ones and ended ones that are still kept."""

    def __init__(self, services: CallServices) -> None:
        self._services = services
        self._ua = services.ua
        self._metrics = services.metrics
        self.events = services.events
        self.reload(services.config)
        self.draining = False
        self._live: dict[str, Call] = {}
        self._ended: OrderedDict[str, Call] = OrderedDict()
        self._room: SharedRoom[str] = SharedRoom()
        """Of ended calls, a share for each tenant."""
        self._held: dict[str, Reservation] = {}
        """What the live calls of tenants count as."""
        self._empty = asyncio.Event()
        self._adopted: list[tuple[Call, messages.CallSnapshot]] = []
        """Calls that :meth:`present_adopted` is to tell of."""
        self._overload_ns: int | None = None
        self._gate = EngineGate(services.clock)
        self._was_degraded = False
        services.ua.listen(self)

    def reload(self, config: Config) -> None:
        """Route calls by this from now on; calls that are up go on as they were."""
        self._config = config
        self._services.tenants.reload(config.tenants)
        self._trusted_peers = PeerList(config.sip.trusted_peers)

    # --- what the API asks -------------------------------------------------------------------------------------------

    @property
    def not_ready_because(self) -> str | None:
        """Why a call would not be answered and spoken to now."""
        if self.draining:
            return "draining"
        if not self._ua.is_ready:
            return "the SIP user agent does not answer" if self._ua.build else "the SIP user agent is starting"
        engine_reason = self._services.source.engine.not_ready_because()
        if engine_reason is not None:
            return f"the speech engine: {engine_reason}"
        if self._ua.is_full:
            return f"all {self._ua.max_calls} lines are busy"
        if self._config.registration.registrar and self._ua.registered is False:
            return "not registered with the PBX"
        return None

    @property
    def degraded_because(self) -> str | None:
        """Why prompts are spoken by a plain voice in place of their own; ``None`` when they are not."""
        return self._services.source.engine.degraded_because

    @property
    def num_calls(self) -> int:
        """Calls that have not ended."""
        return len(self._live)

    @property
    def max_calls(self) -> int:
        """How many there may be."""
        return self._ua.max_calls

    def calls(self, state: CallState | None = None, sip_call_id: str | None = None) -> list[Call]:
        """Live calls and ended ones still kept, oldest first: all, or those in a state and of a SIP Call-ID. A call to
        ourselves is two of one Call-ID.
        """
        everyone = [*self._ended.values(), *self._live.values()]
        wanted = [call for call in everyone if state in (None, call.state) and sip_call_id in (None, call.sip_call_id)]
        return sorted(wanted, key=lambda call: call.created_at_s)

    def call(self, call_id: str) -> Call:
        """One call.

        Raises:
            CallNotFound: unknown, or ended and forgotten.
        """
        call = self._live.get(call_id) or self._ended.get(call_id)
        if call is None:
            raise CallNotFound.named(call_id)
        return call

    def has(self, id_: str) -> bool:
        """Whether a call or an utterance of this id is here."""
        return id_ in self._live or id_ in self._ended or id_ in self._services.utterances

    def utterance(self, utterance_id: str) -> Utterance:
        """One utterance.

        Raises:
            UtteranceNotFound: unknown, or its call is forgotten.
        """
        return self._services.utterances.get(utterance_id)

    async def originate(self, request: OriginateRequest) -> Call:
        """Place a call; its progress comes as events.

        Raises:
            Draining, UserAgentUnavailable, CapacityExceeded: not now.
            DuplicateId: the call id is taken.
            QuotaExceeded: the tenant has as many calls as it may.
            Unprocessable: nothing can be sent to ``to`` from here, or it is not trusted with an asserted identity.
            TextTooLong, NothingToSay, UnknownVoice, LanguageUnsupported, Unprocessable: the prompt is of no use.
        """
        self._check_capacity()
        call_id = request.call_id or self._services.nodes.new_id("call")
        if call_id in self._live or call_id in self._ended:
            raise DuplicateId(f"there is a call {call_id[:80]!r} already")
        self._check_target(request)
        self._check_speech(request)
        call = self._outbound(request, call_id)
        held = self._services.tenants.hold_call(request.tenant)
        try:
            self._ua.send(_invite(request, call_id))
        except BaseException:
            held.release()
            raise
        self._held[call_id] = held
        self._add(call)
        timeout_s = request.timeout_s or self._config.calls.originate_timeout_s
        call.no_answer_at_s = self._services.clock.wall_s() + timeout_s
        call.publish(types.CallOutgoing(**_parties(call)))
        call.after(timeout_s, partial(call.end, "no_answer"))
        if request.prompt is not None:
            call.speak(request.prompt)
        return call

    def _outbound(self, request: OriginateRequest, call_id: str) -> Call:
        caller = request.from_ or self._ua.default_caller
        return Call(
            services=self._services,
            id=call_id,
            direction="outbound",
            caller=f"{bye.quoted(request.display_name)} <{caller}>" if request.display_name else caller,
            callee=request.to,
            sip_call_id="",
            headers=request.headers,
            defaults=PromptDefaults(voice=request.voice),
            metadata=request.metadata,
            client_state=request.client_state,
            tenant=request.tenant,
            peer=sip_uri.destination(request.to),
        )

    def _check_capacity(self) -> None:
        retry_after_s = self._config.sip.retry_after_s
        if self.draining:
            raise Draining(retry_after_s=retry_after_s)
        if not self._ua.is_ready:
            raise UserAgentUnavailable(retry_after_s=retry_after_s)
        if self._ua.is_full:
            raise CapacityExceeded(f"{self._ua.max_calls} calls are up", retry_after_s=retry_after_s)

    def _check_target(self, request: OriginateRequest) -> None:
        sip = self._config.sip
        pointer, fault = "/to", sip_uri.fault_of_target(request.to, sip.transports)
        if not fault and request.asserted_identity:
            registrar = self._config.registration.registrar
            if not sip_uri.is_trusted_target(request.to, peers=self._trusted_peers, registrar=registrar):
                pointer = "/asserted_identity"
                fault = "is for calls to an address in sip.trusted_peers or to the registrar"
        if fault:
            raise Unprocessable(f"{pointer}: {fault}", field_errors=[FieldError(pointer, fault)])

    def _check_speech(self, request: OriginateRequest) -> None:
        if request.voice is not None:
            self._services.source.engine.resolve_voice(request.voice, None)
        if request.prompt is not None:
            self._services.source.check(request.prompt.content)
            self._services.tenants.check_characters(request.tenant, len(text_of(request.prompt.content)))
            self._services.check_capacity(request.tenant, request.prompt.content)
            self._services.utterances.new_id(request.prompt.utterance_id)

    def present_adopted(self) -> None:
        """The server can speak now: tell of the calls that it has adopted, and route those that wait for an answer."""
        adopted, self._adopted = self._adopted, []
        for call, snapshot in adopted:
            if call.state is CallState.TERMINATED:
                continue
            call.publish(types.CallAdopted(state=call.state, **_parties(call)))
            if snapshot.invite is not None and call.waits_for_answer and call.local_reason is None:
                self._present(call, snapshot.invite)
            elif call.media_route is not None:
                unreachable = partial(call.end, "media_unreachable")
                self._services.dial_back(call, *call.media_route, on_failed=unreachable)

    def start_drain(self) -> bool:
        """Take no new calls from now on; returns whether the drain began with this."""
        if self.draining:
            return False
        self.draining = True
        self._metrics.draining.set(1)
        self._admit()
        self.events.publish(types.ServerDraining(calls=len(self._live)))
        log.info("draining", calls=len(self._live))
        return True

    async def follow_engine(self) -> None:
        """Refuse new calls with 503 while the engine takes no prompt, as :class:`EngineGate` says; until cancelled."""
        while True:
            self._look_at_engine()
            await asyncio.sleep(LOOK_S)

    def _look_at_engine(self) -> None:
        engine = self._services.source.engine
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
        """Tell the UA processes whether to let calls in."""
        self._ua.set_accepting(accepting=self._gate.is_open and not self.draining)

    async def drained(self, *, timeout_s: float) -> bool:
        """Wait until the last call ended; after ``timeout_s`` end the rest. Returns whether all ended by themselves."""
        await self._until_empty(timeout_s)
        left = list(self._live.values())
        for call in left:
            try:
                if call.waits_for_answer:
                    call.end("draining", sip_code=503, retry_after_s=self._config.sip.retry_after_s)
                else:
                    call.end("draining")
            except UserAgentUnavailable:
                break
        await self._until_empty(HANGUP_TIMEOUT_S)
        return not left

    async def _until_empty(self, timeout_s: float) -> None:
        self._empty.clear()
        if self._live:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)

    # --- what the UA process reports -------------------------------------------------------------------------------------

    def on_ua_ready(self, build: Mapping[str, str]) -> None:
        """A UA process is up, the first time or again."""
        log.info("sip_ready", **build)

    def on_ua_down(self, reason: str, call_ids: Collection[str]) -> None:
        """These calls ended with a UA process."""
        for call_id in call_ids:
            if (call := self._live.get(call_id)) is not None:
                call.terminate(Ending("failed", "ua_process_died"))
                self._retire(call)
        self._note_lateness()
        if reason == STOPPED:
            return
        self._metrics.process_restarts.labels(process="ua").inc()
        log.error("sip_down", reason=reason)

    def on_ua_message(self, message: Message, payload: bytes = b"") -> None:
        """One report."""
        try:
            if not isinstance(message, messages.CallAudio):
                self._dispatch(message)
            elif (call := self._live.get(message.call_id)) is not None:
                call.audio.deliver(message, payload)
        except Exception:
            log.exception("report_failed", report=type(message).__name__)

    def _dispatch(self, message: Message) -> None:
        match message:
            case messages.IncomingCall():
                self._incoming(message)
            case messages.CallSnapshot():
                self._adopt(message)
            case messages.InviteRefused():
                self._refused()
            case messages.RequestsRefused():
                self._count_refused(message)
            case messages.AssertionsFailed():
                self._metrics.ua_failed_assertions.inc(message.count)
            case messages.MediaLateness():
                self._note_lateness()
            case messages.RegistrationChanged():
                self._ua.registered = message.registered
                registrar = self._services.config.registration.registrar
                self._metrics.registered.labels(registrar=registrar).set(message.registered)
                log.info("registration", registered=message.registered, sip_code=message.sip_code)
            case messages.CallReport():
                self._on_call_report(message)

    # ----------------------------------------------------------------------------------------------------------------------

    def _on_call_report(self, message: messages.CallReport) -> None:
        call = self._live.get(message.call_id)
        if call is not None:
            call.on_report(message)
            if call.state is CallState.TERMINATED:
                self._retire(call)
        elif isinstance(message, messages.CallEnded):  # of a call that was not adopted
            self._ua.note_end(message.call_id)

    def _note_lateness(self) -> None:
        self._metrics.ua_media_lateness.set(self._ua.lateness.p99_ms / 1000)
        self._metrics.ua_refusing_lateness.set(self._ua.lateness.refusing)

    def _count_refused(self, message: messages.RequestsRefused) -> None:
        for cause, count in message.counts.items():
            self._metrics.sip_refused.labels(cause=cause).inc(count)

    def _incoming(self, message: messages.IncomingCall) -> None:
        call = self._inbound(message)
        self._add(call)
        self._present(call, message)

    def _adopt(self, snapshot: messages.CallSnapshot) -> None:
        """Take up a call of a server before this one."""
        record = records.decode(snapshot.record)
        counts = record is not None and record.local_reason is None
        if snapshot.invite is not None and snapshot.state == "invited":
            call = self._inbound(snapshot.invite)
            record = record or records.record_of(call)
        elif record is None:
            log.error(
                "call_not_adopted", call_id=snapshot.call_id, sip_call_id=snapshot.sip_call_id, consequence="ending it"
            )
            self._ua.send(messages.Hangup(call_id=snapshot.call_id, cause="server_restarted"))
            return
        else:
            call = Call(
                services=self._services,
                id=snapshot.call_id,
                direction=record.direction,
                caller=record.caller,
                callee=record.callee,
                sip_call_id=snapshot.sip_call_id,
                headers=dict(record.headers),
                uri_parameters=dict(record.uri_parameters),
                transport=record.transport,
                defaults=record.defaults,
                media_route=record.media_route,
                tenant=record.tenant,
                route=record.route,
                peer=record.peer,
            )
        if counts:
            self._held[call.id] = self._services.tenants.hold_call(call.tenant, is_up=True)
        self.events.follow(record.run)
        call.metadata, call.client_state = record.metadata, record.client_state
        self._live[call.id] = call
        self._metrics.calls_active.set(len(self._live))
        self._adopted.append((call, snapshot))
        call.restore(snapshot, record)
        log.info("call_adopted", call_id=call.id, sip_call_id=call.sip_call_id, state=call.state)

    def _inbound(self, message: messages.IncomingCall) -> Call:
        trusted = message.source in self._trusted_peers
        route, tenant = routing.route_of(message.request_uri, self._config)
        return Call(
            services=self._services,
            id=message.call_id,
            direction="inbound",
            caller=message.caller,
            callee=message.callee,
            sip_call_id=message.sip_call_id,
            transport=message.transport or None,
            headers=message.headers | message.identity if trusted else message.headers,
            uri_parameters=routing.uri_parameters(message.request_uri) if trusted else {},
            tenant=tenant,
            route=route,
            peer=message.source,
        )

    def _present(self, call: Call, message: messages.IncomingCall) -> None:
        """Tell of a call that has come in, and do what its route says."""
        trusted = message.source in self._trusted_peers
        traces.note_begin(call)
        call.publish(types.CallIncoming(source=message.source, **_parties(call)))
        try:
            if self.draining:  # it came in before the UA process knew of the drain
                raise Draining(retry_after_s=self._config.sip.retry_after_s)
            decision = routing.decide(
                request_uri=message.request_uri, trusted=trusted, headers=message.headers, config=self._config
            )
            call.defaults = PromptDefaults(
                voice=decision.voice, language=decision.language, barge_in_speech=decision.barge_in_speech
            )
            call.lead_in_ms = decision.lead_in_ms
            if call.id not in self._held:  # an adopted one counts already
                self._held[call.id] = self._services.tenants.hold_call(call.tenant)
            if decision.voice is not None:
                self._services.source.engine.resolve_voice(decision.voice, decision.language)
            if decision.gather is not None:
                call.gather(decision.gather)
            elif decision.prompt is not None:
                call.speak(decision.prompt)
            self._greet(call, decision)
        except CcTtsError as error:
            log.info(
                "call_refused",
                call_id=call.id,
                sip_call_id=call.sip_call_id,
                code=error.code,
                sip_code=error.sip_status,
            )
            _refuse(call, error)

    def _greet(self, call: Call, decision: routing.RouteDecision) -> None:
        if decision.answer == "now" and not decision.media_url:
            call.accept()
            return
        call.ring()
        if decision.media_url:
            call.media_route = decision.media_url, decision.media_dialect
            unreachable = partial(_nobody_answered, call, decision.unanswered, "media_unreachable")
            self._services.dial_back(call, decision.media_url, decision.media_dialect, on_failed=unreachable)
        elif decision.answer == "ring":
            call.after(decision.ring_ms / 1000, call.accept)
        else:
            timeout_s = self._config.calls.manual_answer_timeout_s
            call.after(timeout_s, partial(_nobody_answered, call, decision.unanswered))

    def _refused(self) -> None:
        self._metrics.calls_ended.labels(direction="inbound", result="rejected", reason="overload").inc()
        now_ns = self._services.clock.now_ns()
        if self._overload_ns is None or ms_between(self._overload_ns, now_ns) >= OVERLOAD_EVENT_INTERVAL_S * 1000:
            self._overload_ns = now_ns
            self.events.publish(types.ServerOverloaded(calls=len(self._live), draining=self.draining))

    def _add(self, call: Call) -> None:
        self._live[call.id] = call
        self._metrics.calls_total.labels(direction=call.direction).inc()
        self._metrics.calls_active.set(len(self._live))

    def _retire(self, call: Call) -> None:
        """Keep a call that is over for a while."""
        ending = call.ending
        assert ending is not None
        self._live.pop(call.id, None)
        if (held := self._held.pop(call.id, None)) is not None:
            held.release()
        if not self._live:
            self._empty.set()
        self._ended[call.id] = call
        self._room.add(call.id, call.tenant)
        self._metrics.calls_active.set(len(self._live))
        self._metrics.calls_ended.labels(direction=call.direction, result=ending.result, reason=ending.reason).inc()
        self._services.accounting.add(
            traces.accounting_line(call, ending), on_written=partial(self._ua.note_end, call.id)
        )
        if call.answered_at_s is not None:
            traces.observe(call.quality, self._metrics)
        call.publish(types.CallTerminated(ending=ending, quality=call.quality))
        self._forget_old()

    def _forget_old(self) -> None:
        horizon_s = self._services.clock.wall_s() - self._config.calls.ended_retention_s
        while self._ended:
            oldest = next(iter(self._ended.values()))
            if oldest.ended_at_s is None or oldest.ended_at_s >= horizon_s:
                break
            self._forget(oldest.id)
        while len(self._room) > self._config.calls.max_ended_calls and (call_id := self._room.next_out()) is not None:
            self._forget(call_id)

    def _forget(self, call_id: str) -> None:
        call = self._ended.pop(call_id)
        self._room.discard(call_id)
        self.events.forget_call(call_id)
        self._services.utterances.forget(call.utterances)


def _invite(request: OriginateRequest, call_id: str) -> messages.Originate:
    asserted = {"P-Asserted-Identity": f"<{request.asserted_identity}>"} if request.asserted_identity else {}
    return messages.Originate(
        call_id=call_id,
        to=request.to,
        from_=request.from_ or "",
        headers=request.headers | asserted,
        display_name=request.display_name or "",
    )


def _parties(call: Call) -> dict[str, Any]:
    names = ("direction", "caller", "callee", "sip_call_id", "headers", "uri_parameters")
    return {name: getattr(call, name) for name in names}


def _nobody_answered(call: Call, greeting: Prompt | None, reason: str = "not_answered") -> None:
    """The application did not answer in time or cannot be reached: answer with ``greeting`` instead, if there is one."""
    if not call.waits_for_answer:
        return
    if greeting is None:
        call.end(reason, sip_code=480)
        return
    try:
        call.speak(greeting)
    except CcTtsError as error:
        _refuse(call, error)
    else:
        call.accept()


def _refuse(call: Call, error: CcTtsError) -> None:
    """Answer an INVITE with what ``error`` is in SIP, with the reason in a Warning (RFC 3261 §20.43): what is wrong with the
    request, and nothing of how the server is doing inside.
    """
    is_told = isinstance(error, ClientError) and error.detail.isascii() and error.detail.isprintable()
    reason = error.detail if is_told else error.title
    call.end(error.code, sip_code=error.sip_status, reason=reason[:120], retry_after_s=error.retry_after_s or 0)
