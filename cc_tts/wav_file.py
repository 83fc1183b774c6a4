"""WAV files that commands write: refused before anything is synthesised or dialled if they cannot be."""

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


def write(path: Path, pcm: bytes, *, rate_hz: int) -> None:
    """Write signed 16-bit mono PCM."""
    with path.open("wb") as raw, wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
