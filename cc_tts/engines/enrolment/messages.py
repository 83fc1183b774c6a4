"""The server and the process that enrols a voice exchange these records of MessagePack."""

from typing import Any, Final, Self

import msgspec
import numpy as np

from cc_tts.voices.embedding_cache import MEL_BINS, EnrolledVoice

_ARRAYS: Final[dict[str, tuple[Any, tuple[int, ...]]]] = {
    "llm_tokens": (np.int32, (-1,)),
    "flow_tokens": (np.int32, (-1,)),
    "flow_mel": (np.float32, (-1, MEL_BINS)),
    "embedding": (np.float32, (-1,)),
}
"""The type and shape of a voice's arrays."""


class Recorded(msgspec.Struct, frozen=True, tag=True):
    """A recording: the bytes of its file and its transcript, ``None`` if that is not known."""

    audio: bytes
    words: str | None
    model_dir: str


class Made(msgspec.Struct, frozen=True, tag=True):
    """The voice that was made."""

    key: str
    transcript: str
    fingerprint: str
    duration_s: float
    warnings: tuple[str, ...]
    llm_tokens: bytes
    flow_tokens: bytes
    flow_mel: bytes
    embedding: bytes

    @classmethod
    def of(cls, voice: EnrolledVoice) -> Self:
        values = {name: getattr(voice, name) for name in cls.__struct_fields__}
        return cls(**values | {name: values[name].tobytes() for name in _ARRAYS})

    @property
    def voice(self) -> EnrolledVoice:
        values = msgspec.structs.asdict(self)
        for name, (kind, shape) in _ARRAYS.items():
            values[name] = np.frombuffer(values[name], kind).reshape(shape)
        return EnrolledVoice(**values)


class NotMade(msgspec.Struct, frozen=True, tag=True):
    """The code of the error for which no voice was made."""

    code: str
    detail: str


Answer = Made | NotMade
