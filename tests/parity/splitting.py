"""Text cut into sentences the way CosyVoice2's own front end does it: the oracle of its splitting."""

from collections.abc import Callable, Sequence, Sized


def split_paragraph(
    text: str,
    tokenize: Callable[[str], Sized],
    lang: str,
    token_max_n: int = 80,
    token_min_n: int = 60,
    merge_len: int = 20,
    comma_split: bool = False,
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
