"""The configuration files that come with cc-tts: every key, the example for a GPU, alerts, a dashboard."""

from pathlib import Path
from typing import Final

from cc_tts import atomic_file
from cc_tts.errors import ConfigError

OWN_MODE: Final = 0o600
SHARED_MODE: Final = 0o644
_IN_WHEEL: Final = Path(__file__).parent / "files"
_IN_SOURCE: Final = Path(__file__).parents[2] / "configs"


def files() -> dict[Path, bytes]:
    """Return the contents of each file by its path in the folder ``configs/`` of the source; a wheel carries a copy."""
    folder = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_SOURCE
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write(folder: Path, *, force: bool) -> list[Path]:
    """Write them below ``folder``; returns their paths. The server's own are readable to this user only, as secrets may be
    added; Prometheus and Grafana read theirs as other users.

    Raises:
        ConfigError: one exists and ``force`` is not given (then nothing was written), or it cannot be written.
    """
    wanted = {folder / name: data for name, data in files().items()}
    existing = [path for path in wanted if path.exists() or path.is_symlink()]
    if existing and not force:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        raise ConfigError(f"{existing[0]}{more} is there already; --force overwrites, or name another folder")
    for path, data in wanted.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write(path, data, mode=OWN_MODE if path.parent == folder else SHARED_MODE)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    return list(wanted)
