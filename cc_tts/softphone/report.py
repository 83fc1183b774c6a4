"""Figures of a call: timing, packets, talkspurts and keys, as values and as a table."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cc_tts.clock import NS_PER_MS, ms_between
from cc_tts.media.quality import mean_opinion_score
from cc_tts.softphone.rtp.packets import RATE_HZ
from cc_tts.softphone.rtp.receiver import KeyRecord, RtpReceiver, Talkspurt

Result = Literal["completed", "refused", "no_answer", "unreachable", "cancelled", "failed"]
Party = Literal["us", "them", "nobody"]


@dataclass(frozen=True, slots=True)
class SoftphoneEnding:
    """How the call ended, which side ended it, and the SIP status or reason."""

    result: Result
    by: Party
    sip_code: int = 0
    reason: str = ""
    retry_after_s: int | None = None

    @property
    def exit_code(self) -> int:
        return {"completed": 0, "unreachable": 2}.get(self.result, 1)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times between audio packets that follow each other, ms."""

    count: int = 0
    min: float | None = None
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class RtpReport:
    """Figures of the received RTP, over all SSRCs."""

    packets: int = 0
    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    late: int = 0
    invalid: int = 0
    jitter_ms: float = 0.0
    gap_ms: Gaps = field(default_factory=Gaps)
    ssrcs: tuple[str, ...] = ()
    ssrc_changes: int = 0
    sources: tuple[str, ...] = ()
    payload_types: dict[int, int] = field(default_factory=dict)
    filled_ms: float = 0.0
    packets_sent: int = 0
    rtcp_on_rtp_port: int = 0
    round_trip_ms: float | None = None
    mos: float | None = None


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """The recording: sample 0 arrived at ``starts_at_ns``."""

    file: str
    duration_ms: float
    starts_at_ns: int
    is_truncated: bool


@dataclass(slots=True)
class SpeakReport:
    """The softphone's own request to speak. Times in ms from the sending of the POST and from its response."""

    http_status: int = 0
    utterance_id: str = ""
    posted_at_ns: int = 0
    accepted_at_ns: int = 0
    post_to_accepted_ms: float | None = None
    post_to_speech_ms: float | None = None
    accepted_to_speech_ms: float | None = None
    error: str = ""

    def measure(self, talkspurts: Sequence[Talkspurt]) -> None:
        """Fill in the times: the requested speech is the first talkspurt that begins after the POST."""
        if not self.accepted_at_ns:
            return
        self.post_to_accepted_ms = ms_between(self.posted_at_ns, self.accepted_at_ns)
        first_ns = next((each.start_at_ns for each in talkspurts if each.start_at_ns > self.posted_at_ns), None)
        if first_ns is not None:
            self.post_to_speech_ms = ms_between(self.posted_at_ns, first_ns)
            self.accepted_to_speech_ms = ms_between(self.accepted_at_ns, first_ns)


@dataclass(slots=True)
class SoftphoneReport:
    """Everything about one call.

    Instants are CLOCK_MONOTONIC ns; ``*_ms`` count from the INVITE unless the name says otherwise, those of talkspurts and
    keys from the answer.
    """

    call: str
    uri: str
    sip_call_id: str
    codec: str
    ending: SoftphoneEnding
    invite_at_ns: int
    answered_at_ns: int | None
    ended_at_ns: int
    trying_ms: float | None
    ringing_ms: float | None
    answered_ms: float | None
    talk_ms: float | None
    first_rtp_at_ns: int | None
    first_speech_at_ns: int | None
    answer_to_first_rtp_ms: float | None
    answer_to_first_speech_ms: float | None
    rtp: RtpReport
    talkspurts: Sequence[Talkspurt]
    dtmf_sent: Sequence[KeyRecord]
    dtmf_received: Sequence[KeyRecord]
    recording: RecordingReport | None
    speak: SpeakReport | None = None

    @property
    def exit_code(self) -> int:
        return self.ending.exit_code

    def table(self) -> str:
        return lines(figures(self))


def lines(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {text}\n" for name, text in rows)


def gaps_of(gaps_ns: "array[int]") -> Gaps:
    if not gaps_ns:
        return Gaps()
    gaps = np.array(gaps_ns)
    figures = (gaps.min(), gaps.mean(), *np.percentile(gaps, (50, 95, 99)), gaps.max())
    return Gaps(len(gaps), *(round(float(each) / NS_PER_MS, 3) for each in figures))


def rtp_report(receiver: RtpReceiver, *, packets_sent: int, round_trip_ms: float | None = None) -> RtpReport:
    """Return the figures of a received stream. Without a round trip, which RTCP reports, there is no MOS."""
    sources = receiver.sources
    packets, lost = sum(each.packets for each in sources), sum(each.lost for each in sources)
    mos = None
    if packets and round_trip_ms is not None:
        mos = mean_opinion_score(loss=max(0, lost) / (packets + max(0, lost)), round_trip_ms=round_trip_ms)
    return RtpReport(
        packets=packets,
        lost=lost,
        duplicates=sum(each.duplicates for each in sources),
        reordered=sum(each.reordered for each in sources),
        late=receiver.recording.late,
        invalid=receiver.invalid + sum(each.wild for each in sources),
        jitter_ms=round(sources[-1].jitter_ticks * 1000 / RATE_HZ, 3) if sources else 0.0,
        gap_ms=gaps_of(receiver.gaps_ns),
        ssrcs=tuple(f"0x{each.ssrc:08x}" for each in sources),
        ssrc_changes=max(0, len(sources) - 1),
        sources=tuple(receiver.addresses),
        payload_types=dict(sorted(receiver.payload_types.items())),
        filled_ms=round(receiver.recording.filled_samples * 1000 / RATE_HZ, 3),
        packets_sent=packets_sent,
        rtcp_on_rtp_port=receiver.rtcp_on_rtp_port,
        round_trip_ms=None if round_trip_ms is None else round(round_trip_ms, 2),
        mos=mos,
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def figures(report: SoftphoneReport) -> list[tuple[str, str]]:
    rows = _signalling_rows(report)
    if report.answered_at_ns is not None:
        rows += _media_rows(report)
    if (speak := report.speak) is not None:
        accepted, speech = _ms(speak.post_to_accepted_ms), _ms(speak.accepted_to_speech_ms)
        rows.append(("speak", speak.error or f"accepted after {accepted}, first speech {speech} later"))
    if report.recording is not None:
        rest = ", and the rest is left out" if report.recording.is_truncated else ""
        rows.append(("recording", f"{report.recording.file}  {report.recording.duration_ms / 1000:.2f} s{rest}"))
    return rows


def _signalling_rows(report: SoftphoneReport) -> list[tuple[str, str]]:
    ending = report.ending
    by = {"us": "we hung up", "them": "they hung up", "nobody": ""}[ending.by]
    code = f"{ending.sip_code or ''} {ending.reason}".strip()
    times = (report.trying_ms, report.ringing_ms, report.answered_ms)
    rows = [
        ("call", f"{report.uri}  {report.codec.upper()}"),
        ("Call-ID", report.sip_call_id),
        ("ending", ", ".join(part for part in (ending.result, by, code) if part)),
        ("INVITE to 100 / 180 / 200", " / ".join(map(_ms, times))),
    ]
    if ending.retry_after_s is not None:
        rows.append(("Retry-After", f"{ending.retry_after_s} s"))
    return rows


def _media_rows(report: SoftphoneReport) -> list[tuple[str, str]]:
    rtp, gaps = report.rtp, report.rtp.gap_ms
    counts = f"{rtp.lost} lost, {rtp.duplicates} duplicate, {rtp.reordered} reordered, {rtp.late} late"
    keys = [("DTMF sent", key) for key in report.dtmf_sent] + [("DTMF received", key) for key in report.dtmf_received]
    return [
        ("200 to first RTP", _ms(report.answer_to_first_rtp_ms)),
        ("200 to first speech", _ms(report.answer_to_first_speech_ms)),
        ("RTP received", f"{rtp.packets} packets, {counts}"),
        ("jitter (RFC 3550 A.8)", _ms(rtp.jitter_ms)),
        ("packet gaps p50/p95/p99/max", " / ".join(map(_ms, (gaps.p50, gaps.p95, gaps.p99, gaps.max)))),
        ("SSRC", f"{', '.join(rtp.ssrcs) or '-'}   from {', '.join(rtp.sources) or '-'}"),
        *(("talkspurt", f"{each.start_ms / 1000:8.3f} s to {each.end_ms / 1000:8.3f} s") for each in report.talkspurts),
        *((name, f"{key.digit} at {key.at_ms / 1000:.3f} s") for name, key in keys),
    ]
