"""The same words are said whether a text comes whole, or in tokens of any size."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.speech.incremental.text import IncrementalText
from cc_tts.text.chunker import Chunking
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.segments import Segmenting
from lab.chunk_text import chunks_of

pytestmark = pytest.mark.unit

SIZES = (1, 2, 3, 7, 20)
"""Characters of a token."""
PARTS = (0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow))
"""Parts of the tables: the six thousand lines take a quarter of a minute."""
DATA = Path(__file__).parents[2] / "data" / "text"
LINES = {
    "en-US": [
        "Please remember that your temporary door code for the guest entrance is 7304 until noon.",
        "We have moved your connection to Flight UA 1549 leaving from gate B22 this evening.",
        "The storage unit that we reserved for you measures 10 ft. x 12 ft. and is heated.",
        "You and your party have been moved to seats 14A - 14C near the front exit.",
        "Here is the one time passcode that you asked me for: 480 213, valid for ten minutes.",
        "Reply to the short code we texted you from, 72645, with the word STOP to opt out.",
        "Tell the front desk your room, 1412, and they will bring up the luggage right away.",
        "Order number: 7783120, placed on 11/3, has shipped from the Columbus, OH, warehouse.",
        "He lives at 1600 W. 42nd St. Apt. 5B and would like the delivery before 5:30 p.m. EST today.",
        '{"reply": "Your code is 4821. Please keep it safe.", "end": false}',
        "<think>The user asks for 5 things. I should be brief.</think>You have 5 new messages.",
    ],
    "zh": [
        "请您在方便的时候拨打我们的客服热线400-820-8820咨询具体办理流程。",
        "更多关于会员权益的说明请您登录我们的官方网站www.example.cn/help查询。",
        "您的宽带套餐已经成功升级到100 Mbps并将于明天上午正式生效请留意。",
        "请您核对一下您的银行卡卡号6222 0202 0001 2345 678是否填写正确谢谢。",
        "为了保障您的账户安全请将您收到的验证码：480213告诉我们的系统而不是人工。",
        "您可以在微信里搜索公众号cc_tts2026关注以后就能够收到最新的通知。",
    ],
    "de": [
        "Die 3. Mahnung kommt am 1. Mai. Drücken Sie die 1. Für den Vertrieb drücken Sie die 2.",
        "Ihr Termin bei Dr. Meier ist am 03.11.2026 um 9.30 Uhr im 2. Stock, Tel. 0800 1234567.",
    ],
    "es": ["Su cita con el Dr. García es el 03/11/2026 a las 9:15 h; le costará 1.250,75 € o 108,25 €/mes."],
    "fr": ["Rendez-vous avec M. Dupont le 01/12/2026 à 9h05, tél. 01 42 68 53 00, montant : 1 250,75 €."],
    "pl": ["Wizyta u dr Nowaka 03.11.2026 o godz. 9:15, do zapłaty 1 299,00 zł, rabat 15 %, tel. 22 123 45 67."],
    "ru": ["Приём у д-ра Иванова 03.11.2026 в 9:15, к оплате 1 299,00 ₽, ул. Ленина, д. 5, тел. 8 800 555-35-35."],
    "da": ["Vi bor på 3. sal. Det koster 459 kr. og leveres 5. maj, kl. 9.30, ring til 70 10 20 30."],
    "ar": ["موعدك يوم 03/11/2026 الساعة 9:15. المبلغ 1,299.00 ر.س مع ضريبة 15%. اتصل على 0501234567."],
    "ko": ["예약은 2026.11.03 9:15입니다. 금액은 ₩12,900이고 전화는 02-1234-5678입니다."],
}


def written_lines() -> Iterator[tuple[str, str]]:
    for path in sorted(DATA.glob("*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            yield {"en": "en-US"}.get(line["lang"], line["lang"]), line["written"]
    for language in ("en-US", "en-GB", "zh"):
        for row in (DATA / f"{language}.tsv").read_text().splitlines():
            yield language, row.partition("\t")[0]
    for row in (DATA / "signs.tsv").read_text().splitlines():
        language, written, _ = row.split("\t")
        yield language, written
    for row in (DATA / "markup.tsv").read_text().splitlines():
        yield "en-US", row.partition("\t")[0].replace("\\n", "\n").replace("\\\\", "\\")


def said(normalizer: Normalizer, chunking: Chunking, text: str) -> list[str]:
    return [chunk.spoken for chunk in chunks_of(normalizer, text, chunking)]


def words_of_tokens(normalizer: Normalizer, text: str, language: str, size: int) -> list[str]:
    incremental = IncrementalText(MonotonicClock(), segmenting=Segmenting(), idle_timeout_s=0)
    before, words = "", list[str]()
    for start in range(0, len(text) + size, size):
        incremental.append(text[start : start + size]) if start < len(text) else incremental.end()
        while (segment := incremental.take()) is not None:
            if segment.is_spoken:
                chunking = Chunking(language=language, before=before, markup=segment.markup)
                words += said(normalizer, chunking, segment.text)
                before += segment.text
    return words


def letters(spoken: list[str]) -> list[str]:
    return re.findall(r"\w", "".join(spoken).lower())


def wrong_lines(
    normalizer: Normalizer, lines: Iterable[tuple[str, str, int]]
) -> list[tuple[str, int, list[str], list[str]]]:
    wrong = []
    for language, text, size in lines:
        whole = said(normalizer, Chunking(language=language), text)
        tokens = words_of_tokens(normalizer, text, language, size)
        if letters(whole) != letters(tokens):
            wrong.append((text, size, whole, tokens))
    return wrong


async def test_tokens_of_any_size_are_said_in_the_words_of_the_whole_text(normalizer: Normalizer) -> None:
    lines = [(language, text, size) for language, texts in LINES.items() for text in texts for size in SIZES]
    assert wrong_lines(normalizer, lines) == []


@pytest.mark.parametrize("part", PARTS)
async def test_each_line_of_the_tables_in_tokens_of_one_of_the_sizes(normalizer: Normalizer, part: int) -> None:
    """Neighbours in a table are of one kind, so each kind meets each size."""
    lines = list(written_lines())
    assert len(lines) > 1000
    sized = [(*line, SIZES[index % len(SIZES)]) for index, line in enumerate(lines)]
    assert wrong_lines(normalizer, sized[part :: len(PARTS)]) == []
