"""Rules that take out what nobody is to hear: a language model's reasoning, calls of tools, scripts, the headers of its
messages.

An element may span tokens, segments and chunks, so what is open is part of the state of a text::

    "<think>Hm. " ─▸ inside think ─▸ "Done.</think>Hello." ─▸ said is "Hello."
"""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from cc_tts.text.alignment import replaced

MAX_UNSPOKEN_CHARS: Final = 20_000
"""The longest element; one that is never closed does not silence all that follows. Some 5000 tokens of reasoning.
Unmeasured.
"""
_MAX_CHARS: Final = {"header": 200, "calls": 4000} | dict.fromkeys(
    ("script", "style", "svg", "template", "noscript"), 2000
)
"""The longest of elements that are shorter, and of those that an answer about them may name. Unmeasured."""
_LONGEST_TAG: Final = 60
_MAX_ROW_CHARS: Final = 200
"""How much is kept of a line. Unmeasured."""
HEADER: Final = "header"
"""The header of a message: its words, which may come in tokens, tell whether the message is spoken."""
_NAMES: Final = (
    "think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis|inner_monologue|seed:think|antml:thinking|"
    "tools?|tool_(?:calls?|use|code|response|results?|output)|function(?:_calls?|_results?)?|invoke|script|style|svg|"
    "template|noscript"
)
_TAG_ENDS: Final = r"(?=[\s=/>])[^<>]{0,200}(?<!/)>"
_OPENS: Final = re.compile(
    rf"(?i)<(?P<name>{_NAMES}){_TAG_ENDS}|◁(?P<kimi>think)▷|\[(?P<mistral>THINK)\]|(?P<calls>\[TOOL_CALLS\])"
    r"|<[|｜](?P<tool>(?![\w▁]*end)[\w▁]*(?:tool|thought|think|reason|python_tag|function)[\w▁]*)[|｜]>"
    r"|(?P<header><[|｜](?:start|channel|im_start|start_header_id)[|｜]>)"
)
_CLOSES: Final = {
    "tool": re.compile(r"(?i)<[|｜](?:[\w▁]*end[\w▁]*|eom_id|eot_id)[|｜]>"),
    "calls": re.compile(r"\n|</s>"),
    "kimi": re.compile("◁/think▷"),
    "mistral": re.compile(r"(?i)\[/THINK\]"),
    "header": re.compile(r"(?P<channel>\b(?:analysis|commentary)\b)|<\|(?:message|end_header_id)\|>|\n"),
    "channel": re.compile(r"<\|(?:end|return|call|(?P<header>start|channel))\|>"),
}
"""A group names what the text is in then."""
_TOKENS: Final = re.compile(r"<[|｜][\w▁ ]{1,40}[|｜]>|</s>")
"""Special tokens of chat templates that are left."""
_THINKING_ENDS: Final = re.compile(r"(?i)<(?P<ends>/)?think(?:ing)?\s*>")
_PARTIAL: Final = re.compile(r"(?:<(?:[/|｜A-Za-z][^<>]*)?|◁[^▷]*|\[[/A-Z_]*)$")
_JSON_BEGINS: Final = re.compile(r"\s*(?:\[\s*)?\{\s*\"[\w -]{1,40}\"\s*:")
_JSON_PARTIAL: Final = re.compile(r"\s*(?:\[\s*)?\{\s*(?:\"[\w -]{0,40}(?:\"\s*)?)?$")


class MarkupState(msgspec.Struct, frozen=True):
    """The markup that is open at some place of a text: the element and how much of it there was, whether the text is a JSON
    object, once that is known, the beginning of the unfinished line, and the first row of the table.
    """

    inside: str = ""
    num_chars: int = 0
    in_json: bool | None = None
    line: str = ""
    table: str = ""


AT_BEGINNING: Final = MarkupState()


@dataclass(frozen=True, slots=True)
class Scan:
    """The parts of a text that are not spoken, in order, the state at its end, and where something at its end begins that
    may be a tag.
    """

    unspoken: list[tuple[int, int]]
    state: MarkupState
    tag_from: int

    def said(self, text: str) -> str:
        return _said(text, self.unspoken)


def scan(text: str, state: MarkupState) -> Scan:
    """Scan a text that begins in ``state``."""
    found: list[tuple[int, int]] = []
    inside, num_chars, at = state.inside, state.num_chars, 0
    while at < len(text):
        if not inside:
            if (opening := _opening(text, at)) is None:
                break
            found.append(opening.span())
            inside, num_chars, at = _name(opening), 0, opening.end()
            continue
        closing = _closing(inside).search(text, at)
        end = len(text) if closing is None else closing.end()
        left = _MAX_CHARS.get(inside, MAX_UNSPOKEN_CHARS) - num_chars
        if end - at > left:
            end, inside = at + max(0, left), ""
        elif closing is not None:
            inside, num_chars = closing.lastgroup or "", 0
        else:
            num_chars += end - at
        found.append((at, end))
        at = end
    partial = _PARTIAL.search(text, max(0 if inside else at, len(text) - _LONGEST_TAG))
    tag_from = len(text) if partial is None else partial.start()
    unspoken = _joined(found)
    in_json = _is_json(_said(text, unspoken)) if state.in_json is None else state.in_json
    *lines, line = (state.line + text).split("\n")
    table = state.table
    for each in lines:
        table = (table or each) if each.lstrip().startswith("|") else ""
    kept = (each[:_MAX_ROW_CHARS] for each in (line, table))
    return Scan(unspoken, MarkupState(inside, num_chars if inside else 0, in_json, *kept), tag_from)


def _is_json(said: str) -> bool | None:
    """Whether the words so far begin a JSON object; ``None`` if that is not known yet."""
    if not said.strip() or _JSON_PARTIAL.fullmatch(said):
        return None
    return _JSON_BEGINS.match(said) is not None


def _said(text: str, unspoken: list[tuple[int, int]]) -> str:
    return replaced([(*span, " ") for span in unspoken], text)


def state_of_whole(text: str) -> MarkupState:
    """The state at the beginning of a text that is there as a whole: models that were told to think leave out that they
    begin to.
    """
    first = _THINKING_ENDS.search(text)
    return MarkupState("think" if first is not None and first["ends"] else "")


def said_of(text: str, state: MarkupState = AT_BEGINNING) -> str:
    """Return what is spoken of a text that begins in ``state``."""
    return scan(text, state_of_whole(text) if state == AT_BEGINNING else state).said(text)


def _opening(text: str, at: int) -> re.Match[str] | None:
    matches = (pattern.search(text, at) for pattern in (_OPENS, _TOKENS))
    return min((each for each in matches if each is not None), key=lambda each: each.start(), default=None)


def _name(match: re.Match[str]) -> str:
    """Return what the text is in behind an opening tag; nothing behind a special token."""
    if match.re is _TOKENS:
        return ""
    return (match["name"] or match.lastgroup or "").lower()


def _closing(inside: str) -> re.Pattern[str]:
    return _CLOSES.get(inside) or re.compile(rf"(?i)</{re.escape(inside)}\s*>")


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return [(start, end) for start, end in joined if start < end]
