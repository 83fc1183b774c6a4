"""Fetch the model from ModelScope, through its own package ``modelscope`` (spec §1).

The package shows the progress and resumes a broken download. It comes with the extra ``gpu``; a directory copied from
elsewhere serves as well.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cc_tts.errors import ConfigError, ProcessFailed

MODEL_ID: Final = "iic/CosyVoice2-0.5B"


class DownloaderMissing(ConfigError, code="downloader_missing", title="modelscope is not installed"):
    """The package ``modelscope`` is not installed."""


class DownloadFailed(ProcessFailed, code="download_failed", title="The download failed"):
    """The download broke off; what was fetched is kept."""


def default_directory() -> Path:
    """Return where models are kept by default: below ``XDG_CACHE_HOME``, else ``~/.cache``."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "cc-tts" / "models" / MODEL_ID.rpartition("/")[2]


def download_model(directory: Path, *, files: Sequence[str]) -> Path:
    """Fetch ``files`` of the model into ``directory``; those that are there already are not fetched again. Raises
    ``DownloaderMissing``, or ``DownloadFailed`` when the network, the disk or the site refused.
    """
    try:
        fetch: Any = importlib.import_module("modelscope").snapshot_download
    except (ImportError, AttributeError):
        raise DownloaderMissing(
            "the model is fetched with the package modelscope, which is not installed: "
            "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `pip install modelscope` alone. "
            f"Or get the files of https://modelscope.cn/models/{MODEL_ID} in another way "
            "and check them with `cc-tts model check DIR`"
        ) from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fetch(MODEL_ID, local_dir=str(directory), allow_patterns=list(files))
    except KeyboardInterrupt:
        raise DownloadFailed(f"stopped; the same command resumes in {directory}") from None
    except Exception as error:  # the package raises what its many parts raise
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DownloadFailed(
            f"{MODEL_ID}: {reason}. What was fetched is in {directory}; the same command resumes"
        ) from error
    return directory
