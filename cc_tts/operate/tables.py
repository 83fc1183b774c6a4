"""Tables and JSON on a terminal. Text from callers and peers cannot move the cursor."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cc_tts.operate.find import far_user, is_live

_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
GOOD_MOS: Final = 3.6
"""Below it "some users are dissatisfied" or worse (ITU-T G.107 Annex B)."""

Call = dict[str, Any]


def plain(text: object) -> str:
    """Return a text without control characters and marks of direction."""
    return _UNSAFE.sub("\ufffd", str(text))


def as_json(value: object) -> str:
    """Return indented JSON, which has such characters escaped."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def width(text: str) -> int:
    """Return how many columns a text takes; a Chinese character takes two."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def cut(text: str, columns: int) -> str:
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return text + "…" if columns > 0 else ""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table: columns as wide as their widest cell."""
    cells = [[plain(cell) for cell in row] for row in [head, *rows]]
    widths = [max(width(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(cell + " " * (widths[column] - width(cell)) for column, cell in enumerate(row)).rstrip()
        for row in cells
    ]


def duration(seconds: float) -> str:
    """Return a length of time such as 0:07 or 1:02:33."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def lasted(call: Call, now_s: float) -> str:
    """Return how long a call has lasted: since the answer, or since it began if there is none."""
    until_s = now_s if is_live(call) or call["ended_at"] is None else call["ended_at"]
    return duration(until_s - (call["answered_at"] or call["created_at"]))


def readiness(status: Mapping[str, Any]) -> str:
    """Return whether a server takes calls, by its status, and if not, why."""
    reason = status["not_ready_because"]
    return "draining" if status["draining"] else "ready" if reason is None else f"NOT READY: {reason}"


def loss(call: Call) -> str:
    """Return the share of packets that were lost, in percent."""
    quality = call["quality"]
    expected = quality["packets_received"] + quality["packets_lost"]
    return f"{100 * quality['packets_lost'] / expected:.1f}%" if expected else "-"


def is_unheard(call: Call) -> bool:
    """Whether a far side that is not on hold gets our packets, and has sent none."""
    quality = call["quality"]
    is_up = call["state"] == "established" and not call["held"]
    return bool(is_up and quality["packets_sent"] and not quality["packets_received"])


def mos(call: Call) -> str:
    """Return the mean opinion score, with an exclamation mark if callers would complain."""
    if is_unheard(call):
        return "unheard!"
    score = call["quality"]["mos"]
    return "-" if score is None else f"{score:.2f}{'!' if score < GOOD_MOS else ''}"


def ending(call: Call) -> str:
    how = call["ending"]
    return str(call["state"]) if how is None else f"{how['result']}: {how['reason']}"


CALL_COLUMNS: Final = ("CALL", "WAY", "STATE", "FAR SIDE", "TIME", "CODEC", "MOS", "LOSS", "SIP CALL-ID")


def call_row(call: Call, now_s: float) -> tuple[object, ...]:
    """Return the cells of one call, under :data:`CALL_COLUMNS`."""
    way = "in" if call["direction"] == "inbound" else "out"
    held = " held" if call["held"] and is_live(call) else ""
    return (
        call["id"],
        way,
        ending(call) + held,
        far_user(call),
        lasted(call, now_s),
        call["codec"] or "-",
        mos(call),
        loss(call),
        call["sip_call_id"],
    )
