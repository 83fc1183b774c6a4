"""Where spoken words come from, and how a number is read behind the words before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.text.alignment import traced
from cc_tts.text.chunker import Chunking, TextChunk
from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunks_of

pytestmark = pytest.mark.unit

NORMALIZER = Normalizer()


def replaced(text: str, language: str) -> list[tuple[str, str]]:
    """What was replaced, with the words that are said for it."""
    spoken, places = traced(text, lambda each: NORMALIZER.normalize(each, language))
    pairs = [(text[start:stop], spoken[begin:end]) for begin, end, start, stop in places]
    return [pair for pair in pairs if any(map(str.isalnum, pair[1]))]


@pytest.mark.parametrize(
    ("language", "text", "pairs"),
    [
        (
            "en-US",
            "Pay $1.50 and $2.50 on 12/24/2026, Dr. Smith.",
            [
                ("$1.50", "one dollar and fifty cents"),
                ("$2.50", "two dollars and fifty cents"),
                ("12/24/2026", "December twenty-fourth, twenty twenty-six"),
                ("Dr.", "Doctor"),
            ],
        ),
        ("en-GB", "It   is £105 now.", [("£105", "one hundred and five pounds")]),
        ("zh", "您的余额是1234.5元，12月3日付款。", [("1234.5", "一千二百三十四点五"), ("12", "十二"), ("3", "三")]),
        ("de", "Guten  Tag.", []),
    ],
)
def test_each_replaced_part_is_known_with_its_words(language: str, text: str, pairs: list[tuple[str, str]]) -> None:
    assert replaced(text, language) == pairs


@given(st.text(alphabet="a1 $.,-/:您元#\n½—", max_size=40), st.sampled_from(["en-US", "en-GB", "zh", "fr"]))
def test_places_are_in_order_and_inside_of_both_texts(text: str, language: str) -> None:
    spoken, places = traced(text, lambda each: NORMALIZER.normalize(each, language))
    said = source = 0
    for begin, end, start, stop in places:
        assert said <= begin <= end <= len(spoken)
        assert source <= start <= stop <= len(text)
        said, source = end, stop
    assert spoken == NORMALIZER.normalize(text, language)


def chunks_behind(before: str, text: str, language: str = "en-US") -> list[TextChunk]:
    return chunks_of(NORMALIZER, text, Chunking(language=language, before=before))


@pytest.mark.parametrize(
    ("language", "before", "text", "spoken"),
    [
        ("en-US", "Your account number:", " 4417.", "four four one seven."),
        ("en-US", "There were", " 4417 calls.", "four thousand four hundred seventeen calls."),
        ("en-US", "Your code is 48", "2193 okay.", "two one nine three okay."),
        ("en-US", "Open until 8 p.m.", " EST.", "E S T."),
        ("en-US", "Enter your PIN.", " We take 4417 calls.", "We take four thousand four hundred seventeen calls."),
        ("zh", "您的房间号是：", "1208。", "幺二零八。"),
        ("zh", "一共", "1208元。", "一千二百零八元。"),
        ("de", "Kontonummer:", " 4417.", "4417."),
    ],
)
def test_a_number_is_read_by_the_words_before_it_which_are_not_said(
    language: str, before: str, text: str, spoken: str
) -> None:
    (chunk,) = chunks_behind(before, text, language)
    assert chunk.spoken == spoken
    assert chunk.source == text


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        (
            "To reset your password please use the following temporary PIN: 4821, then call us back.",
            "four eight two one, then call us back.",
        ),
        ("【某银行】您的动态密码：204815，5分钟内有效，请勿告诉他人。", "二零四八幺五，五分钟内有效，请勿告诉他人。"),
    ],
)
def test_chunks_of_one_text_are_read_one_behind_the_other(text: str, spoken: str) -> None:
    *_, last = chunks_of(NORMALIZER, text)
    assert last.spoken == spoken


@given(st.text(alphabet="a1 $.,-/:您元号#\n", max_size=30), st.text(alphabet="b2 $.,-/:您元号#", max_size=30))
def test_any_context_leaves_the_source_whole_and_something_to_say(before: str, text: str) -> None:
    for chunk in chunks_behind(before, text, "zh"):
        assert any(map(str.isalnum, chunk.spoken))
        assert chunk.source in text
        shares = [chunk.source_share(position) for position in range(len(chunk.spoken) + 1)]
        assert shares == sorted(shares)
        assert 0.0 <= shares[0] <= shares[-1] <= 1.0


def test_a_sum_is_heard_when_its_last_word_was_said() -> None:
    (chunk,) = chunks_of(NORMALIZER, "Your balance is $1,234.56 today.", Chunking(language="en-US"))

    def heard_before(word: str) -> str:
        return chunk.source[: round(chunk.source_share(chunk.spoken.index(word)) * len(chunk.source))]

    assert heard_before("thousand") == heard_before("cents") == "Your balance is "
    assert heard_before("today") == "Your balance is $1,234.56 "
