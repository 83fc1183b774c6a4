"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path


def write(path: Path, data: bytes, *, prefix: str = ".", sync: bool = True, mode: int = 0o600) -> None:
    """Write a file beside ``path`` whose name begins with ``prefix``, and move it into place. ``sync``: wait for the disk
    before. After an ``OSError`` (no right to write, disk full) ``path`` is as it was.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".part")
    begun = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        begun.replace(path)
    except BaseException:
        begun.unlink(missing_ok=True)
        raise
