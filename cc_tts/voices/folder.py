"""The layout of the voice files in ``tts.voices_dir``."""

import contextlib
from pathlib import Path
from typing import Final

FEATURES: Final = "features"
"""The folder of the features of enrolled voices; the voices' records have their keys."""
KOKORO: Final = "kokoro"
STYLES: Final = f"{KOKORO}/styles"
_OF_PUBLIC_VOICES: Final = ("", KOKORO, STYLES)


def files_in(voices_dir: Path, *, with_features: bool = False) -> list[Path]:
    """Return the files of voices, sorted. Unreadable ones are left out; the engine reports what is wrong with them."""
    found: list[Path] = []
    for below in (*_OF_PUBLIC_VOICES, *([FEATURES] if with_features else [])):
        with contextlib.suppress(OSError):
            found += (path for path in (voices_dir / below).iterdir() if path.is_file() and not path.is_symlink())
    return sorted(found)
