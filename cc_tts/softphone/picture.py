"""Draws the report of a softphone call."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cc_tts.callreport.picture import Bar, CallPicture, PictureLane, PictureMark, PictureTable, Waveform
from cc_tts.callreport.waveform import waveforms
from cc_tts.clock import ms_between
from cc_tts.softphone.report import SoftphoneReport, figures
from cc_tts.softphone.rtp.receiver import KeyRecord

_SHOWN_ELSEWHERE: Final = frozenset({"call", "talkspurt", "recording", "DTMF sent", "DTMF received"})


def picture_of(report: SoftphoneReport, *, heard: Path | None, said: Path | None, said_at_s: float) -> CallPicture:
    """The report of a call; ``heard`` and ``said`` are WAV files, ``said`` began ``said_at_s`` after the answer. Raises
    ``OSError``.
    """
    answered_s = _s(report, report.answered_at_ns)
    return CallPicture(
        title=f"Call to {report.uri}",
        duration_s=_s(report, report.ended_at_ns),
        facts=[(name, text) for name, text in figures(report) if name not in _SHOWN_ELSEWHERE],
        lanes=(
            PictureLane("SIP", marks=[*_responses(report)]),
            PictureLane("call", [_call(report, answered_s)]),
            PictureLane("we hear", [*_heard(report, answered_s)]),
            PictureLane("keys sent", marks=[*_keys(report.dtmf_sent, answered_s)]),
            PictureLane("keys heard", marks=[*_keys(report.dtmf_received, answered_s)]),
        ),
        waveforms=[*_waveforms(report, heard, said, answered_s + said_at_s)],
        tables=(
            PictureTable(
                title="Speech that was heard",
                head=("from", "to", "lasts"),
                rows=[
                    (
                        f"{each.start_ms / 1000:.3f} s",
                        f"{each.end_ms / 1000:.3f} s",
                        f"{each.end_ms - each.start_ms:.0f} ms",
                    )
                    for each in report.talkspurts
                ],
            ),
        ),
    )


def _s(report: SoftphoneReport, at_ns: int | None) -> float:
    return 0.0 if at_ns is None else ms_between(report.invite_at_ns, at_ns) / 1000


def _responses(report: SoftphoneReport) -> Iterator[PictureMark]:
    yield PictureMark(at_s=0.0, label="INVITE")
    for label, at_ms in (("100", report.trying_ms), ("180", report.ringing_ms), ("200", report.answered_ms)):
        if at_ms is not None:
            yield PictureMark(at_s=at_ms / 1000, label=label)
    yield PictureMark(
        at_s=_s(report, report.ended_at_ns), label="BYE" if report.answered_at_ns else report.ending.result
    )


def _call(report: SoftphoneReport, answered_s: float) -> Bar:
    if report.answered_at_ns is None:
        return Bar(begin_s=0.0, end_s=_s(report, report.ended_at_ns), label=report.ending.result, kind="failed")
    return Bar(begin_s=answered_s, end_s=_s(report, report.ended_at_ns), label="answered")


def _heard(report: SoftphoneReport, answered_s: float) -> Iterator[Bar]:
    for each in report.talkspurts:
        begin_s, end_s = answered_s + each.start_ms / 1000, answered_s + each.end_ms / 1000
        yield Bar(begin_s=begin_s, end_s=end_s, kind="speech", detail=f"{each.end_ms - each.start_ms:.0f} ms of speech")


def _keys(keys: Sequence[KeyRecord], answered_s: float) -> Iterator[PictureMark]:
    return (PictureMark(at_s=answered_s + key.at_ms / 1000, label=key.digit) for key in keys)


def _waveforms(report: SoftphoneReport, heard: Path | None, said: Path | None, said_at_s: float) -> Iterator[Waveform]:
    sides = [("we say", said, said_at_s)] if said is not None else []
    if heard is not None and report.recording is not None:
        sides.append(("we hear", heard, _s(report, report.recording.starts_at_ns)))
    for name, path, begin_s in sides:
        yield from waveforms(path, name, begin_s=begin_s)
