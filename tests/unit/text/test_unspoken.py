"""What language models write and nobody is to hear."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.text.markup.unspoken import AT_BEGINNING, MAX_UNSPOKEN_CHARS, MarkupState, said_of, scan
from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunks_of

pytestmark = pytest.mark.unit

WRITTEN = [
    (
        "<think>The user wants it. I should say it.</think>Your balance is five dollars.",
        "Your balance is five dollars.",
    ),
    ("<Thinking>\n\nHm.\n</Thinking>\nHello.", "Hello."),
    ('Sure. <tool_call>{"name": "x", "n": 1}</tool_call> Done.', "Sure. Done."),
    ("<function=pay>{}</function>Paid.", "Paid."),
    ("Hi <script type='a'>let x = 1 < 2;</script>there <style>p { a: b }</style>Ann.", "Hi there Ann."),
    ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>", "Hello."),
    ("<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>Hello.", "Hello."),
    ("<|im_start|>assistant\nHello.<|im_end|>", "Hello."),
    ("<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_end|><|tool_calls_section_end|>Hello.", "Hello."),
    ("<｜tool▁calls▁begin｜>f<｜tool▁calls▁end｜>Hello.", "Hello."),
    ("◁think▷Hm.◁/think▷Hello.", "Hello."),
    ("[THINK]Hm.[/THINK]Hello.", "Hello."),
    ("<think>Hm.", ""),
    ("I should greet.</think>Hello.", "Hello."),
    ("5 < 6 and 7 > 3 <b>now</b>", "5 < 6 and 7 > 3 <b>now</b>"),
    ("I think that functions are tools.", "I think that functions are tools."),
]


@pytest.mark.parametrize(("written", "said"), WRITTEN)
def test_what_is_said_of_a_whole_text(written: str, said: str) -> None:
    assert " ".join(said_of(written).split()) == said


@pytest.mark.parametrize(("written", "said"), [each for each in WRITTEN if not each[0].startswith("I should")])
def test_an_element_may_span_parts(written: str, said: str) -> None:
    for cut in (at for at in range(len(written)) if written[at] == " "):
        first = scan(written[:cut], AT_BEGINNING)
        if first.tag_from < cut:
            continue  # a part does not end inside a tag
        heard = first.said(written[:cut]) + said_of(written[cut:], first.state)
        assert " ".join(heard.split()) == said


def test_an_element_that_is_never_closed_does_not_silence_all_that_follows() -> None:
    assert said_of("<think>" + "a " * MAX_UNSPOKEN_CHARS).strip().startswith("a")
    state = MarkupState()
    for _ in range(MAX_UNSPOKEN_CHARS // 100 + 2):
        state = scan("<think>" * (state == AT_BEGINNING) + "word " * 20, state).state
    assert state.inside == ""


@given(st.text(alphabet='<>/|think[]◁▷ {":}a', max_size=60))
def test_anything_is_scanned(text: str) -> None:
    scanned = scan(text, AT_BEGINNING)
    assert scanned.unspoken == sorted(scanned.unspoken)
    assert all(0 <= start < end <= len(text) for start, end in scanned.unspoken)
    assert 0 <= scanned.tag_from <= len(text)


def test_a_chunk_is_spoken_without_its_reasoning_and_joins_to_the_text() -> None:
    text = "<think>They want 5 things. Be brief.</think>You have 5 new messages. <tool_call>{}</tool_call>"
    (chunk,) = chunks_of(Normalizer(), text)
    assert chunk.spoken == "You have five new messages."
    assert text.startswith(chunk.source)
    assert chunk.source[: round(chunk.source_share(chunk.spoken.index("new")) * len(chunk.source))].endswith("5 ")


def test_reasoning_does_not_decide_the_language() -> None:
    (chunk,) = chunks_of(Normalizer(), "<think>The user wants the balance in Chinese.</think>您好。")
    assert (chunk.language, chunk.spoken) == ("zh", "您好。")
