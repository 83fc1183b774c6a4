"""The lexicons that there are: files, changes, and which of them a prompt uses."""

import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import ConfigError, LexiconMalformed, LexiconNotFound, LexiconNotStored, UnknownLexicon
from cc_tts.speech.lexicons import MAX_LEXICONS, Lexicons
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import LONG_TEXT_CHARS, SpeechSource
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.pronunciation.lexicon import Entry, Lexicon, replacements_by
from tests.fakes.fake_engine import FakeEngine

pytestmark = pytest.mark.unit

CRM = Lexicon(language="en", entries=(Entry("Mobivox", "mo bee vox"),))


def made(folder: Path | None = None, *always: str) -> Lexicons:
    return Lexicons(TtsConfig(lexicons_dir=str(folder) if folder else "", lexicons=always))


def test_a_lexicon_survives_a_restart(tmp_path: Path) -> None:
    made(tmp_path).put("crm", CRM)
    again = made(tmp_path, "crm")
    assert (again.names(), again.get("crm")) == (["crm"], CRM)
    assert [each.lexicon for each in again.for_prompt((), "v", "en-US")] == [CRM]
    assert again.for_prompt((), "v", "de") == ()


def test_a_deleted_lexicon_is_gone_from_the_disk_too(tmp_path: Path) -> None:
    (tmp_path / "crm.pls").write_text("<lexicon><lexeme><grapheme>a</grapheme><alias>b</alias></lexeme></lexicon>")
    lexicons = made(tmp_path)
    lexicons.put("crm", CRM)
    assert [path.name for path in tmp_path.iterdir()] == ["crm.json"]
    lexicons.delete("crm")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LexiconNotFound, match="no lexicon is called 'crm'"):
        lexicons.get("crm")


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("a.json", "{"),
        ("a.json", '{"entries": [{"grapheme": "a"}]}'),
        ("a.json", '{"entries": [], "colour": 1}'),
        ("a.pls", "<lexicon>"),
        ("a.json", "\udcff"),
    ],
)
def test_a_broken_file_is_named_at_start(tmp_path: Path, name: str, document: str) -> None:
    (tmp_path / name).write_bytes(document.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=name):
        made(tmp_path)


def test_a_pipe_in_place_of_a_lexicon_is_named_at_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(ConfigError, match=r"a\.json: not a lexicon"):
        made(tmp_path)


def test_a_missing_folder_or_lexicon_is_named_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tts\.lexicons_dir"):
        made(tmp_path / "none")
    made(tmp_path).put("crm", CRM)
    with pytest.raises(ConfigError, match=r"tts\.lexicons: no lexicon is called 'crn', did you mean crm"):
        made(tmp_path, "crn")


def test_what_is_refused(tmp_path: Path) -> None:
    lexicons = made(tmp_path)
    with pytest.raises(LexiconMalformed, match="letters, digits"):
        lexicons.put("../crm", CRM)
    for number in range(MAX_LEXICONS):
        lexicons.put(f"n{number}", Lexicon(entries=()))
    with pytest.raises(LexiconMalformed, match="already"):
        lexicons.put("more", CRM)
    lexicons.put("n1", CRM)
    with pytest.raises(LexiconMalformed, match="every prompt uses it"):
        made(tmp_path, "n1").delete("n1")


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    lexicons = made(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(LexiconNotStored, match="cannot be written: No such file"):
        lexicons.put("crm", CRM)
    assert lexicons.names() == []


def test_the_order_is_the_prompts_own_then_the_voices_then_the_configs(tmp_path: Path) -> None:
    lexicons = made(tmp_path)
    for name in ("always", "voice", "own"):
        lexicons.put(name, Lexicon(voices=("v",) if name == "voice" else (), entries=(Entry("a", name),)))
    lexicons = made(tmp_path, "always")
    assert [each.lexicon.entries[0].alias for each in lexicons.for_prompt(("own",), "v", "en")] == [
        "own",
        "voice",
        "always",
    ]
    assert [each.lexicon.entries[0].alias for each in lexicons.for_prompt((), "w", "en")] == ["always"]
    with pytest.raises(UnknownLexicon, match="'onw', did you mean own"):
        lexicons.check(("onw",))


async def test_a_text_is_matched_once_until_a_lexicon_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(lexicons: Any, text: str, taken: Any = ()) -> Any:
        calls.append(text)
        return replacements_by(lexicons, text, taken)

    monkeypatch.setattr("cc_tts.speech.lexicons.replacements_by", counted)
    engine = FakeEngine()
    source = SpeechSource(cast("Any", engine), Normalizer(), TtsConfig())
    source.lexicons.put("crm", CRM)
    content = TextContent("Mobivox calls.", lexicons=("crm",))
    for _ in range(3):
        assert [chunk async for chunk in source.open(content, rate_hz=8000)]
    assert calls == ["Mobivox calls."]
    source.lexicons.put("crm", Lexicon(entries=(Entry("Mobivox", "moby"),)))
    assert [chunk async for chunk in source.open(content, rate_hz=8000)]
    assert [stream.pushed for stream in engine.streams] == [["mo bee vox calls."]] * 3 + [["moby calls."]]


async def test_a_prompt_is_said_by_its_lexicon_and_a_change_takes_effect() -> None:
    engine = FakeEngine()
    source = SpeechSource(cast("Any", engine), Normalizer(), TtsConfig())
    source.lexicons.put("crm", CRM)
    content = TextContent("Mobivox calls 12.", lexicons=("crm",))
    source.check(content)
    assert [chunk async for chunk in source.open(content, rate_hz=8000)]
    source.lexicons.put("crm", Lexicon(entries=(Entry("Mobivox", "moby"),)))
    assert [chunk async for chunk in source.open(content, rate_hz=8000)]
    assert [stream.pushed for stream in engine.streams] == [["mo bee vox calls twelve."], ["moby calls twelve."]]
    with pytest.raises(UnknownLexicon):
        source.check(TextContent("hi", lexicons=("none",)))


@pytest.mark.parametrize("words", ["Mobivox calls. ", "The Mobivox café calls you. "])
async def test_a_long_text_is_matched_on_a_thread(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Nothing is left of it for the event loop, whoever asks for the same words later."""
    threads: list[int] = []

    def watched(lexicons: Any, text: str, taken: Any = ()) -> Any:
        threads.append(threading.get_ident())
        return replacements_by(lexicons, text, taken)

    monkeypatch.setattr("cc_tts.speech.lexicons.replacements_by", watched)
    source = SpeechSource(cast("Any", FakeEngine()), Normalizer(), TtsConfig())
    source.lexicons.put("crm", CRM)
    text = words * (LONG_TEXT_CHARS // len(words) + 1)
    await source.match_lexicons(TextContent(text, lexicons=("crm",)))
    assert threads
    content = TextContent(text, lexicons=("crm",))
    source.check(content)
    source.open(content, rate_hz=8000)
    assert threading.get_ident() not in threads


async def test_what_cannot_be_spoken_is_no_matter_of_matching() -> None:
    source = SpeechSource(cast("Any", FakeEngine()), Normalizer(), TtsConfig())
    await source.match_lexicons(TextContent("a" * LONG_TEXT_CHARS, "nobody", lexicons=("none",)))
