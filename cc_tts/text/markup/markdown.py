"""Rules that take out what language models write around their words: Markdown, HTML, JSON, unfilled placeholders.

CommonMark 0.31 with the tables, task lists and strikethrough of GitHub's dialect, as far as they show in text.
"""

import html
import re
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from cc_tts.text.alignment import substituted
from cc_tts.text.characters import has_speech
from cc_tts.text.markup.latex import without_latex
from cc_tts.text.markup.unspoken import AT_BEGINNING, MarkupState, scan, state_of_whole
from cc_tts.text.substitution import rewriter

_LIST_ITEM = r"(?P<indent>[ \t]*)(?:[-*+•]|(?P<number>\d{1,3})[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(?P<text>[^\n]+)$"
_TAG_NAMES = (
    "a|abbr|audio|b|blockquote|body|br|break|button|center|code|div|em|emphasis|font|footer|h[1-6]|head|header|hr|html|i|"
    "img|input|ins|kbd|label|li|link|main|mark|meta|nav|ol|p|phoneme|pre|prosody|s|samp|say-as|script|section|small|span|speak|"
    "strike|strong|style|sub|summary|details|sup|svg|table|tbody|td|th|thead|title|tr|tt|u|ul|video|voice|wbr|think|thinking|tool_call"
)
_TAG = rf"(?i)</?(?P<name>{_TAG_NAMES})(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>]+))*\s*/?>"
_BREAKING_TAGS = frozenset({"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "blockquote"})
_PLACEHOLDER = re.compile(
    r"\$?\{\{?\s*[A-Za-z_0-9\u4e00-\u9fff][\w .-]{0,40}?\s*\}?\}|(?<![A-Za-z\d_])\[(?:[A-Z][A-Z0-9_]*(?:[ _][A-Z0-9_]+)*|"
    r"(?:[Ii]nsert|[Yy]our|[Cc]ustomer|[Uu]ser|[Aa]gent|[Cc]ompany|[Cc]lient|[Ff]irst|[Ll]ast|[Ff]ull)\s[\w ']{1,40}|"
    r"(?:请?(?:填写|输入|插入)|您的|客户|客戶|用户|用戶|公司)[\u4e00-\u9fff]{1,8})\]|"
    r"<(?:[A-Z][A-Z0-9_]*|[a-z]+_[a-z_]+|name|customer|date|time|amount|number)>|%\([a-z_]+\)[sd]|%[sd]\b"
)
_CELL = re.compile(r"(?:(?<=\|)|(?<=\| ))\d{3,30}(?=[ \t]*\|)")
_NAMES_NUMBERS = re.compile(
    r"(?i)(?:(?<![序几])[号號]|(?<!尺)[码碼]|尾[号數数]|电话|電話|手机|手機|邮编|\b(?:id|no\.?|numbers?|codes?|pin|ref|sku|phone|zip|room))"
    r"(?:[（(][^|]*[）)])?\**\s*$"
)
_SLICE_CHARS: Final = 200
"""A text is searched for something to say in slices of this length; unmeasured."""
_ENDS_WITH_MARK = re.compile(r"[.!?…:;,。！？；：，、।؟،؛۔][\"'”’)\]*_]*\s*$")


def _row(match: re.Match[str]) -> str:
    """The cells of a table's row, a pause between them."""
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", match["cells"])]
    return _ended(", ".join(cell for cell in cells if cell))


def _item(match: re.Match[str]) -> str:
    number = f"{match['number']}, " if match["number"] else ""
    return _ended(number + match["text"])


def _ended(words: str) -> str:
    """Return the line with a full stop, so that the next line does not run into it."""
    return f"{words.rstrip()}." if words.strip() and not _ENDS_WITH_MARK.search(words) else words


def _with_names_in_digits(text: str, before: MarkupState) -> str:
    """The digits of numbers in a table stand apart, and so are read one by one, below a heading that says that they name
    something.
    """

    def cell(match: re.Match[str]) -> str:
        *rows, row = f"{before.table}\n{before.line}{text[: match.start()]}".split("\n")
        above = takewhile(lambda each: each.lstrip().startswith("|"), reversed(rows))
        heading = "".join(deque(above, maxlen=1)).split("|")[row.count("|") :][:1]
        return " ".join(match.group()) if any(map(_NAMES_NUMBERS.search, heading)) else match.group()

    return substituted([(_CELL, cell)], text) if "|" in text else text


_without_json = rewriter(
    (r"(?:(?<=[{,\[])|^)\s*\"[\w -]{1,40}\"\s*:\s*", " "),
    (r"^[\s{\[\"]+|[\s}\]\"]+$|(?<!\\)\"(?=\s*[,}\]])|(?<=[,:\[])\s*\"", " "),
    (r"\s*[{}\[\]]\s*", " "),
    (r"\\\"", '"'),
    (r"\\n", "\n"),
)
"""The values stay, without keys, quotes and brackets."""
_BLOCKS: Final[tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]] = (
    (r"[ \t]{0,3}(?:`{3,}|~{3,})[^\n`]*$", ""),
    (r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$", ""),
    (r"[ \t]{0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|={3,})[ \t]*$", ""),
    (r"[ \t]{0,3}\[[^\]\n]+\]:[ \t]*\S+[^\n]*$", ""),
    (r"[ \t]{0,3}(?:>[ \t]?)+", ""),
    (r"[ \t]{0,3}#{1,6}[ \t]+(?P<text>[^\n]*?)[ \t]*#*[ \t]*$", lambda match: _ended(match["text"])),
    (r"[ \t]*\|(?P<cells>[^\n]*?)\|?[ \t]*$", _row),
    (_LIST_ITEM, _item),
)
"""Rules for what begins a line."""
_without_comments = rewriter((r"(?s)<!--.*?-->", " "))
_without_blocks = rewriter(*((f"(?m)^{pattern}", said) for pattern, said in _BLOCKS))
_without_later_blocks = rewriter(*((rf"(?m)(?<=\n){pattern}", said) for pattern, said in _BLOCKS))
"""These rules are for a text that begins within a line: ``# to end`` behind ``Press * to repeat,`` is no heading."""
_SUBSCRIPT = (
    r"(?a)(?<![\w.])((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Za-z]|[A-Za-z]+_\w+|arr(?:ay)?|argv|args|list|nums|df)"
    r"\[(-?\d{1,3})\](?![(\w])"
)
"""``x.shape[0]`` of a program; behind another word ``[1]`` is the number of a note."""
_without_links_and_tags = rewriter(
    (r"!\[(?P<text>[^\]\n]*)\]\([^)\n]*\)", r"\g<text>"),
    (r"\[(?P<text>[^\]\[\n]+)\](?:\([^)\n]*\)|\[[^\]\n]*\])", r"\g<text>"),
    (r"\]\((?:https?:|mailto:|tel:|/|#|www\.)[^)\s]*\)?", ""),
    (r"<((?:https?://|mailto:)[^>\s]+|[\w.+-]+@[\w.-]+)>", lambda match: match[1].removeprefix("mailto:")),
    (_SUBSCRIPT, r"\1 \2"),
    (r"\[\^[\w-]{1,20}\]:?|(?<=[\w.,!?”\"'])\[\d{1,3}\](?!\()", ""),
    (_TAG, lambda match: "\n" if match["name"].lower() in _BREAKING_TAGS else ""),
)
_without_inline_markup = rewriter(
    (r"(?P<ticks>`+)(?P<text>[^`\n]+)(?P=ticks)(?!`)", lambda match: match["text"].strip()),
    (r"(?<![\\\w~])~~(?=[^\s~])[^~\n]*(?<=\S)~~(?![\w~])", ""),  # struck out
    (
        r"(?a)(?<![\\\w*])(\*\*\*|\*\*|___|__)(?=\S)(?P<text>[^\n]*?[A-Za-z0-9\x80-\U0010ffff][^\n]*?|(?!-\*)[^\n\w*]{1,9})(?<=\S)\1(?!\w)",
        r"\g<text>",
    ),
    (r"(?<![\w*\\])(?P<mark>[*_])(?=[^\s*_])(?P<text>[^*_\n]+?)(?<=[^\s*_])(?P=mark)(?![\w*])", r"\g<text>"),
    (r"(?<![\w*\\])\*(?=[^\s*_])(?P<text>[^*_\n]+?)(?<=[^\s*_])\*(?=[가-힣ぁ-ヿ])", r"\g<text>"),  # before a particle
    (r"\\([!\"#$%&'()*+,./:;<=>?@\[\\\]^_`{|}~-])", r"\1"),
    (
        r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});",
        lambda match: html.unescape(match.group()).replace("\xa0", " "),
    ),
)


_without_placeholders = rewriter((_PLACEHOLDER.pattern, ""))


class MarkupStripper:
    """Takes markup out of the parts of one text, in order; what spans parts (a JSON object, an element that
    is not spoken) is remembered.

    ``has_placeholder``: a part held ``{name}``, ``[NAME]`` or the like, which nobody filled and which is not spoken.
    """

    def __init__(self, state: MarkupState = AT_BEGINNING) -> None:
        self.has_placeholder = False
        self._state = state

    def strip(self, text: str) -> str:
        """The words of ``text``, which may end in the middle of a construct; never raises."""
        before = self._state
        scanned = scan(text, before)
        self._state = scanned.state
        text = scanned.said(text)
        if self._state.in_json:
            text = _without_json(text)
        without_blocks = _without_later_blocks if before.line.strip() else _without_blocks
        text = _without_comments(_with_names_in_digits(without_latex(text), before))
        text = _without_links_and_tags(without_blocks(text))
        self.has_placeholder |= _PLACEHOLDER.search(text) is not None
        return _without_inline_markup(_without_placeholders(text))


def has_words(text: str, state: MarkupState = AT_BEGINNING) -> bool:
    """Whether words are left when the markup of a text, which begins in ``state``, is taken out. A text of markup alone is
    searched to its end, others to their first words.
    """
    stripper = MarkupStripper(state_of_whole(text) if state == AT_BEGINNING else state)
    slices = (text[at : at + _SLICE_CHARS] for at in range(0, len(text), _SLICE_CHARS))
    return any(has_speech(stripper.strip(each)) for each in slices)
