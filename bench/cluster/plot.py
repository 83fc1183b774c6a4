"""The busy hour as an SVG: calls, first audio, load of the workers. The style is that of ``docs/images/flow.svg``."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from lab.server import Json

WIDTH: Final = 760
LEFT: Final = 62
RIGHT: Final = 150
PANEL: Final = 130
GAP: Final = 46
TOP: Final = 30
TICKS: Final = 4

STYLE: Final = """  <style>
    .grid { stroke: #d0d7de; stroke-width: 1 }
    .line { fill: none; stroke-width: 2; stroke-linejoin: round }
    .a { stroke: #0969da } .b { stroke: #bc4c00 } .c { stroke: #8250df }
    .ta { fill: #0969da } .tb { fill: #bc4c00 } .tc { fill: #8250df }
    .band { fill: #0969da; fill-opacity: .18 }
    .away { fill: #57606a; fill-opacity: .14 }
    text { fill: #24292f }
    .small { font-size: 12px; fill: #57606a }
    .name { font-weight: bold }
    @media (prefers-color-scheme: dark) {
      .grid { stroke: #3d444d }
      .a { stroke: #4493f8 } .b { stroke: #f0883e } .c { stroke: #ab7df8 }
      .ta { fill: #4493f8 } .tb { fill: #f0883e } .tc { fill: #ab7df8 }
      .band { fill: #4493f8 }
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
    }
  </style>"""


def busy_hour(result: Json) -> str:
    """Three panels over one axis of time, with the time in which workers are away."""
    scenario = result["scenario"]
    rows = [row for row in result["timeline"]["rows"] if row["at_s"] >= scenario["warm_up_s"]]
    bin_s = result["timeline"]["bin_s"]
    end_s = 60.0 * scenario["minutes"]
    lost_s = end_s / 2
    x: Callable[[float], float] = lambda at_s: LEFT + (WIDTH - LEFT - RIGHT) * at_s / end_s  # noqa: E731
    times = [x(row["at_s"] + bin_s / 2) for row in rows]
    height = TOP + 3 * (PANEL + GAP)
    title = (
        f"{scenario['servers']} servers, {scenario['workers']} workers, up to {scenario['calls']:,} calls in virtual time: "
        f"calls, first audio, and open streams of the workers, of which a tenth vanish for {scenario['away_s']:g} s"
    )
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            'font-size="14" role="img">'
        ),
        f"  <title>{title}</title>",
        STYLE,
        (
            f'  <rect class="away" x="{x(lost_s):.1f}" y="{TOP}" width="{x(lost_s + scenario["away_s"]) - x(lost_s):.1f}" '
            f'height="{height - TOP - GAP}"/>'
        ),
    ]
    panels: list[tuple[str, list[tuple[str, str, str]], tuple[str, str] | None, bool]] = [
        ("calls at once", [("calls", "calls", "a"), ("listening", "listening", "b")], None, False),
        ("first audio, ms", [("p99", "p99", "c"), ("p95", "p95", "b"), ("p50", "p50", "a")], None, True),
        ("open streams of a worker", [("streams_mean", "mean", "a")], ("streams_least", "streams_most"), False),
    ]
    for number, (name, lines, band, is_log) in enumerate(panels):
        top = TOP + number * (PANEL + GAP)
        keys = [key for key, _, _ in lines] + list(band or ())
        ticks = log_ticks if is_log else even_ticks
        marks = ticks(min(row[key] for row in rows for key in keys), max(row[key] for row in rows for key in keys))
        least, most = (math.log(marks[0]), math.log(marks[-1])) if is_log else (marks[0], marks[-1])

        def y(value: float, *, top: float = top, least: float = least, most: float = most, log: bool = is_log) -> float:
            return top + PANEL * (most - (math.log(value) if log else value)) / (most - least)

        parts.append(f'  <text class="name" x="{LEFT}" y="{top - 10}">{name}</text>')
        for mark in marks:
            at = y(mark)
            parts.append(f'  <line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'  <text class="small" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{mark:,g}</text>')
        if band is not None:
            low, high = band
            edge = [*zip(times, (y(row[high]) for row in rows), strict=True)]
            edge += reversed([*zip(times, (y(row[low]) for row in rows), strict=True)])
            parts.append(f'  <polygon class="band" points="{points(edge)}"/>')
            middle = (y(rows[-1][low]) + y(rows[-1][high])) / 2
            parts.append(f'  <text class="small" x="{WIDTH - RIGHT + 10}" y="{middle + 22:.1f}">least to most</text>')
        ends = apart([y(rows[-1][key]) for key, _, _ in lines])
        for (key, label, colour), end in zip(lines, ends, strict=True):
            line = points([*zip(times, (y(row[key]) for row in rows), strict=True)])
            parts.append(f'  <polyline class="line {colour}" points="{line}"/>')
            parts.append(f'  <text class="t{colour}" x="{WIDTH - RIGHT + 10}" y="{end + 5:.1f}">{label}</text>')
    bottom = height - GAP
    parts.append(f'  <text class="small" x="{x(lost_s) + 4:.1f}" y="{TOP + PANEL - 6}">10 % of workers away</text>')
    for number in range(round(end_s / 60.0) + 1):
        at = x(60.0 * number)
        parts.append(f'  <text class="small" x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{number}</text>')
    parts.append(f'  <text class="small" x="{WIDTH - RIGHT + 10}" y="{bottom + 18}">minutes</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def points(pairs: Sequence[tuple[float, float]]) -> str:
    """For a polyline."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def even_ticks(_least: float, most: float) -> list[float]:
    """From 0 on, in steps of 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(most / TICKS))
    step = next(each * power for each in (1.0, 2.0, 2.5, 5.0, 10.0) if each * power >= most / TICKS - 1e-9)
    return [number * step for number in range(math.ceil(most / step) + 1)]


def log_ticks(least: float, most: float) -> list[float]:
    """Values of 1, 2 and 5 times a power of ten that hold both between them."""
    marks = [each * 10.0**power for power in range(-3, 9) for each in (1.0, 2.0, 5.0)]
    begin = max(number for number, mark in enumerate(marks) if mark <= least)
    end = min(number for number, mark in enumerate(marks) if mark >= most and number > begin)
    return marks[begin : end + 1]


def apart(ends: Sequence[float], least: float = 17.0) -> list[float]:
    """Heights of labels, from the top down, moved so that none covers the one above it."""
    moved: list[float] = []
    for end in ends:
        moved.append(end if not moved else max(end, moved[-1] + least))
    return moved
