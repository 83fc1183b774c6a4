"""The outline of a WAV file: how loud each side is over time. Waits for the disk: runs on threads."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from cc_tts.media import g711

MAX_PEAKS: Final = 1500
"""The most pieces of an outline: more than a picture has room for (unmeasured)."""
MIN_STEP_S: Final = 0.02
"""The shortest piece is one frame of 20 ms (RFC 3551 §4.2)."""
_FULL_SCALE: Final = 32768.0
_PCM: Final = 1
_ULAW: Final = 7
"""``WAVE_FORMAT_PCM`` and ``WAVE_FORMAT_MULAW`` (Microsoft RIFF, 1991 and 1994)."""
_MAX_HEADER_CHUNK_BYTES: Final = 1 << 16  # unmeasured


@dataclass(frozen=True, slots=True)
class Outline:
    """The largest sample, from 0 to 1, of each piece of ``step_s``, for each channel."""

    step_s: float
    channels: tuple[tuple[float, ...], ...]


def outline(path: Path) -> Outline | None:
    """Read the outline of a file; ``None`` if it holds no audio that can be read. Raises ``OSError``."""
    with path.open("rb") as file:
        found = _begin_of_data(file)
        if found is None:
            return None
        tag, num_channels, rate_hz, num_bytes = found
        block = num_channels * (1 if tag == _ULAW else 2)
        num_blocks = num_bytes // block
        step = max(round(MIN_STEP_S * rate_hz), -(-num_blocks // MAX_PEAKS))
        peaks = [_peaks(data, tag, num_channels) for data in _pieces(file, step * block, num_blocks * block)]
    return Outline(step / rate_hz, tuple(zip(*peaks, strict=True)) if peaks else ((),) * num_channels)


def _begin_of_data(file: BinaryIO) -> tuple[int, int, int, int] | None:
    """Move to the samples; returns the format's tag, the channels, the rate and how many bytes follow."""
    if file.read(4) != b"RIFF" or file.read(8)[4:] != b"WAVE":
        return None
    layout = None
    while len(head := file.read(8)) == 8:  # noqa: PLR2004 - the name and the length of a chunk
        name, size = struct.unpack("<4sI", head)
        if name == b"data":
            return None if layout is None else (*layout, size)
        if size > _MAX_HEADER_CHUNK_BYTES:
            return None
        content = file.read(size + size % 2)
        if name == b"fmt " and len(content) >= 16:  # noqa: PLR2004 - without its extension
            tag, num_channels, rate_hz, _, _, bits = struct.unpack("<HHIIHH", content[:16])
            if (tag, bits) not in ((_PCM, 16), (_ULAW, 8)) or not 1 <= num_channels <= 2 or rate_hz < 8000:  # noqa: PLR2004
                return None
            layout = (tag, num_channels, rate_hz)
    return None


def _pieces(file: BinaryIO, piece_bytes: int, num_bytes: int) -> Iterator[bytes]:
    while num_bytes > 0 and (data := file.read(min(piece_bytes, num_bytes))):
        num_bytes -= len(data)
        yield data


def _peaks(data: bytes, tag: int, num_channels: int) -> list[float]:
    pcm = g711.ulaw_decode(data) if tag == _ULAW else data[: len(data) // 2 * 2]
    samples: npt.NDArray[np.int16] = np.frombuffer(pcm, "<i2")
    sides = [samples[side::num_channels] for side in range(num_channels)]
    return [round(float(np.abs(side.astype(np.int32)).max()) / _FULL_SCALE, 3) if len(side) else 0.0 for side in sides]
