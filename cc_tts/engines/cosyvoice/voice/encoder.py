"""The two ONNX graphs that encode a reference: CAM++ (who speaks) and the speech tokenizer (what is said) (spec §7.3).

The tokenizer is v2 for CosyVoice 2 and v3 for 3; their inputs and outputs are alike, their codes are not.

Both run on the CPU with one thread, at enrolment only. The tokens depend a little on the version of onnxruntime
(spec §13), which is why a voice is enrolled once and its tokens are kept; the version is part of the fingerprint.
Inputs are taken by position: their names are not known for sure (spec §13).
"""

import hashlib
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cc_tts.engines.cosyvoice.model.checkpoint import ModelError, ModelFileDamaged, described, refuse_stand_in
from cc_tts.engines.cosyvoice.voice import features
from cc_tts.engines.cosyvoice.voice.features import MEL_RATE_HZ, TOKENIZER_RATE_HZ, Audio
from cc_tts.errors import ProcessFailed
from cc_tts.voices.embedding_cache import EMBEDDING_SIZE
from cc_tts.voices.enrolment import ReferenceFeatures

SPEAKER_FILE: Final = "campplus.onnx"
TOKENIZER_FILES: Final[Mapping[int, str]] = {2: "speech_tokenizer_v2.onnx", 3: "speech_tokenizer_v3.onnx"}
"""The speech tokenizer of each generation of the model."""

NUM_CODES: Final = 6561  # 3⁸, the codebook of the tokenizer (spec §1)

_SAMPLED_BLOCKS: Final = 64
_BLOCK_BYTES: Final = 1 << 16


class EncoderFailed(ProcessFailed, code="prompt_encoder_failed", title="The networks that encode the reference failed"):
    """A graph ran and gave something that it must not."""


class _Graph:
    """One ONNX file and its session."""

    def __init__(self, path: Path, *input_shapes: Sequence[int | None]) -> None:
        refuse_stand_in(path)
        self._path = path
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._graph: Any = runtime.InferenceSession(
                str(path), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - its exceptions have no common class of their own
            reason = str(error).splitlines()[0][-160:]
            size = path.stat().st_size
            raise ModelFileDamaged(f"{path}: not a whole ONNX graph, {size:,} bytes ({reason})") from None
        inputs = self._graph.get_inputs()
        found = [list(value.shape) for value in inputs]
        if len(found) != len(input_shapes) or not all(map(_fits, found, input_shapes)):
            raise ModelError(f"{path}: a graph with inputs {found}, wanted {list(map(list, input_shapes))}")
        self._names = [value.name for value in inputs]
        self._output = self._graph.get_outputs()[0].name

    def _run(self, *values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The first output for these inputs, which go by position."""
        result: npt.NDArray[Any] = self._graph.run([self._output], dict(zip(self._names, values, strict=True)))[0]
        return result


def _onnxruntime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise ModelError(
            "voices are enrolled with onnxruntime, which is not installed: "
            "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `make neural` for a CPU"
        ) from None


def _fits(found: Sequence[object], wanted: Sequence[int | None]) -> bool:
    """Return whether a graph's input takes ``wanted``; a name or nothing in either place takes any size."""
    return len(found) == len(wanted) and all(
        want is None or not isinstance(have, int) or have in {want, -1}
        for have, want in zip(found, wanted, strict=True)
    )


class SpeakerEncoder(_Graph):
    """CAM++: 16 kHz audio to the 192 numbers of a speaker."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, (1, None, features.FBANK_BINS))

    def embed(self, audio: Audio) -> npt.NDArray[np.float32]:
        """Filter bank less its mean over time ``[1, T, 80]`` → embedding ``[192]``."""
        fbank = features.kaldi_fbank(audio)
        result = self._run((fbank - fbank.mean(axis=0, keepdims=True))[None])
        embedding = np.asarray(result, dtype=np.float32).reshape(-1)
        if embedding.shape != (EMBEDDING_SIZE,) or not np.isfinite(embedding).all():
            raise EncoderFailed(f"{self._path.name} gave {result.shape}, wanted 1×{EMBEDDING_SIZE} finite numbers")
        return embedding


class SpeechTokenizer(_Graph):
    """The S3 tokenizer: 16 kHz audio to speech tokens, 25 a second."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, (1, features.WHISPER_BINS, None), (1,))

    def tokens(self, audio: Audio) -> npt.NDArray[np.int32]:
        """Log-mel ``[1, 128, T]`` and its length → tokens ``[≈ T / 4]``; 30 s at most, as enrolment sees to."""
        mel = features.whisper_log_mel(audio)
        result = self._run(mel[None], np.array([mel.shape[1]], dtype=np.int32)).reshape(-1)
        if not np.issubdtype(result.dtype, np.integer) or len(result) == 0:
            raise EncoderFailed(f"{self._path.name} gave {len(result)} values of {result.dtype}, wanted token ids")
        low, high = result.min(), result.max()
        if low < 0 or high >= NUM_CODES:
            raise EncoderFailed(f"{self._path.name} gave tokens from {low} to {high}, wanted 0 to {NUM_CODES - 1}")
        return result.astype(np.int32)


class CosyVoiceReferenceEncoder:
    """Everything that enrolment computes; a ``voices.enrolment.ReferenceEncoder``. The graphs are read on first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = described(directory) or self._generation_by_files()

    def _generation_by_files(self) -> int:
        """Return the generation that the engine finds, by the language model; else the one whose tokenizer alone is there,
        or the second, where that does not tell.
        """
        if (self._directory / "llm.pt").exists() and importlib.util.find_spec("torch") is not None:
            from cc_tts.engines.cosyvoice.model.loader import generation_of_directory

            return generation_of_directory(self._directory)
        found = [generation for generation, name in TOKENIZER_FILES.items() if (self._directory / name).exists()]
        return found[0] if len(found) == 1 else 2

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the two graphs, of onnxruntime's version and of the features' version; before it the generation of the
        model, where it is not the second.
        """
        parts = [f"features {features.VERSION}", f"onnxruntime {_onnxruntime().__version__}"]
        names = (SPEAKER_FILE, TOKENIZER_FILES[self._generation])
        parts += [quick_fingerprint(self._directory / name) for name in names]
        mark = "" if self._generation == 2 else f"{self._generation}:"  # noqa: PLR2004 - the second generation
        return mark + hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @cached_property
    def _graphs(self) -> tuple[SpeakerEncoder, SpeechTokenizer]:
        tokenizer = self._directory / TOKENIZER_FILES[self._generation]
        return SpeakerEncoder(self._directory / SPEAKER_FILE), SpeechTokenizer(tokenizer)

    def encode(self, audio: Audio, rate_hz: int) -> ReferenceFeatures:
        """Resample from the recording itself for each reader (spec §7.3), and run all three."""
        speaker, tokenizer = self._graphs
        at_16k = features.resample(audio, rate_hz, TOKENIZER_RATE_HZ)
        return ReferenceFeatures(
            tokens=tokenizer.tokens(at_16k),
            mel=features.reference_mel(features.resample(audio, rate_hz, MEL_RATE_HZ), self._generation),
            embedding=speaker.embed(at_16k),
        )


def quick_fingerprint(path: Path) -> str:
    """Distinguish weight files in milliseconds: hash the size and 64 blocks spread over the file, its ends among them.

    Hashing 500 MB would take a second at each start. Other weights differ in every block; this is no guard against
    somebody who tampers with the file, ``cc-tts model check`` is.
    """
    refuse_stand_in(path)
    size = path.stat().st_size
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        for block in range(_SAMPLED_BLOCKS):
            file.seek(max(0, size - _BLOCK_BYTES) * block // (_SAMPLED_BLOCKS - 1))
            digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()
