"""The lexicons: the files of ``tts.lexicons_dir``, which requests add, replace and delete.

``NAME.json`` is a :class:`cc_tts.text.pronunciation.lexicon.Lexicon`, ``NAME.pls`` a W3C pronunciation lexicon. Without a
folder lexicons live as long as the server.

Runs on: the event loop; making :class:`Lexicons`, :meth:`Lexicons.put` and :meth:`Lexicons.delete` block on the disk.
"""

import contextlib
import functools
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import atomic_file, logs
from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import (
    UNREADABLE,
    ClientError,
    ConfigError,
    LexiconMalformed,
    LexiconNotFound,
    LexiconNotStored,
    UnknownLexicon,
    did_you_mean,
)
from cc_tts.text.pronunciation.lexicon import CompiledLexicon, Lexicon, read_pls, replacements_by
from cc_tts.text.pronunciation.replacements import Replacement

MAX_LEXICONS: Final = 100  # unmeasured
MAX_FILE_BYTES: Final = 16 << 20  # unmeasured
_MAX_REMEMBERED: Final = 256
"""The most texts whose matches are kept while they are spoken. Unmeasured."""

log = logs.get(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SUFFIXES: Final = (".json", ".pls")


class Lexicons:
    """All lexicons by name; raises ``ConfigError`` if a file cannot be read, or ``tts.lexicons`` names one that does not
    exist.
    """

    def __init__(self, config: TtsConfig) -> None:
        self._folder = Path(config.lexicons_dir).expanduser() if config.lexicons_dir else None
        self._always = config.lexicons
        self._by_name = {} if self._folder is None else _read_all(self._folder)
        """Never modified but replaced as a whole: the event loop reads it while a thread builds the next one."""
        self._changing = threading.Lock()
        for name in self._always:
            if name not in self._by_name:
                raise ConfigError(f"tts.lexicons: {self._unknown(name)}")

    def _unknown(self, name: str) -> str:
        return f"no lexicon is called {name[:64]!r}{did_you_mean(name, self._by_name)}"

    def names(self) -> list[str]:
        """All of them, sorted."""
        return sorted(self._by_name)

    def get(self, name: str) -> Lexicon:
        """Return a lexicon; raises ``LexiconNotFound``."""
        if name not in self._by_name:
            raise LexiconNotFound(self._unknown(name))
        return self._by_name[name].lexicon

    def put(self, name: str, lexicon: Lexicon) -> None:
        """Add or replace one; raises ``LexiconMalformed`` if the name or an entry cannot be used or there are too many,
        ``LexiconNotStored`` if the folder cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise LexiconMalformed("a name is 1 to 64 letters, digits, hyphens and underscores")
        if name not in self._by_name and len(self._by_name) >= MAX_LEXICONS:
            raise LexiconMalformed(f"there are {MAX_LEXICONS} lexicons already")
        compiled = CompiledLexicon(lexicon)
        with self._change():
            if self._folder is not None:
                atomic_file.write(self._folder / f"{name}.json", msgspec.json.encode(lexicon))
                (self._folder / f"{name}.pls").unlink(missing_ok=True)
            self._by_name = {**self._by_name, name: compiled}

    def delete(self, name: str) -> Lexicon:
        """Delete a lexicon. Queued prompts are spoken without it. Raises ``LexiconNotFound``, ``LexiconMalformed`` if
        ``tts.lexicons`` names it, ``LexiconNotStored`` if the folder cannot be written.
        """
        if name in self._always:
            raise LexiconMalformed("tts.lexicons names it: every prompt uses it")
        with self._change():
            lexicon = self.get(name)
            if self._folder is not None:
                for suffix in _SUFFIXES:
                    (self._folder / f"{name}{suffix}").unlink(missing_ok=True)
            self._by_name = {each: compiled for each, compiled in self._by_name.items() if each != name}
        return lexicon

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        try:
            with self._changing:
                yield
        except OSError as error:
            log.error("lexicon_not_stored", reason=error.strerror)
            raise LexiconNotStored(f"tts.lexicons_dir cannot be written: {error.strerror}") from error

    def check(self, names: Sequence[str]) -> None:
        """Raise ``UnknownLexicon`` if one of these does not exist."""
        for name in names:
            if name not in self._by_name:
                raise UnknownLexicon(self._unknown(name))

    def for_prompt(self, names: Sequence[str], voice_id: str, language: str) -> tuple[CompiledLexicon, ...]:
        """Return the lexicons of a prompt in order of precedence: its own as far as they exist, its voice's, those of every
        prompt.
        """
        by_name = self._by_name
        of_voice = [name for name, each in by_name.items() if voice_id in each.lexicon.voices]
        ordered = [name for name in dict.fromkeys([*names, *of_voice, *self._always]) if name in by_name]
        return tuple(by_name[name] for name in ordered if by_name[name].speaks(language))


@functools.lru_cache(_MAX_REMEMBERED)
def replacements_in(
    text: str, lexicons: tuple[CompiledLexicon, ...], taken: tuple[Replacement, ...]
) -> tuple[Replacement, ...]:
    """Return the parts of a text that lexicons replace, except ``taken`` parts. This is called several times while a text is
    spoken. Runs on: any thread.
    """
    return replacements_by(lexicons, text, taken)


def _read_all(folder: Path) -> dict[str, CompiledLexicon]:
    if not folder.is_dir():
        raise ConfigError(f"tts.lexicons_dir: {folder} is not a folder; make it, or leave the key empty")
    paths = [path for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES and _NAME.fullmatch(path.stem)]
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> CompiledLexicon:
    if not path.is_file():
        raise ConfigError(f"{path}: not a lexicon: it is no file")  # a pipe would be read for ever
    try:
        with path.open("rb") as file:
            document = file.read(MAX_FILE_BYTES)
        lexicon = read_pls(document) if path.suffix == ".pls" else msgspec.json.decode(document, type=Lexicon)
        return CompiledLexicon(lexicon)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ClientError, *UNREADABLE) as error:
        raise ConfigError(f"{path}: not a lexicon: {error}") from error
