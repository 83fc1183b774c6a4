"""Converts audio files of clients and operators to PCM of the line: WAV, FLAC, MP3, Ogg, AIFF and AU, read by libsndfile.

Each file is read in a process of its own with a bound on time and memory, since its bytes come from outside and the library
is written in C: a file that crashes it costs that file.
"""

import resource
import sys
from typing import Any, Final

import numpy as np
import soxr

from cc_tts.errors import AudioUnreadable
from cc_tts.media import sound_file
from cc_tts.media.levels import as_pcm

TIMEOUT_S: Final = 60.0
"""The time limit for a file (unmeasured); ten minutes of MP3 take some 2 s on one core."""
MAX_MEMORY_BYTES: Final = 2 << 30
"""The address space of the process (unmeasured); numpy alone maps some 500 MB."""
_UNREADABLE: Final = 3
"""The exit status for an unreadable file; standard error has the reason."""
_BLOCK_S: Final = 10
"""Samples are decoded in blocks of this length (unmeasured), so that a long file is never in memory at its own rate."""
_FULL_SCALE: Final = 32767.0
_CANCELLED: Final = 1 / 1000
"""Channels cancel each other if their mix has less than this share of the power of the loudest one. One active channel among
:data:`MAX_CHANNELS` has 1/64.
"""


async def read(data: bytes, *, rate_hz: int, max_s: float) -> bytes:
    """Return the samples of a file as signed 16-bit mono PCM at ``rate_hz``; channels are mixed.

    Raises:
        AudioUnreadable: it is no audio file that libsndfile knows, is damaged, empty, or longer than ``max_s``.
    """
    from cc_tts.processes.supervisor import run_once  # the process of a file would load it for nothing, in 0.1 s

    try:
        pcm, why, status = await run_once(__name__, str(rate_hz), str(max_s), data=data, timeout_s=TIMEOUT_S)
    except TimeoutError:
        raise AudioUnreadable(f"it takes longer than {TIMEOUT_S:g} s to read it") from None
    if status == _UNREADABLE:
        raise AudioUnreadable(why.decode(errors="replace").strip()[:200] or sound_file.NOT_AUDIO)
    if status or not pcm:
        raise AudioUnreadable(sound_file.NOT_AUDIO)
    return pcm


def amplified(pcm: bytes, gain_db: float) -> bytes:
    """Return 16-bit PCM with a gain; samples beyond full scale are clipped."""
    if not gain_db:
        return pcm
    return as_pcm(np.frombuffer(pcm, "<i2").astype(np.float32) * 10 ** (gain_db / 20))


def decode(data: bytes, *, rate_hz: int, max_s: float) -> bytes:
    """Do the work of :func:`read` in this process.

    Raises:
        AudioUnreadable: as there.
    """
    with sound_file.opened(data) as file:
        return _pcm(file, rate_hz=rate_hz, max_s=max_s)


def _mixed(block: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return the channels as one: their mean or, if they cancel each other, the first loud one."""
    mono: np.ndarray[Any, Any] = block.mean(axis=1)
    powers = np.square(block).sum(axis=0)
    if powers.size and np.square(mono).sum() < _CANCELLED * powers.max():
        return block[:, np.argmax(powers * 2 >= powers.max())]
    return mono


def _pcm(file: Any, *, rate_hz: int, max_s: float) -> bytes:
    source_hz: int = file.samplerate
    resampler = soxr.ResampleStream(source_hz, rate_hz, 1, dtype="float32", quality="HQ")
    left = round(max_s * source_hz)
    parts: list[bytes] = []
    is_last = False
    while not is_last:
        block = file.read(_BLOCK_S * source_hz, dtype="float32", always_2d=True)
        left -= len(block)
        if left < 0:
            raise AudioUnreadable(f"it is longer than {max_s:g} s")
        is_last = len(block) < _BLOCK_S * source_hz
        mono = np.ascontiguousarray(_mixed(np.nan_to_num(block)))
        levels = mono if source_hz == rate_hz else resampler.resample_chunk(mono, last=is_last)
        parts.append(np.rint(np.clip(levels, -1.0, 1.0) * _FULL_SCALE).astype("<i2").tobytes())
    if not any(parts):
        raise AudioUnreadable(sound_file.NO_SAMPLES)
    return b"".join(parts)


def main(rate_hz: str, max_s: str) -> int:
    """Read a file from standard input and write its samples to standard output; returns the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (round(TIMEOUT_S), round(TIMEOUT_S)))
    try:
        pcm = decode(sys.stdin.buffer.read(), rate_hz=int(rate_hz), max_s=float(max_s))
    except AudioUnreadable as error:
        sys.stderr.write(error.detail)
        return _UNREADABLE
    sys.stdout.buffer.write(pcm)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
