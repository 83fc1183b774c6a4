"""``cc-tts voices add NAME``: public neural voices for the CPU, fetched into ``tts.voices_dir``.

Piper voices have names such as ``de_DE-thorsten-medium``; their list, ``voices.json``, says where the files are, how long
and with which MD5. ``hibari-emma`` and the like are the further voices of hibari, whose package knows their SHA-256.
A model is moved into place before the description that makes it a voice, so that what breaks off is never half a voice.
"""

import argparse
import hashlib
import http.client
import importlib.util
import re
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from cc_tts import atomic_file
from cc_tts.config.schema import Config
from cc_tts.errors import UNREADABLE, ConfigError, did_you_mean

PIPER_URL: Final = "https://huggingface.co/rhasspy/piper-voices/resolve/v1.0.0"
INDEX: Final = "voices.json"
MAX_INDEX_BYTES: Final = 8 << 20  # unmeasured
MAX_FILE_BYTES: Final = 512 << 20  # unmeasured
READ_TIMEOUT_S: Final = 20.0  # for the connection and for each read; unmeasured
_READ_BYTES: Final = 1 << 20
_HIBARI: Final = "hibari-"
_MAX_NAMES_SHOWN: Final = 20  # unmeasured
_PIPER_NAME: Final = re.compile(
    r"(?P<locale>(?P<family>[a-z]{2,3})_[A-Z]{2})-(?P<voice>[^-/]{1,60})-(?P<quality>x_low|low|medium|high)"
)
_SUFFIXES: Final = (".onnx", ".onnx.json")


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A file to fetch; ``digest`` is hexadecimal, by ``algorithm``."""

    url: str
    name: str
    num_bytes: int
    algorithm: str
    digest: str

    def is_whole(self, data: bytes) -> bool:
        """Return whether ``data`` is this file."""
        digest = hashlib.new(self.algorithm, data, usedforsecurity=False).hexdigest()
        return len(data) == self.num_bytes and digest == self.digest


class _IndexFile(msgspec.Struct):
    size_bytes: int
    md5_digest: str


class _IndexEntry(msgspec.Struct):
    files: dict[str, _IndexFile]
    aliases: list[str] = []


def fill_add(add: argparse.ArgumentParser) -> None:
    """The options of ``cc-tts voices add``."""
    add.add_argument(
        "name", metavar="NAME", help="such as de_DE-thorsten-medium or hibari-emma; de_DE lists what there is"
    )
    add.add_argument(
        "--from",
        dest="base_url",
        default=PIPER_URL,
        metavar="URL",
        help="a copy of the Piper voices (voices.json and files)",
    )
    add.set_defaults(run=run_add)


def run_add(options: argparse.Namespace, config: Config) -> int:
    """Fetch a voice into the folder, which is made if there is none."""
    folder = voices_folder(options, config)
    files = files_of(options.name, options.base_url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from None
    for file in files:
        fetch(file, folder)
    sys.stdout.write(f"{options.name}: {', '.join(file.name for file in files)} in {folder}\n")
    sys.stdout.write(f"each voice has its own licence: {files[0].url.rpartition('/')[0]}/MODEL_CARD\n")
    return 0


def voices_folder(options: argparse.Namespace, config: Config) -> Path:
    """Return where voices are kept; raises ``ConfigError`` if neither an option nor a setting says it."""
    folder = options.voices or config.tts.voices_dir
    if not folder:
        raise ConfigError("where are the voices kept? Give --voices DIR, or set tts.voices_dir")
    return Path(folder).expanduser()


def files_of(name: str, base_url: str = PIPER_URL) -> list[VoiceFile]:
    """The files of a voice, in the order in which they are to be put into place. ``ConfigError`` if no voice has this name,
    with the nearest ones, or the list cannot be fetched.
    """
    if name.startswith(_HIBARI):
        return _hibari_files(name.removeprefix(_HIBARI))
    if urlsplit(base_url).scheme not in ("http", "https"):
        raise ConfigError(f"--from {base_url}: an http or https address is needed")
    base_url = base_url.rstrip("/")
    files = _piper_entry(name, _read_index(name, base_url)).files
    paths = [path for suffix in _SUFFIXES for path in files if path.endswith(suffix)]
    if len(paths) != len(_SUFFIXES):
        raise ConfigError(f"{base_url}/{INDEX}: {name} has no model and description")
    found = [(path, path.rpartition("/")[2], files[path]) for path in paths]
    return [
        VoiceFile(f"{base_url}/{quote(path)}", file, of.size_bytes, "md5", of.md5_digest) for path, file, of in found
    ]


def _piper_entry(name: str, index: dict[str, _IndexEntry]) -> _IndexEntry:
    by_name = {alias: entry for entry in index.values() for alias in entry.aliases} | index
    if name in by_name:
        return by_name[name]
    similar = sorted(each for each in index if each.lower().startswith(name.lower()))[:_MAX_NAMES_SHOWN]
    hint = f"; there are {', '.join(similar)}" if similar else did_you_mean(name, index)
    raise ConfigError(f"no Piper voice is called {name!r}{hint}")


def _hibari_files(name: str) -> list[VoiceFile]:
    if importlib.util.find_spec("hibari") is None:
        raise ConfigError("the package hibari-tts is not installed")
    from hibari import voices

    known: dict[str, Any] = {each: entry for each, entry in voices.VOICES.items() if not entry.get("bundled")}
    entry = known.get(name)
    if entry is None:
        raise ConfigError(
            f"no further voice of hibari is called {name!r}; there are {', '.join(_HIBARI + each for each in known)}"
        )
    return [VoiceFile(voices.BASE_URL + entry["file"], entry["file"], entry["bytes"], "sha256", entry["sha256"])]


def _read_index(name: str, base_url: str) -> dict[str, _IndexEntry]:
    url = f"{base_url}/{INDEX}"
    try:
        with urllib.request.urlopen(url, timeout=READ_TIMEOUT_S) as response:  # noqa: S310 - http or https, see files_of
            document = response.read(MAX_INDEX_BYTES)
        return msgspec.json.decode(document, type=dict[str, _IndexEntry])
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error, _likely_urls(name, base_url)) from None
    except UNREADABLE as error:
        raise ConfigError(f"{url}: not the list of Piper voices: {error}") from None


def fetch(file: VoiceFile, folder: Path) -> Path:
    """Put a file into the folder, unless it is there already. ``ConfigError``, and nothing left behind, if it cannot be
    fetched or written, or is not what the list says.
    """
    path = folder / file.name
    if path.is_file() and file.is_whole(path.read_bytes()):
        return path
    if not 0 < file.num_bytes <= MAX_FILE_BYTES:
        raise ConfigError(f"{file.url}: {file.num_bytes} bytes are no voice")
    data = _downloaded(file)
    if not file.is_whole(data):
        raise ConfigError(f"{file.url}: {len(data)} bytes that are not the file of the list; nothing was kept")
    try:
        atomic_file.write(path, data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def _downloaded(file: VoiceFile) -> bytes:
    """Return what the address gives, with its progress on standard error; no more than a read beyond ``num_bytes``."""
    data = bytearray()
    try:
        with urllib.request.urlopen(file.url, timeout=READ_TIMEOUT_S) as response:  # noqa: S310 - see files_of
            while len(data) <= file.num_bytes and (chunk := response.read(_READ_BYTES)):
                data += chunk
                end = "\n" if len(data) >= file.num_bytes else ""
                sys.stderr.write(f"\r{file.name}: {len(data) / 1e6:.1f} of {file.num_bytes / 1e6:.1f} MB{end}")
                sys.stderr.flush()
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(file.url, error, [file.url]) from None
    return bytes(data)


def _likely_urls(name: str, base_url: str) -> list[str]:
    """Return where the files of a Piper voice are, by its name."""
    match = _PIPER_NAME.fullmatch(name)
    if match is None:
        return [base_url]
    folder = f"{base_url}/{match['family']}/{match['locale']}/{match['voice']}/{match['quality']}"
    return [f"{folder}/{name}{suffix}" for suffix in _SUFFIXES]


def _unreachable(url: str, error: Exception, wanted: list[str]) -> ConfigError:
    reason = str(getattr(error, "reason", "") or error) or type(error).__name__
    if isinstance(error, urllib.error.HTTPError):
        reason = f"HTTP {error.code}"
    return ConfigError(
        f"{url} cannot be fetched: {reason}. Where the network does not allow it, put these files into the folder of your "
        f"voices, or give --from URL of a copy: {' '.join(wanted)}"
    )
