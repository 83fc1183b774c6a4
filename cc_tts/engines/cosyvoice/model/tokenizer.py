"""Text tokens: the byte-level BPE of the model directory, with CosyVoice's own special tokens (§7.4).

The merges of CosyVoice are not those of Qwen2, so the vocabulary and the merges always come from the model directory.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from cc_tts.engines.cosyvoice.model.special_tokens import (
    END_OF_PROMPT,
    SOUND_TOKENS,
    SPECIAL_TOKENS,
    characters_of,
    plain,
)
from cc_tts.errors import ConfigError

FILES: Final = ("vocab.json", "merges.txt", "tokenizer_config.json")
_WITHOUT_DEFAULT: Final = 2  # the generation whose texts have an instruction only where there is one
DEFAULT_INSTRUCTION: Final = "You are a helpful assistant."
"""The instruction that every text of the third generation begins with, as its weights were trained (v3 §3.2)."""

# How Qwen2 cuts text before the merges: contractions, a word with one leading character, single digits, runs of
# punctuation, line ends, blanks. Later models of the family keep combining marks with their letters; this one does not.
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
_SPELLED: Final = re.compile("|".join(map(re.escape, SOUND_TOKENS)))


class TextTokenizer:
    """Text to text tokens. No token is added at the beginning or the end; an empty text has none."""

    def __init__(self, tokenizer: Tokenizer, generation: int = 2) -> None:
        self.generation = generation
        self._tokenizer = tokenizer
        self._written = characters_of(generation)
        end_of_prompt = tokenizer.token_to_id(self._written[END_OF_PROMPT])
        if end_of_prompt is None:
            raise ConfigError(f"the tokenizer has no {END_OF_PROMPT}")
        self.end_of_prompt: int = end_of_prompt
        has_default = generation > _WITHOUT_DEFAULT
        self._default = (*self.encode(DEFAULT_INSTRUCTION), end_of_prompt) if has_default else ()

    @classmethod
    def from_directory(cls, directory: Path, generation: int = 2) -> Self:
        """The tokenizer whose files lie in ``directory`` (``CosyVoice-BlankEN`` of the model). ``ConfigError`` if one is
        missing, cannot be read, or belongs to another tokenizer.
        """
        missing = [name for name in FILES if not (directory / name).is_file()]
        if missing:
            raise ConfigError(f"the tokenizer's directory {directory} lacks {', '.join(missing)}")
        vocab, config = (_read_object(directory / name) for name in ("vocab.json", "tokenizer_config.json"))
        special = SPECIAL_TOKENS[generation]
        _check_config(config, special, num_words=len(vocab))
        try:
            bpe = BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt"))
        except Exception as error:  # the package raises nothing narrower
            raise ConfigError(f"the merges in {directory} do not fit the vocabulary: {error}") from error
        tokenizer = Tokenizer(bpe)
        tokenizer.normalizer = normalizers.NFC()
        cut = pre_tokenizers.Split(Regex(_WORDS), behavior="isolated")
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, to_bytes])
        tokenizer.decoder = decoders.ByteLevel()
        for token in special:
            if token in vocab:
                raise ConfigError(f"the special token {token} is in the vocabulary of {directory} already")
        written = characters_of(generation).values()
        tokenizer.add_special_tokens([AddedToken(character, special=True, normalized=False) for character in written])
        return cls(tokenizer, generation)

    def instruction(self, text: str) -> tuple[int, ...]:
        """An instruction as the generation was trained with them, with its end mark; of an empty text the one that every
        text has, none in the second generation. It may spell sounds and emphasis: it is no text of callers or models.
        """
        words = " ".join(text.split())
        if self._default:  # clients of the reference write it themselves
            words = words.removeprefix(DEFAULT_INSTRUCTION).lstrip()
        if not words:
            return self._default
        words = _SPELLED.sub(lambda match: self._written[match.group()], plain(words))
        return (*self.encode_written(f"{DEFAULT_INSTRUCTION} {words}" if self._default else words), self.end_of_prompt)

    @property
    def has_phones(self) -> bool:
        return "[AA]" in self._written

    @property
    def num_tokens(self) -> int:
        """The number of words and special tokens; the model's text embedding needs at least this many rows."""
        return self._tokenizer.get_vocab_size()

    def written(self, token: str) -> str:
        """Return the character that represents a special token in a text for :meth:`encode_written`."""
        return self._written[token]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text of others, which holds no special ones."""
        return self.encode_written(plain(text))

    def encode_written(self, text: str) -> list[int]:
        """The tokens of a text in which special ones may be written."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _read_object(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # neither UTF-8 nor JSON
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} does not hold an object")
    return value


def _check_config(config: Mapping[str, Any], special: Sequence[str], *, num_words: int) -> None:
    """The directory's own description must be of this kind of tokenizer, and its special tokens where ours will be."""
    kind = config.get("tokenizer_class")
    if kind != "Qwen2Tokenizer":
        raise ConfigError(f"tokenizer_config.json describes a {kind}, not a Qwen2Tokenizer")
    added = config.get("added_tokens_decoder", {})
    for text_id, token in added.items():
        offset = int(text_id) - num_words
        if not 0 <= offset < len(special) or token.get("content") != special[offset]:
            raise ConfigError(f"tokenizer_config.json puts {token.get('content')!r} at {text_id}, out of its place")
