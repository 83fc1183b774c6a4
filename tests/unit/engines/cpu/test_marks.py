"""Sentences, clauses and marks in scripts that have punctuation of their own."""

import pytest

from cc_tts.engines.cpu.marks import MARKS, clauses, last_mark, sentences

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "您好，感谢您的来电。请问有什么可以帮您？请稍等！",
            ["您好，感谢您的来电。", "请问有什么可以帮您？", "请稍等！"],
        ),
        ("他说：「好的。」然后走了。", ["他说：「好的。」", "然后走了。"]),
        ("नमस्ते, आप कैसे हैं? धन्यवाद। फिर मिलेंगे॥", ["नमस्ते, आप कैसे हैं?", "धन्यवाद।", "फिर मिलेंगे॥"]),
        ("مرحبا، كيف حالك؟ شكرا.", ["مرحبا، كيف حالك؟", "شكرا."]),
        ("کال کرنے کا شکریہ۔ انتظار کریں۔", ["کال کرنے کا شکریہ۔", "انتظار کریں۔"]),
        ("ሰላም። እንዴት ነህ፧", ["ሰላም።", "እንዴት ነህ፧"]),
        ("မင်္ဂလာပါ။ နေကောင်းလား။", ["မင်္ဂလာပါ။", "နေကောင်းလား။"]),
        ('Hello, you. "Is it 3.5?" Yes!', ["Hello, you.", '"Is it 3.5?"', "Yes!"]),
        ("no mark at all", ["no mark at all"]),
        ("", []),
    ],
    ids=["Chinese", "quoted", "Hindi", "Arabic", "Urdu", "Amharic", "Burmese", "English", "none", "empty"],
)
def test_sentences_of_each_script(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("sentence", "marks"),
    [
        ("您好，第一、第二；第三：第四。", [",", ",", ";", ":", "."]),
        ("مرحبا، نعم؛ كيف حالك؟", [",", ";", "?"]),
        ("सुनिए, धन्यवाद।", [",", "."]),
        ("One, two; three: four!", [",", ";", ":", "!"]),
        ("¿Qué tal?", ["?"]),
        ("none", [""]),
    ],
)
def test_marks_of_clauses_are_those_that_the_models_know(sentence: str, marks: list[str]) -> None:
    found = clauses(sentence)
    assert [mark for _, mark in found] == marks
    assert not any(character in MARKS for words, _ in found for character in words)


@pytest.mark.parametrize(
    ("sentence", "mark"), [("好。", "."), ("「好吗？」", "?"), ("شكرا؛", ";"), ("done", ""), ("", "")]
)
def test_the_mark_that_a_sentence_ends_with(sentence: str, mark: str) -> None:
    assert last_mark(sentence) == mark


def test_a_long_run_of_marks_takes_no_long_time() -> None:
    text = "." * 5000 + "a"
    assert sentences(text) == [text]
