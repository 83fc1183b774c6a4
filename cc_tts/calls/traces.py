"""The traces of a call that an operator finds later: lines of the log, a line of the accounting file, and how it sounded.

There is no number of a caller in it, no digit and no text; ``sip_call_id`` leads to the peer's own records. Runs on: the
event loop.
"""

import dataclasses
from typing import Any, Final

import msgspec

from cc_tts import logs
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.ending import Ending, q850_cause
from cc_tts.media.quality import Quality
from cc_tts.metrics import Metrics
from cc_tts.tenants.accounting import CallLine

MS_PER_S: Final = 1000

log = logs.get(__name__)


def note_begin(call: CallInfo) -> None:
    where = {"source": call.peer, "route": call.route} if call.direction == "inbound" else {"target": call.peer}
    _log(call, "call_incoming" if call.direction == "inbound" else "call_outgoing", transport=call.transport, **where)


def note_answer(call: CallInfo) -> None:
    _log(call, "call_answered", codec=call.codec, transport=call.transport, srtp=call.srtp)


def note_end(call: CallInfo, ending: Ending) -> None:
    quality = call.quality
    _log(
        call,
        "call_ended",
        result=ending.result,
        reason=ending.reason,
        sip_code=ending.sip_code,
        duration_ms=duration_ms(call),
        packets_sent=quality.packets_sent,
        packets_received=quality.packets_received,
        packets_lost=quality.packets_lost,
        mos=quality.mos,
    )


def _log(call: CallInfo, event: str, **more: Any) -> None:
    if (trace := call.trace) is not None:
        more["trace_id"] = trace.trace_id
    log.info(event, call_id=call.id, sip_call_id=call.sip_call_id, **more)


def duration_ms(call: CallInfo) -> int:
    """The time from the answer to the end; 0 for a call without an answer."""
    if call.answered_at_s is None or call.ended_at_s is None:
        return 0
    return max(0, round((call.ended_at_s - call.answered_at_s) * MS_PER_S))


def accounting_line(call: CallInfo, ending: Ending) -> CallLine:
    return CallLine(
        tenant=call.tenant,
        call_id=call.id,
        sip_call_id=call.sip_call_id,
        direction=call.direction,
        route=call.route,
        started=round(call.created_at_s, 3),
        answered=None if call.answered_at_s is None else round(call.answered_at_s, 3),
        ended=round(call.created_at_s if call.ended_at_s is None else call.ended_at_s, 3),
        duration_ms=duration_ms(call),
        result=ending.result,
        reason=ending.reason,
        sip_code=ending.sip_code,
        q850_cause=q850_cause(ending, was_established=call.answered_at_s is not None, our_cause=call.hangup_cause),
        codec=call.codec,
        quality=dataclasses.asdict(call.quality),
        disclosed=None if call.disclosed_at_s is None else round(call.disclosed_at_s, 3),
        recordings=[msgspec.structs.asdict(each) for each in call.recordings],
    )


def observe(quality: Quality, metrics: Metrics) -> None:
    """Count the quality of an answered call, as far as RTCP reported it."""
    if expected := quality.packets_received + quality.packets_lost:
        metrics.call_lost.observe(quality.packets_lost / expected)
    for series, ms in ((metrics.call_jitter, quality.jitter_ms), (metrics.call_round_trip, quality.round_trip_ms)):
        if ms is not None:
            series.observe(ms / MS_PER_S)
    if quality.mos is not None:
        metrics.call_mos.observe(quality.mos)
    if quality.remote is not None and (heard := quality.remote.mos_cq or quality.remote.mos_lq) is not None:
        metrics.call_remote_mos.observe(heard)
