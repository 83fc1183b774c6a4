"""The spans of one call, made of its events: the call, its INVITE, each utterance, gather, transfer and recording.

::

    call ┬─ sip.invite ……… answer
         ├─ utterance ┬─ text.normalize+chunk   resample      (cc_tts/speech/synthesis.py)
         │            ├─ engine.first_chunk     engine.stream (cc_tts/engines/worker/spans.py)
         │            └─ playout
         └─ gather   transfer   record

What takes no time is an event of a span: keys, marks, hold, speech of the caller. No text, digit or number of a caller is in
an attribute. Runs on: the event loop.
"""

from collections.abc import Mapping
from typing import Any, Final

from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.call_state import CallState
from cc_tts.calls.ending import Ending
from cc_tts.calls.events import types
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.span import CURRENT, Span, Value

MS_PER_S: Final = 1000
SIP_OK: Final = 200

Key = tuple[str, str]
"""The name of a span, and the id of its subject."""


def spans_of(call: CallInfo, utterances: Mapping[str, Utterance]) -> "CallSpans | None":
    """Begin the spans of a call below its ``traceparent``, which names the call's own span afterwards.

    ``None`` if the call is not traced.
    """
    root = call.services.tracer.begin(
        "call",
        kind="server",
        parent=TraceContext.parse(call.traceparent),
        attributes=_named(**{"cctts.call_id": call.id, "cctts.direction": call.direction, "cctts.tenant": call.tenant}),
    )
    if root is None:
        return None
    call.traceparent = root.context.traceparent
    return CallSpans(call, utterances, root)


class CallSpans:
    """The spans of a call; see :func:`spans_of`."""

    def __init__(self, call: CallInfo, utterances: Mapping[str, Utterance], root: Span) -> None:
        self._call = call
        self._utterances = utterances
        self._root = root
        self._open: dict[Key, Span] = {}
        inbound = call.direction == "inbound"
        self._invite = root.child(
            "sip.invite", kind="server" if inbound else "client", attributes={"sip.method": "INVITE"}
        )

    def gather_began(self, gather_id: str) -> None:
        """Keys are collected from now on."""
        self._begin("gather", gather_id)

    def leave(self) -> None:
        """Another server continues the call."""
        for span in (*self._open.values(), self._root):
            span.event("handed_over")
            span.end()

    def _begin(self, name: str, id_: str) -> None:
        """Begin a span of the call for this id, unless there is one."""
        if (name, id_) not in self._open:
            self._open[name, id_] = self._root.child(name, attributes={f"cctts.{name}_id": id_})

    def take(self, data: types.EventData) -> None:
        """Take an event of the call into its spans."""
        match data:
            case types.CallAdopted(state=CallState.ESTABLISHED):
                self._invite.end_ns = self._invite.start_ns  # another server answered it earlier
                self._root.event(data.type)
            case types.CallEarly():
                self._invite.event("ringing", **{"sip.response_code": data.sip_code})
            case types.CallTrunkFailed():
                self._invite.event("trunk_failed", **{"sip.response_code": data.sip_code})
            case types.CallEstablished():
                self._answered(SIP_OK)
            case types.CallGatherComplete():
                self._begin("gather", data.gather_id)
                self._end("gather", data.gather_id, result=data.result)
            case types.CallTransfer():
                self.step("transfer", data.transfer_id, data.state, reason=data.reason, mode=data.mode)
            case types.CallRecording():
                self.step("record", data.recording_id, data.state, reason=data.reason)
            case types.SpeakData():
                self._take_speak(data)
            case types.CallTerminated(ending=ending):
                self._over(ending)
            case _:
                self._root.event(data.type)

    def _take_speak(self, data: types.SpeakData) -> None:
        match data:
            case types.SpeakQueued():
                self._queued(self._utterances[data.utterance_id])
            case types.SpeakComplete():
                self._complete(data)
            case _ if (span := self._open.get(("utterance", data.utterance_id))) is not None:
                span.event(data.type)

    def _answered(self, sip_code: int) -> None:
        """End the span of the INVITE with its final status, 0 if there was none. Does nothing if it has ended."""
        if self._invite.end_ns is not None:
            return
        self._invite.attributes |= _named(**{"sip.call_id": self._call.services.tracer.hashed(self._call.sip_call_id)})
        self._invite.attributes["sip.response_code"] = sip_code
        self._invite.end(error="" if sip_code == SIP_OK else str(sip_code or "no_answer"))

    def step(self, name: str, id_: str, state: str, **attributes: Any) -> None:
        """Note the progress of a transfer or a recording. ``failed`` and a second word are its last state."""
        self._begin(name, id_)
        if state in ("succeeded", "saved", "failed"):
            error = str(attributes.get("reason")) if state == "failed" else ""
            self._end(name, id_, error=error, result=state, **attributes)
        else:
            self._open[name, id_].event(state)

    def _end(self, name: str, id_: str, *, error: str = "", **attributes: Any) -> None:
        span = self._open.pop((name, id_))
        span.attributes |= _named(**attributes)
        span.end(error=error)

    def _queued(self, utterance: Utterance) -> None:
        """Begin the span of an accepted prompt. The work for it is below that span; the request that asked
        for it is linked.
        """
        asked_by = CURRENT.get()
        span = utterance.span = self._root.child(
            "utterance",
            links=() if asked_by is None or asked_by.trace is self._root.trace else (asked_by.context,),
            attributes=_named(
                **{
                    "cctts.utterance_id": utterance.id,
                    "gen_ai.operation.name": "tts",
                    "gen_ai.output.type": "speech",
                    "gen_ai.provider.name": "cc-tts",
                    "gen_ai.request.model": utterance.engine,
                    "cctts.voice": utterance.voice,
                }
            ),
        )
        self._open["utterance", utterance.id] = span
        utterance.context.run(CURRENT.set, span)

    def _complete(self, data: types.SpeakComplete) -> None:
        utterance = self._utterances.get(data.utterance_id)
        span = self._open.pop(("utterance", data.utterance_id), None)
        if utterance is None or span is None:  # it began under an earlier server
            return
        span.attributes |= {
            "completion_cause": data.completion_cause.value,
            "cctts.chars": data.text_chars,
            "cctts.cached": utterance.cached,
            "cctts.played_ms": round(data.played_ms),
        }
        if (first_audio_ms := data.time_to_first_audio_ms) is not None:
            span.attributes["gen_ai.response.time_to_first_chunk"] = first_audio_ms / MS_PER_S
        self._playout(utterance, span)
        if data.completion_cause is CompletionCause.ERROR or data.underruns or self._is_late(utterance):
            span.trace.keep()
        failed = data.completion_cause is CompletionCause.ERROR
        span.end(error=(data.error or "error") if failed else "")

    def _is_late(self, utterance: Utterance) -> bool:
        first_audio_ms = utterance.time_to_first_audio_ms
        return first_audio_ms is not None and first_audio_ms > self._call.services.config.tts.first_audio_target_ms

    @staticmethod
    def _playout(utterance: Utterance, span: Span) -> None:
        if utterance.first_pcm_ns is None:
            return
        playout = span.child(
            "playout", start_ns=utterance.first_pcm_ns, attributes={"cctts.underruns": utterance.underruns}
        )
        if utterance.first_speech_ns is not None:
            playout.event("first_frame", at_ns=utterance.first_speech_ns)
        playout.end(at_ns=utterance.completed_ns)

    def _over(self, ending: Ending) -> None:
        """End the spans of a call; a recording may still be saved later."""
        call, root = self._call, self._root
        sip_code = ending.sip_code
        self._answered(sip_code or 0)
        for (name, _), span in tuple(self._open.items()):
            if name != "record":
                span.end(error="call_ended")
        root.attributes |= {"result": ending.result, "reason": ending.reason} | _named(
            **{"cctts.codec": call.codec, "cctts.transport": call.transport, "cctts.trunk": call.trunk}
        )
        if sip_code is not None:
            root.attributes["sip.response_code"] = sip_code
        if ending.result == "failed":
            root.trace.keep()
        root.end(error=ending.reason if ending.result == "failed" else "")
        root.trace.close()


def _named(**attributes: Any) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value}
