"""Text cut into sentences: for a stream of text, and the way CosyVoice2's own front end does it.

Runs on: any thread; one :class:`SentenceSplitter` belongs to one stream.
"""

import re
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass

from cc_tts.text.cuts import long_cut

MAX_SENTENCE_CHARS = 400
"""A sentence without an end is cut at about this many characters."""

_CLOSERS = "\"'”’)\\]}»」』）】》"
_LINE_ENDS = "\n\x85\u2028\u2029"
_CANDIDATE = re.compile(rf"[.!?…。！？；]+[{_CLOSERS}]*|[{_LINE_ENDS}]")
_WIDE_END = re.compile("[。！？；]")
_HAN = re.compile("[\u3400-\u9fff]")
_WORD_BEFORE = re.compile(r"[A-Za-z][A-Za-z.]*$|\d+$")
_INITIALS = re.compile(r"(?:[A-Za-z]\.)*[A-Za-z]")
_LOOK_BACK_CHARACTERS = 24
_HALF_OF_DAY = frozenset({"a.m", "p.m"})
_LAST_OR_NOT = frozenset({"etc", "ave", "blvd", "rd"}) | _HALF_OF_DAY
_NEVER_LAST = frozenset(
    re.findall(
        r"\w+",
        "dr mr mrs ms prof st mt rev hon capt lt col gen sgt jr sr inc ltd corp co bros vs approx dept est appt "
        "acct ext tel incl max min",
    )
)
_LAST_UNLESS_NUMBER = frozenset(
    re.findall(
        r"\w+",
        "no nos fig vol pp ch jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri "
        "sat sun",
    )
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """``source`` is a stretch of the input, character for character; ``start`` is its offset in the stream, characters.

    White space between two sentences stands at the beginning of the second.
    """

    start: int
    source: str


class SentenceSplitter:
    """Cuts a growing text into sentences. How the text is divided when it arrives makes no difference to the result.

    The sources of all sentences, :meth:`flush` included, join to the input. A sentence is given out as soon as the
    character after its end shows that it has ended. Lines end sentences too.
    """

    def __init__(self, *, max_chars: int = MAX_SENTENCE_CHARS) -> None:
        self._max_chars = max_chars
        self._pending = ""
        self._start = 0
        self._num_settled = 0

    @property
    def settled(self) -> str:
        """What has arrived of the sentence that is under way and certainly belongs to it."""
        return self._pending[: self._num_settled]

    def push(self, text: str) -> list[Sentence]:
        """Append text; returns the sentences it completed."""
        self._pending += text
        return self._taken(is_last=False)

    def flush(self) -> list[Sentence]:
        """Give out the rest. More may be pushed afterwards and begins a new sentence."""
        return self._taken(is_last=True)

    def _taken(self, *, is_last: bool) -> list[Sentence]:
        sentences: list[Sentence] = []
        text, begin = self._pending, 0
        while begin < len(text):
            window = text[begin : begin + self._max_chars + 1]
            end, self._num_settled = self._sentence_end(window, is_last=is_last)
            if not end:
                break
            sentences.append(Sentence(self._start, window[:end]))
            self._start += end
            begin += end
        self._pending = text[begin:]
        if not self._pending:
            self._num_settled = 0
        return sentences

    def _sentence_end(self, window: str, *, is_last: bool) -> tuple[int, int]:
        """The length of the first sentence, or 0 and how many characters are known to belong to it.

        ``window`` holds one character more than the longest sentence when the text is that long: everything is decided
        by it, so the same text is always cut the same way.
        """
        is_full = len(window) > self._max_chars
        is_complete = is_full or is_last
        for candidate in _CANDIDATE.finditer(window):
            end = candidate.end()
            if end == len(window):
                if not is_complete:
                    return 0, candidate.start()
                break
            if not any(character.isalnum() for character in window[:end]):
                continue
            verdict = _ends(window, candidate, is_complete=is_complete)
            if verdict is None:
                return 0, candidate.start()
            if verdict:
                return end, end
        if is_full:
            end = long_cut(window, self._max_chars)
            return end, end
        return (len(window), len(window)) if is_last else (0, len(window))


def _ends(text: str, candidate: re.Match[str], *, is_complete: bool) -> bool | None:
    """Whether the sentence ends with this mark; ``None`` when what comes next must be known first."""
    mark, following = candidate.group(), text[candidate.end() :]
    if mark in _LINE_ENDS or _WIDE_END.search(mark):
        return True
    if not following[0].isspace():
        return _HAN.match(following) is not None and (
            mark != "." or _HAN.match(text, candidate.start() - 1) is not None
        )
    if mark[0] != "." or mark.startswith(".."):
        return True
    return _full_stop_ends(text[: candidate.start()], following.lstrip(), is_complete=is_complete)


def _full_stop_ends(before: str, following: str, *, is_complete: bool) -> bool | None:
    match = _WORD_BEFORE.search(before[-_LOOK_BACK_CHARACTERS:])
    if match is None:
        return True
    written = match.group()
    word = written.lower()
    if word.isdigit():
        is_list_marker = not any(character.isalnum() for character in before[: -len(word)])
        return not is_list_marker
    if word in _NEVER_LAST:
        return False
    if word in _LAST_OR_NOT or word in _LAST_UNLESS_NUMBER:
        if not following:
            return True if is_complete else None
        return following[0].isupper() if word in _LAST_OR_NOT else not following[0].isdigit()
    is_initial = _INITIALS.fullmatch(written) is not None and written != "I"
    return not is_initial


def split_paragraph(
    text: str,
    tokenize: Callable[[str], Sized],
    lang: str,
    token_max_n: int = 80,
    token_min_n: int = 60,
    merge_len: int = 20,
    comma_split: bool = False,  # noqa: FBT001, FBT002 - the reference's own signature
) -> list[str]:
    """Sentences of at most about ``token_max_n`` tokens, as the reference implementation of CosyVoice2 forms them.

    Source: FunAudioLLM/CosyVoice, ``frontend_utils.split_paragraph``, whose oddities are kept: a mark directly after a
    cut is dropped, and a quotation mark after a full stop stays with it. Unlike it, a mark and a quotation mark at the
    very beginning are dropped instead of raising IndexError. Lengths count characters when ``lang`` is ``zh``, else
    tokens of ``tokenize``.
    """

    def length(part: str) -> int:
        return len(part) if lang == "zh" else len(tokenize(part))

    marks = set("。？！；：、.?!;" if lang == "zh" else ".?!;:") | (set("，,") if comma_split else set())
    if not text:
        return []
    if text[-1] not in marks:
        text += "。" if lang == "zh" else "."
    return _merged(_cut_at_marks(text, marks), length, token_max_n, token_min_n, merge_len)


def _cut_at_marks(text: str, marks: set[str]) -> list[str]:
    parts: list[str] = []
    begin = 0
    for position, character in enumerate(text):
        if character not in marks:
            continue
        if position > begin:
            parts.append(text[begin : position + 1])
        begin = position + 1
        if text[begin : begin + 1] in {'"', "”"}:
            if parts:
                parts[-1] += text[begin]
            begin += 1
    return parts


def _merged(
    parts: Sequence[str], length: Callable[[str], int], token_max_n: int, token_min_n: int, merge_len: int
) -> list[str]:
    merged: list[str] = []
    current = ""
    for part in parts:
        if length(current + part) > token_max_n and length(current) > token_min_n:
            merged.append(current)
            current = ""
        current += part
    if not current:
        return merged
    if merged and length(current) < merge_len:
        merged[-1] += current
    else:
        merged.append(current)
    return merged
