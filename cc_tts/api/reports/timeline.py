"""The picture in a call's report: what happened when, from the events. Runs on: the event loop.

Digits that were withheld from events are withheld here; the words that a caller heard are in it, as in ``speak.complete``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from cc_tts.callreport.picture import Bar, CallPicture, Kind, PictureLane, PictureMark, PictureTable, Waveform
from cc_tts.calls.call import Call
from cc_tts.calls.events import types
from cc_tts.calls.events.bus import Event
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance

_KIND_OF_CAUSE: Final[dict[str, Kind]] = {CompletionCause.NORMAL: "speech", CompletionCause.ERROR: "failed"}
_MAX_DETAIL_CHARS: Final = 600  # unmeasured


def picture_of(
    call: Call, events: Sequence[Event], *, now_s: float, waveforms: Sequence[Waveform] = (), ladder: str = ""
) -> CallPicture:
    """Return the report of a call now. ``events`` are the call's events that are still known, oldest first."""
    origin_s = call.created_at_s
    end_s = max(call.ended_at_s or now_s, *(event.time for event in events), origin_s + 0.1)
    return CallPicture(
        title=f"Call {call.id}",
        duration_s=end_s - origin_s,
        facts=[*_facts(call), *_gaps(events)],
        lanes=_lanes(call, events, end_s),
        waveforms=waveforms,
        tables=(_utterances(call), _steps(events, origin_s)),
        ladder=ladder,
    )


def _facts(call: Call) -> list[tuple[str, str]]:
    quality, ending = call.quality, call.ending
    return [
        ("caller", call.caller),
        ("callee", call.callee),
        ("direction", call.direction),
        ("state", call.state.value if ending is None else f"{ending.result}, {ending.reason}"),
        ("Call-ID", call.sip_call_id),
        ("codec", f"{call.codec or '–'} {'over SRTP' if call.srtp else ''}".strip()),
        ("first audio, p50", _ms(_median([each.time_to_first_audio_ms for each in call.utterances.values()]))),
        ("MOS (estimated, ITU-T G.107)", "–" if quality.mos is None else f"{quality.mos:.2f}"),
        ("packets received / lost", f"{quality.packets_received} / {quality.packets_lost}"),
        ("packets sent", str(quality.packets_sent)),
        ("jitter / round trip", f"{_ms(quality.jitter_ms)} / {_ms(quality.round_trip_ms)}"),
        ("gaps in our speech", str(quality.underruns)),
    ]


def _gaps(events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    if not events or events[0].seq != 1:
        yield "note", "not all events of this call are kept (http.event_history_size)"
    elif any(_of(events, types.CallAdopted)):
        yield "note", "the events before the restart of the server are not kept"


def _lanes(call: Call, events: Sequence[Event], end_s: float) -> list[PictureLane]:
    origin_s = call.created_at_s
    state = PictureLane("call", [_bar(call, call.created_at_s, call.answered_at_s or end_s, "rings", "waiting")])
    if call.answered_at_s is not None:
        state.bars.append(_bar(call, call.answered_at_s, call.ended_at_s or end_s, "answered", "plain"))
    lanes = (
        state,
        PictureLane("hold", [*_holds(call, events, end_s)]),
        PictureLane("we say", [*_speech(call, events, end_s)]),
        PictureLane("caller says", [*_caller_speech(call, events, end_s)]),
    )
    keys = PictureLane(
        "keys", marks=[_mark(event, origin_s, event.data.digit) for event in _of(events, types.CallDtmf)]
    )
    steps = PictureLane("steps")
    for event in events:
        if (label := _label(event)) is not None:
            steps.marks.append(_mark(event, origin_s, label))
    return [*lanes, keys, steps]


def _of(events: Sequence[Event], *kinds: type[types.EventData]) -> Iterator[Any]:
    return (event for event in events if isinstance(event.data, kinds))


def _bar(call: Call, begin_s: float, end_s: float, label: str, kind: Kind, detail: str = "") -> Bar:
    origin_s = call.created_at_s
    return Bar(
        begin_s=begin_s - origin_s, end_s=end_s - origin_s, label=label, kind=kind, detail=detail[:_MAX_DETAIL_CHARS]
    )


def _mark(event: Event, origin_s: float, label: str) -> PictureMark:
    is_fault = event.type in ("call.command_failed", "call.trunk_failed", "speak.refused", "call.disclosure_failed")
    return PictureMark(
        at_s=event.time - origin_s, label=label, detail=event.type, kind="failed" if is_fault else "mark"
    )


def _holds(call: Call, events: Sequence[Event], end_s: float) -> Iterator[Bar]:
    begun: tuple[float, str] | None = None
    for event in _of(events, types.CallHeld, types.CallUnheld):
        if begun is not None:
            yield _bar(call, begun[0], event.time, f"held by {begun[1]}", "plain")
        begun = (event.time, event.data.by) if isinstance(event.data, types.CallHeld) else None
    if begun is not None:
        yield _bar(call, begun[0], end_s, f"held by {begun[1]}", "plain")


def _speech(call: Call, events: Sequence[Event], end_s: float) -> Iterator[Bar]:
    started: dict[str, float] = {}
    for event in _of(events, types.SpeakStarted, types.SpeakComplete):
        utterance_id = event.data.utterance_id
        if isinstance(event.data, types.SpeakStarted):
            started[utterance_id] = event.time
            wait_s = (event.data.time_to_first_audio_ms or 0.0) / 1000
            yield _bar(call, event.time - wait_s, event.time, "", "waiting", f"first audio after {_ms(wait_s * 1000)}")
        else:
            begun_s = started.pop(utterance_id, event.time)
            kind = _KIND_OF_CAUSE.get(event.data.completion_cause, "cut")
            detail = f"{event.data.completion_cause}: {event.data.spoken_text}"
            yield _bar(call, begun_s, event.time, event.data.spoken_text, kind, detail)
    for utterance_id, begun_s in started.items():
        utterance = call.utterances.get(utterance_id)
        yield _bar(call, begun_s, end_s, "" if utterance is None else utterance.spoken_text, "speech")


def _caller_speech(call: Call, events: Sequence[Event], end_s: float) -> Iterator[Bar]:
    begun: dict[str, float] = {}
    for event in _of(events, types.CallSpeechStarted, types.CallSpeechStopped):
        if isinstance(event.data, types.CallSpeechStarted):
            answered_s = call.answered_at_s if call.answered_at_s is not None else event.time
            begun[event.data.speech_id] = min(event.time, answered_s + event.data.at_ms / 1000)
        elif (begin_s := begun.pop(event.data.speech_id, None)) is not None:
            yield _bar(call, begin_s, begin_s + event.data.duration_ms / 1000, "", "caller", "the caller speaks")
    for begin_s in begun.values():
        yield _bar(call, begin_s, end_s, "", "caller", "the caller speaks")


_LABELS: Final[dict[str, Callable[[Any], str | None]]] = {
    "call.early": lambda data: str(data.sip_code),
    "call.gather_complete": lambda data: f"gather: {data.result}",
    "call.transfer": lambda data: (
        f"transfer: {data.state}" if data.state in ("requested", "succeeded", "failed") else None
    ),
    "call.bridged": lambda data: f"bridged to {data.other_call_id}",
    "call.unbridged": lambda data: f"unbridged: {data.reason}",
    "call.recording": lambda data: f"recording {data.state}",
    "call.machine_detected": lambda data: data.result,
    "call.disclosed": lambda _: "disclosed",
    "call.adopted": lambda _: "server restarted",
    "call.command_failed": lambda data: f"{data.command} failed",
    "call.trunk_failed": lambda data: f"{data.trunk} failed: {data.sip_code or 'unreachable'}",
    "call.refer_requested": lambda _: "REFER came",
    "call.relay_started": lambda _: "relay",
    "call.relay_ended": lambda data: f"relay: {data.cause}",
    "speak.recovered": lambda data: "speech worker lost" if data.reason == "worker_lost" else "voice ran away",
    "speak.refused": lambda data: f"not spoken: {data.error}",
}
"""The labels in the picture of events without a bar."""


def _label(event: Event) -> str | None:
    make = _LABELS.get(event.type)
    return None if make is None else make(event.data)


def _utterances(call: Call) -> PictureTable:
    return PictureTable(
        title="What we said",
        head=("voice", "first PCM", "first audio", "played", "ended", "gaps", "heard"),
        rows=[_row(each) for each in call.utterances.values()],
    )


def _row(utterance: Utterance) -> tuple[str, ...]:
    cause = utterance.completion_cause or utterance.state
    error = f" ({utterance.error.code})" if utterance.error is not None else ""
    return (
        f"{utterance.voice} ({utterance.engine}{', cached' if utterance.cached else ''})"
        if utterance.voice
        else "made before",
        _ms(utterance.time_to_first_pcm_ms),
        _ms(utterance.time_to_first_audio_ms),
        f"{utterance.played_ms / 1000:.2f} s",
        f"{cause}{error}",
        str(utterance.underruns),
        utterance.spoken_text,
    )


def _steps(events: Sequence[Event], origin_s: float) -> PictureTable:
    return PictureTable(
        title="Events",
        head=("at", "event", ""),
        rows=[(f"{each.time - origin_s:.3f} s", each.type, _label(each) or "") for each in events],
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} ms"
