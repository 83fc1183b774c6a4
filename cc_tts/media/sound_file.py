"""Opens the audio files of clients and operators by libsndfile: WAV, FLAC, MP3, Ogg, AIFF and AU.

The library is written in C and loaded where it is needed. Bytes from outside are read in a process of their own only.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from cc_tts.errors import AudioUnreadable

MAX_CHANNELS: Final = 8
"""The most channels that are mixed to one (unmeasured)."""
MAX_RATE_HZ: Final = 192_000
"""The highest sampling rate that is read (unmeasured)."""
NOT_AUDIO: Final = "this is no audio file; WAV, FLAC, MP3 and Ogg are read"
NO_SAMPLES: Final = "the file has no samples"
_DATA_SIZE: Final = re.compile(r"^data : (\d+) \(should be (\d+)\)", re.MULTILINE)
"""libsndfile's message for a WAV file whose header promises more than there is."""
_SIZE_NOT_KNOWN: Final = 0x7FFF_0000
"""Programs that write to a pipe put this size or more into the header, since they do not know the length (tried: sox)."""
_MISSING_S: Final = 0.1
"""Some headers promise slightly too much; unmeasured."""


@contextmanager
def opened(data: bytes) -> Iterator[Any]:
    """Open a file as a ``soundfile.SoundFile``; what the library raises while it is read means that the file is damaged.

    Raises:
        AudioUnreadable: it is no audio file that libsndfile knows, is damaged, or is a WAV file that is cut short.
    """
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.channels > MAX_CHANNELS or not 0 < file.samplerate <= MAX_RATE_HZ:
                raise AudioUnreadable(f"{file.channels} channels at {file.samplerate} Hz are not read")
            _refuse_cut(file)
            yield file
    except (soundfile.LibsndfileError, RuntimeError, TypeError, ValueError):
        raise AudioUnreadable(NOT_AUDIO) from None


def _refuse_cut(file: Any) -> None:
    """Raise ``AudioUnreadable`` for a truncated WAV file, of which only a part would be heard."""
    if (match := _DATA_SIZE.search(file.extra_info)) is None:
        return
    promised, found = int(match[1]), int(match[2])
    found_s = file.frames / file.samplerate
    if found and promised < _SIZE_NOT_KNOWN and found_s * (promised / found - 1) > _MISSING_S:
        raise AudioUnreadable(f"it is cut short: {found_s:.1f} s of {found_s * promised / found:.1f} s are there")
