"""All calls: brings the UA's reports to them, keeps ended ones for a while, drains. Runs on: the event loop."""

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cc_tts import logs
from cc_tts.calls import routing
from cc_tts.calls.call import Call, CallServices
from cc_tts.calls.call_state import CallState
from cc_tts.calls.ending import Ending, ending_of
from cc_tts.calls.events import EventBus
from cc_tts.calls.quality import Quality, mean_opinion_score
from cc_tts.calls.utterance import CompletionCause, Utterance
from cc_tts.clock import Clock, ms_between
from cc_tts.config.schema import Config
from cc_tts.errors import (
    CallNotFound,
    CapacityExceeded,
    CcTtsError,
    Draining,
    DuplicateId,
    FieldError,
    Unprocessable,
    UserAgentUnavailable,
    UtteranceNotFound,
)
from cc_tts.media.start_threshold import StartThreshold
from cc_tts.metrics import Metrics
from cc_tts.processes.channel import Message
from cc_tts.processes.supervisor import STOPPED
from cc_tts.speech.prompt import Prompt
from cc_tts.speech.source import SpeechSource
from cc_tts.ua import messages
from cc_tts.ua.client import UaClient
from cc_tts.ua.guard.limits import PeerList
from cc_tts.ua.sip import bye
from cc_tts.ua.sip import uri as sip_uri
from cc_tts.voices.catalog import VoiceCatalog

OVERLOAD_EVENT_INTERVAL_S: Final = 1.0
HANGUP_TIMEOUT_S: Final = 3.0
MAX_UTTERANCES_KEPT: Final = 20_000
"""Of all calls; beyond it the oldest complete ones are forgotten before their calls are."""

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
    display_name: str = ""
    asserted_identity: str = ""


class CallRegistry:
    """Who is on the line."""

    def __init__(
        self,
        config: Config,
        *,
        ua: UaClient,
        source: SpeechSource,
        voices: VoiceCatalog,
        events: EventBus,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._config = config
        self._ua = ua
        self._source = source
        self._metrics = metrics
        self._clock = clock
        self.voices = voices
        self.events = events
        self.draining = False
        self._live: dict[str, Call] = {}
        self._ended: OrderedDict[str, Call] = OrderedDict()
        self._utterances: dict[str, Utterance] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._empty = asyncio.Event()
        self._overload_ns: int | None = None
        self._threshold = StartThreshold(
            floor_ms=config.playout.start_threshold_min_ms, ceiling_ms=config.playout.start_threshold_max_ms
        )
        self._services = CallServices(
            config=config,
            ua=ua,
            source=source,
            events=events,
            clock=clock,
            threshold=self._threshold,
            add_utterance=self._add_utterance,
            utterance_done=self._utterance_done,
            forget_utterance=self._forget_utterance,
            new_utterance_id=self._new_utterance_id,
        )
        ua.listen(self)

    def reload(self, config: Config) -> None:
        """Route calls by this from now on; calls that are up go on as they were."""
        self._config = config

    # --- what the API asks -------------------------------------------------------------------------------------------

    @property
    def not_ready_because(self) -> str | None:
        """Why a call would not be answered and spoken to now."""
        if self.draining:
            return "draining"
        if not self._ua.is_ready:
            return "the SIP user agent does not answer" if self._ua.build else "the SIP user agent is starting"
        engine_reason = self._source.engine.not_ready_because
        if engine_reason is not None:
            return f"the speech engine: {engine_reason}"
        if self._is_full:
            return f"all {self._ua.max_calls} lines are busy"
        if self._config.registration.registrar and self._ua.registered is False:
            return "not registered with the PBX"
        return None

    @property
    def num_live(self) -> int:
        """Calls that have not ended."""
        return len(self._live)

    def calls(self, state: CallState | None = None) -> list[Call]:
        """Live calls and ended ones still kept, oldest first."""
        everyone = [*self._ended.values(), *self._live.values()]
        return sorted(
            (call for call in everyone if state is None or call.state is state), key=lambda call: call.created_at_s
        )

    def call(self, call_id: str) -> Call:
        """One call.

        Raises:
            CallNotFound: unknown, or ended and forgotten.
        """
        call = self._live.get(call_id) or self._ended.get(call_id)
        if call is None:
            raise CallNotFound(f"no call {call_id[:80]!r}")
        return call

    def utterance(self, utterance_id: str) -> Utterance:
        """One utterance.

        Raises:
            UtteranceNotFound: unknown, or its call is forgotten.
        """
        try:
            return self._utterances[utterance_id]
        except KeyError:
            raise UtteranceNotFound(f"no utterance {utterance_id[:80]!r}") from None

    async def originate(self, request: OriginateRequest) -> Call:
        """Place a call; its progress comes as events.

        Raises:
            Draining, UserAgentUnavailable, CapacityExceeded: not now.
            DuplicateId: the call id is taken.
            Unprocessable: nothing can be sent to ``to`` from here, or it is not trusted with an asserted identity.
            TextTooLong, NothingToSay, UnknownVoice, LanguageUnsupported, Unprocessable: the prompt is of no use.
        """
        retry_after_s = self._config.sip.retry_after_s
        if self.draining:
            raise Draining(retry_after_s=retry_after_s)
        if not self._ua.is_ready:
            raise UserAgentUnavailable(retry_after_s=retry_after_s)
        if self._is_full:
            raise CapacityExceeded(f"{self._ua.max_calls} calls are up", retry_after_s=retry_after_s)
        call_id = request.call_id or f"call_{secrets.token_hex(8)}"
        if call_id in self._live or call_id in self._ended:
            raise DuplicateId(f"there is a call {call_id[:80]!r} already")
        self._check_target(request)
        if request.voice is not None:
            self._source.engine.resolve_voice(request.voice, None)
        if request.prompt is not None:
            self._source.check(request.prompt.content)
            self._new_utterance_id(request.prompt.utterance_id)
            self._must_be_free(request.prompt.utterance_id)
        call = Call(
            self._services,
            id_=call_id,
            direction="outbound",
            caller=_name_addr(request.display_name, request.from_ or self._ua.default_caller),
            callee=request.to,
            sip_call_id="",
            headers=dict(request.headers),
            voice=request.voice,
            language=None,
        )
        headers = dict(request.headers)
        if request.asserted_identity:
            headers["P-Asserted-Identity"] = f"<{request.asserted_identity}>"
        self._ua.send(
            messages.Originate(
                call_id=call_id,
                to=request.to,
                from_=request.from_ or "",
                headers=headers,
                display_name=request.display_name,
            )
        )
        self._add(call, "call.outgoing")
        timeout_s = request.timeout_s or self._config.calls.originate_timeout_s
        self._arm(call, timeout_s, "no_answer")
        if request.prompt is not None:
            call.speak(request.prompt)
        return call

    def _check_target(self, request: OriginateRequest) -> None:
        sip = self._config.sip
        if fault := sip_uri.fault_of_target(request.to, sip.transports):
            raise Unprocessable(f"/to: {fault}", field_errors=[FieldError("/to", fault)])
        if request.asserted_identity and not sip_uri.is_trusted_target(
            request.to, peers=PeerList(sip.trusted_peers), registrar=self._config.registration.registrar
        ):
            fault = "is for calls to an address in sip.trusted_peers or to the registrar"
            pointer = "/asserted_identity"
            raise Unprocessable(f"{pointer}: {fault}", field_errors=[FieldError(pointer, fault)])

    def start_drain(self) -> bool:
        """Take no new calls from now on.

        Returns:
            Whether this call began it.
        """
        if self.draining:
            return False
        self.draining = True
        self._metrics.draining.set(1)
        self._ua.set_accepting(accepting=False)
        self.events.publish("server.draining", data={"calls": self.num_live})
        log.info("draining", calls=self.num_live)
        return True

    async def drained(self, *, timeout_s: float) -> bool:
        """Wait until the last call ended; after ``timeout_s`` end the rest.

        Returns:
            Whether all ended by themselves.
        """
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

    def on_ua_ready(self) -> None:
        """The UA process is up, the first time or again."""
        log.info("sip_ready", **self._ua.build)

    def on_ua_down(self, reason: str) -> None:
        """Every call ended with it."""
        for call in tuple(self._live.values()):
            self._end(call, Ending("failed", "ua_process_died"))
        self._ua.lines_taken = 0
        self._media_is_late(0.0, refusing=False)
        if reason == STOPPED:
            return
        self._metrics.process_restarts.labels(process="ua").inc()
        log.error("sip_down", reason=reason)

    def on_ua_message(self, message: Message) -> None:
        """One report."""
        try:
            self._dispatch(message)
        except Exception:
            log.exception("report_failed", report=type(message).__name__)

    def _dispatch(self, message: Message) -> None:  # noqa: C901, PLR0912, PLR0915 - a table
        match message:
            case messages.IncomingCall():
                self._incoming(message)
                return
            case messages.InviteRefused():
                self._refused()
                return
            case messages.RequestsRefused():
                self._kept_out(message)
            case messages.AssertionsFailed():
                self._metrics.ua_failed_assertions.inc(message.count)
                return
            case messages.MediaLateness():
                self._media_is_late(message.p99_ms, refusing=message.refusing)
                return
            case messages.LinesTaken():
                self._ua.lines_taken = message.count
                return
            case messages.RegistrationChanged():
                self._ua.registered = message.registered
                log.info("registration", registered=message.registered, sip_code=message.sip_code)
                return
        call = self._live.get(getattr(message, "call_id", ""))
        if call is None:
            return  # ended on our side while the report was on its way
        match message:
            case messages.CallRinging():
                call.sip_call_id = message.sip_call_id or call.sip_call_id
                call.went_early(message.sip_code)
            case messages.MediaActive():
                call.media_is_active(message.codec, message.clock_rate_hz, srtp=message.srtp)
            case messages.CallEstablished():
                self._established(call, message)
            case messages.HoldChanged():
                call.hold_changed(held=message.held, by=message.by)
            case messages.DtmfBegan():
                call.key_went_down(message.at_ns)
            case messages.DtmfReceived():
                call.got_digit(
                    message.digit, duration_ms=message.duration_ms, method=message.method, at_ns=message.at_ns
                )
            case messages.QualityReport():
                call.quality = _quality(message.quality)
            case messages.CommandFailed():
                log.warning("command_refused", call_id=call.id, command=message.command, detail=message.detail)
                self.events.publish(
                    "call.command_failed",
                    call_id=call.id,
                    data={"command": message.command, "detail": message.detail},
                )
                if message.command in ("answer", "ring"):
                    call.end("sip_error", sip_code=500)
            case messages.CallEnded():
                call.quality = _quality(message.quality)
                self._metrics.ua_late_frames.inc(message.quality.late_frames)
                self._end(
                    call,
                    ending_of(
                        was_established=call.answered_at_s is not None,
                        ended_by=message.ended_by,
                        sip_code=message.sip_code,
                        local_reason=call.local_reason,
                        direction=call.direction,
                        contacts=message.contacts,
                    ),
                )
            case messages.PlayoutSpeech():
                call.speech_began(message.utterance_id, first_speech_ns=message.first_speech_ns)
            case messages.PlayoutStarted():
                utterance = call.utterances.get(message.utterance_id)
                if utterance is not None:
                    utterance.marks.first_frame_ns = message.first_frame_ns
            case messages.PlayoutProgress():
                call.player.progress(message.utterance_id, message.played_ms)
            case messages.PlayoutUnderrun():
                self._metrics.playout_underruns.inc()
                self._threshold.underrun(message.missing_ms)
            case messages.PlayoutFinished():
                call.player.finished(
                    message.utterance_id,
                    cut=message.cause == "cut",
                    played_ms=message.played_ms,
                    underruns=message.underruns,
                    at_ns=message.at_ns,
                )

    # ----------------------------------------------------------------------------------------------------------------------

    def _kept_out(self, message: messages.RequestsRefused) -> None:
        for cause, count in message.counts.items():
            self._metrics.sip_refused.labels(cause=cause).inc(count)

    def _media_is_late(self, p99_ms: float, *, refusing: bool) -> None:
        self._metrics.ua_media_lateness.set(p99_ms / 1000)
        self._metrics.ua_refusing_lateness.set(refusing)

    @property
    def _is_full(self) -> bool:
        if not self._ua.is_ready:
            return False
        return len(self._live) >= self._ua.max_calls or self._ua.lines_taken >= self._ua.build_max_calls

    def _incoming(self, message: messages.IncomingCall) -> None:
        trusted = routing.is_trusted(message.source, self._config.sip.trusted_peers)
        call = Call(
            self._services,
            id_=message.call_id,
            direction="inbound",
            caller=message.caller,
            callee=message.callee,
            sip_call_id=message.sip_call_id,
            headers=message.headers | message.identity if trusted else message.headers,
            voice=None,
            language=None,
            uri_parameters=routing.uri_parameters(message.request_uri) if trusted else {},
        )
        call.transport = message.transport or None
        self._add(call, "call.incoming", source=message.source)
        try:
            if self.draining:  # it came in before the UA process heard of the drain
                raise Draining(retry_after_s=self._config.sip.retry_after_s)
            decision = routing.decide(
                request_uri=message.request_uri, source=message.source, headers=message.headers, config=self._config
            )
            call.voice, call.language = decision.voice, decision.language
            call.lead_in_ms = decision.lead_in_ms
            if decision.voice is not None:
                self._source.engine.resolve_voice(decision.voice, decision.language)
            if decision.prompt is not None:
                call.speak(decision.prompt)
            self._greet(call, decision)
        except CcTtsError as error:
            log.info("call_refused", call_id=call.id, code=error.code, sip_code=error.sip_status)
            _refuse(call, error)

    def _greet(self, call: Call, decision: routing.RouteDecision) -> None:
        match decision.answer:
            case "now":
                call.accept()
            case "ring":
                self._ua.send(messages.Ring(call_id=call.id))
                self._timer(call, decision.ring_ms / 1000, call.accept)
            case "manual":
                self._ua.send(messages.Ring(call_id=call.id))
                self._timer(
                    call,
                    self._config.calls.manual_answer_timeout_s,
                    lambda: _nobody_answered(call, decision.unanswered),
                )

    def _established(self, call: Call, message: messages.CallEstablished) -> None:
        call.sip_call_id = message.sip_call_id or call.sip_call_id
        call.transport = message.transport or call.transport
        call.was_established(message.at_ns)
        self._cancel_timer(call.id)
        if self._config.calls.max_duration_s:
            self._arm(call, self._config.calls.max_duration_s, "max_duration")

    def _refused(self) -> None:
        self._metrics.calls_ended.labels(direction="inbound", result="rejected", reason="overload").inc()
        now_ns = self._clock.now_ns()
        if self._overload_ns is None or ms_between(self._overload_ns, now_ns) >= OVERLOAD_EVENT_INTERVAL_S * 1000:
            self._overload_ns = now_ns
            self.events.publish("server.overloaded", data={"calls": self.num_live, "draining": self.draining})

    def _add(self, call: Call, event: str, **extra: object) -> None:
        self._live[call.id] = call
        self._metrics.calls_total.labels(direction=call.direction).inc()
        self._metrics.calls_active.set(len(self._live))
        self.events.publish(
            event,
            call_id=call.id,
            data={
                "direction": call.direction,
                "caller": call.caller,
                "callee": call.callee,
                "sip_call_id": call.sip_call_id,
                "headers": call.headers,
                "uri_parameters": call.uri_parameters,
                **extra,
            },
        )

    def _end(self, call: Call, ending: Ending) -> None:
        self._cancel_timer(call.id)
        self._live.pop(call.id, None)
        if not self._live:
            self._empty.set()
        self._ended[call.id] = call
        call.terminated(ending)
        self._metrics.calls_active.set(len(self._live))
        self._metrics.calls_ended.labels(direction=call.direction, result=ending.result, reason=ending.reason).inc()
        self.events.publish("call.terminated", call_id=call.id, data={"ending": ending, "quality": call.quality})
        self._forget_old()

    def _forget_old(self) -> None:
        horizon_s = self._clock.wall_s() - self._config.calls.ended_retention_s
        while self._ended:
            oldest = next(iter(self._ended.values()))
            expired = oldest.ended_at_s is not None and oldest.ended_at_s < horizon_s
            if not expired and len(self._ended) <= self._config.calls.max_ended_calls:
                return
            del self._ended[oldest.id]
            self.events.forget_call(oldest.id)
            for utterance_id in oldest.utterances:
                self._utterances.pop(utterance_id, None)

    def _utterance_done(self, utterance: Utterance) -> None:
        cause = utterance.completion_cause
        assert cause is not None
        metrics = self._metrics
        metrics.utterances.labels(cause=cause.value).inc()
        metrics.utterances_active.dec()
        if utterance.engine and utterance.time_to_first_audio_ms is not None:
            metrics.time_to_first_audio.labels(engine=utterance.engine).observe(utterance.time_to_first_audio_ms / 1000)
        if utterance.engine and utterance.time_to_first_pcm_ms is not None:
            metrics.time_to_first_pcm.labels(engine=utterance.engine).observe(utterance.time_to_first_pcm_ms / 1000)
        if cause is CompletionCause.NORMAL and not utterance.underruns:
            self._threshold.smooth()
        if utterance.engine:
            metrics.start_threshold.labels(engine=utterance.engine).set(self._threshold.current_ms / 1000)
        call = self._live.get(utterance.call_id)
        pressed_ns = call.barge_in_instant(utterance.id) if call is not None else None
        if cause is CompletionCause.BARGE_IN and pressed_ns is not None and utterance.marks.completed_ns is not None:
            metrics.barge_in_cut.observe(ms_between(pressed_ns, utterance.marks.completed_ns) / 1000)

    def _add_utterance(self, utterance: Utterance) -> None:
        self._utterances[utterance.id] = utterance
        while len(self._utterances) > MAX_UTTERANCES_KEPT and next(iter(self._utterances.values())).is_complete:
            oldest = next(iter(self._utterances.values()))
            del self._utterances[oldest.id]
            owner = self._live.get(oldest.call_id) or self._ended.get(oldest.call_id)
            if owner is not None:
                owner.utterances.pop(oldest.id, None)
        self._metrics.utterances_active.inc()

    def _forget_utterance(self, utterance_id: str) -> None:
        self._utterances.pop(utterance_id, None)

    def _new_utterance_id(self, wanted: str | None) -> str:
        if wanted is None:
            return f"utt_{secrets.token_hex(8)}"
        self._must_be_free(wanted)
        return wanted

    def _must_be_free(self, utterance_id: str | None) -> None:
        if utterance_id is not None and utterance_id in self._utterances:
            raise DuplicateId(f"there is an utterance {utterance_id[:80]!r} already")

    def _arm(self, call: Call, delay_s: float, local_reason: str) -> None:
        self._timer(call, delay_s, lambda: call.end(local_reason))

    def _timer(self, call: Call, delay_s: float, action: Callable[[], None]) -> None:
        self._cancel_timer(call.id)
        self._timers[call.id] = asyncio.get_running_loop().call_later(delay_s, _quietly, action)

    def _cancel_timer(self, call_id: str) -> None:
        timer = self._timers.pop(call_id, None)
        if timer is not None:
            timer.cancel()


def _nobody_answered(call: Call, greeting: Prompt | None) -> None:
    """The application did not answer in time: answer with ``greeting`` in its place, if there is one."""
    if not call.waits_for_answer:
        return
    if greeting is None:
        call.end("not_answered", sip_code=480)
        return
    try:
        call.speak(greeting)
    except CcTtsError as error:
        _refuse(call, error)
    else:
        call.accept()


def _refuse(call: Call, error: CcTtsError) -> None:
    """Answer an INVITE with what ``error`` is in SIP, and say why in a Warning (RFC 3261 §20.43)."""
    reason = error.detail if error.detail.isascii() and error.detail.isprintable() else error.title
    call.end(error.code, sip_code=error.sip_status, reason=reason[:120], retry_after_s=error.retry_after_s or 0)


def _name_addr(display_name: str, uri: str) -> str:
    return f"{bye.quoted(display_name)} <{uri}>" if display_name else uri


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except CcTtsError as error:
        log.warning("timer_failed", code=error.code, detail=error.detail)


def _quality(figures: messages.MediaQuality) -> Quality:
    expected = figures.packets_received + figures.packets_lost
    mos = None
    if expected and figures.round_trip_ms is not None:
        mos = mean_opinion_score(loss=figures.packets_lost / expected, round_trip_ms=figures.round_trip_ms)
    return Quality(
        packets_sent=figures.packets_sent,
        packets_received=figures.packets_received,
        packets_lost=figures.packets_lost,
        jitter_ms=None if figures.jitter_ms is None else round(figures.jitter_ms, 2),
        round_trip_ms=None if figures.round_trip_ms is None else round(figures.round_trip_ms, 2),
        underruns=figures.underruns,
        late_frames=figures.late_frames,
        mos=mos,
    )
