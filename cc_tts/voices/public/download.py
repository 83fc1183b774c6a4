"""A file from a web server, in pieces: what has come is kept, and the next try continues where this one broke off (RFC 9110
§14: Range).
"""

import contextlib
import errno
import hashlib
import http.client
import sys
import urllib.error
import urllib.request
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cc_tts.clock import NS_PER_S, MonotonicClock
from cc_tts.errors import ConfigError

READ_TIMEOUT_S: Final = 20.0  # for the connection and for each read; unmeasured
_READ_BYTES: Final = 1 << 18
_NO_RANGE: Final = 416  # RFC 9110 §15.5.17
_PARTIAL: Final = 206
_BAR_CELLS: Final = 24
_SHOWN_EVERY_S: Final = 0.2  # unmeasured


class SourceFailed(Exception):
    """A file is not to be had there; the message says why."""


def reason_of(error: Exception) -> str:
    """Why nothing came, in words: the status of an answer, or what kept it from coming."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return str(getattr(error, "reason", "") or error) or type(error).__name__


class DownloadProgress:
    """Standard error tells what has come of a file: a bar on a terminal, else a line at the end."""

    def __init__(self, name: str, num_bytes: int) -> None:
        self._name, self._num_bytes, self._done = name, num_bytes, 0
        self._clock = MonotonicClock()
        self._begun_s = self._shown_s = self._clock.now_ns() / NS_PER_S
        self._num_resumed = 0
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None) -> None:
        if self._is_terminal:
            self._bar()
            sys.stderr.write("\n")
        elif kind is None:
            sys.stderr.write(f"{self._name}: {self._done / 1e6:.1f} MB\n")

    def begin(self, num_resumed: int) -> None:
        self._done = self._num_resumed = num_resumed
        if num_resumed:
            sys.stderr.write(f"{self._name}: goes on after {num_resumed / 1e6:.1f} MB\n")

    def add(self, num_bytes: int) -> None:
        """Count ``num_bytes`` more as downloaded."""
        self._done += num_bytes
        if self._is_terminal and self._clock.now_ns() / NS_PER_S - self._shown_s >= _SHOWN_EVERY_S:
            self._shown_s = self._clock.now_ns() / NS_PER_S
            self._bar()

    def _bar(self) -> None:
        share = min(self._done / self._num_bytes, 1.0) if self._num_bytes else 1.0
        cells = "#" * round(share * _BAR_CELLS)
        pace = (self._done - self._num_resumed) / 1e6 / max(self._clock.now_ns() / NS_PER_S - self._begun_s, 1e-3)
        of = f"{self._done / 1e6:.1f} of {self._num_bytes / 1e6:.1f} MB, {pace:.1f} MB/s"
        sys.stderr.write(f"\r{self._name} [{cells:{_BAR_CELLS}}] {of}  ")
        sys.stderr.flush()


def download(url: str, part: Path, num_bytes: int, *, name: str) -> None:
    """Have ``num_bytes`` from ``url`` in ``part``. A connection that breaks is made again as long as each brings something.
    Raises ``SourceFailed``, and leaves what has come; ``ConfigError`` if the disk is full.
    """
    with DownloadProgress(name, num_bytes) as progress:
        while True:
            before = _size(part)
            if before >= num_bytes:
                break
            progress.begin(before)
            try:
                _fetch_rest(url, part, num_bytes, progress)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError) or _size(part) <= before:
                    raise SourceFailed(f"{url} cannot be fetched: {reason_of(error)}") from None
            else:
                if _size(part) <= before:
                    raise SourceFailed(f"{url}: it ends after {_size(part)} of {num_bytes} bytes")
    if _size(part) > num_bytes:
        part.unlink()
        raise SourceFailed(f"{url}: it is longer than the {num_bytes} bytes of the list")


def _fetch_rest(url: str, part: Path, num_bytes: int, progress: DownloadProgress) -> None:
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310 - see sources
    try:
        response = urllib.request.urlopen(request, timeout=READ_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != _NO_RANGE or not have:
            raise
        error.close()
        part.unlink()
        return _fetch_rest(url, part, num_bytes, progress)
    with response:
        goes_on = response.status == _PARTIAL and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if have and not goes_on:
            progress.begin(0)
        left = num_bytes - (have if goes_on else 0)
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length) != left:
            raise SourceFailed(f"{url}: {length} bytes that are not the {left} of the list; nothing was kept")
        with part.open("ab" if goes_on else "wb", buffering=0) as file:
            while left >= 0 and (chunk := response.read1(_READ_BYTES)):
                write(file, chunk)
                left -= len(chunk)
                progress.add(len(chunk))
    return None


def write(file: FileIO, data: bytes) -> None:
    """Write to an unbuffered file, with an error that tells a full disk from a broken connection."""
    left = memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise disk_error(error, Path(str(file.name))) from None


def disk_error(error: OSError, path: Path) -> ConfigError:
    """The error for a file that cannot be written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return ConfigError(f"{path.parent}: the disk is full; what has come is kept, and the same command goes on")
    return ConfigError(f"{path}: cannot be written: {error.strerror}")


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def digest_of(path: Path, algorithm: str) -> str:
    """The digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
