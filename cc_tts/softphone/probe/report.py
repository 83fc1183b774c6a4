"""The findings of a probe: figures with their definitions, and what else there is to say, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from cc_tts.clock import NS_PER_S, ms_between
from cc_tts.softphone.probe.caller import Expired, Wait
from cc_tts.softphone.probe.cuts import BELOW_SPEECH_DB, LAST_MS
from cc_tts.softphone.probe.ear import MAX_LATE_MS, MIN_SPEECH_MS, PAUSE_MS
from cc_tts.softphone.probe.plan import ProbePlan
from cc_tts.softphone.probe.turns import Spread, Stretch, Turn, dead_air_ms, first_speech_ms, spread_of
from cc_tts.softphone.report import SoftphoneReport, lines
from cc_tts.vad.silero import WINDOW_MS

EARLY_MS: Final = 50.0
"""RTP that comes no earlier than this before the 200 OK has overtaken it, and is not early media (unmeasured)."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a figure, and where it is published."""

    means: str
    source: str


DEFINITIONS: Final = {
    "first_speech_ms": Definition(
        "from the 200 OK to the agent's first speech; 0 if it spoke before (early media)",
        "as on_first_bot_speech_latency of Pipecat's UserBotLatencyObserver, which counts from the connection",
    ),
    "response_ms": Definition(
        "from the end of the caller's speech to the beginning of the agent's next speech, at the caller's socket",
        "user-to-bot latency of Pipecat's UserBotLatencyObserver (from the end of speech itself, not from its detection); "
        "e2e_latency of LiveKit Agents (started_speaking_at - stopped_speaking_at); response latency of "
        "Full-Duplex-Bench v1.5 (arXiv 2507.23159, get_timing.py)",
    ),
    "stop_ms": Definition(
        "from the beginning of the caller's speech, while the agent speaks, to the agent's silence",
        "stop latency of Full-Duplex-Bench v1.5 (arXiv 2507.23159, get_timing.py), which counts no longer than the caller "
        "speaks; this one goes on until the agent is silent",
    ),
    "talked_over": Definition(
        "times that the agent began to speak before the caller had finished, and went on after that",
        "interruptions by agent of Twilio's Conversation Relay summary",
    ),
    "dead_air_ms": Definition(
        "stretches longer than the bound in which nobody speaks while an answer is due: after the 200 OK, and after the "
        "caller's speech",
        "silence in the non-talk time of Amazon Connect (3 s), without holds; silence analysis of Google Contact Center "
        "Insights (5 s)",
    ),
    "cut_words": Definition(
        f"abrupt: the last {LAST_MS} ms of a stretch of speech are within {BELOW_SPEECH_DB:g} dB of its active speech level "
        "(ITU-T P.56), silence follows at once, and the caller neither spoke nor pressed a key nor hung up; lost, late: "
        "silence in the middle of speech where RTP sequence numbers are missing, or where a packet came more than "
        f"{MAX_LATE_MS} ms late",
        "this program's own: no published definition was found",
    ),
    "packets": Definition(
        "loss and jitter of RFC 3550 (A.3, A.8); round trip by RTCP (6.4.1); MOS by the E-model for G.711",
        "RFC 3550; ITU-T G.107, simplified, without a round trip there is none",
    ),
    "percentiles": Definition("p50 and p95 are linear between the values", "numpy.percentile's default"),
}


@dataclass(frozen=True, slots=True)
class DetectorReport:
    """Who says that the agent speaks, and how far it was off with the caller's own words, whose edges are known, ms."""

    begin_error_ms: tuple[float, ...]
    end_error_ms: tuple[float, ...]
    name: str = "Silero VAD"
    window_ms: int = WINDOW_MS
    min_speech_ms: int = MIN_SPEECH_MS
    pause_ms: int = PAUSE_MS


@dataclass(frozen=True, slots=True)
class CutWord:
    """A word that was cut, ms from the answer."""

    at_ms: float
    why: Literal["abrupt", "lost", "late"]
    missing_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadAir:
    """Stretches of silence beyond ``bound_ms``."""

    bound_ms: float
    total_ms: float
    spread: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFigures:
    """The figures of the line."""

    received: int
    lost: int
    loss_percent: float
    jitter_ms: float
    round_trip_ms: float | None
    mos: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Everything about one probe; instants are ms from the answer."""

    uri: str
    has_spoken: bool
    first_speech_ms: float | None
    response_ms: Spread
    stop_ms: Spread
    num_not_stopped: int
    num_talked_over: int
    dead_air_ms: DeadAir
    cut_words: Sequence[CutWord]
    packets: PacketFigures
    findings: Sequence[str]
    turns: Sequence[Turn]
    agent_speech: Sequence[Stretch]
    detector: DetectorReport
    wait_ms: float
    call: SoftphoneReport
    definitions: dict[str, Definition] = field(default_factory=lambda: DEFINITIONS)

    @property
    def exit_code(self) -> int:
        """Exit status: that of the call, and 1 where the agent never spoke."""
        return self.call.ending.exit_code or int(not self.has_spoken)

    def table(self) -> str:
        call = ("call", f"{self.uri}  {self.call.ending.result}")
        return lines([call, *rows(self), *(("note", finding) for finding in self.findings)])


def probe_report(
    call: SoftphoneReport,
    *,
    plan: ProbePlan,
    agent: Sequence[Stretch],
    turns: Sequence[Turn],
    cuts: Sequence[CutWord],
    is_over: bool,
    expired: Sequence[Expired],
    remarks: Sequence[str],
    detector: DetectorReport,
) -> ProbeReport:
    """The report of a call. ``is_over``: the caller has said and done all that was planned."""
    spoken = [turn for turn in turns if turn.what == "speech"]
    first_ms = first_speech_ms(agent) if call.answered_at_ns is not None else None
    greeting_ms = min([call.talk_ms or 0.0 if first_ms is None else first_ms, *(each.begin_ms for each in spoken[:1])])
    bound_ms = plan.dead_air_s * 1000
    air = spread_of(dead_air_ms(turns, greeting_ms, bound_ms))
    rtp = call.rtp
    return ProbeReport(
        uri=call.uri,
        has_spoken=first_ms is not None,
        first_speech_ms=first_ms,
        response_ms=spread_of(each.response_ms for each in spoken if each.response_ms is not None),
        stop_ms=spread_of(each.stop_ms for each in spoken if each.stop_ms is not None),
        num_not_stopped=sum(each.is_interruption and each.stop_ms is None for each in spoken),
        num_talked_over=sum(each.is_talked_over for each in spoken),
        dead_air_ms=DeadAir(bound_ms=bound_ms, total_ms=round(sum(air.values), 1), spread=air),
        cut_words=cuts,
        packets=PacketFigures(
            received=rtp.packets,
            lost=rtp.lost,
            loss_percent=round(100 * max(0, rtp.lost) / max(1, rtp.packets + max(0, rtp.lost)), 3),
            jitter_ms=rtp.jitter_ms,
            round_trip_ms=rtp.round_trip_ms,
            mos=rtp.mos,
        ),
        findings=[*_findings(call, agent, turns, expired, is_over=is_over), *remarks],
        turns=turns,
        agent_speech=agent,
        detector=detector,
        wait_ms=plan.wait_s * 1000,
        call=call,
    )


_EXPIRED: Final[dict[Wait, str]] = {
    "greeting": "no greeting within {bound:g} s of the answer",
    "end of the greeting": "the greeting was not over after {bound:g} s: the caller spoke into it",
    "words": "the caller's words could not be sent within {bound:g} s: is the call on hold?",
    "answer": "no answer within {bound:g} s, at {at:.1f} s",
    "stop": "the agent did not stop within {bound:g} s of an interruption, at {at:.1f} s",
    "end of the answer": "an answer was not over after {bound:g} s, at {at:.1f} s: the caller went on",
}


def _findings(
    call: SoftphoneReport, agent: Sequence[Stretch], turns: Sequence[Turn], expired: Sequence[Expired], *, is_over: bool
) -> Iterator[str]:
    if call.answered_at_ns is None:
        code = f"{call.ending.sip_code} " if call.ending.sip_code else ""
        yield f"the agent did not answer: {call.ending.result}, {code}{call.ending.reason}"
    answered_ns = call.answered_at_ns or call.ended_at_ns
    if call.first_rtp_at_ns is not None and ms_between(call.first_rtp_at_ns, answered_ns) > EARLY_MS:
        is_speech = any(each.begin_ms < 0 or call.answered_at_ns is None for each in agent)
        speech = "with speech" if is_speech else "without speech"
        yield f"audio came before the answer (early media), {speech}"
    if call.answered_at_ns is None:
        return
    if not any(each.end_ms > 0 for each in agent):
        speech = "speech after the answer" if agent else "speech"
        audio = (
            f"{call.rtp.packets} packets came, and none with {speech}" if call.rtp.packets else "not one packet came"
        )
        yield f"the agent never spoke: {audio}"
    if call.ending.by != "us":
        who = "hung up" if call.ending.by == "them" else "was lost"
        did = "before the caller did anything" if not turns else f"after {len(turns)} of the caller's turns"
        yield f"the agent {who} {(call.talk_ms or 0.0) / 1000:.1f} s after the answer, {did}"
    elif not is_over:
        yield f"the caller had to hang up {(call.talk_ms or 0.0) / 1000:.1f} s after the answer, before it was done"
    for each in expired:
        yield _EXPIRED[each.wait].format(bound=each.bound_s, at=(each.at_ns - call.answered_at_ns) / NS_PER_S)
    if talked_over := sum(turn.is_talked_over for turn in turns):
        yield f"the agent spoke while the caller did, {talked_over} times"


def rows(report: ProbeReport) -> list[tuple[str, str]]:
    packets, air, detector = report.packets, report.dead_air_ms, report.detector
    cuts = [sum(each.why == why for each in report.cut_words) for why in ("abrupt", "lost", "late")]
    stop = _spread(report.stop_ms) + (f", {report.num_not_stopped} not stopped" if report.num_not_stopped else "")
    lost = f"{packets.lost} lost ({packets.loss_percent:g} %)"
    begin, end = _range(detector.begin_error_ms), _range(detector.end_error_ms)
    return [
        ("answer to first speech", "-" if report.first_speech_ms is None else f"{report.first_speech_ms:.0f} ms"),
        ("response time", _spread(report.response_ms)),
        ("stop after interruption", stop),
        (f"dead air over {air.bound_ms / 1000:g} s", _spread(air.spread)),
        ("cut words", f"{cuts[0]} abrupt, {cuts[1]} by lost packets, {cuts[2]} by late ones"),
        (
            "packets",
            f"{packets.received} received, {lost}, jitter {packets.jitter_ms:.1f} ms, MOS {packets.mos or '-'}",
        ),
        ("error of the detector", f"begin {begin}, end {end}, with the caller's own words"),
    ]


def _range(values_ms: Sequence[float]) -> str:
    return f"{min(values_ms):+.0f} to {max(values_ms):+.0f} ms"


def _spread(spread: Spread) -> str:
    if spread.p50 is None or spread.p95 is None:
        return "none"
    return f"p50 {spread.p50:.0f} ms, p95 {spread.p95:.0f} ms, of {spread.count}"
