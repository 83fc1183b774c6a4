"""WAV files that commands write and read: refused before anything is synthesised or dialled if they cannot be."""

import io
import os
import wave
from pathlib import Path


def check_path(path: Path) -> None:
    """Raise ``ValueError``, whose message says what to do, if no WAV file can be written there. Nothing is created."""
    folder = path.absolute().parent
    if path.suffix.lower() not in ("", ".wav"):
        raise ValueError(f"{path}: only WAV is written, not {path.suffix}; name it {path.with_suffix('.wav')}")
    if str(path) == "-":
        raise ValueError("a WAV file is not written to standard output; name a file, such as said.wav")
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; name a file in it, such as {path / 'said.wav'}")
    if not folder.is_dir():
        raise ValueError(f"cannot write {path}: the folder {folder} does not exist")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"cannot write {path}: permission denied")


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
    except (wave.Error, EOFError, RuntimeError):  # the last one where a length points beyond the end of the file
        pass
    raise ValueError(
        f"{path} is no WAV file of {rate_hz} Hz, mono, 16 bit; sox {path} -r {rate_hz} -c 1 -b 16 OUT.wav makes one"
    )


def write(path: Path, pcm: bytes, *, rate_hz: int, is_private: bool = False) -> None:
    """Write signed 16-bit mono PCM. ``is_private``: a new file is this user's to read only."""
    mode = 0o600 if is_private else 0o666
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(encoded(pcm, rate_hz=rate_hz))


def encoded(pcm: bytes, *, rate_hz: int) -> bytes:
    """The bytes of a WAV file of signed 16-bit mono PCM."""
    raw = io.BytesIO()
    with wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
    return raw.getvalue()
