"""The content of a call's report. Times are seconds from the beginning of the report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["plain", "speech", "cut", "failed", "caller", "waiting", "mark"]
"""The meaning of a bar or a mark, by which it is coloured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that lasts; ``label`` is written into it as far as there is room, ``detail`` is shown on request."""

    begin_s: float
    end_s: float
    label: str = ""
    detail: str = ""
    kind: Kind = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureMark:
    """Something that happens at one instant."""

    at_s: float
    label: str
    detail: str = ""
    kind: Kind = "mark"


@dataclass(slots=True)
class PictureLane:
    """A row of the picture. One without bars and marks is left out."""

    name: str
    bars: list[Bar] = field(default_factory=list)
    marks: list[PictureMark] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waveform:
    """The largest sample, from 0 to 1, of each piece of ``step_s`` of one side's audio, from ``begin_s`` on."""

    name: str
    begin_s: float
    step_s: float
    peaks: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureTable:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPicture:
    """The whole report. ``facts`` are names with values; ``ladder`` is text of fixed width, empty without one."""

    title: str
    duration_s: float
    facts: Sequence[tuple[str, str]]
    lanes: Sequence[PictureLane] = ()
    waveforms: Sequence[Waveform] = ()
    tables: Sequence[PictureTable] = ()
    ladder: str = ""
