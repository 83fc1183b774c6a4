"""Where the files of voices are in ``tts.voices_dir``."""

import contextlib
from pathlib import Path
from typing import Final

FEATURES: Final = "features"
"""The numbers of enrolled voices; their keys, which the records of the voices have, tell one from another."""
KOKORO: Final = "kokoro"
STYLES: Final = f"{KOKORO}/styles"
_OF_PUBLIC_VOICES: Final = ("", KOKORO, STYLES)


def files_in(voices_dir: Path, *, with_features: bool = False) -> list[Path]:
    """The files that voices are made of, sorted. What cannot be read is left out: the engine says what is wrong with it."""
    found: list[Path] = []
    for below in (*_OF_PUBLIC_VOICES, *([FEATURES] if with_features else [])):
        with contextlib.suppress(OSError):
            found += (path for path in (voices_dir / below).iterdir() if path.is_file() and not path.is_symlink())
    return sorted(found)
