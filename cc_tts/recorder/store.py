"""The recordings on the disk, as the server reads them. Everything here waits for the disk: it runs on threads.

::

    ROOT/ID.wav.part  ID.live     being written
    ROOT/ID.wav       ID.live     complete, and not all that follows is done: its last event, its delivery
    ROOT/ID.wav       ID.json     complete
    ROOT/tenant=NAME/…            those of the calls of a tenant
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import atomic_file, logs
from cc_tts.audio import PTIME_MS
from cc_tts.errors import UNREADABLE
from cc_tts.recorder.info import RecordingInfo
from cc_tts.recorder.wav import WavFormat
from cc_tts.recorder.writer import FOLDER_MODE, LIVE, NOTED, PART, WHOLE

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}")
"""The form of an id: no path separator, and no leading dot."""
_TENANT: Final = "tenant="

_DECODER: Final = msgspec.json.Decoder(RecordingInfo)

log = logs.get(__name__)


class RecordingStore:
    """The recordings in the folder ``record.dir``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, tenant: str) -> Path:
        """Return the folder for recordings of a tenant's calls; empty for no tenant."""
        return self.root / f"{_TENANT}{tenant}" if tenant else self.root

    def prepare(self, tenant: str) -> Path:
        """Create the folder of a tenant, and check that it can be written; raises ``OSError``."""
        folder = self.folder(tenant)
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(folder))
        return folder

    def free_bytes(self) -> int:
        """Return the free space; raises ``OSError``."""
        return shutil.disk_usage(self.root).free

    def has(self, recording_id: str) -> bool:
        """Whether there is a file of the recording; raises ``OSError``."""
        return any(
            (folder / f"{recording_id}{suffix}").exists()
            for folder in self._folders()
            for suffix in (LIVE, NOTED, PART, WHOLE)
        )

    def find(self, recording_id: str, tenant: str) -> tuple[RecordingInfo, Path] | None:
        """Return a recording and its WAV file, which exists once it is complete. A tenant finds its own recordings, ``""``
        all. Raises ``OSError``.
        """
        if not _ID.fullmatch(recording_id):
            return None
        for folder in [self.folder(tenant)] if tenant else self._folders():
            for suffix in (LIVE, NOTED):
                if (info := _read(folder / f"{recording_id}{suffix}")) is not None:
                    return info, folder / f"{recording_id}{WHOLE}"
        return None

    def newest(self, tenant: str, *, limit: int, call_id: str | None = None) -> list[RecordingInfo]:
        """Return the recordings that are kept, newest first; raises ``OSError`` if a folder cannot be read."""
        found: list[tuple[float, Path]] = []
        for folder in [self.folder(tenant)] if tenant else self._folders():
            for path in _files(folder, LIVE, NOTED):
                with contextlib.suppress(OSError):
                    found.append((path.stat().st_mtime, path))
        infos: dict[str, RecordingInfo] = {}
        for _, path in sorted(found, reverse=True):
            if (info := _read_one(path)) is not None and call_id in (None, info.call_id):
                infos.setdefault(info.recording_id, info)
                if len(infos) >= limit:
                    break
        return list(infos.values())

    def delete(self, info: RecordingInfo) -> None:
        """Delete a complete recording; raises ``OSError``."""
        for suffix in (WHOLE, PART, LIVE, NOTED):
            self._path(info, suffix).unlink(missing_ok=True)

    def expire(self, before_s: float) -> int:
        """Delete the recordings that were complete before this wall-clock time; return their number. Raises ``OSError`` if a
        folder cannot be read.
        """
        num = 0
        for folder in self._folders():
            for path in _files(folder, NOTED):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < before_s and (info := _read(path)) is not None:
                        self.delete(info)
                        num += 1
        return num

    # --- what follows the end of a recording -----------------------------------------------------------------------------

    def settle(self) -> list[RecordingInfo]:
        """Complete the recordings of a process that died. Returns complete recordings whose follow-up is unfinished. Raises
        ``OSError`` if a folder cannot be read.
        """
        return [
            info
            for folder in self._folders()
            for path in _files(folder, LIVE)
            if (info := self._settled(path)) is not None and info.state != "recording"
        ]

    def _settled(self, path: Path) -> RecordingInfo | None:
        info = _read_one(path)
        if info is None or info.state != "recording":
            return info
        try:
            return self._recover(path)
        except FileNotFoundError:
            lost = msgspec.structs.replace(info, state="failed", reason="storage_error")
            return self._write(lost)
        except OSError as error:
            log.error("recording_not_recovered", recording_id=info.recording_id, detail=str(error))
            return None

    def _recover(self, path: Path) -> RecordingInfo | None:
        stem = path.name.removesuffix(LIVE)
        try:
            file = os.open(path.with_name(stem + PART), os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            file = os.open(path.with_name(stem + WHOLE), os.O_RDWR | os.O_NOFOLLOW)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None  # it is still being written
            info = _read(path)  # the writing may have ended by now
            if info is None or info.state != "recording":
                return info
            wav = WavFormat.of(info)
            header_bytes = len(wav.header(0))
            num_frames = max(0, os.fstat(file).st_size - header_bytes) // wav.frame_bytes
            os.ftruncate(file, header_bytes + num_frames * wav.frame_bytes)
            os.pwrite(file, wav.header(num_frames * wav.frame_bytes), 0)
            os.fsync(file)
            with contextlib.suppress(FileNotFoundError):
                path.with_name(stem + PART).rename(path.with_name(stem + WHOLE))
            log.warning("recording_recovered", recording_id=info.recording_id, call_id=info.call_id)
            return self._write(
                msgspec.structs.replace(
                    info,
                    state="saved",
                    reason="recovered",
                    duration_ms=num_frames * PTIME_MS,
                    num_bytes=header_bytes + num_frames * wav.frame_bytes,
                )
            )
        finally:
            os.close(file)

    def mark_told(self, info: RecordingInfo) -> None:
        """Note that the last event of a recording was sent; raises ``OSError``."""
        self._write(msgspec.structs.replace(info, is_told=True))

    def note(self, info: RecordingInfo) -> None:
        """Note that a recording needs no more follow-up; the URL that it was sent to is forgotten. Raises ``OSError``."""
        if self._path(info, LIVE).exists():
            atomic_file.write(
                self._path(info, NOTED), msgspec.json.encode(msgspec.structs.replace(info, upload_url=None)), sync=False
            )
            self._path(info, LIVE).unlink(missing_ok=True)

    def wav(self, info: RecordingInfo) -> Path:
        return self._path(info, WHOLE)

    def _write(self, info: RecordingInfo) -> RecordingInfo:
        if self._path(info, LIVE).exists():  # otherwise it was deleted
            atomic_file.write(self._path(info, LIVE), msgspec.json.encode(info), sync=False)
        return info

    def _path(self, info: RecordingInfo, suffix: str) -> Path:
        return self.folder(info.tenant) / f"{info.recording_id}{suffix}"

    def _folders(self) -> Iterator[Path]:
        yield self.root
        with contextlib.suppress(FileNotFoundError):  # nothing has been recorded yet
            yield from (each for each in self.root.iterdir() if each.name.startswith(_TENANT) and each.is_dir())


def _files(folder: Path, *suffixes: str) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name for entry in entries if entry.name.endswith(suffixes) and not entry.name.startswith(".")
            ]
    except FileNotFoundError:
        return
    yield from (folder / name for name in names)


def _read(path: Path) -> RecordingInfo | None:
    """Return ``None`` if there is no such file, or no recording in it; raises other ``OSError``."""
    try:
        return _DECODER.decode(path.read_bytes())
    except (FileNotFoundError, *UNREADABLE):
        return None


def _read_one(path: Path) -> RecordingInfo | None:
    """Return what is in one of many files. One that cannot be read does not hide the others."""
    try:
        return _read(path)
    except OSError as error:
        log.error("recording_not_read", file=path.name, detail=error.strerror)
        return None
