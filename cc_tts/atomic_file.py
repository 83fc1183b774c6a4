"""Files that are written, and lines that are appended, whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: Path, data: bytes, *, prefix: str = ".", sync: bool = True, mode: int = 0o600) -> None:
    """Write a file beside ``path`` whose name begins with ``prefix``, and move it into place. ``sync``: wait for the disk
    before. After an ``OSError`` (no right to write, disk full) ``path`` is as it was.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".part")
    begun = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        begun.replace(path)
        if sync:
            _sync_folder(path)
    except BaseException:
        begun.unlink(missing_ok=True)
        raise


def append(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Append all of ``data``, or nothing. A pipe that nobody reads is an error and no wait. ``sync``: wait for the disk."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, mode)
    try:
        size = os.fstat(descriptor).st_size
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            if sync:
                os.fdatasync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if sync and not size:
        _sync_folder(path)


def _sync_folder(path: Path) -> None:
    """Have the name of a file survive a power cut."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
