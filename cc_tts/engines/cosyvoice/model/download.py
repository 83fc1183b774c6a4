"""Fetch a model from ModelScope, through its own package ``modelscope`` (spec §1).

The package shows the progress and resumes a broken download. It comes with the extra ``gpu``; a directory copied from
elsewhere serves as well.
"""

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cc_tts.engines.cosyvoice.model.sizes import Generation
from cc_tts.errors import ConfigError, ProcessFailed


@dataclass(frozen=True, slots=True)
class ReleasedModel:
    id: str  # of ModelScope
    generation: Generation


DEFAULT_MODEL: Final = "cosyvoice2"
MODELS: Final[Mapping[str, ReleasedModel]] = {
    DEFAULT_MODEL: ReleasedModel("iic/CosyVoice2-0.5B", 2),
    "cosyvoice3": ReleasedModel("FunAudioLLM/Fun-CosyVoice3-0.5B-2512", 3),
}


class DownloaderMissing(ConfigError, code="downloader_missing", title="modelscope is not installed"):
    """The package ``modelscope`` is not installed."""


class DownloadFailed(ProcessFailed, code="download_failed", title="The download failed"):
    """The download broke off; the part that was fetched is kept."""


def cache_folder() -> Path:
    """Return the folder for files that can be fetched or made again: below ``XDG_CACHE_HOME``, else ``~/.cache``."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache") / "cc-tts"


def default_directory(model: str = DEFAULT_MODEL) -> Path:
    return cache_folder() / "models" / MODELS[model].id.rpartition("/")[2]


def download_model(model: str, directory: Path, *, files: Sequence[str]) -> Path:
    """Fetch ``files`` of a model into ``directory``; those that are there already are not fetched again. Raises
    ``DownloaderMissing``, or ``DownloadFailed`` when the network, the disk or the site refused.
    """
    model_id = MODELS[model].id
    try:
        fetch: Any = importlib.import_module("modelscope").snapshot_download
    except (ImportError, AttributeError):
        raise DownloaderMissing(
            "the model is fetched with the package modelscope, which is not installed: "
            "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `pip install modelscope` alone. "
            f"Or get the files of https://modelscope.cn/models/{model_id} in another way "
            "and check them with `cc-tts model check DIR`"
        ) from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fetch(model_id, local_dir=str(directory), allow_patterns=list(files))
    except KeyboardInterrupt:
        raise DownloadFailed(f"stopped; the same command resumes in {directory}") from None
    except Exception as error:  # the package raises what its many parts raise
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DownloadFailed(
            f"{model_id}: {reason}. What was fetched is in {directory}; the same command resumes"
        ) from error
    return directory
