"""The report as a page: HTML 5 with one inline SVG 1.1. It has no script, and fetches nothing."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from importlib import resources
from typing import Final

from cc_tts.callreport.picture import Bar, CallPicture, PictureLane, PictureMark, PictureTable, Waveform

WIDTH: Final = 1000
LEFT: Final = 120
"""Room for the names of the lanes, in units of the picture, as all below."""
LANE: Final = 26
WAVE: Final = 64
AXIS: Final = 22
CHARACTER: Final = 6.2
"""The width of a character of a label (unmeasured)."""
MIN_BAR: Final = 2.0  # unmeasured
TICKS_S: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400)
MAX_TICKS: Final = 12  # unmeasured

STYLE: Final = resources.files(__package__).joinpath("page.css").read_text("utf-8")


def render(picture: CallPicture) -> str:
    """The page. All text in it is escaped."""
    body = [
        f"<h1>{escape(picture.title)}</h1>",
        _facts(picture.facts),
        f'<div class="scroll">{_svg(picture)}</div>',
        *map(_table, picture.tables),
    ]
    if picture.ladder:
        body.append(f"<h2>SIP</h2><pre>{escape(picture.ladder)}</pre>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(picture.title)}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f"<dl>{pairs}</dl>"


def _table(table: PictureTable) -> str:
    if not table.rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _svg(picture: CallPicture) -> str:
    duration_s = max(picture.duration_s, 0.1)
    x = partial(_x, duration_s)
    lanes = [lane for lane in picture.lanes if lane.bars or lane.marks]
    height = AXIS + WAVE * len(picture.waveforms) + LANE * len(lanes) + 6
    parts = [*_axis(duration_s, height)]
    top = AXIS
    for wave in picture.waveforms:
        parts += _wave(wave, x, top)
        top += WAVE
    for lane in lanes:
        parts += _lane(lane, x, top)
        top += LANE
    what = f"{escape(picture.title)}: what was heard and done, over {picture.duration_s:.1f} seconds"
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{what}">{"".join(parts)}</svg>'


Scale = Callable[[float], float]
"""Returns the place of an instant in the picture."""


def _x(duration_s: float, at_s: float) -> float:
    share = min(max(at_s / duration_s, 0.0), 1.0)
    return round(LEFT + share * (WIDTH - LEFT - 10), 1)


def _axis(duration_s: float, height: float) -> Iterator[str]:
    step_s = next((each for each in TICKS_S if duration_s / each <= MAX_TICKS), TICKS_S[-1])
    for number in range(int(duration_s / step_s) + 1):
        x, at_s = _x(duration_s, number * step_s), number * step_s
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{AXIS - 4}" y2="{height}"/>'
        yield f'<text class="soft" x="{x}" y="12" text-anchor="middle">{_clock(at_s, step_s)}</text>'


def _clock(at_s: float, step_s: float) -> str:
    if step_s < 1:
        return f"{at_s:.1f} s"
    return f"{int(at_s)} s" if at_s < 60 else f"{int(at_s) // 60}:{int(at_s) % 60:02}"  # noqa: PLR2004 - a minute


def _name(name: str, y: float) -> str:
    return f'<text class="soft" x="4" y="{y}">{escape(name)}</text>'


def _wave(wave: Waveform, scale: Scale, top: float) -> Iterator[str]:
    middle, half = top + WAVE / 2, WAVE / 2 - 3
    yield _name(wave.name, middle + 4)
    xs = [scale(wave.begin_s + number * wave.step_s) for number in range(len(wave.peaks))]
    upper = [f"{x},{middle - max(0.4, peak * half):.1f}" for x, peak in zip(xs, wave.peaks, strict=True)]
    lower = [f"{x},{middle + max(0.4, peak * half):.1f}" for x, peak in zip(xs, wave.peaks, strict=True)]
    side = " caller" if wave.name == "caller" else ""
    yield f'<polygon class="wave{side}" points="{" ".join([*upper, *reversed(lower)])}"/>'


def _lane(lane: PictureLane, scale: Scale, top: float) -> Iterator[str]:
    yield _name(lane.name, top + 16)
    for bar in lane.bars:
        yield _bar(bar, scale, top)
    for group in _groups(lane.marks, scale):
        yield _labelled(group, scale, top)


def _groups(marks: Sequence[PictureMark], scale: Scale) -> Iterator[list[PictureMark]]:
    """Marks whose labels would lie over each other share one."""
    group: list[PictureMark] = []
    end_x = 0.0
    for mark in sorted(marks, key=lambda each: each.at_s):
        x = scale(mark.at_s)
        if group and x > end_x:
            yield group
            group, end_x = [], 0.0
        group.append(mark)
        end_x = max(end_x, x + 6) + (_columns(mark.label) + 2) * CHARACTER
    if group:
        yield group


def _bar(bar: Bar, scale: Scale, top: float) -> str:
    begin = scale(bar.begin_s)
    width = max(MIN_BAR, scale(bar.end_s) - begin)
    label = _cut(bar.label, int((width - 8) / CHARACTER))
    text = f'<text class="in" x="{begin + 4}" y="{top + 16}">{escape(label)}</text>' if label else ""
    title = f"<title>{escape(bar.detail or bar.label)}</title>"
    place = f'x="{begin}" y="{top + 3}" width="{width:.1f}" height="{LANE - 6}"'
    return f'<g>{title}<rect class="{bar.kind}" {place} rx="3"/>{text}</g>'


def _cut(text: str, room: int) -> str:
    """Return the beginning of a text that ``room`` characters hold; empty if that is next to nothing."""
    if _columns(text) <= room:
        return text
    while text and _columns(text) >= room:
        text = text[: max(0, len(text) - max(1, (_columns(text) - room) // 2))]
    return f"{text}…" if len(text) > 1 else ""


def _columns(text: str) -> int:
    """The width of a text; characters of East Asian scripts are twice as wide (Unicode Standard Annex 11)."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _labelled(group: Sequence[PictureMark], scale: Scale, top: float) -> str:
    xs = [scale(mark.at_s) for mark in group]
    label = ", ".join(mark.label for mark in group)
    is_last = xs[-1] + 10 + _columns(label) * CHARACTER > WIDTH
    place = f'x="{xs[0] - 6}" text-anchor="end"' if is_last else f'x="{xs[-1] + 6}"'
    dots = "".join(_dot(mark, x, top) for mark, x in zip(group, xs, strict=True))
    return f'{dots}<text {place} y="{top + 16}">{escape(label)}</text>'


def _dot(mark: PictureMark, x: float, top: float) -> str:
    title = f"<title>{escape(mark.detail or mark.label)}</title>"
    return f'<circle class="{mark.kind}" cx="{x}" cy="{top + 12}" r="4">{title}</circle>'
