"""Incoming calls: they are routed, and then answered and greeted, or refused. Calls of an earlier server are adopted.

Runs on: the event loop.
"""

from collections.abc import Callable, Mapping
from functools import partial

from cc_tts import logs
from cc_tts.calls import traces
from cc_tts.calls.adoption import record as records
from cc_tts.calls.audio.machine_detection import break_off
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.call_table import CallTable
from cc_tts.calls.dialplan import routing, tts_headers
from cc_tts.calls.dialplan.request_uri import uri_parameters
from cc_tts.calls.events import types
from cc_tts.calls.relay.relays import Relays
from cc_tts.calls.services import CallServices
from cc_tts.calls.transfers import transfers
from cc_tts.calls.transfers.transfer import ReferRequest
from cc_tts.config.schema import MediaDialect
from cc_tts.errors import CcTtsError, ClientError, Draining, MalformedRequest
from cc_tts.speech.prompt import Prompt
from cc_tts.tracing.context import TraceContext
from cc_tts.ua import messages

log = logs.get(__name__)


MediaConnector = Callable[[Call, str, MediaDialect, Callable[[], None]], None]
"""Connects a call to the application of its route, by URL and dialect, and then answers the call. The last argument is
called if the application does not accept the connection in time.
"""


class IncomingCalls:
    """Answers, greets or refuses incoming calls."""

    def __init__(
        self,
        services: CallServices,
        table: CallTable,
        *,
        relays: Relays,
        connect_media: MediaConnector,
    ) -> None:
        self._services = services
        self._table = table
        self._relays = relays
        self._connect_media = connect_media
        self._adopted: list[tuple[Call, messages.CallSnapshot]] = []
        """Adopted calls that :meth:`present_adopted` has not announced yet."""

    def take(self, message: messages.IncomingCall) -> None:
        call = self._new_call(message)
        self._table.add(call)
        self._services.trunks.note_up(call.id, call.trunk)
        self._present(call, message)

    def adopt(self, snapshot: messages.CallSnapshot) -> Call | None:
        """Adopt a call of an earlier server; return it, or ``None`` if it had to be ended."""
        record = records.decode(snapshot.record)
        is_up = record is not None and record.local_reason is None
        if snapshot.invite is not None and snapshot.state == "invited":
            call = self._new_call(snapshot.invite)
            record = record or call.record()
        elif record is None:
            log.error(
                "call_not_adopted", call_id=snapshot.call_id, sip_call_id=snapshot.sip_call_id, consequence="ending it"
            )
            self._services.ua.send(messages.Hangup(call_id=snapshot.call_id, cause="server_restarted"))
            return None
        else:
            call = Call(
                services=self._services,
                id=snapshot.call_id,
                sip_call_id=snapshot.sip_call_id,
                **records.facts_of(record),
            )
        if is_up:
            self._table.reserve(call.id, call.tenant, is_up=True)
        self._services.trunks.note_up(call.id, call.trunk)
        self._services.events.follow(record.run)
        call.metadata, call.client_state = record.metadata, record.client_state
        call.relay_request = record.relay_request
        self._table.restore(call)
        self._adopted.append((call, snapshot))
        call.restore(snapshot, record)
        break_off(call, record.amd_stage)
        log.info("call_adopted", call_id=call.id, sip_call_id=call.sip_call_id, state=call.state)
        return call

    def present_adopted(self) -> None:
        """The server can speak now: announce the adopted calls, and route those that wait for an answer."""
        adopted, self._adopted = self._adopted, []
        for call, snapshot in adopted:
            if call.state is CallState.TERMINATED:
                continue
            call.publish(types.CallAdopted(state=call.state, **call.parties))
            self._relays.resume(call)
            if snapshot.invite is not None and call.waits_for_answer and call.local_reason is None:
                self._present(call, snapshot.invite)
            elif call.media_route is not None:
                unreachable = partial(call.end, "media_unreachable")
                self._connect_media(call, *call.media_route, unreachable)

    def _trusts(self, message: messages.IncomingCall) -> bool:
        return message.is_trusted or message.source in self._services.trusted_peers

    def _new_call(self, message: messages.IncomingCall) -> Call:
        trusted = self._trusts(message)
        route, tenant = routing.route_of(message.request_uri, self._services.config, message.trunk)
        return Call(
            services=self._services,
            id=message.call_id,
            direction="inbound",
            caller=message.caller,
            callee=message.callee,
            sip_call_id=message.sip_call_id,
            transport=message.transport or None,
            headers=message.headers | message.identity if trusted else message.headers,
            uri_parameters=uri_parameters(message.request_uri) if trusted else {},
            tenant=tenant,
            route=route,
            trunk=message.trunk,
            peer=message.source,
            traceparent=_traceparent(message.headers) if trusted else "",
        )

    def _present(self, call: Call, message: messages.IncomingCall) -> None:
        """Announce a new call, and do what its route says."""
        trusted, config = self._trusts(message), self._services.config
        traces.note_begin(call)
        call.publish(types.CallIncoming(source=message.source, **call.parties))
        try:
            if self._table.draining:  # it arrived before the UA process learned of the drain
                raise Draining(retry_after_s=config.sip.retry_after_s)
            if trusted and message.contradicting:
                raise MalformedRequest(
                    f"{', '.join(message.contradicting)}: twice in this INVITE, with different values"
                )
            decision = routing.decide(
                request_uri=message.request_uri,
                trusted=trusted,
                headers=message.headers,
                config=config,
                trunk=message.trunk,
            )
            if trusted and (unknown := tts_headers.unknown_headers(message.headers)):
                log.warning("headers_not_known", call_id=call.id, headers=unknown, known=sorted(tts_headers.HEADERS))
            call.defaults = decision.defaults
            call.lead_in_ms, call.recorder.wanted = decision.lead_in_ms, decision.record
            call.disclosure = decision.disclosure
            self._table.reserve(call.id, call.tenant)
            if decision.route.refer != "refuse":
                self._services.ua.send(messages.AllowRefers(call_id=call.id, targets=config.transfer.allowed))
            if call.defaults.voice is not None:
                self._services.source.check_defaults(call.defaults)
            if decision.gather is not None:
                call.gather(decision.gather)
            elif decision.transfer_to:
                transfers.begin(
                    call,
                    ReferRequest(
                        to=decision.transfer_to, prompt=decision.prompt, when_answered=True, on_failure="hangup"
                    ),
                )
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
        route = decision.route
        if route.answer == "now" and not route.media_url and not route.relay:
            call.accept()
            return
        call.ring()
        if route.relay:
            self._relays.begin(call, route.relay)
        elif route.media_url:
            call.media_route = route.media_url, route.media_dialect
            unreachable = partial(_nobody_answered, call, decision.unanswered, "media_unreachable")
            self._connect_media(call, *call.media_route, unreachable)
        elif route.answer == "ring":
            call.timer.set(route.ring_ms / 1000, call.accept)
            call.player.prepare()  # only here: a call that may never be answered occupies no engine
        else:
            timeout_s = self._services.config.calls.manual_answer_timeout_s
            call.timer.set(timeout_s, partial(_nobody_answered, call, decision.unanswered))


def _traceparent(headers: Mapping[str, str]) -> str:
    """Return the trace context of an INVITE from ``X-Traceparent``, without the fields of later versions."""
    found = next((value for name, value in headers.items() if name.lower() == "x-traceparent"), "")
    trace = TraceContext.parse(found)
    return "" if trace is None else trace.traceparent


def _nobody_answered(call: Call, greeting: Prompt | None, reason: str = "not_answered") -> None:
    """The application did not answer in time or cannot be reached. Answer with ``greeting`` instead, if there is one."""
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
    """Answer an INVITE with the SIP status of ``error``. A Warning header (RFC 3261 §20.43) gives the reason if the request
    is at fault; nothing is said about the state of the server.
    """
    detail = error.detail.encode("ascii", "replace").decode()
    reason = detail if isinstance(error, ClientError) and detail.isprintable() else error.title
    call.end(error.code, sip_code=error.sip_status, reason=reason[:120], retry_after_s=error.retry_after_s or 0)
