"""Two frames of PCM that are heard at once."""

import numpy as np
import numpy.typing as npt


def mixed(frame: bytes, other: bytes) -> bytes:
    """Return the sum of two equally long frames of 16-bit samples, clipped."""
    total = np.frombuffer(frame, "<i2").astype(np.int32) + np.frombuffer(other, "<i2")
    samples: npt.NDArray[np.int16] = np.clip(total, -32768, 32767).astype("<i2")
    return samples.tobytes()
