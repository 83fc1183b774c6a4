"""The list of all Piper voices, ``voices.json``: where the files are, how long and with which MD5."""

import http.client
import re
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from cc_tts.errors import UNREADABLE, ConfigError, did_you_mean
from cc_tts.voices.catalog import normalised_language
from cc_tts.voices.public.catalogue import Offer, PublicFile, PublicVoice, piper_voice
from cc_tts.voices.public.download import READ_TIMEOUT_S, reason_of

INDEX: Final = "voices.json"
MAX_INDEX_BYTES: Final = 8 << 20  # unmeasured
NAME: Final = re.compile(
    r"(?P<locale>(?P<family>[a-z]{2,3})_[A-Z]{2})-(?P<voice>[^-/]{1,60})-(?P<quality>x_low|low|medium|high)"
)
_SUFFIXES: Final = (".onnx", ".onnx.json")
_BEST_FIRST: Final = ("medium", "high", "low", "x_low")
"""``high`` costs several times as much as ``medium`` and differs little at 8 kHz (unmeasured)."""


class _IndexFile(msgspec.Struct):
    size_bytes: int
    md5_digest: str


class _IndexEntry(msgspec.Struct):
    files: dict[str, _IndexFile]
    aliases: list[str] = []


_Index = dict[str, _IndexEntry]


class PiperList:
    """The list of the first of ``sites`` that has one; raises ``ConfigError`` if none has. ``name`` is what is looked for,
    for the message.
    """

    def __init__(self, sites: Sequence[str], name: str) -> None:
        faults: list[str] = []
        for number, site in enumerate(sites):
            try:
                self._index = _read(site)
            except UNREADABLE as error:  # a page of the network that stands in for the site
                faults.append(f"{site}/{INDEX}: not the list of Piper voices: {error}")
            except (OSError, http.client.HTTPException) as error:
                faults.append(f"{site}/{INDEX} cannot be fetched: {reason_of(error)}")
            else:
                self._sites = sites[number:]
                return
        wanted = " ".join(_likely_urls(name, sites[0]))
        raise ConfigError(
            f"{'; '.join(faults)}. Where the network does not allow it, put these files into the folder of your voices, or "
            f"give --from, a folder or the URL of a copy: {wanted}"
        )

    def voice(self, name: str) -> PublicVoice:
        """The voice of a name or another name of it; raises ``ConfigError`` with the nearest ones."""
        names = {alias: key for key, entry in self._index.items() for alias in entry.aliases}
        key = name if name in self._index else names.get(name)
        if key is None:
            raise ConfigError(f"no public voice is called {name!r}{did_you_mean(name, [*self._index, *names])}")
        return self._voice(key)

    def of_language(self, language: str) -> list[PublicVoice]:
        """The voices of a language or a region, the best first."""
        tag = normalised_language(language)
        found = [key for key in self._index if (match := NAME.fullmatch(key)) and _speaks(match["locale"], tag)]
        order = {quality: place for place, quality in enumerate(_BEST_FIRST)}
        return [self._voice(key) for key in sorted(found, key=lambda key: order[key.rpartition("-")[2]])]

    def _voice(self, key: str) -> PublicVoice:
        files = self._index[key].files
        paths = [path for suffix in _SUFFIXES for path in files if path.endswith(suffix)]
        if len(paths) != len(_SUFFIXES):
            raise ConfigError(f"{self._sites[0]}/{INDEX}: {key} has no model and description")
        return piper_voice(
            key, key.partition("-")[0].replace("_", "-"), tuple(self._file(path, files) for path in paths)
        )

    def _file(self, path: str, files: dict[str, _IndexFile]) -> PublicFile:
        size, digest = files[path].size_bytes, files[path].md5_digest
        offers = tuple(Offer(size, digest, "md5", f"{site}/{quote(path)}") for site in self._sites)
        return PublicFile(path.rpartition("/")[2], offers)


def _speaks(locale: str, tag: str) -> bool:
    spoken = normalised_language(locale)
    return spoken == tag or spoken.partition("-")[0] == tag


def _read(site: str) -> _Index:
    url = f"{site}/{INDEX}"
    with urllib.request.urlopen(url, timeout=READ_TIMEOUT_S) as response:  # noqa: S310 - http or https, see command.py
        return msgspec.json.decode(response.read(MAX_INDEX_BYTES), type=_Index)


def in_folder(name: str, folder: Path) -> PublicVoice:
    """A Piper voice whose two files are in a folder, of which no list tells the digests."""
    files = [f"{name}{suffix}" for suffix in _SUFFIXES]
    if missing := [each for each in files if not (folder / each).is_file()]:
        raise ConfigError(
            f"{folder}: no voice there is called {name!r} or speaks it; {' and '.join(missing)} not found"
        )
    sized = (PublicFile(each, (Offer((folder / each).stat().st_size),)) for each in files)
    return piper_voice(name, name.partition("-")[0].replace("_", "-"), tuple(sized))


def _likely_urls(name: str, site: str) -> list[str]:
    match = NAME.fullmatch(name)
    if match is None:
        return [site]
    folder = f"{site}/{match['family']}/{match['locale']}/{match['voice']}/{match['quality']}"
    return [f"{folder}/{name}{suffix}" for suffix in _SUFFIXES]
