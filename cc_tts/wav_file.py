"""WAV files that commands write and read: refused before anything is synthesised or dialled if they cannot be."""

import os
import struct
import wave
from pathlib import Path
from typing import Final

_UNKNOWN_SIZE: Final = 0xFFFF_FFFF
_PCM: Final = 1
_ULAW: Final = 7
"""``WAVE_FORMAT_PCM`` and ``WAVE_FORMAT_MULAW`` of the RIFF spec."""


def check_path(path: Path) -> None:
    """Raise ``ValueError``, whose message says what to do, if no WAV file can be written there. Nothing is created."""
    if path.suffix.lower() not in ("", ".wav"):
        raise ValueError(f"{path}: only WAV is written, not {path.suffix}; name it {path.with_suffix('.wav')}")
    if str(path) == "-":
        raise ValueError("a WAV file is not written to standard output; name a file, such as said.wav")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Raise ``ValueError``, whose message says what to do, if no file can be written there. Nothing is created."""
    folder = path.absolute().parent
    try:
        if path.is_dir():
            raise ValueError(f"cannot write {path}: it is a folder; name a file in it, such as {path / 'said.wav'}")
        if not folder.is_dir():
            raise ValueError(f"cannot write {path}: the folder {folder} does not exist")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise ValueError(f"cannot write {path}: permission denied")
    except OSError as error:  # a folder that may not be looked into, or a name that is too long
        raise ValueError(f"cannot write {path}: {error.strerror}") from None


def read(path: Path, *, rate_hz: int, max_s: float) -> bytes:
    """Read signed 16-bit mono PCM; raises ``ValueError``, whose message says what to do, if the file holds anything else."""
    try:
        with path.open("rb") as raw, wave.open(raw, "rb") as file:
            if (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (rate_hz, 1, 2):
                if file.getnframes() > max_s * rate_hz:
                    raise ValueError(f"{path} is longer than {max_s:g} s")
                return file.readframes(file.getnframes())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except (wave.Error, EOFError, RuntimeError):  # RuntimeError: a length points beyond the end of the file
        pass
    raise ValueError(
        f"{path} is no WAV file of {rate_hz} Hz, mono, 16 bit; sox {path} -r {rate_hz} -c 1 -b 16 OUT.wav makes one"
    )


def write(path: Path, pcm: bytes, *, rate_hz: int, is_private: bool = False, chunks: bytes = b"") -> None:
    """Write signed 16-bit mono PCM, and these RIFF chunks. ``is_private``: a new file is this user's to read only. After an
    ``OSError`` (disk full) there is no file with a part of the audio.
    """
    mode = 0o600 if is_private else 0o666
    try:
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(encoded(pcm, rate_hz=rate_hz, chunks=chunks))
    except OSError:
        if path.is_file():  # and no device
            path.unlink()
        raise


def encoded(pcm: bytes, *, rate_hz: int, chunks: bytes = b"") -> bytes:
    """The bytes of a WAV file of signed 16-bit mono PCM, with these RIFF chunks."""
    return header(rate_hz=rate_hz, num_bytes=len(pcm), chunks=chunks) + pcm


def header(
    *, rate_hz: int, num_bytes: int | None = None, chunks: bytes = b"", num_channels: int = 1, is_ulaw: bool = False
) -> bytes:
    """The header of a WAV file, up to its samples, with these RIFF chunks. The samples are signed 16-bit PCM, or µ-law if
    ``is_ulaw`` (Microsoft RIFF, 1991 and 1994).

    ``num_bytes`` ``None``: the length is not known yet. Both sizes are 0xFFFFFFFF then, as those of ffmpeg and SoX.
    """
    sample_bytes = 1 if is_ulaw else 2
    block = num_channels * sample_bytes
    fields = (num_channels, rate_hz, rate_hz * block, block, 8 * sample_bytes)
    if is_ulaw:
        form = struct.pack("<4sIHHIIHHH", b"fmt ", 18, _ULAW, *fields, 0)
        form += struct.pack("<4sII", b"fact", 4, (num_bytes or 0) // block)
    else:
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, _PCM, *fields)
    begun = b"WAVE" + form + chunks
    size = _UNKNOWN_SIZE if num_bytes is None else len(begun) + 8 + num_bytes
    data = struct.pack("<4sI", b"data", _UNKNOWN_SIZE if num_bytes is None else num_bytes)
    return struct.pack("<4sI", b"RIFF", size) + begun + data
