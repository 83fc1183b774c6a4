"""Draws the report of a probe: both sides, turns, interruptions and where the agent stopped."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cc_tts.callreport.picture import Bar, CallPicture, Kind, PictureLane, PictureMark, PictureTable
from cc_tts.softphone.picture import picture_of
from cc_tts.softphone.probe.report import ProbeReport, rows
from cc_tts.softphone.probe.turns import Turn


def picture_of_probe(report: ProbeReport, *, heard: Path | None, said: Path | None) -> CallPicture:
    """Return the picture; ``said`` is a WAV file of all that the caller said, from the answer on. Raises ``OSError``."""
    call = picture_of(report.call, heard=heard, said=said, said_at_s=0.0)
    origin_s = (report.call.answered_ms or 0.0) / 1000
    speech = [
        Bar(
            begin_s=origin_s + each.begin_ms / 1000,
            end_s=origin_s + each.end_ms / 1000,
            kind="speech",
            detail=f"{each.end_ms - each.begin_ms:.0f} ms of speech",
        )
        for each in report.agent_speech
    ]
    words = [
        Bar(
            begin_s=origin_s + turn.begin_ms / 1000,
            end_s=origin_s + turn.end_ms / 1000,
            kind="caller",
            label="interrupts" if turn.is_interruption else "",
        )
        for turn in report.turns
        if turn.what == "speech"
    ]
    return replace(
        call,
        title=f"Probe of {report.uri}",
        facts=[*rows(report), *call.facts],
        lanes=(
            *(lane for lane in call.lanes if lane.name != "we hear"),
            PictureLane("caller speaks", words),
            PictureLane("agent speaks", speech),
            PictureLane("agent stops", marks=[*_stops(report, origin_s)]),
            PictureLane("agent answers", [*_silences(report, origin_s)], [*_answers(report, origin_s)]),
            PictureLane("cut words", marks=[*_cuts(report, origin_s)]),
        ),
        tables=(
            PictureTable(
                title="Notes", head=("what was out of the ordinary",), rows=[(each,) for each in report.findings]
            ),
            PictureTable(
                title="Turns",
                head=("caller", "from", "to", "agent stopped after", "agent answered after"),
                rows=[_row(turn) for turn in report.turns],
            ),
            PictureTable(
                title="What the figures mean",
                head=("figure", "definition", "published as"),
                rows=[(name, each.means, each.source) for name, each in report.definitions.items()],
            ),
        ),
    )


def _stops(report: ProbeReport, origin_s: float) -> Iterator[PictureMark]:
    for turn in report.turns:
        if turn.stop_ms is not None:
            yield PictureMark(at_s=origin_s + (turn.begin_ms + turn.stop_ms) / 1000, label=f"{turn.stop_ms:.0f} ms")
        elif turn.is_interruption and turn.what == "speech":
            yield PictureMark(at_s=origin_s + turn.end_ms / 1000, label="did not stop", kind="failed")


def _silences(report: ProbeReport, origin_s: float) -> Iterator[Bar]:
    """The silence before each answer; dead air stands out."""
    for turn in report.turns:
        if turn.what == "speech" and turn.response_ms is not None and turn.silence_ms > 0:
            end_s = origin_s + (turn.end_ms + turn.response_ms) / 1000
            kind: Kind = "failed" if turn.silence_ms > report.dead_air_ms.bound_ms else "waiting"
            yield Bar(begin_s=end_s - turn.silence_ms / 1000, end_s=end_s, kind=kind)


def _answers(report: ProbeReport, origin_s: float) -> Iterator[PictureMark]:
    for turn in report.turns:
        if turn.response_ms is not None:
            at_s = origin_s + (turn.end_ms + turn.response_ms) / 1000
            yield PictureMark(at_s=at_s, label=f"{turn.response_ms:.0f} ms", kind="speech")


def _cuts(report: ProbeReport, origin_s: float) -> Iterator[PictureMark]:
    return (PictureMark(at_s=origin_s + each.at_ms / 1000, label=each.why, kind="failed") for each in report.cut_words)


def _row(turn: Turn) -> tuple[str, ...]:
    stop = "did not stop" if turn.is_interruption and turn.stop_ms is None else _ms(turn.stop_ms)
    answer = "spoke over the caller" if turn.is_talked_over else _ms(turn.response_ms)
    what = "interrupts" if turn.is_interruption and turn.what == "speech" else turn.what
    return what, f"{turn.begin_ms / 1000:.3f} s", f"{turn.end_ms / 1000:.3f} s", stop, answer


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
