"""The SIP user agent: pjsua2's library, transports, accounts, legs. Runs on: the SIP thread, except :meth:`.Agent.media`."""

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pjsua2 as pj

from cc_tts import logs
from cc_tts.audio import PTIME_NS, AudioFormat
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.playout_events import PlayoutEvent
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import Message
from cc_tts.ua import messages, pjsua2_build
from cc_tts.ua.bridge.bridges import Bridges
from cc_tts.ua.capacity import CallCapacity
from cc_tts.ua.dialogs import Dialogs
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.guard.connections import Connections
from cc_tts.ua.guard.dropped_messages import DroppedMessages
from cc_tts.ua.guard.limits import PeerList
from cc_tts.ua.guard.message_filter import MessageFilter
from cc_tts.ua.guard.policy import InboundPolicy
from cc_tts.ua.leg import Leg
from cc_tts.ua.leg_media import LegServices
from cc_tts.ua.pjsip import codecs, pj_config, pj_info
from cc_tts.ua.pjsip.left_calls import LeftCalls
from cc_tts.ua.pjsip.pjsip_log import PjsipLog
from cc_tts.ua.pjsip.sip_thread import SipThread, pj_detail
from cc_tts.ua.pjsip.waker import Waker
from cc_tts.ua.pjsua2_build import PYPI_WHEEL, Pjsua2Build
from cc_tts.ua.process.agent import Agent
from cc_tts.ua.quality.publisher import Publisher
from cc_tts.ua.rtp import l16
from cc_tts.ua.rtp.audio_port import AudioPort, CapturePort, PortPool
from cc_tts.ua.rtp.intake import Intake
from cc_tts.ua.rtp.lateness import TickLateness
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip import transports
from cc_tts.ua.sip import uri as sip_uri
from cc_tts.ua.sip.account import Account
from cc_tts.ua.sip.registration import Accounts
from cc_tts.ua.trace.tracer import SipTracer

POLL_MS: Final = 4
"""The longest time of one poll of the library, which delays commands and events at most this long; unmeasured."""
IDLE_POLL_MS: Final = 100
"""The same while there is no call: messages of SIP and commands of the server end the wait. It is ``MAX_TURN_S`` of the
loop, by which a silent server is noticed. The process takes 0.4 % of a core, and 0.9 % with waits of 20 ms (measured).
"""
WATCH_SLOTS: Final = 50
"""Each leg is watched once in this many ticks, one second. Watching all in one tick would delay the media clock."""
COUNT_INTERVAL_NS: Final = NS_PER_S
"""The interval of the reports of what was counted: requests that were refused, packets to a capture server (unmeasured)."""
TIMER_SLOTS: Final = 5
"""A leg's timers are checked once in this many ticks; unmeasured."""
END_ALL_TIMEOUT_NS: Final = 2_000_000_000
"""The time that the BYEs of the last calls may take; unmeasured."""
log = logs.get(__name__)


class UserAgent(Agent[Leg]):
    """Connects the channel with PJSIP: calls, accounts, transports."""

    def __init__(
        self, settings: messages.UaSettings, *, build: Pjsua2Build, clock: Clock, send: Callable[[Message], None]
    ) -> None:
        SipThread.check()
        super().__init__(settings, clock, send)
        self._build = build
        self._format = AudioFormat(settings.rtp.clock_rate_hz)
        self._legs = self._calls
        self._dialogs = Dialogs(self._legs)
        self._refused_legs: list[Leg] = []  # their INVITE is to be sent once more
        self._over: list[Leg] = []  # legs that have ended and still are in the table
        self._bridges = Bridges(self._legs, send)
        self._playout_events: deque[tuple[str, PlayoutEvent]] = deque()
        self._watch_slot = 0
        self._last_tick_ns = self._counted_ns = 0
        self._lateness = TickLateness(settings.sip.max_media_lateness_ms)
        self._reported_lateness = messages.MediaLateness(p99_ms=0.0, refusing=False)
        self._active_pjsua_calls = 0
        self._policy = InboundPolicy(settings, clock=clock, max_message_bytes=build.max_message_bytes)
        self._log_writer = PjsipLog(clock)
        self._endpoint: Any = pj.Endpoint()
        self._l16 = l16.L16(self._endpoint)

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> dict[str, str]:
        """Open the library, the transports and the accounts; return a description of this build, for people.

        Raises:
            RuntimeError: PJSIP refuses a filter, a port is taken, an address is not ours, TLS with the PyPI wheel.
            pjsua2.Error: PJSIP does not start.
        """
        settings = self._settings
        library = self._library = CLibrary()
        library.set_log_level(settings.log.pjsip_level)
        self._endpoint.libCreate()
        self._endpoint.libInit(pj_config.library_config(settings, self._build, self._log_writer))
        library.set_name(b"cc-tts")
        build_limit = int(library.max_calls())
        self._capacity = CallCapacity(
            settings, self._build, build_limit=build_limit, num_pjsua_calls=library.num_calls, clock=self._clock
        )
        if settings.dispatcher_port:
            library.dispatcher = f"{settings.sip.local_address}:{settings.dispatcher_port}"
        if settings.sip.user_agent:
            library.server_header = (("Server", settings.sip.user_agent),)
        self._message_filter = MessageFilter(
            library,
            settings,
            policy=self._policy,
            dialogs=self._dialogs,
            refusal=self._refusal,
            on_refused=lambda: self._send(messages.InviteRefused()),
            on_offer=self._l16.before_answer,
        )
        self._message_filter.install()
        self._left_calls = LeftCalls(library, self._clock)
        self._waker = Waker(library)
        self._tracer = SipTracer(settings, library, self._clock, self._legs, self._send)
        self._dropped_messages = DroppedMessages(
            library,
            self._clock,
            max_message_bytes=self._build.max_message_bytes,
            server=settings.sip.user_agent,
            may_answer=self._policy.on_dropped,
            on_response=self._dialogs.on_unreadable,
        )
        self._dropped_messages.install()
        is_wheel = self._build.name(build_limit) == PYPI_WHEEL
        if is_wheel and not settings.sip.allow_pypi_wheel:
            pjsua2_build.check_address(settings.sip.host)
        transports.open_all(self._endpoint, settings, settings.sip.transports, is_wheel=is_wheel)
        if is_wheel and "tcp" in settings.sip.transports:
            self._connections = Connections(
                library, self._clock, max_handles=self._build.max_handles, on_refused=self._policy.note_connection
            )
            self._connections.install()
        self._endpoint.libStart()
        self._endpoint.audDevManager().setNullDev()
        codecs.set_codecs(self._endpoint, settings.rtp.codecs)
        if l16.NAME in settings.rtp.codecs:
            self._l16.install(library)
        intake = Intake(library, decodes_others=self._build.folder is None)
        intake.install()
        self._tracer.listen(intake)
        self._leg_services = LegServices(
            settings=settings,
            clock=self._clock,
            library=library,
            ports=PortPool(self._new_port, max_ports=self._capacity.max_calls),
            captures=PortPool(lambda number: CapturePort(number, self._format), max_ports=self._capacity.max_calls),
            send=self._tracer.pass_on,
            on_over=self._on_over,
            place_again=self._refused_legs.append,
            before_offer=self._l16.before_offer,
            on_key=self._bridges.pass_key,
            intake=intake,
            follows_rtp=self._build.folder is None,
            quality=lambda: self._settings.quality,
            sink=self._endpoint.audDevManager().getPlaybackDevMedia(),
        )
        self._accounts = Accounts(settings, on_incoming=self._on_incoming, clock=self._clock, send=self._send)
        self._publisher = Publisher(
            settings, clock=self._clock, account=lambda: self._accounts.placing(""), send=self._send
        )
        return {
            "pjsip": self._endpoint.libVersion().full,
            "max_calls": str(self._capacity.max_calls),
            "build_max_calls": str(build_limit),
            "pjsua2": self._build.name(build_limit),
        }

    def wake(self) -> None:
        self._waker.wake()

    def poll(self) -> None:
        """Do one turn: let PJSIP work, remove ended legs, forward the reports of playout buffers, watch RTP."""
        has_calls = self._legs or self._active_pjsua_calls
        self._endpoint.libHandleEvents(POLL_MS if has_calls else IDLE_POLL_MS)
        self._dialogs.begin_referrals()
        self._place_refused()
        self._end_tails()
        self._bridges.tick()
        self._tracer.tick()
        self._publisher.tick()
        self._drain_playout_events()
        active_pjsua_calls = self._reap()
        if active_pjsua_calls != self._active_pjsua_calls:
            self._active_pjsua_calls = active_pjsua_calls
            self._send(messages.ActivePjsuaCalls(count=active_pjsua_calls))
        now_ns = self._clock.now_ns()
        if now_ns - self._last_tick_ns >= PTIME_NS:
            self._last_tick_ns = now_ns
            self._watch_slot = (self._watch_slot + 1) % WATCH_SLOTS
            self._report_lateness(now_ns)
            self._dropped_messages.tick(now_ns)
            if self._capacity.is_pjsua_full():
                self._left_calls.end_oldest()
            if now_ns - self._counted_ns >= COUNT_INTERVAL_NS:
                self._counted_ns = now_ns
                self._report_counts()
            self._accounts.tick(is_idle=not self._legs and not active_pjsua_calls)
            self._look_after_legs(now_ns)
            self._recordings.tick()
        self._recordings.flush()

    def _look_after_legs(self, now_ns: int) -> None:
        """Watch the legs whose turn it is. Legs only move forward in the table when others end, so none is skipped."""
        legs = tuple(self._legs.values())
        for leg in legs:
            if not (leg.is_over or leg.media.is_clocked):
                leg.media.keep_time(now_ns)
        for leg in legs[self._watch_slot % TIMER_SLOTS :: TIMER_SLOTS]:
            leg.check_timers(now_ns)
            leg.media.sample_levels(now_ns)
        for leg in legs[self._watch_slot :: WATCH_SLOTS]:
            with self._attempt(leg, "watch"):
                leg.watch_rtp()
                self._publisher.watch(leg)

    def stop(self) -> None:
        SipThread.check()
        self._accepting = False
        nothing_is_owed = not (self._legs or self._accounts.registers)
        self._end_all()
        self._publisher.tick()
        self._accounts.shutdown(used=self._publisher.used_account)
        # pjsua waits a second for answers to the last requests; without calls and a registration there are none
        self._endpoint.libDestroy(pj.PJSUA_DESTROY_NO_RX_MSG if nothing_is_owed else 0)

    def _end_all(self) -> None:
        """End all calls. No variable may refer to a leg after this: pjsua2 aborts when a call is destroyed after the
        library.
        """
        for leg in tuple(self._legs.values()):
            with self._attempt(leg, "hangup"):
                leg.end_for_stop(retry_after_s=self._retry_after_s)
        deadline_ns = self._clock.now_ns() + END_ALL_TIMEOUT_NS
        while self._legs and self._clock.now_ns() < deadline_ns:
            self.poll()
        for leg in self._live_calls():
            leg.finish(sip_code=pj.PJSIP_SC_REQUEST_TIMEOUT)
        self._recordings.close()
        self._legs.clear()
        self._over.clear()

    # --- signalling ------------------------------------------------------------------------------------------------

    def _execute_other(self, message: Message) -> None:
        match message:
            case messages.ApplySettings():
                self._apply(message)
            case messages.Originate():
                self._originate(message)
            case messages.Bridge() | messages.Unbridge():
                self._bridges.command(message)
            case messages.SendTrace():
                self._tracer.answer(message)
            case _:
                super()._execute_other(message)

    def _execute(self, call: Leg, message: messages.CallCommand) -> None:
        """If PJSIP refuses the command, :class:`.CommandFailed` is sent."""
        name, method = _LEG_COMMANDS[type(message)]
        with self._attempt(call, name):
            method(call, message)

    @property
    def num_calls(self) -> int:
        return len(self._legs) - len(self._over)

    def _detach(self, call: Leg) -> None:
        with self._attempt(call, "detach"):
            call.media.detach_server()
            call.referral.detach_server()

    def attach_server(self) -> list[messages.CallSnapshot]:
        SipThread.check()
        snapshots = super().attach_server()
        for leg in self._live_calls():
            leg.referral.attach_server()
        self._drain_playout_events()
        self._active_pjsua_calls = -1  # reset, so that it is reported again, like the lateness
        self._reported_lateness = messages.MediaLateness(p99_ms=0.0, refusing=False)
        self._accounts.tell_again()
        return snapshots

    def _apply(self, message: messages.ApplySettings) -> None:
        before, settings = self._settings, message.settings
        self._settings = settings
        logs.set_level(settings.log.level)
        self._library.set_log_level(settings.log.pjsip_level)
        self._policy.reload(settings)
        self._tracer.reload(settings)
        self._publisher.reload(settings)
        self._message_filter.reload(settings)
        refused: dict[str, str] = {}
        if settings.tls is not None and (message.renew_tls or settings.tls != before.tls):
            fault = transports.renew_tls(self._endpoint, settings, before=before)
            if fault is not None:
                refused["tls"] = fault
                self._settings = msgspec.structs.replace(settings, tls=before.tls)
        self._send(messages.SettingsApplied(refused=refused))

    def _originate(self, message: messages.Originate) -> None:
        self._reap()
        capacity = self._capacity
        if capacity.is_full(self.num_calls) or capacity.is_crowded(len(self._legs)) or self._lateness.refusing:
            self._send(messages.CallEnded(call_id=message.call_id, sip_code=503, ended_by="full", quality=Quality()))
            return
        leg = self._new_leg(self._accounts.placing(message.trunk), pj.PJSUA_INVALID_ID, message.call_id)
        leg.originate = message
        self._legs[message.call_id] = leg
        leg.place(self._settings, self._may_redirect)

    def _place_refused(self) -> None:
        """Send a second INVITE for the legs that need one, once PJSUA has released their first call."""
        while self._refused_legs:
            leg = self._refused_legs.pop()
            self._capacity.cool(leg.media.rtp_ports)
            leg.media.rtp_ports = set()
            self._capacity.note_closing()
            if self._capacity.is_pjsua_full() or self._capacity.is_crowded(len(self._legs)):
                leg.finish(sip_code=pj.PJSIP_SC_NOT_ACCEPTABLE_HERE)
            else:
                leg.place(self._settings, self._may_redirect)

    def _may_redirect(self, message: messages.Originate, target: str) -> bool:
        if "P-Asserted-Identity" in message.headers and not sip_uri.is_trusted_target(
            target, peers=PeerList(self._settings.sip.trusted_peers), registrar=self._settings.registration.registrar
        ):
            return False
        return sip_uri.may_redirect(message.to, target, self._settings.sip.transports)

    def _on_incoming(self, account: Account, pj_call_id: int, rdata: Any) -> None:
        leg = self._new_leg(account, pj_call_id, self._settings.call_id_prefix + secrets.token_hex(8))
        if self._refusal(incoming=1) is not None:
            leg.end(messages.Hangup(call_id=leg.call_id, sip_code=503, retry_after_s=self._retry_after_s))
            self._capacity.note_closing()
            return
        self._legs[leg.call_id] = leg
        self._unanswered.add(leg.call_id)
        try:
            self._announce(leg, rdata, account.trunk)
        except Exception:
            # nothing else would answer it, and PJSUA would keep it forever
            self._forget(leg.call_id)
            leg.end(messages.Hangup(call_id=leg.call_id, sip_code=500))
            raise

    def _announce(self, leg: Leg, rdata: Any, trunk: str) -> None:
        message = sip_message.readable(rdata.wholeMsg)
        source = self._library.source_host(rdata.srcAddress, rdata.wholeMsg)
        leg.invite = pj_info.incoming_call(leg, message, source, trunk=trunk)
        leg.dialog = (leg.invite.sip_call_id, sip_message.from_tag(message))
        self._tracer.pass_on(leg.invite)

    def _new_port(self, number: int) -> AudioPort:
        return AudioPort(number, self._format, self._clock, self._lateness)

    def _new_leg(self, account: Account, pj_call_id: int, call_id: str) -> Leg:
        events = self._playout_events
        buffer = PlayoutBuffer(
            self._format,
            max_buffered_ms=self._settings.playout_max_buffered_ms,
            events=lambda event: events.append((call_id, event)),
            is_open=False,
        )
        return Leg(self._leg_services, account, pj_call_id, call_id=call_id, buffer=buffer)

    @contextlib.contextmanager
    def _attempt(self, leg: Leg, command: str) -> Iterator[None]:
        try:
            yield
        except pj.Error as error:
            self._send(messages.CommandFailed(call_id=leg.call_id, command=command, detail=pj_detail(error)))

    def _drain_playout_events(self) -> None:
        while self._playout_events:
            call_id, event = self._playout_events.popleft()
            if (leg := self._legs.get(call_id)) is not None:
                leg.media.note_playout(event)
            self._send(messages.PlayoutReport(call_id=call_id, event=event))

    # --- set-up --------------------------------------------------------------------------------------------------------

    def _refusal(self, *, incoming: int = 0) -> int | None:
        """Return Retry-After, s, if a new call would be refused now; ``incoming`` calls already have a slot of PJSUA."""
        if not incoming:
            self._reap()
        reasons = (
            self._server_silent or not self._accepting,
            self._capacity.is_crowded(len(self._legs)),
            self._lateness.refusing,
            self._capacity.is_full(self.num_calls, incoming=incoming),
        )
        return self._retry_after_s if any(reasons) else None

    def _reap(self) -> int:
        """Remove legs that are over, and release ports that the next call needs; return how many calls PJSUA has. This must
        also run before every new call: pjsua2 hangs up the call number of a leg that it destroys, and another call may have
        that number by then.
        """
        for leg in self._over:
            self._left_calls.add(leg.whole_dialog)
            self._forget(leg.call_id)
        self._over.clear()
        return self._capacity.tick()

    def _on_over(self, leg: Leg) -> None:
        self._capacity.cool(leg.media.rtp_ports)
        self._drain_playout_events()
        self._publisher.call_over(leg)
        self._recordings.stop(leg.call_id, "call_ended")
        self._bridges.over(leg.call_id)
        if leg.call_id in self._legs:
            self._over.append(leg)

    def _forget(self, call_id: str) -> None:
        super()._forget(call_id)
        self._capacity.note_closing()

    def _report_lateness(self, now_ns: int) -> None:
        lateness = self._lateness.tick(now_ns)
        if lateness is None or lateness == self._reported_lateness:
            return
        if lateness.refusing != self._reported_lateness.refusing:
            log.warning("media_lateness", p99_ms=lateness.p99_ms, new_calls="503" if lateness.refusing else "welcome")
        self._reported_lateness = lateness
        self._send(lateness)

    def _report_counts(self) -> None:
        if refused := self._policy.take_refused():
            for cause, some in refused.items():
                log.warning("requests_refused", cause=cause, count=some.count, some_sources=sorted(some.sources))
            self._send(messages.RequestsRefused(counts={cause: some.count for cause, some in refused.items()}))
        self._tracer.report_counts()
        self._publisher.report_counts()
        if failed := self._log_writer.take_assertions():
            for detail, count in failed.items():
                log.warning("assertion_failed", detail=detail, count=count)
            self._send(messages.AssertionsFailed(count=failed.total()))


_LEG_COMMANDS: Final[Mapping[type[messages.CallCommand], tuple[str, Callable[[Leg, Any], None]]]] = {
    messages.KeepRecord: ("keep", Leg.keep_record),
    messages.Ring: ("ring", Leg.ring),
    messages.Answer: ("answer", Leg.accept),
    messages.Hangup: ("hangup", Leg.hang_up),
    messages.SetHold: ("hold", Leg.set_hold),
    messages.SendDtmf: ("dtmf", Leg.send_dtmf),
    messages.Transfer: ("transfer", lambda leg, transfer: leg.refer.start(transfer)),
    messages.AllowRefers: ("refer", lambda leg, allowed: leg.referral.allow(allowed)),
    messages.TellReferrer: ("refer", lambda leg, told: leg.referral.tell(told)),
    messages.WithholdKeys: ("keys", lambda leg, keys: setattr(leg.dtmf, "withheld", keys.withheld)),
    messages.MeasureLevels: ("levels", lambda leg, _: leg.media.measure_levels()),
    messages.SetListening: ("listen", lambda leg, listening: leg.media.set_listening(listening.directions)),
}
"""The commands that the SIP thread carries out on a leg. :class:`.CommandFailed` gives their names."""
