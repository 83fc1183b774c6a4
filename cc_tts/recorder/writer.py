"""Writes one recording to the disk.

``ID.wav.part`` has a header that is right for what was there at most :data:`HEADER_FRAMES` ago, and a lock (flock(2)) that
says that its process lives. ``ID.live`` beside it says what it is.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cc_tts import atomic_file
from cc_tts.audio import BYTES_PER_SAMPLE, PTIME_MS, AudioFormat
from cc_tts.media import g711
from cc_tts.recorder import wav
from cc_tts.recorder.info import (
    FRAMES_A_SECOND,
    MAX_GAPS,
    Ending,
    FileState,
    Gap,
    RecordingInfo,
    RecordingPlan,
)

HEADER_FRAMES: Final = 5 * FRAMES_A_SECOND
"""The header is rewritten after this many frames."""
WRITE_FRAMES: Final = FRAMES_A_SECOND
"""Fewer frames wait until more have come: at most one system call a second. If the process is killed, no more is lost."""
SILENCE_DBFS: Final = -45.0
"""A frame below this level is silence: the same level as ``MIN_LEVEL_DBFS`` in :mod:`cc_tts.vad.energy` (unmeasured)."""
KEPT_SILENCE_FRAMES: Final = 10
"""The silence that remains at either end after trimming (unmeasured)."""
ROOM_BYTES: Final = 16_384
"""The audio that is dropped if a full disk has no room for the final note, which is one block, 4 KiB with most file systems,
and is rewritten twice (unmeasured).
"""
_LOUD: Final = (32768 * 10 ** (SILENCE_DBFS / 20)) ** 2
_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

PART: Final = ".wav.part"
WHOLE: Final = ".wav"
LIVE: Final = ".live"
NOTED: Final = ".json"


def failure_of(error: OSError) -> Ending:
    return "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "storage_error"


class RecordingFile:
    """A file that is being written. Runs on: one thread after the other."""

    def __init__(self, plan: RecordingPlan) -> None:
        """Raises ``OSError``: it cannot be made."""
        self._plan = plan
        self.info = plan.info
        self._format = wav.WavFormat.of(plan.info)
        self._given_frame_bytes = AudioFormat(plan.info.rate_hz).frame_bytes  # of received frames, which may be µ-law
        self._silence = b"\0"
        if plan.comes_encoded:
            self._given_frame_bytes //= BYTES_PER_SAMPLE
            self._silence = g711.ulaw_encode(bytes(BYTES_PER_SAMPLE))
        self._measures = plan.trim_silence or plan.silence_timeout_ms is not None
        self._waiting: list[bytes] = []
        self._num_waiting = 0
        self._num_frames = 0  # received so far
        self._num_written = 0
        self._num_lost = 0
        self._gaps: list[tuple[int, int]] = []  # number of the first frame, how many
        self._num_skipped = 0  # silence at the beginning
        self._last_loud = 0  # number of the frame that follows the last one that was no silence
        self._last_header = 0
        self._stem = Path(plan.folder) / plan.info.recording_id
        self._part = self._path(PART)
        self._part.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._part, flags, _MODE)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check_space()
            self._put(self._format.header(0))
            atomic_file.write(self._path(LIVE), msgspec.json.encode(self.info), sync=False)
        except BaseException:
            self._part.unlink(missing_ok=True)
            os.close(self._file)
            raise

    def _path(self, suffix: str) -> Path:
        return self._stem.with_name(self._stem.name + suffix)

    def take(self, given: bytes, num_lost: int) -> Ending | None:
        """Write frames of both directions. Returns why the recording has ended; ``None`` if it continues.

        Raises:
            OSError: the disk refuses them.
        """
        if num_lost := min(num_lost, self._room):
            self._note_gap(num_lost)
            silence = num_lost * self._given_frame_bytes * self._silence
            self._add(silence, silence)
        half = len(given) // 2
        num_bytes = min(half, self._room * self._given_frame_bytes)
        self._add(given[:num_bytes], given[half : half + num_bytes])
        if self._num_waiting >= WRITE_FRAMES:
            self._write()
        return self._over()

    @property
    def _room(self) -> int:
        return max(0, self._plan.max_duration_ms // PTIME_MS - self._num_frames)

    def _note_gap(self, num_frames: int) -> None:
        self._num_lost += num_frames
        if self._gaps and sum(self._gaps[-1]) == self._num_frames:
            self._gaps[-1] = self._gaps[-1][0], self._gaps[-1][1] + num_frames
        elif len(self._gaps) < MAX_GAPS:
            self._gaps.append((self._num_frames, num_frames))

    def _over(self) -> Ending | None:
        if self._num_frames * PTIME_MS >= self._plan.max_duration_ms:
            return "max_duration"
        silence_ms = (self._num_frames - self._last_loud) * PTIME_MS
        timeout_ms = self._plan.silence_timeout_ms
        return "silence" if timeout_ms is not None and silence_ms >= timeout_ms else None

    def _add(self, received: bytes, sent: bytes) -> None:
        num_frames = len(received) // self._given_frame_bytes
        if not num_frames:
            return
        samples = wav.mixed(
            received,
            sent,
            num_channels=self._format.num_channels,
            tracks=self.info.tracks,
            is_encoded=self._plan.comes_encoded,
        )
        self._num_frames += num_frames
        if self._measures:
            levels = np.square(samples.reshape(num_frames, -1).astype(np.float32)).mean(axis=1)
            loud = np.flatnonzero(levels * self._format.num_channels >= _LOUD)
            if len(loud):
                self._last_loud = self._num_frames - num_frames + int(loud[-1]) + 1
        self._waiting.append(self._format.encode(samples))
        self._num_waiting += num_frames
        if self._plan.trim_silence and not self._last_loud:
            self._drop_beginning()

    def _drop_beginning(self) -> None:
        """Drop all but the end of the silence so far, since there was no sound yet."""
        kept = b"".join(self._waiting)[-KEPT_SILENCE_FRAMES * self._format.frame_bytes :]
        num_kept = len(kept) // self._format.frame_bytes
        self._num_skipped += self._num_waiting - num_kept
        self._waiting, self._num_waiting = [kept], num_kept

    def _write(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._put(data)
        self._num_written += self._num_waiting
        self._num_waiting = 0
        if self._num_written - self._last_header >= HEADER_FRAMES:
            self._last_header = self._num_written
            self._renew_header()
            self._check_space()

    def _check_space(self) -> None:
        disk = os.fstatvfs(self._file)
        if disk.f_bavail * disk.f_frsize < self._plan.min_free_bytes:
            raise OSError(errno.ENOSPC, "less than record.min_free_bytes is free")

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]

    def _renew_header(self) -> None:
        os.pwrite(self._file, self._format.header(self._num_written * self._format.frame_bytes), 0)

    def finish(self, reason: Ending, state: FileState = "saved") -> RecordingInfo:
        """Complete the file, or what there is of it after a failure. The lock is held until ``ID.live`` says so."""
        if state != "failed":
            try:
                self._write()
            except OSError as error:  # what was written before stays in the file
                state, reason = "failed", failure_of(error)
        try:
            self._num_written = self._trimmed()
            self._cut()
            os.fsync(self._file)
            self._part.rename(self._path(WHOLE))
        except OSError as error:
            state, reason = "failed", failure_of(error)
        with contextlib.suppress(OSError):
            try:
                self._note(state, reason)
            except OSError as error:
                if failure_of(error) != "disk_full":
                    raise
                self._num_written = max(0, self._num_written - ROOM_BYTES // self._format.frame_bytes)
                self._cut()  # the end of the audio makes room for the note: without it the recording would go on for ever
                self._note("failed", "disk_full")
        with contextlib.suppress(OSError):  # a network disk may refuse even that, and what was written is known by now
            os.close(self._file)
        return self.info

    def _cut(self) -> None:
        os.ftruncate(self._file, self._num_bytes)
        self._renew_header()

    @property
    def _num_bytes(self) -> int:
        return len(self._format.header(0)) + self._num_written * self._format.frame_bytes

    def _note(self, state: FileState, reason: Ending) -> None:
        """Write a note with the ending beside the file."""
        self.info = msgspec.structs.replace(
            self.info,
            state=state,
            reason=reason,
            duration_ms=self._num_written * PTIME_MS,
            num_bytes=self._num_bytes,
            lost_ms=self._num_lost * PTIME_MS,
            gaps=tuple(self._gaps_in_file()),
        )
        atomic_file.write(self._path(LIVE), msgspec.json.encode(self.info), sync=False)

    def _gaps_in_file(self) -> Iterator[Gap]:
        """Return the gaps that were not cut off with silence."""
        for first, num in self._gaps:
            begin, end = max(0, first - self._num_skipped), min(first + num - self._num_skipped, self._num_written)
            if begin < end:
                yield Gap(begin * PTIME_MS, (end - begin) * PTIME_MS)

    def _trimmed(self) -> int:
        """Return how many of the frames remain: all, or those up to the last sound."""
        if not self._plan.trim_silence:
            return self._num_written
        wanted = self._last_loud + KEPT_SILENCE_FRAMES - self._num_skipped if self._last_loud else 0
        return min(self._num_written, max(0, wanted))
