"""Networks of voices in onnxruntime: each runs on the thread that calls it, and logs errors alone."""

from pathlib import Path
from typing import Any, Final

import onnxruntime

from cc_tts.errors import ConfigError

PROVIDERS: Final = ("CPUExecutionProvider",)
_ERRORS: Final = 3  # ORT_LOGGING_LEVEL_ERROR


def one_thread() -> Any:
    """Options for a network that gets one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS
    return options


def network_of(path: Path) -> Any:
    """The network of a model file; raises ``ConfigError`` if there is none in it."""
    try:
        return onnxruntime.InferenceSession(str(path), one_thread(), providers=PROVIDERS)
    except Exception as error:
        raise ConfigError(f"{path}: not a model that onnxruntime can load: {error}") from error
