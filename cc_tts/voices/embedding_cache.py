"""Enrolled voices on disk: two files each, named by a hash of their sources.

::

    <folder>/<key>.safetensors    llm_tokens [P] · flow_tokens [P'] · flow_mel [2P', 80] · embedding [192]
    <folder>/<key>.json           transcript, length, warnings, and the sha256 of the file above

Both are written beside their place and moved into it, the JSON last: a voice is there when its JSON is, and is whole
then. Two processes may enrol the same voice at once; they write the same bytes.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from cc_tts import atomic_file
from cc_tts.errors import UNREADABLE, ConfigError

EMBEDDING_SIZE: Final = 192
MEL_BINS: Final = 80
KEY: Final = re.compile(r"[0-9a-f]{64}")

_VERSION: Final = 1
_SHARED: Final = ("key", "transcript", "fingerprint", "duration_s", "warnings")
_TENSORS: Final = ("llm_tokens", "flow_tokens", "flow_mel", "embedding")


@dataclass(frozen=True, slots=True, eq=False)
class EnrolledVoice:
    """The data of a voice that the engine needs (spec §1, "zero-shot entry"; §7.3).

    ``llm_tokens`` and ``flow_tokens`` are the same tokens, save that the flow's may have been trimmed at the front.
    """

    key: str
    transcript: str
    fingerprint: str
    duration_s: float
    warnings: tuple[str, ...]
    llm_tokens: npt.NDArray[np.int32]  # [P]
    flow_tokens: npt.NDArray[np.int32]  # [P']
    flow_mel: npt.NDArray[np.float32]  # [2P', 80]
    embedding: npt.NDArray[np.float32]  # [192]


class VoiceMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON beside the tensors: enough to list voices without reading them."""

    key: str
    transcript: str
    fingerprint: str
    duration_s: float
    num_llm_tokens: int
    num_flow_tokens: int
    warnings: tuple[str, ...] = ()
    tensors_sha256: str
    version: int = _VERSION


class EmbeddingCache:
    """The folder of enrolled voices. It may be emptied at any time; the voices are then computed again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> EnrolledVoice | None:
        """Read a voice; ``None`` if it is missing or incomplete, so that it is computed again."""
        metadata = self._metadata(key)
        if metadata is None:
            return None
        from safetensors import SafetensorError, safe_open

        path = self._path(key, "safetensors")
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != metadata.tensors_sha256:
                    return None
            with safe_open(path, framework="np") as mapped:
                tensors = {name: mapped.get_tensor(name) for name in _TENSORS}
        except (OSError, SafetensorError):
            return None
        return EnrolledVoice(**{name: getattr(metadata, name) for name in _SHARED}, **tensors)

    def store(self, voice: EnrolledVoice) -> None:
        """Write a voice; a concurrent reader sees all of it or nothing. ``ConfigError`` if that cannot be written."""
        from safetensors.numpy import save

        content = save({name: getattr(voice, name) for name in _TENSORS})
        metadata = VoiceMetadata(
            **{name: getattr(voice, name) for name in _SHARED},
            num_llm_tokens=len(voice.llm_tokens),
            num_flow_tokens=len(voice.flow_tokens),
            tensors_sha256=hashlib.sha256(content).hexdigest(),
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_file.write(self._path(voice.key, "safetensors"), content)
            text = msgspec.json.format(msgspec.json.encode(metadata), indent=1) + b"\n"
            atomic_file.write(self._path(voice.key, "json"), text)
        except OSError as error:
            raise ConfigError(f"cannot keep the voice in {self._folder}: {error.strerror}") from None

    def remove(self, key: str) -> None:
        """Delete a voice. The JSON is deleted first, so that no incomplete voice is ever found."""
        for kind in ("json", "safetensors"):
            self._path(key, kind).unlink(missing_ok=True)

    def entries(self) -> Iterator[VoiceMetadata]:
        """List the voices, without their tensors, in the order of their keys."""
        for path in sorted(self._folder.glob("*.json")):
            metadata = self._metadata(path.stem) if KEY.fullmatch(path.stem) else None
            if metadata is not None:
                yield metadata

    def _metadata(self, key: str) -> VoiceMetadata | None:
        try:
            metadata = msgspec.json.decode(self._path(key, "json").read_bytes(), type=VoiceMetadata)
        except (OSError, *UNREADABLE):
            return None
        return metadata if metadata.key == key and metadata.version == _VERSION else None

    def _path(self, key: str, kind: str) -> Path:
        if not KEY.fullmatch(key):
            raise ValueError(f"{key[:80]!r} is not the key of a voice")
        return self._folder / f"{key}.{kind}"
