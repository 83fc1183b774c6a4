"""SSML as the parts of a prompt: each element, what only warns, and what is refused."""

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.errors import SsmlMalformed
from cc_tts.speech.prompt import (
    MarkContent,
    SequenceContent,
    SilenceContent,
    TextContent,
    ToneContent,
    text_of,
    texts_of,
)
from cc_tts.speech.ssml import MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS, MAX_WARNINGS, from_ssml
from cc_tts.text.pronunciation.replacements import Replacement
from cc_tts.voices.inline_sounds import EMPHASIS_BEGINS, EMPHASIS_ENDS, SOUNDS

pytestmark = pytest.mark.unit


SPELLED = {
    **{sign: f"({name})" for name, sign in SOUNDS.items()},
    EMPHASIS_BEGINS: "(",
    EMPHASIS_ENDS: ")",
}


def read(inner: str) -> SequenceContent:
    return from_ssml(f"<speak>{inner}</speak>")


def shape(inner: str) -> list[Any]:
    """The words, and the silences in ms, and the marks as strings with a colon."""
    found: list[Any] = []
    for part in read(inner).parts:
        match part:
            case TextContent():
                found.append(part.text.strip())
            case SilenceContent():
                found.append(part.silence_ms)
            case MarkContent():
                found.append(f":{part.name}")
            case ToneContent():
                found.append(part)
    return found


@pytest.mark.parametrize(
    ("inner", "parts"),
    [
        ("Hello", ["Hello"]),
        ("  Hello \n  there  ", ["Hello there"]),
        ("a &lt; b &amp; c", ["a < b & c"]),
        ("<![CDATA[1 < 2]]>", ["1 < 2"]),
        ("One<break/>two", ["One", 400, "two"]),
        ('One<break time="250ms"/>two', ["One", 250, "two"]),
        ('One<break time="1.5s"/>two', ["One", 1500, "two"]),
        ('One<break time="+2s"/>two', ["One", 2000, "two"]),
        ('One<break strength="x-strong"/>two', ["One", 1200, "two"]),
        ('One<break strength="none"/> two', ["One two"]),
        ('One<break time="0ms"/> two', ["One two"]),
        ('One<break time="1s"/><break time="500ms"/>two', ["One", 1500, "two"]),
        ('<break time="1s"/>One<break time="2s"/>', [1000, "One", 2000]),
        ("<p>One.</p><p>Two.</p>", ["One.", 400, "Two."]),
        ("<p><s>One.</s><s>Two.</s></p>\n<p>Three.</p>", ["One.", 200, "Two.", 400, "Three."]),
        ('<p>One.</p><break time="1s"/><p>Two.</p>', ["One.", 1000, "Two."]),
        ('<p>One.</p><break strength="none"/><p>Two.</p>', ["One.", 0, "Two."]),
        ('<s>One.<break time="0s"/></s><s>Two.</s>', ["One.", 0, "Two."]),
        ('<p>One.</p><mark name="a"/><p>Two.</p>', ["One.", ":a", 400, "Two."]),
        ('<p><sub alias="heart">♥</sub></p>', ["♥"]),
        ('<break time="10s"/>' * 40 + "One", [300_000, "One"]),
        ("<p>Only.</p>", ["Only."]),
        ('<mark name="a"/>One<mark name="b"/>', [":a", "One"]),
        ('One<break time="1s"/><mark name="a"/>two', ["One", 1000, ":a", "two"]),
        ('say <say-as interpret-as="expletive">darn</say-as> it', ["say", ToneContent("1000", 400), "it"]),
        ("<metadata>no</metadata>yes<desc>no</desc>", ["yes"]),
        ('<audio src="x.wav">inner</audio>', ["inner"]),
        ("<emphasis>very</emphasis> good", ["very good"]),
        ("<!-- comment -->One<?target data?> two", ["One two"]),
        ("", []),
        ("  ", []),
    ],
)
def test_the_parts_of_a_document(inner: str, parts: list[Any]) -> None:
    assert shape(inner) == parts


def test_words_keep_the_space_between_them_across_parts() -> None:
    content = read('One <voice name="de">zwei</voice> three.<p>Four.</p>five<break/>six')
    assert text_of(content) == "One zwei three. Four. five six"
    assert text_of(read('<prosody rate="slow">Hello</prosody> <prosody rate="fast">world</prosody>')) == "Hello world"


def test_marks_have_their_place_in_the_words() -> None:
    (text,) = texts_of(read('One <mark name="a"/>two <bookmark mark="b"/>three<mark name="c"/>.'))
    assert text.text == "One two three."
    assert text.marks == ((4, "a"), (8, "b"), (13, "c"))


@pytest.mark.parametrize(
    ("document", "marks"),
    [
        ('a <sub alias="x"><mark name="m"/>bar</sub> c', ((2, "m"),)),
        ('a <sub alias="x"> <mark name="m"/> bar</sub> c', ((2, "m"),)),
        ('a <sub alias="x">b<mark name="m"/>ar</sub> c', ((5, "m"),)),
        ('a <say-as interpret-as="digits">1<bookmark mark="m"/>2<mark name="n"/></say-as> c', ((4, "m"), (4, "n"))),
        ('a <sub alias="x">bar <mark name="m"/></sub> c', ((5, "m"),)),
        ('<phoneme ph="bɑː"><mark name="m"/>bar</phoneme>', ((0, "m"),)),
        ('a <sub alias="bar"><mark name="m"/></sub> c', ((2, "m"),)),
    ],
)
def test_marks_in_replaced_words_come_before_or_behind_what_is_said_instead(
    document: str, marks: tuple[tuple[int, str], ...]
) -> None:
    content = read(document)
    assert texts_of(content)[0].marks == marks
    assert content.warnings == ()


@pytest.mark.parametrize(
    ("element", "replacement"),
    [
        ('<sub alias="World Wide Web">W3C</sub>', Replacement(2, 5, "World Wide Web", say_as="text")),
        ('<say-as interpret-as="digits">123</say-as>', Replacement(2, 5, say_as="digits")),
        ('<say-as interpret-as="spell-out"> 123 </say-as>', Replacement(2, 5, say_as="characters")),
        ('<say-as interpret-as="date" format="mdy">1/2</say-as>', Replacement(2, 5, say_as="date:mdy")),
        ('<say-as interpret-as="currency" language="USD">1.2</say-as>', Replacement(2, 5, say_as="currency:USD")),
        ('<phoneme alphabet="ipa" ph="ˈfu.bɑɹ">foo</phoneme>', Replacement(2, 5, ipa="ˈfubɑɹ")),
        ('<phoneme alphabet="x-sampa" ph="&quot;fubA">foo</phoneme>', Replacement(2, 5, ipa="ˈfubɑ")),
    ],
)
def test_replaced_words(element: str, replacement: Replacement) -> None:
    content = read(f"a {element} b")
    (text,) = texts_of(content)
    assert text.replacements == (replacement,)
    assert text.text[2:5] == text.text[replacement.start : replacement.end]
    assert not content.warnings


@pytest.mark.parametrize(
    ("attributes", "rate", "gain_db"),
    [
        ('rate="slow"', 0.75, 0.0),
        ('rate="x-fast"', 1.75, 0.0),
        ('rate="80%"', 0.8, 0.0),
        ('rate="+20%"', 1.2, 0.0),
        ('rate="-20%"', 0.8, 0.0),
        ('rate="1.1"', 1.1, 0.0),
        ('volume="+6dB"', 1.0, 6.0),
        ('volume="-4.5dB"', 1.0, -4.5),
        ('volume="soft"', 1.0, -6.0),
        ('volume="50"', 1.0, -6.0206),
        ('volume="-50%"', 1.0, -6.0206),
        ('volume="silent"', 1.0, -math.inf),
        ('volume="0"', 1.0, -math.inf),
    ],
)
def test_prosody(attributes: str, rate: float, gain_db: float) -> None:
    content = read(f"a <prosody {attributes}>b</prosody> c")
    assert [(text.rate, text.gain_db) for text in texts_of(content)] == [
        (1.0, 0.0),
        (pytest.approx(rate), pytest.approx(gain_db, abs=0.001)),
        (1.0, 0.0),
    ]
    assert not content.warnings


def test_prosody_inside_prosody_multiplies_within_bounds() -> None:
    content = read(
        '<prosody rate="150%">a <prosody rate="150%" volume="19dB"><prosody volume="9dB">b</prosody></prosody></prosody>'
    )
    assert [(text.rate, text.gain_db) for text in texts_of(content)] == [(1.5, 0.0), (2.0, 20.0)]
    assert [warning.detail for warning in content.warnings] == ["prosody: the rate is kept between 50% and 200%"]


def test_voices_and_languages() -> None:
    content = from_ssml(
        '<speak xml:lang="en-US">a <voice name="de">b</voice> <lang xml:lang="fr-FR">c</lang>'
        '<voice xml:lang="es">d</voice></speak>',
        TextContent("", voice="hibari-heart"),
    )
    assert [(text.voice, text.language) for text in texts_of(content)] == [
        ("hibari-heart", "en-US"),
        ("de", ""),
        ("hibari-heart", "fr-FR"),
        ("hibari-heart", "es"),
    ]
    asked = from_ssml('<speak xml:lang="en-US">a</speak>', TextContent("", language="de"))
    assert texts_of(asked)[0].language == "de", "the request's own language goes before the document's"


@pytest.mark.parametrize(
    ("inner", "words", "detail"),
    [
        ("<foo>bar</foo>", "bar", "<foo> is not known: the text inside is spoken"),
        ('<amazon:effect name="whispered">bar</amazon:effect>', "bar", "<amazon:effect> is not known"),
        ('<prosody pitch="high">bar</prosody>', "bar", "prosody: pitch has no effect"),
        ('<prosody rate="quick">bar</prosody>', "bar", "prosody: rate is"),
        ('<prosody volume="11 dB">bar</prosody>', "bar", "prosody: volume is"),
        ('a<break time="soon"/>b', "a b", "break: time is"),
        ('a<break time="-1s"/>b', "a b", "break: time is"),
        ('a<break time="60s"/>b', "a b", "break: 60000 ms are shortened to 10000 ms"),
        ('a<break strength="big"/>b', "a b", "break: strength is"),
        ("<sub>bar</sub>", "bar", "sub: an alias of at most"),
        ('<sub alias="...">bar</sub>', "bar", "sub: an alias of at most"),
        ('<say-as interpret-as="song">bar</say-as>', "bar", "say-as: interpret-as is one of"),
        ('<say-as interpret-as="date" format="m/d">bar</say-as>', "bar", "say-as: format is"),
        ('<phoneme ph="">bar</phoneme>', "bar", "phoneme: ph"),
        ('<phoneme ph="你好">bar</phoneme>', "bar", "phoneme: ph"),
        (f'<phoneme alphabet="x-sampa" ph="{"A" * 60_000}">bar</phoneme>', "bar", "phoneme: ph"),
        ('<phoneme ph="[[x]]">bar</phoneme>', "bar", "phoneme: ph"),
        ('<phoneme alphabet="cmu" ph="F UW">bar</phoneme>', "bar", "phoneme: ph"),
        ("<voice>bar</voice>", "bar", "voice: name or language is needed"),
        ('<lang xml:lang="12345678901">bar</lang>', "bar", "xml:lang is no BCP 47 tag"),
        ("<mark/>bar", "bar", "mark: a name"),
        ('<p class="x">bar</p>', "bar", "p: class has no effect"),
        ('<sub alias="x">ba<emphasis>r</emphasis></sub>', "bar", "<emphasis> has no effect here"),
    ],
)
def test_what_has_no_effect_is_spoken_with_a_warning(inner: str, words: str, detail: str) -> None:
    content = read(f"\n{inner}")
    assert text_of(content).strip() == words
    assert content.warnings[0].detail.startswith(detail)
    assert (content.warnings[0].pointer, content.warnings[0].line) == ("/ssml", 2)


MALFORMED = [
    "", " ", "hello", "<speak>", "</speak>", "<speak", "<speak>a", "<speak/>x", "<speak></speak><speak></speak>",
    "<speak><p></speak>", "<speak></p></speak>", "<speak><p><s></p></s></speak>", "<speak>&foo;</speak>",
    "<speak>&</speak>",
    "<speak>a & b</speak>", "<speak>1 < 2</speak>", "<speak>&#0;</speak>", "<speak>&#xD800;</speak>",
    "<speak>\x00</speak>",
    "<speak>\x08</speak>", "<speak>\ud800</speak>", '<speak a="1" a="2"></speak>', "<speak a=1></speak>",
    "<speak a></speak>",
    '<speak a="<"></speak>', "<speak><![CDATA[</speak>", "<speak>]]></speak>", "<speak><!-- -- --></speak>",
    "<speak><!--</speak>",
    "<speak><?xml version='1.0'?></speak>", "<speak><?pi</speak>", "<voice>a</voice>", "<SPEAK>a</SPEAK>",
    "<ssml:speak>a</ssml:speak>",
    "<html><body>a</body></html>", "<!DOCTYPE speak><speak>a</speak>",
    '<!DOCTYPE speak SYSTEM "http://192.0.2.1/x.dtd"><speak>a</speak>',
    '<!DOCTYPE speak [<!ENTITY x SYSTEM "file:///etc/passwd">]><speak>&x;</speak>', "<speak><break time=1s/></speak>",
    '{"text": "a"}', "\ufffe<speak>a</speak>", "<speak><1>a</1></speak>", "<speak>" * (MAX_DEPTH + 1),
    f"<speak>{'<break/>' * MAX_ELEMENTS}</speak>", f"<speak>{'é' * (MAX_BYTES // 2)}</speak>",
]  # fmt: skip


@pytest.mark.parametrize("document", MALFORMED)
def test_a_malformed_document_is_refused_with_its_place(document: str) -> None:
    with pytest.raises(SsmlMalformed) as refused:
        from_ssml(document, pointer="/speak/ssml")
    (fault,) = refused.value.field_errors
    assert fault.pointer == "/speak/ssml"
    assert fault.detail.startswith("line ") or "bytes" in fault.detail or "surrogate" in fault.detail


def test_a_billion_laughs_are_refused_at_the_document_type() -> None:
    entities = '<!ENTITY l0 "lol">' + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    with pytest.raises(SsmlMalformed, match=r"line 1, column \d+: a document type is not taken"):
        from_ssml(f"<!DOCTYPE speak [{entities}]><speak>&l9;</speak>")


def test_line_and_column_point_at_the_fault() -> None:
    with pytest.raises(SsmlMalformed, match="line 3, column 4: mismatched tag"):
        from_ssml("<speak>\n<p>\na</s>\n</p></speak>")


def test_warnings_are_bounded() -> None:
    assert len(read("<x/>" * 100).warnings) == MAX_WARNINGS


@given(st.text(alphabet='<>/="ab &;', max_size=60))
def test_any_text_is_read_or_refused(inner: str) -> None:
    with contextlib.suppress(SsmlMalformed):
        assert isinstance(read(inner), SequenceContent)


def test_a_number_behind_a_break_is_read_by_the_words_before_it() -> None:
    document = (
        "<speak>Your account number is <break time='300ms'/> 4417. Hello <break/> dear friend of everyone.</speak>"
    )
    parts = [each for each in from_ssml(document).parts if isinstance(each, TextContent)]
    assert [(each.text.strip(), each.before) for each in parts] == [
        ("Your account number is", ""),
        ("4417. Hello", "Your account number is "),
        ("dear friend of everyone.", ""),
    ]


def signed(inner: str) -> list[str]:
    """The words of each text, with its sounds and its emphasis in brackets."""
    found = []
    for text in texts_of(read(inner)):
        words = text.text
        for each in reversed(text.replacements):
            if each.sign:
                assert each.start == each.end
                words = words[: each.start] + SPELLED[each.sign] + words[each.start :]
        found.append(words)
    return found


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ('Well<cc:sound name="laughter"/> yes.', ["Well(laughter) yes."]),
        ('<cc:sound name="Breath"/>Well.', ["(breath)Well."]),
        ('Yes! <cc:sound name="laughter"/>', ["Yes(laughter)!"]),
        ('<p>One.</p><cc:sound name="breath"/><p>Two.</p>', ["One.", "(breath) Two."]),
        ('<cc:sound name="sigh"/><break time="1s"/>Well', ["(sigh)Well"]),
        ('One<break time="1s"/><cc:sound name="sigh"/>', ["One"]),
        ('<voice name="a">One</voice><cc:sound name="sigh"/> two', ["One", "(sigh) two"]),
        ('<say-as interpret-as="digits">5!</say-as><cc:sound name="sigh"/>', ["5!(sigh)"]),
        ("This <emphasis>is</emphasis> it", ["This (is) it"]),
        ('<emphasis level="strong">Stop!</emphasis>', ["(Stop)!"]),
        ('<emphasis level="none">This</emphasis> <emphasis level="reduced">is</emphasis>', ["This is"]),
        ('<emphasis>No <cc:sound name="sigh"/></emphasis>', ["(No(sigh))"]),
        ("<emphasis/>This", ["This"]),
        ("<emphasis><break/>This</emphasis>", ["This)"]),
        ('<emphasis>One <voice name="a">two</voice></emphasis> three', ["(One", " two", ") three"]),
    ],
)
def test_sounds_and_emphasis_stand_between_words(inner: str, words: list[str]) -> None:
    """An emphasis that a cut goes through is made whole by the engine."""
    assert signed(inner) == words


@pytest.mark.parametrize(
    ("inner", "warning"),
    [
        ('One<cc:sound name="sneeze"/>', "cc:sound: name is one of breath, quick_breath, laughter"),
        ('<cc:sound name="breath"/>', "no words come behind it"),
        ('<emphasis level="loud">One</emphasis>', "emphasis: level is one of strong, moderate, none, reduced"),
        ('<sub alias="x">y<cc:sound name="breath"/></sub>', "<cc:sound> has no effect here"),
    ],
)
def test_sounds_and_emphasis_that_cannot_be_made_warn(inner: str, warning: str) -> None:
    (found,) = read(inner).warnings
    assert warning in found.detail
