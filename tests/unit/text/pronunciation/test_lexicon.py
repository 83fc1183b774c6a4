"""Lexicons: what they find in a text, PLS as it is read, and what is refused."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.errors import LexiconMalformed
from cc_tts.text.chunker import Chunking
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.pronunciation.lexicon import MAX_ENTRIES, CompiledLexicon, Entry, Lexicon, read_pls, replacements_by
from cc_tts.text.pronunciation.replacements import READ, Replacement
from lab.chunk_text import chunks_of

pytestmark = pytest.mark.unit


def compiled(*entries: Entry, language: str = "") -> CompiledLexicon:
    return CompiledLexicon(Lexicon(language=language, entries=entries))


def said(text: str, *lexicons: CompiledLexicon, language: str = "en") -> str:
    """The words of a text that is one chunk."""
    replacements = replacements_by(lexicons, text)
    chunks = chunks_of(Normalizer(), text, Chunking(language=language, chunk_max_chars=1000), replacements)
    assert "".join(chunk.source for chunk in chunks) == text
    return " ".join(chunk.spoken for chunk in chunks)


@pytest.mark.parametrize(
    ("entry", "text", "spoken"),
    [
        (Entry("Mobivox", "mo bee vox"), "Welcome to Mobivox.", "Welcome to mo bee vox."),
        (Entry("Mobivox", "mo bee vox"), "MOBIVOX and mobivox", "mo bee vox and mo bee vox"),
        (Entry("Mobivox", "mo bee vox"), "Mobivoxes, Automobivox", "Mobivoxes, Automobivox"),
        (Entry("Mobivox", "mo bee vox"), "(Mobivox)-Mobivox's", "mo bee vox mo bee vox's"),
        (Entry("Mobivox", "mo bee vox", whole_word=False), "Mobivoxes", "mo bee vox es"),
        (Entry("IT", "eye tee", case_sensitive=True), "It is IT.", "It is eye tee."),
        (Entry("St. John", "Saint John"), "Call St. John now.", "Call Saint John now."),
        (Entry("C++", "see plus plus"), "C++ and C", "see plus plus and C"),
        (Entry(".NET", "dot net"), "Use .NET 4.", "Use dot net four."),
        (Entry("Route 9", "Route 66"), "On Route 9.", "On Route sixty-six."),
        (Entry("a", "b"), "a a", "b b"),
        (Entry("Straße", "shtrasse"), "STRASSE Straße", "STRASSE shtrasse"),
    ],
)
def test_an_entry_in_english(entry: Entry, text: str, spoken: str) -> None:
    assert said(text, compiled(entry)) == spoken


def test_scripts_without_spaces_are_found_anywhere() -> None:
    assert said("请联系华为客服", compiled(Entry("华为", "划为")), language="zh") == "请联系划为客服"


def test_a_name_in_latin_letters_inside_chinese() -> None:
    assert said("欢迎致电Mobivox客服", compiled(Entry("Mobivox", "摩比")), language="zh") == "欢迎致电摩比客服"


@pytest.mark.parametrize(
    "text", ["Hello<br>world", "info@example.com", "{example}", "https://example.com/site", "acme.io/site"]
)
def test_markup_and_addresses_are_left_alone(text: str) -> None:
    entries = (Entry("br", "x"), Entry("example", "x"), Entry("site", "x"), Entry("acme", "x"))
    assert replacements_by([compiled(*entries)], text) == ()


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("<b>x</b>me@x.org x", (17,)),
        ("x,me@x.org x", (11,)),
        ("x.org/x x.org x", (8, 14)),
        (".x.org/x x", (9,)),
        ('"x": "x" "x"', (6, 10)),
        ("a://x x://x x", (12,)),
        ("@x x@ x", (1, 3, 6)),
        ("{x} {x x", (5, 7)),
    ],
)
def test_where_markup_and_addresses_end(text: str, replaced: tuple[int, ...]) -> None:
    assert tuple(each.start for each in replacements_by([compiled(Entry("x", "y"))], text)) == replaced


HOSTILE = {
    "one long word": "{" + "a" * 100_000,
    "braces and a word": "{" * 50_000 + "a" * 50_000,
    "tags": "<" * 100_000,
    "addresses": "a@" * 50_000,
    "names of hosts": "a." * 50_000,
    "schemes": "a://" * 25_000,
    "quotes": '"a" ' * 25_000,
    "spaces after quotes": '"' * 50_000 + " " * 50_000,
    "what an entry begins with": "ana" * 33_000,
    "what is found and may not be replaced": "{anab} " * 14_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_time_grows_with_the_length_of_the_text_only(text: str) -> None:
    names = tuple(Entry(f"name {number}", "x") for number in range(1000))
    lexicons = [compiled(*names, Entry("anab", "x", whole_word=False), Entry("华为", "x")) for _ in range(10)]
    begin_s = time.process_time()
    replacements_by(lexicons, text)
    assert time.process_time() - begin_s < 3, "0.4 s at most on a busy machine; 20 s and more if it were quadratic"


def test_a_combining_mark_belongs_to_its_word() -> None:
    assert replacements_by([compiled(Entry("राम", "x"))], "रामा राम") == (Replacement(5, 8, "x", say_as=READ),)


def test_no_more_words_than_is_bearable() -> None:
    found = replacements_by([compiled(Entry("a", "word " * 20))], "a " * 500)
    assert sum(len(each.spoken) for each in found) <= 2000


def test_the_longest_entry_wins_within_a_lexicon_and_the_first_lexicon_before_the_next() -> None:
    one = compiled(Entry("New York", "noo york"), Entry("New York City", "en why see"), Entry("City", "sittee"))
    two = compiled(Entry("New York City Hall", "hall"), Entry("Hall", "hawl"))
    assert said("New York City Hall", one, two) == "en why see hawl"
    assert said("New York City Hall", two, one) == "hall"


def test_entries_are_applied_once_and_never_to_their_own_words() -> None:
    assert said("a b", compiled(Entry("a", "b"), Entry("b", "a"))) == "b a"


def test_what_ssml_replaced_stays() -> None:
    taken = (Replacement(0, 3, "W three C"),)
    found = replacements_by([compiled(Entry("W3C", "x"), Entry("page", "padge"))], "W3C page", taken)
    assert found == (taken[0], Replacement(4, 8, "padge", say_as=READ))


def test_an_ipa_entry_keeps_the_word_for_engines_that_take_none() -> None:
    assert replacements_by([compiled(Entry("Nguyễn", ipa="wɪn"))], "Ask Nguyễn") == (Replacement(4, 10, "", "wɪn"),)


def test_mandarin_is_chinese() -> None:
    assert compiled(Entry("华为", "x"), language="zh").speaks("cmn")
    assert not compiled(Entry("a", "x"), language="de").speaks("fr")


@pytest.mark.parametrize(("language", "spoken"), [("", True), ("en", True), ("en-GB", True), ("de", False)])
def test_a_lexicon_is_for_its_language(language: str, spoken: bool) -> None:
    assert compiled(Entry("a", "b"), language=language).speaks("en-US") is spoken


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (Entry("..."), "grapheme: no letter"),
        (Entry(" a", "b"), "grapheme: white space"),
        (Entry("a"), "alias or ipa"),
        (Entry("a", "..."), "alias: at most"),
        (Entry("a", "b\x07"), "alias: at most"),
        (Entry("a", ipa="[[x]]"), "ipa: not IPA"),
        (Entry("a", ipa="x" * 500), "ipa: not IPA"),
    ],
)
def test_an_entry_that_cannot_be_used(entry: Entry, fault: str) -> None:
    with pytest.raises(LexiconMalformed, match=fault) as refused:
        compiled(Entry("fine", "fine"), entry)
    assert refused.value.field_errors[0].pointer == "/entries/1"


PLS = """<?xml version="1.0" encoding="UTF-8"?>
<lexicon version="1.0" alphabet="ipa" xml:lang="en-US" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon">
  <lexeme><grapheme>Mobivox</grapheme><grapheme>MBX</grapheme><alias>mo bee vox</alias></lexeme>
  <lexeme><grapheme>Siobhán</grapheme><phoneme>ʃɪ.ˈvɔːn</phoneme><phoneme prefer="true">ʃəˈvɔːn</phoneme></lexeme>
  <lexeme><grapheme>Nguyen</grapheme><phoneme alphabet="x-sampa">wIn</phoneme><phoneme prefer="true">wɪn</phoneme>
  <phoneme prefer="true">wiːn</phoneme></lexeme>
  <lexeme><grapheme>tomato</grapheme><phoneme alphabet="x-sampa">t@"mA:toU</phoneme><example>a tomato</example></lexeme>
</lexicon>
"""


def test_pls() -> None:
    assert read_pls(PLS.encode()) == Lexicon(
        language="en-US",
        entries=(
            Entry("Mobivox", "mo bee vox"),
            Entry("MBX", "mo bee vox"),
            Entry("Siobhán", ipa="ʃəˈvɔːn"),
            Entry("Nguyen", ipa="wɪn"),
            Entry("tomato", ipa="təˈmɑːtoʊ"),
        ),
    )


@pytest.mark.parametrize(
    "document",
    [
        "",
        "x",
        "<lexicon>",
        "<speak/>",
        "<!DOCTYPE lexicon><lexicon/>",
        "<lexicon><lexeme><grapheme>a</grapheme></lexeme></lexicon>",
        "<lexicon><lexeme><alias>a</alias></lexeme></lexicon>",
        "<lexicon><lexeme><grapheme/><alias>a</alias></lexeme></lexicon>",
        f"<lexicon><lexeme><grapheme>a</grapheme><alias>{'b' * 201}</alias></lexeme></lexicon>",
        f"<lexicon><lexeme><grapheme>{'a' * 101}</grapheme><alias>a</alias></lexeme></lexicon>",
        "<lexicon alphabet='cmu'><lexeme><grapheme>a</grapheme><phoneme>AH0</phoneme></lexeme></lexicon>",
        "<lexicon xml:lang='no tag'><lexeme><grapheme>a</grapheme><alias>b</alias></lexeme></lexicon>",
        "<lexicon>" + "<a>" * 10 + "</a>" * 10 + "</lexicon>",
    ],
)
def test_pls_that_cannot_be_read(document: str) -> None:
    with pytest.raises(LexiconMalformed):
        CompiledLexicon(read_pls(document.encode()))


def test_more_entries_than_a_lexicon_may_have() -> None:
    many = "<lexeme><grapheme>a</grapheme><alias>b</alias></lexeme>" * (MAX_ENTRIES + 2)
    with pytest.raises(LexiconMalformed):
        read_pls(f"<lexicon>{many}</lexicon>".encode())


@given(
    st.text(alphabet="abAB .-1华为", max_size=40),
    st.lists(st.text(alphabet="abA. 华1", min_size=1, max_size=6), max_size=6),
)
def test_replacements_are_in_order_and_apart(text: str, graphemes: list[str]) -> None:
    entries = [Entry(each.strip(), "x") for each in graphemes if any(map(str.isalnum, each))]
    found = replacements_by([compiled(*entries)], text)
    edges = [edge for each in found for edge in (each.start, each.end)]
    assert edges == sorted(edges)
    assert all(each.start < each.end <= len(text) for each in found)
