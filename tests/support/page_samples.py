"""Samples of the pages: the shell blocks, the answers that are printed behind them, and the comparison with what came."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MORE: Final = "…"
"""The pages print it where more follows."""
_BLOCK: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```\n", re.DOTALL | re.MULTILINE)
_COMMAND: Final = re.compile(r"^ *(?:\w+=\S+ )*(?:\S*/)?(?:curl|cc-tts) ", re.MULTILINE)
_CUT: Final = re.compile(r",…(?=[,}\]])")
_ID: Final = re.compile(r"\b(call|utt|evt|gather|speech|req)_[\w…]+")
_VARYING: Final = re.compile(r"(^|_)(id|ms|at|time|seq|node|sent|received|source)$")
"""Names of fields whose values differ from call to call."""
_MEASURED: Final = (
    (re.compile(r"\d[\d.]* (?=(ms|s|packets|late|bytes)\b)"), "N "),
    (re.compile(r"\b0x[0-9a-f]{8}\b"), "0xN"),
    (re.compile(r"\b(\d+\.){3}\d+:\d+\b"), "HOST:N"),
    (re.compile(r"(?<=^Call-ID )\S+"), "ID"),
)
"""What differs from run to run in a line of a command, by its unit or its form."""


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    answer: str = ""
    """The block without a language that follows at once."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def has_command(self) -> bool:
        return _COMMAND.search(self.text) is not None


def blocks(root: Path, page: str) -> list[Block]:
    text = (root / page).read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    answers = {match.start(): match[2] for match in found if not match[1]}
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2], answers.get(match.end(), ""))
        for match in found
    ]


def documents(text: str) -> Iterator[Any]:
    """The JSON objects in a text, also cut ones as the pages print them."""
    text = _CUT.sub(f',"{MORE}":0', text)
    while (start := text.find('{"')) >= 0:
        document, end = json.JSONDecoder().raw_decode(text, start)
        yield document
        text = text[end:]


def without_documents(text: str) -> str:
    text = _CUT.sub(f',"{MORE}":0', text)
    while (start := text.find('{"')) >= 0:
        _, end = json.JSONDecoder().raw_decode(text, start)
        text = text[:start] + "\n" + text[end:]
    return text


def fixed_lines(text: str) -> list[str]:
    """The lines of a command without what was measured, several equal ones in a row as one."""
    lines = [" ".join(line.split()) for line in without_documents(text).splitlines()]
    for pattern, instead in _MEASURED:
        lines = [pattern.sub(instead, line) for line in lines]
    lines = [line for line in lines if line]
    return [line for index, line in enumerate(lines) if index == 0 or line != lines[index - 1]]


def line_faults(printed: str, came: str) -> list[str]:
    """Printed lines of a command that did not come, and lines that came though the page does not say that more follow."""
    wanted, seen = fixed_lines(printed), fixed_lines(came)
    faults = [f"did not come: {line}" for line in wanted if line not in (*seen, MORE)]
    if MORE not in wanted:
        faults += [f"is not printed: {line}" for line in seen if line not in wanted]
    return faults


def document_faults(printed: Any, came: Any, *, at: str = "", has_values: bool = True) -> list[str]:
    """Where an object that a page prints differs from one that came: fields, types, and values that do not vary."""
    match printed, came:
        case dict(), dict():
            return _field_faults(printed, came, at=at, has_values=has_values)
        case list(), list() if printed and came:
            return document_faults(printed[0], came[0], at=f"{at}/0", has_values=has_values)
    return [f"{at}: {printed!r} is printed, {came!r} came"] if has_values and not _is_alike(at, printed, came) else []


def _field_faults(printed: dict[str, Any], came: dict[str, Any], *, at: str, has_values: bool) -> list[str]:
    faults = [f"{at}/{name} did not come" for name in printed if name not in (*came, MORE)]
    if MORE not in printed:
        faults += [f"{at}/{name} is not printed" for name in came if name not in printed]
    for name in printed.keys() & came.keys():
        faults += document_faults(printed[name], came[name], at=f"{at}/{name}", has_values=has_values)
    return faults


def _is_alike(at: str, printed: Any, came: Any) -> bool:
    name = at.rpartition("/")[2]
    if name == "spoken_text":  # an interruption is never at the same word
        return bool(came) and (str(printed).startswith(came) or str(came).startswith(printed))
    if isinstance(printed, int | float) and isinstance(came, int | float) and not isinstance(printed, bool):
        return printed == came or isinstance(printed, float) or _VARYING.search(name) is not None
    if isinstance(printed, str) and isinstance(came, str):
        return _VARYING.search(name) is not None or _ID.sub(r"\1", printed) == _ID.sub(r"\1", came)
    return type(printed) is type(came) and printed == came


def nearest_faults(printed: Any, candidates: Sequence[Any], *, has_values: bool = True) -> list[str]:
    """The faults against that candidate which has the fewest; none came: a fault."""
    found = (document_faults(printed, each, has_values=has_values) for each in candidates)
    return min(found, key=len, default=["nothing of the kind came"])
