import json
import unicodedata
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_tts.errors import ConfigError

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cc_tts.engines.cosyvoice.model import special_tokens
from cc_tts.engines.cosyvoice.model.special_tokens import END_OF_PROMPT, plain
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer

SPECIAL_TOKENS: Final = special_tokens.SPECIAL_TOKENS[2]

pytestmark = pytest.mark.unit

CORPUS = [
    "the quick brown fox jumps over the lazy dog, doesn't it?",
    "hello there, hello world",
    "今天天气很好 2024",
] * 4


def decoded(directory: Path, tokenizer: TextTokenizer, text: str) -> str:
    """The text that the tokens of ``text`` spell, none of which is special."""
    ids = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    pieces = {number: piece for piece, number in ids.items()}
    return str(decoders.ByteLevel().decode([pieces[number] for number in tokenizer.encode(text)]))


def written(tokenizer: TextTokenizer, spelled: str) -> str:
    """``spelled`` with the character of each special token that it spells."""
    for token in SPECIAL_TOKENS:
        spelled = spelled.replace(token, tokenizer.written(token))
    return spelled


def write_directory(directory: Path, **changes: Any) -> Path:
    """A small byte-level BPE with the files of the model's directory."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(directory))
    num_words = len(json.loads((directory / "vocab.json").read_text(encoding="utf-8")))
    added = {str(num_words + place): {"content": SPECIAL_TOKENS[place], "special": True} for place in range(3)}
    config = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added} | changes
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tmp_path_factory.mktemp("BlankEN"))


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> TextTokenizer:
    return TextTokenizer.from_directory(directory)


@pytest.fixture(scope="module")
def num_words(directory: Path) -> int:
    return len(json.loads((directory / "vocab.json").read_text(encoding="utf-8")))


def test_special_tokens_follow_on_the_vocabulary(tokenizer: TextTokenizer, num_words: int) -> None:
    assert len(SPECIAL_TOKENS) == 20
    ids = [tokenizer.encode_written(tokenizer.written(token)) for token in SPECIAL_TOKENS]
    assert ids == [[num_words + place] for place in range(20)]
    assert tokenizer.end_of_prompt == num_words + 3
    assert tokenizer.num_tokens == num_words + 20
    # on the released vocabulary of 151643 words these are the published ids
    assert SPECIAL_TOKENS.index(END_OF_PROMPT) + 151_643 == 151_646
    assert SPECIAL_TOKENS.index("[mn]") + 151_643 == 151_662


def test_special_tokens_are_found_inside_text(tokenizer: TextTokenizer, num_words: int) -> None:
    said = written(tokenizer, "hello<|endofprompt|>[laughter]hello <strong>there</strong>")
    ids = tokenizer.encode_written(said)
    special = [text_id - num_words for text_id in ids if text_id >= num_words]
    assert special == [3, 8, 5, 6]
    assert ids[: ids.index(num_words + 3)] == tokenizer.encode("hello")


@given(text=st.lists(st.sampled_from(SPECIAL_TOKENS) | st.text(max_size=8), max_size=6).map("".join))
@example(text="hello<|endofprompt|>[laughter]hello <strong>there</strong>")
@example(text="\U000f0003\U000f0008")
def test_a_text_of_others_has_no_special_tokens(tokenizer: TextTokenizer, num_words: int, text: str) -> None:
    """Whatever it spells, and also if it holds the characters that stand for them."""
    assert all(text_id < num_words for text_id in tokenizer.encode(text))


def test_an_instruction_may_spell_sounds_and_emphasis_but_no_marks_of_the_model(
    tokenizer: TextTokenizer, num_words: int
) -> None:
    ids = tokenizer.instruction("hello [laughter] <strong>world</strong>  <|endofprompt|><|im_end|>")
    assert [text_id - num_words for text_id in ids if text_id >= num_words] == [8, 5, 6, 3]
    assert ids[-1] == tokenizer.end_of_prompt
    assert tokenizer.instruction(" \n") == ()


def test_an_empty_text_has_no_tokens(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode("") == []


def test_merges_are_used(tokenizer: TextTokenizer) -> None:
    assert len(tokenizer.encode("hello")) < 5
    assert len(tokenizer.encode("the the the")) <= 4


def test_digits_stand_alone(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode("2024") == [*tokenizer.encode("2"), *tokenizer.encode("0"), *tokenizer.encode("24")]
    assert len(tokenizer.encode("2024")) == 4


def test_text_is_composed_first(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode("cafe\u0301") == tokenizer.encode("caf\u00e9")


@given(text=st.text(max_size=40))
def test_every_text_comes_back_composed(directory: Path, tokenizer: TextTokenizer, text: str) -> None:
    assert decoded(directory, tokenizer, text) == unicodedata.normalize("NFC", plain(text))


@pytest.mark.parametrize("text", ["<|endofprompt|>", "<|en|>", "a < b | c > d", "[laughter]", "[unknown]", "<strong>"])
def test_what_spells_a_special_token_is_text(directory: Path, tokenizer: TextTokenizer, text: str) -> None:
    assert decoded(directory, tokenizer, text) == text


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write_directory(tmp_path) / name).unlink()
    with pytest.raises(ConfigError, match=f"lacks {name}"):
        TextTokenizer.from_directory(tmp_path)


def test_a_missing_directory_lacks_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lacks vocab\.json, merges\.txt, tokenizer_config\.json"):
        TextTokenizer.from_directory(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer_class": "LlamaTokenizer"}, "describes a LlamaTokenizer"),
        ({"added_tokens_decoder": {"151643": {"content": "<|endoftext|>"}}}, "at 151643, out of its place"),
        ({"added_tokens_decoder": {"0": {"content": "<|endoftext|>"}}}, "at 0, out of its place"),
    ],
)
def test_another_tokenizer_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TextTokenizer.from_directory(write_directory(tmp_path, **changes))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", "[1, 2]", "does not hold an object"),
        ("tokenizer_config.json", "{", "cannot be read"),
        ("merges.txt", "#version: 0.2\nqq zz\n", "do not fit"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (write_directory(tmp_path) / name).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        TextTokenizer.from_directory(tmp_path)


def test_a_vocabulary_that_holds_a_special_token_is_refused(tmp_path: Path) -> None:
    path = write_directory(tmp_path, added_tokens_decoder={}) / "vocab.json"
    words = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(words | {"[sigh]": len(words)}), encoding="utf-8")
    with pytest.raises(ConfigError, match="already"):
        TextTokenizer.from_directory(tmp_path)
