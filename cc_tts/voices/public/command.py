"""``cc-tts voices add NAME|LANGUAGE``: a public voice for the CPU, fetched into ``tts.voices_dir``."""

import argparse
import importlib.util
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from cc_tts.config.schema import Config
from cc_tts.errors import ConfigError, did_you_mean
from cc_tts.voices.catalog import normalised_language
from cc_tts.voices.public import piper
from cc_tts.voices.public.catalogue import (
    HIBARI,
    SPEEDS,
    Offer,
    PublicFile,
    PublicVoice,
    known_voices,
    of_language,
    piper_sites,
)
from cc_tts.voices.public.obtain import obtain, workspace_of

_LANGUAGE: Final = re.compile(
    r"[A-Za-z]{2,3}([_-][A-Za-z]{3})?([_-][A-Za-z]{4})?([_-]([A-Za-z]{2}|\d{3}))?"  # RFC 5646 §2.1, up to the region
)
_MAX_LISTED: Final = 30  # unmeasured


def fill_add(add: argparse.ArgumentParser) -> None:
    """The options of ``cc-tts voices add``."""
    add.description = "Without NAME: the voices that are known without a network."
    name_help = "a voice, such as kokoro-zf_xiaobei, hibari-emma or de_DE-thorsten-medium, or a language, such as zh"
    add.add_argument("name", nargs="?", default="", metavar="NAME|LANGUAGE", help=name_help)
    from_help = "a folder or file with what is needed, or the URL of a copy, instead of registries and public sites"
    add.add_argument("--from", dest="source", default="", metavar="DIR|FILE|URL", help=from_help)
    add.add_argument("--to", dest="voices", type=Path, metavar="DIR", help="the same as --voices")
    add.add_argument("--yes", action="store_true", help="take the first voice of the language without a question")
    add.set_defaults(run=run_add)


def voices_folder(options: argparse.Namespace, config: Config) -> Path:
    """Return where voices are kept; raises ``ConfigError`` if neither an option nor a setting says it."""
    folder = options.voices or config.tts.voices_dir
    if not folder:
        raise ConfigError("where are the voices kept? Give --voices DIR, or set tts.voices_dir")
    return Path(folder).expanduser()


def run_add(options: argparse.Namespace, config: Config) -> int:
    """Find the voice, say what its licence is, and fetch it."""
    if not options.name:
        _list(known_voices())
        return 0
    folder = voices_folder(options, config)
    sites, given = _source(options.source)
    voice = _chosen(options.name, _found(options.name, sites, given, is_copy=bool(options.source)), is_sure=options.yes)
    if not voice.files:
        voice = piper.in_folder(voice.name, given) if given else piper.PiperList(sites, voice.name).voice(voice.name)
    if sites and options.source:
        voice = replace(voice, files=tuple(_at_copy(each, sites[0]) for each in voice.files))
    _tell(f"{voice.name}: licence {_licence(voice)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with workspace_of(folder) as workspace:
            for file in voice.files:
                obtain(file, folder, workspace, given=given)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from None
    except KeyboardInterrupt:
        raise ConfigError("stopped; what has come is kept, and the same command goes on") from None
    _tell_next(voice, folder, options)
    return 0


def _source(source: str) -> tuple[tuple[str, ...], Path | None]:
    """The sites to fetch from, or the folder or file to take from."""
    if not source:
        return piper_sites(), None
    scheme = urlsplit(source).scheme
    if scheme in {"http", "https"}:
        return (source.rstrip("/"),), None
    path = Path(source).expanduser()
    if scheme and not path.exists():
        raise ConfigError(f"--from {source}: a folder, a file, or an http or https address is needed")
    if not path.exists():
        raise ConfigError(f"--from {source}: no such file or folder")
    return (), path


def _found(name: str, sites: Sequence[str], given: Path | None, *, is_copy: bool) -> list[PublicVoice]:
    """The voices of a name, which is one, or of a language, the best first. Raises ``ConfigError`` if there is none."""
    known = known_voices()
    if named := [each for each in known if name in (each.name, *each.also_called)]:
        return named
    if name.startswith((HIBARI, "kokoro-")):
        there_are = ", ".join(each.name for each in known if each.name.startswith(name.partition("-")[0]))
        raise ConfigError(f"no public voice is called {name!r}{did_you_mean(name, _names())}; there are {there_are}")
    is_language = _LANGUAGE.fullmatch(name) is not None
    if given is not None:
        in_folder = [each for each in of_language(name, known) if _is_in(each, given)] if is_language else []
        return in_folder or [piper.in_folder(name, given)]
    if is_language and not is_copy and (found := of_language(name, known)):
        return found
    listed = piper.PiperList(sites, name)
    return (listed.of_language(name) if is_language else []) or [listed.voice(name)]


def _names() -> list[str]:
    return [each.name for each in known_voices()]


def _is_in(voice: PublicVoice, given: Path) -> bool:
    """Whether a folder or file may have what makes it a voice; its digest is looked at later."""
    folder = given if given.is_dir() else given.parent
    last = voice.files[-1] if voice.files else PublicFile(f"{voice.name}.onnx.json", ())
    packages = [each.npm.replace("==", "-") for each in last.offers if each.npm]
    names = [last.path, Path(last.path).name, *(f"{each}.tgz" for each in packages)]
    return any((folder / name).is_file() for name in names)


def _at_copy(file: PublicFile, site: str) -> PublicFile:
    """The file as a copy of a folder of voices, or of Piper's site, has it."""
    found = {(each.num_bytes, each.digest): each for each in file.offers}
    url = f"{site}/{quote(file.path)}"
    offers = (
        each if each.url.startswith(site) else Offer(each.num_bytes, each.digest, each.algorithm, url)
        for each in found.values()
    )
    return PublicFile(file.path, tuple(offers))


def _chosen(name: str, found: Sequence[PublicVoice], *, is_sure: bool) -> PublicVoice:
    if len(found) == 1:
        return found[0]
    _tell(f"voices that speak {name}, the best first:")
    _list(found)
    if is_sure or not sys.stdin.isatty():
        return found[0]
    try:
        answer = input(f"which one, 1 to {len(found)}? [1] ").strip() or "1"
    except EOFError:
        raise ConfigError("no answer; nothing was fetched") from None
    if answer.isdecimal() and 1 <= int(answer) <= len(found):
        return found[int(answer) - 1]
    by_name = [each for each in found if answer in (each.name, *each.also_called)]
    if not by_name:
        raise ConfigError(f"{answer[:80]!r} is not one of them; nothing was fetched")
    return by_name[0]


def _list(voices: Sequence[PublicVoice]) -> None:
    for number, voice in enumerate(voices[:_MAX_LISTED] if len(voices) > 2 * _MAX_LISTED else voices, 1):
        size = f"{voice.num_bytes / 1e6:.1f} MB" if voice.num_bytes else ""
        who = f"{number:3}  {voice.name:26} {voice.language:7} {voice.sex:7} {voice.speed:7} {size:>9}"
        _tell(f"{who}  {voice.licence}".rstrip())
    costs = ", ".join(f"{speed} {cost} s" for speed, cost in SPEEDS.items())
    _tell(f"a second of speech takes, on one core: {costs}")


def _licence(voice: PublicVoice) -> str:
    if voice.by:
        return f"{voice.licence} ({voice.by})"
    site, _, _ = voice.files[0].offers[0].url.rpartition("/")
    return f"of its own: {site}/MODEL_CARD" if site else "of its own"


def _tell_next(voice: PublicVoice, folder: Path, options: argparse.Namespace) -> None:
    _tell(f"{voice.name}: {', '.join(each.path for each in voice.files)} in {folder}")
    if normalised_language(voice.language).startswith("cmn") and importlib.util.find_spec("pypinyin") is None:
        _tell(
            "it needs the extra kokoro, which is not installed: pip install -r requirements/kokoro.txt or 'WHEEL[kokoro]'"
        )
    settings = ["--set", f"tts.voices_dir={folder}"] if options.voices else []
    if options.config is not None:
        settings = ["--config", str(options.config), *settings]
    _tell(f"hear it:  {shlex.join(['cc-tts', 'voices', '--say', voice.name, *settings])}")
    _tell(f"serve it: {shlex.join(['cc-tts', 'serve', *settings])}, or SIGHUP to a server that reads this folder")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # between what pip says on standard error
