"""What language models write around their words — Markdown, HTML, JSON, unfilled placeholders — taken out before speech.

CommonMark 0.31 with the tables, task lists and strikethrough of GitHub's dialect, as far as they show in text.

Runs on: any thread; one :class:`MarkupStripper` belongs to one utterance.
"""

import html
import re

_FENCE = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})[^\n`]*$", re.MULTILINE)
_RULE = re.compile(r"^[ \t]{0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|={3,})[ \t]*$", re.MULTILINE)
_TABLE_RULE = re.compile(r"^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$", re.MULTILINE)
_TABLE_ROW = re.compile(r"^[ \t]*\|(?P<cells>[^\n]*?)\|?[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+(?P<text>[^\n]*?)[ \t]*#*[ \t]*$", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]{0,3}(?:>[ \t]?)+", re.MULTILINE)
_LIST_ITEM = re.compile(
    r"^(?P<indent>[ \t]*)(?:[-*+•]|(?P<number>\d{1,3})[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(?P<text>[^\n]+)$", re.MULTILINE
)
_IMAGE = re.compile(r"!\[(?P<text>[^\]\n]*)\]\([^)\n]*\)")
_LINK = re.compile(r"\[(?P<text>[^\]\[\n]+)\](?:\([^)\n]*\)|\[[^\]\n]*\])")
_LINK_REST = re.compile(r"\]\((?:https?:|mailto:|tel:|/|#|www\.)[^)\s]*\)?")
_LINK_DEFINITION = re.compile(r"^[ \t]{0,3}\[[^\]\n]+\]:[ \t]*\S+[^\n]*$", re.MULTILINE)
_REFERENCE = re.compile(r"\[\^[\w-]{1,20}\]:?|(?<=[\w.,!?”\"'])\[\d{1,3}\](?!\()")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^>\s]+|[\w.+-]+@[\w.-]+)>")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG_NAMES = (
    "a|abbr|audio|b|blockquote|body|br|break|button|center|code|div|em|emphasis|font|footer|h[1-6]|head|header"
    "|hr|html|i|img|"
    "input|ins|kbd|label|li|link|main|mark|meta|nav|ol|p|phoneme|pre|prosody|s|samp|say-as|script|section|small|span|speak|"
    "strike|strong|style|sub|summary|details|sup|svg|table|tbody|td|th|thead|title|tr|tt|u|ul|video|voice|wbr|think|thinking"
)
_TAG = re.compile(
    rf"</?(?P<name>{_TAG_NAMES})(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>]+))*\s*/?>", re.IGNORECASE
)
_BREAKING_TAGS = frozenset({"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "blockquote"})
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_CODE = re.compile(r"(?P<ticks>`+)(?P<text>[^`\n]+)(?P=ticks)(?!`)")
_STRONG = re.compile(r"(?<![\\\w])(\*\*\*|\*\*|___|__|~~)(?=\S)(?P<text>[^\n]*?\w[^\n]*?)(?<=\S)\1(?!\w)")
_EMPHASIS = re.compile(r"(?<![\w*\\])(?P<mark>[*_])(?=[^\s*_])(?P<text>[^*_\n]+?)(?<=[^\s*_])(?P=mark)(?![\w*])")
_ESCAPE = re.compile(r"\\([!\"#$%&'()*+,./:;<=>?@\[\\\]^_`{|}~-])")
_PLACEHOLDER = re.compile(
    r"\$?\{\{?\s*[A-Za-z_0-9][\w .-]{0,40}?\s*\}?\}|\[(?:[A-Z][A-Z0-9_]*(?:[ _][A-Z0-9_]+)*|"
    r"(?:[Ii]nsert|[Yy]our|[Cc]ustomer|[Uu]ser|[Aa]gent|[Cc]ompany|[Cc]lient|[Ff]irst|[Ll]ast|[Ff]ull)\s[\w ']{1,40})\]|"
    r"<(?:[A-Z][A-Z0-9_]*|[a-z]+_[a-z_]+|name|customer|date|time|amount|number)>|%\([a-z_]+\)[sd]|%[sd]\b"
)
_JSON_KEY = re.compile(r"(?:(?<=[{,\[])|^)\s*\"[\w -]{1,40}\"\s*:\s*")
_JSON_BEGINS = re.compile(r"\s*(?:\[\s*)?\{\s*\"[\w -]{1,40}\"\s*:")
_JSON_SIGNS = re.compile(r"^[\s{\[\"]+|[\s}\]\"]+$|(?<!\\)\"(?=\s*[,}\]])|(?<=[,:\[])\s*\"")
_ENDS_WITH_MARK = re.compile(r"[.!?…:;,。！？；：，、][\"'”’)\]*_]*\s*$")


class MarkupStripper:
    """Takes markup out of the parts of one text, in order; what spans parts (a JSON object) is remembered.

    ``has_placeholder`` says that a part held ``{name}``, ``[NAME]`` or the like: a template that nobody filled. Placeholders
    are not spoken.
    """

    def __init__(self) -> None:
        self.has_placeholder = False
        self._in_json: bool | None = None

    def strip(self, text: str) -> str:
        """The words of ``text``, which may end in the middle of a construct; never raises."""
        if self._in_json is None and text.strip():
            self._in_json = _JSON_BEGINS.match(text) is not None
        if self._in_json:
            text = _without_json(text)
        text = _COMMENT.sub(" ", text)
        text = _without_blocks(text)
        text = _without_links(text)
        text = _TAG.sub(lambda match: "\n" if match["name"].lower() in _BREAKING_TAGS else "", text)
        text, num_placeholders = _PLACEHOLDER.subn("", text)
        self.has_placeholder |= num_placeholders > 0
        text = _CODE.sub(lambda match: match["text"].strip(), text)
        text = _STRONG.sub(lambda match: match["text"], text)
        text = _EMPHASIS.sub(lambda match: match["text"], text)
        text = _ESCAPE.sub(r"\1", text)
        return _ENTITY.sub(lambda match: html.unescape(match.group()).replace("\xa0", " "), text)


def _without_blocks(text: str) -> str:
    for pattern in (_FENCE, _TABLE_RULE, _RULE, _LINK_DEFINITION):
        text = pattern.sub("", text)
    text = _QUOTE.sub("", text)
    text = _HEADING.sub(lambda match: _ended(match["text"]), text)
    text = _TABLE_ROW.sub(_row, text)
    return _LIST_ITEM.sub(_item, text)


def _row(match: re.Match[str]) -> str:
    """The cells of a table's row, a pause between them."""
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", match["cells"])]
    return _ended(", ".join(cell for cell in cells if cell))


def _item(match: re.Match[str]) -> str:
    number = f"{match['number']}, " if match["number"] else ""
    return _ended(number + match["text"])


def _ended(words: str) -> str:
    """With a full stop, so that the next line does not run into it."""
    return f"{words.rstrip()}." if words.strip() and not _ENDS_WITH_MARK.search(words) else words


def _without_links(text: str) -> str:
    text = _IMAGE.sub(lambda match: match["text"], text)
    text = _LINK.sub(lambda match: match["text"], text)
    text = _LINK_REST.sub("", text)
    text = _AUTOLINK.sub(lambda match: match[1].removeprefix("mailto:"), text)
    return _REFERENCE.sub("", text)


def _without_json(text: str) -> str:
    """The values without keys, quotes and brackets."""
    text = _JSON_KEY.sub(" ", text)
    text = _JSON_SIGNS.sub(" ", text)
    return re.sub(r"\s*[{}\[\]]\s*", " ", text).replace('\\"', '"').replace("\\n", "\n")
