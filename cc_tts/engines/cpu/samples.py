"""The models of onnxruntime give samples from -1 to 1."""

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]


def pcm_of(samples: Samples) -> bytes:
    """Samples from -1 to 1 as signed 16-bit little-endian PCM; what is beyond is clipped."""
    return (np.clip(samples, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
