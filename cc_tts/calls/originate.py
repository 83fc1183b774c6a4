"""Outgoing calls, which applications ask for. Runs on: the event loop."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from cc_tts import logs
from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.calls.audio.machine_detection import MachineDetection
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.call_table import CallTable
from cc_tts.calls.dialplan.trunks import Attempt
from cc_tts.calls.events import types
from cc_tts.calls.services import CallServices
from cc_tts.calls.transfers.bridge import BRIDGE_FAILED
from cc_tts.config.schema import CallWebhook
from cc_tts.errors import (
    CapacityExceeded,
    CcTtsError,
    ClientError,
    DisclosureFailed,
    Draining,
    DuplicateId,
    FieldError,
    Unprocessable,
    UserAgentUnavailable,
    WrongState,
)
from cc_tts.speech.prompt import Disclosure, Prompt, PromptDefaults
from cc_tts.tracing import span as tracing
from cc_tts.ua import messages
from cc_tts.ua.sip import bye
from cc_tts.ua.sip import uri as sip_uri
from cc_tts.vad.answering.settings import Amd

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginateRequest:
    """A call to place, to a SIP URI or a number. ``from_`` empty: the account's address. ``trunk``: the trunk that places
    it. ``referral``: the REFER that asks for it, and the call on which that arrived.
    """

    to: str
    from_: str | None = None
    trunk: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    voice: str | None = None
    prompt: Prompt | None = None
    call_id: str | None = None
    display_name: str | None = None
    asserted_identity: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    client_state: str | None = None
    amd: Amd | None = None
    bridge: KeptBridge | None = None
    """The call that it will be bridged to, in the same UA process."""
    webhook: CallWebhook | None = None
    disclosure: Disclosure | None = None
    """The disclosure that replaces that of the configuration."""
    tenant: str = ""
    referral: tuple[str, str] | None = None


class OutgoingCalls:
    """Places the calls that the application asks for."""

    def __init__(self, services: CallServices, table: CallTable) -> None:
        self._services = services
        self._ua = services.ua
        self._table = table

    def place(self, request: OriginateRequest, *, on_place: Callable[[], object] = lambda: None) -> Call:
        """Place a call; see :meth:`cc_tts.calls.registry.CallRegistry.originate`. ``on_place`` is called when there is a
        place for it, before its own prompt is looked at; what it raises is raised here, and no call is placed.
        """
        self._check_capacity()
        call_id = request.call_id or self._services.nodes.new_id("call")
        if call_id in self._table:
            raise DuplicateId(f"there is a call {call_id[:80]!r} already")
        self._check_bridge(request)
        attempt = self._services.trunks.plan(
            call_id, request.to, trunk=request.trunk, from_=request.from_, tenant=request.tenant
        )
        try:
            request = replace(request, to=attempt.to, from_=attempt.from_, trunk=attempt.trunk)
            self._check_target(request)
            call = self._new_call(request, call_id)
            self._table.reserve(call_id, request.tenant)
            beside = request.bridge.other_call_id if request.bridge else ""
            call.invite = _invite(request, call)
            on_place()
            self._check_speech(request, call)
            self._ua.originate(call.invite, beside=beside)
        except BaseException:
            self._services.trunks.withdraw(call_id)
            self._table.release(call_id)
            raise
        self._table.add(call)
        if request.bridge is not None and request.bridge.waits:
            call.bridge.kept = request.bridge
        timeout_s = request.timeout_s or self._services.config.calls.originate_timeout_s
        call.no_answer_at_s = self._services.clock.wall_s() + timeout_s
        call.publish(types.CallOutgoing(**call.parties, referral=types.referral_of(request.referral)))
        call.timer.set(timeout_s, partial(call.end, "no_answer"))
        if request.amd is not None:
            MachineDetection(call, request.amd).begin()
        if request.prompt is not None:
            call.speak(request.prompt)
        return call

    def fail_over(self, call: Call, ended: messages.CallEnded) -> bool:
        """Place a call by its next trunk if the previous one has refused it; return whether this was done."""
        if (
            call.direction == "inbound"
            or not call.trunk
            or call.answered_at_s is not None
            or call.local_reason is not None
            or ended.ended_by == "full"  # our own limit: no fault of the trunk, and the next one would fail too
        ):
            return False
        is_unreachable = ended.ended_by == "unreachable"
        attempt = self._services.trunks.next_for(call.id, sip_code=ended.sip_code, is_unreachable=is_unreachable)
        if attempt is None or call.invite is None or self._table.draining:
            return False
        self._ua.note_end(call.id)  # the end of the attempt, not of the call
        invite = msgspec.structs.replace(call.invite, to=attempt.to, from_=attempt.from_, trunk=attempt.trunk)
        try:
            self._ua.originate(invite, beside=call.bridge.kept.other_call_id if call.bridge.kept else "")
        except UserAgentUnavailable:
            return False
        sip_code = 0 if is_unreachable else ended.sip_code
        call.publish(types.CallTrunkFailed(trunk=call.trunk, sip_code=sip_code, next=attempt.trunk))
        log.info("trunk_failed", call_id=call.id, trunk=call.trunk, sip_code=sip_code, next=attempt.trunk)
        call.caller = _named(invite.display_name, attempt.from_)
        _renew_leg(call, attempt)
        return True

    def answered(self, call: Call) -> None:
        """A call was answered: bridge it if it waits for that. It ends if the bridge fails, unless it is to be kept."""
        if not call.bridge.waits or (kept := call.bridge.kept) is None or kept.is_briefed:
            return
        call.bridge.kept = None
        try:
            other = self._table.find(kept.other_call_id)
            call.bridge.begin(other.bridge, msgspec.structs.replace(kept, waits=False), is_placed=True)
        except CcTtsError as error:
            call.publish(types.CallCommandFailed(command="bridge", detail=error.detail))
            if kept.on_hangup == "end":
                call.end(BRIDGE_FAILED)

    def over(self, call: Call) -> None:
        """A call is over: end the calls that ring for a bridge to it, unless they are to be kept."""
        for each in tuple(self._table.live.values()):
            kept = each.bridge.kept
            is_for_it = kept is not None and kept.waits and kept.other_call_id == call.id
            if is_for_it and kept is not None and kept.on_hangup == "end" and each.state is not CallState.ESTABLISHED:
                each.end("bridge_ended")

    def _new_call(self, request: OriginateRequest, call_id: str) -> Call:
        return Call(
            services=self._services,
            id=call_id,
            direction="outbound",
            caller=_named(request.display_name, request.from_ or self._ua.default_caller),
            callee=request.to,
            sip_call_id="",
            headers=request.headers,
            defaults=PromptDefaults(voice=request.voice),
            metadata=request.metadata,
            client_state=request.client_state,
            webhook=request.webhook,
            disclosure=request.disclosure or Disclosure.of(self._services.config.calls.disclosure),
            tenant=request.tenant,
            trunk=request.trunk or "",
            referral=request.referral,
            peer=sip_uri.destination(request.to),
            traceparent=tracing.current_traceparent(),
        )

    def _check_capacity(self) -> None:
        retry_after_s = self._services.config.sip.retry_after_s
        if self._table.draining:
            raise Draining(retry_after_s=retry_after_s)
        if not self._ua.is_ready:
            raise UserAgentUnavailable(retry_after_s=retry_after_s)
        if self._ua.is_full:
            raise CapacityExceeded(f"{self._ua.max_calls} calls are up", retry_after_s=retry_after_s)

    def _check_target(self, request: OriginateRequest) -> None:
        config = self._services.config
        pointer, fault = "/to", sip_uri.fault_of_target(request.to, config.sip.transports)
        if not fault and request.asserted_identity and not request.trunk:  # the operator trusts a trunk
            peers, registrar = self._services.trusted_peers, config.registration.registrar
            if not sip_uri.is_trusted_target(request.to, peers=peers, registrar=registrar):
                pointer = "/asserted_identity"
                fault = "is for calls to an address in sip.trusted_peers or to the registrar"
        if fault:
            raise Unprocessable.about(FieldError(pointer, fault))

    def _check_bridge(self, request: OriginateRequest) -> None:
        if request.bridge is not None:
            other = self._table.find(request.bridge.other_call_id)
            if other.state is CallState.TERMINATED:
                raise WrongState(f"call {other.id} is over")
            other.check_sip("bridge")

    def _check_speech(self, request: OriginateRequest, call: Call) -> None:
        if request.voice is not None:
            self._services.source.check_defaults(call.defaults)
        if call.disclosure is not None:
            self._check_disclosure(call.disclosure, request)
        if request.prompt is not None:
            call.player.check(request.prompt, call.defaults)

    def _check_disclosure(self, disclosure: Disclosure, request: OriginateRequest) -> None:
        try:
            self._services.source.check(self._services.staged.resolved(disclosure.content, request.tenant))
        except ClientError as error:
            if request.disclosure is None:
                raise DisclosureFailed(f"calls.disclosure: {error.detail}") from error
            raise Unprocessable.about(FieldError("/disclosure", error.detail)) from None


def _named(display_name: str | None, caller: str) -> str:
    return f"{bye.quoted(display_name)} <{caller}>" if display_name else caller


def _renew_leg(call: Call, attempt: Attempt) -> None:
    """Tell the new leg of a call, which another trunk places, what the old leg knew."""
    call.trunk, call.callee, call.peer = attempt.trunk, attempt.to, sip_uri.destination(attempt.to)
    call.audio.ask_again()
    call.bridge.leg_renewed()
    if call.paused:
        call.services.ua.tell(messages.SetPaused(call.id, paused=True))
    call.keep()


def _invite(request: OriginateRequest, call: Call) -> messages.Originate:
    asserted = {"P-Asserted-Identity": f"<{request.asserted_identity}>"} if request.asserted_identity else {}
    if call.trace is not None and "x-traceparent" not in map(str.lower, request.headers):
        asserted["X-Traceparent"] = call.traceparent  # as for incoming calls
    return messages.Originate(
        call_id=call.id,
        to=request.to,
        from_=request.from_ or "",
        headers=request.headers | asserted,
        display_name=request.display_name or "",
        trunk=request.trunk or "",
    )
