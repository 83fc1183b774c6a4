"""Figures of a call: timing, packets, talkspurts and keys, as values and as a table."""

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np

from cc_tts.clock import NS_PER_MS, ms_between
from cc_tts.softphone.rtp.packets import RATE_HZ
from cc_tts.softphone.rtp.receiver import RtpReceiver, Talkspurt

Result = Literal["completed", "refused", "no_answer", "unreachable", "cancelled", "failed"]
Party = Literal["us", "them", "nobody"]

EXIT_CODES: dict[Result, int] = {
    "completed": 0,
    "refused": 1,
    "no_answer": 1,
    "cancelled": 1,
    "failed": 1,
    "unreachable": 2,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How the call ended: in what way, by whom, and the SIP status or reason that says so."""

    result: Result
    by: Party
    sip_code: int = 0
    reason: str = ""
    retry_after_s: int | None = None

    @property
    def exit_code(self) -> int:
        """Exit status of the command line."""
        return EXIT_CODES[self.result]


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
class Spurt:
    """A stretch of speech: ms after the 200 OK, and the same on CLOCK_MONOTONIC."""

    start_ms: float
    end_ms: float
    start_at_ns: int
    end_at_ns: int


@dataclass(frozen=True, slots=True)
class KeyReport:
    """A DTMF digit sent or received: instant of its first packet."""

    digit: str
    at_ms: float
    at_ns: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RtpReport:
    """What arrived, over all SSRCs."""

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
    payload_types: dict[str, int] = field(default_factory=dict)
    filled_ms: float = 0.0
    packets_sent: int = 0
    rtcp_on_rtp_port: int = 0


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """The recording: sample 0 arrived at ``starts_at_ns``."""

    file: str
    duration_ms: float
    starts_at_ns: int
    is_truncated: bool


@dataclass(slots=True)
class SpeakReport:
    """The softphone's own request to speak. Times in ms from the POST leaving and from its answer arriving."""

    http_status: int = 0
    utterance_id: str = ""
    posted_at_ns: int = 0
    accepted_at_ns: int = 0
    post_to_accepted_ms: float | None = None
    post_to_speech_ms: float | None = None
    accepted_to_speech_ms: float | None = None
    error: str = ""

    def measure(self, talkspurts: list[Talkspurt]) -> None:
        """Fill in the times: the speech asked for is the first talkspurt that begins after the POST."""
        if not self.posted_at_ns:
            return
        if self.accepted_at_ns:
            self.post_to_accepted_ms = ms_between(self.posted_at_ns, self.accepted_at_ns)
        first_ns = next((spurt.start_ns for spurt in talkspurts if spurt.start_ns > self.posted_at_ns), None)
        if first_ns is not None and self.accepted_at_ns:
            self.post_to_speech_ms = ms_between(self.posted_at_ns, first_ns)
            self.accepted_to_speech_ms = ms_between(self.accepted_at_ns, first_ns)


@dataclass(frozen=True, slots=True)
class CallReport:
    """Everything about one call.

    Instants are CLOCK_MONOTONIC ns; ``*_ms`` count from the INVITE unless the name says otherwise.
    """

    call: str
    uri: str
    sip_call_id: str
    codec: str
    ending: Ending
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
    talkspurts: tuple[Spurt, ...]
    dtmf_sent: tuple[KeyReport, ...]
    dtmf_received: tuple[KeyReport, ...]
    recording: RecordingReport | None
    speak: SpeakReport | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values


def gaps_of(gaps_ns: "np.typing.NDArray[np.int64]") -> Gaps:
    """Percentiles of inter-arrival times."""
    if gaps_ns.size == 0:
        return Gaps()
    figures = (gaps_ns.min(), gaps_ns.mean(), *np.percentile(gaps_ns, (50, 95, 99)), gaps_ns.max())
    return Gaps(int(gaps_ns.size), *(round(float(each) / NS_PER_MS, 3) for each in figures))


def rtp_report(receiver: RtpReceiver, *, packets_sent: int) -> RtpReport:
    """Figures of a received stream."""
    figures = receiver.figures
    return RtpReport(
        packets=sum(each.packets for each in receiver.sequences),
        lost=sum(each.lost for each in receiver.sequences),
        duplicates=sum(each.duplicates for each in receiver.sequences),
        reordered=sum(each.reordered for each in receiver.sequences),
        late=receiver.recording.late,
        invalid=figures.invalid + figures.wild,
        jitter_ms=round(receiver.jitter_ms, 3),
        gap_ms=gaps_of(np.array(receiver.gaps_ns, dtype=np.int64)),
        ssrcs=tuple(f"0x{ssrc:08x}" for ssrc in figures.ssrcs),
        ssrc_changes=max(0, len(figures.ssrcs) - 1),
        sources=tuple(figures.sources),
        payload_types={str(number): count for number, count in sorted(figures.payload_types.items())},
        filled_ms=round(receiver.recording.filled_samples * 1000 / RATE_HZ, 3),
        packets_sent=packets_sent,
        rtcp_on_rtp_port=figures.rtcp_on_rtp_port,
    )


def _counts(rtp: RtpReport) -> str:
    return (
        f"{rtp.packets} packets, {rtp.lost} lost, {rtp.duplicates} duplicate, {rtp.reordered} reordered, "
        f"{rtp.late} late"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def table(report: CallReport) -> str:
    """Report for a person."""
    rows = [*_signalling_rows(report), *_media_rows(report)]
    if (speak := report.speak) is not None:
        text = speak.error or (
            f"accepted after {_ms(speak.post_to_accepted_ms)}, first speech {_ms(speak.accepted_to_speech_ms)} later"
        )
        rows.append(("speak", text))
    if report.recording is not None:
        rows.append(("recording", f"{report.recording.file}  {report.recording.duration_ms / 1000:.2f} s"))
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {text}\n" for name, text in rows)


def _signalling_rows(report: CallReport) -> list[tuple[str, str]]:
    ending = report.ending
    by = {"us": "we hung up", "them": "they hung up", "nobody": ""}[ending.by]
    code = f"{ending.sip_code} {ending.reason}".strip() if ending.sip_code else ending.reason
    rows = [
        ("call", f"{report.uri}  {report.codec.upper()}"),
        ("Call-ID", report.sip_call_id),
        ("ending", ", ".join(part for part in (ending.result, by, code) if part)),
        (
            "INVITE to 100 / 180 / 200",
            f"{_ms(report.trying_ms)} / {_ms(report.ringing_ms)} / {_ms(report.answered_ms)}",
        ),
    ]
    if ending.retry_after_s is not None:
        rows.append(("Retry-After", f"{ending.retry_after_s} s"))
    return rows


def _media_rows(report: CallReport) -> list[tuple[str, str]]:
    if report.answered_at_ns is None:
        return []
    rtp, gaps = report.rtp, report.rtp.gap_ms
    return [
        ("200 to first RTP", _ms(report.answer_to_first_rtp_ms)),
        ("200 to first speech", _ms(report.answer_to_first_speech_ms)),
        ("RTP received", _counts(rtp)),
        ("jitter (RFC 3550 A.8)", _ms(rtp.jitter_ms)),
        ("packet gaps p50/p95/p99/max", f"{_ms(gaps.p50)} / {_ms(gaps.p95)} / {_ms(gaps.p99)} / {_ms(gaps.max)}"),
        ("SSRC", f"{', '.join(rtp.ssrcs) or '-'}   from {', '.join(rtp.sources) or '-'}"),
        *(
            ("talkspurt", f"{spurt.start_ms / 1000:8.3f} s to {spurt.end_ms / 1000:8.3f} s")
            for spurt in report.talkspurts
        ),
        *(("DTMF sent", f"{key.digit} at {key.at_ms / 1000:.3f} s") for key in report.dtmf_sent),
        *(("DTMF received", f"{key.digit} at {key.at_ms / 1000:.3f} s") for key in report.dtmf_received),
    ]
