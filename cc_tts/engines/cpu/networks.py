"""Networks of voices in onnxruntime: each runs on the thread that calls it, and logs errors alone. They give samples from
-1 to 1.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime

from cc_tts.errors import ConfigError

Samples = npt.NDArray[np.float32]

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


def pcm_of(samples: Samples) -> bytes:
    """Samples from -1 to 1 as signed 16-bit little-endian PCM; what is beyond is clipped."""
    return (np.clip(samples, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
