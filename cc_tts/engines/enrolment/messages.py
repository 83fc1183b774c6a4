"""The server and the process that enrols a voice exchange these records of MessagePack."""

from typing import Any

import msgspec
import numpy as np

from cc_tts.voices.embedding_cache import EnrolledVoice


class Recorded(msgspec.Struct, frozen=True, tag=True):
    """A recording: the bytes of its file and its transcript, ``None`` if that is not known."""

    audio: bytes
    words: str | None
    model_dir: str


class Made(msgspec.Struct, frozen=True, tag=True):
    voice: EnrolledVoice


class NotMade(msgspec.Struct, frozen=True, tag=True):
    """The code of the error for which no voice was made."""

    code: str
    detail: str


Answer = Made | NotMade


def encoded_answer(answer: Answer) -> bytes:
    return msgspec.msgpack.encode(answer, enc_hook=lambda array: (array.dtype.str, array.shape, array.tobytes()))


def decoded_answer(data: bytes) -> Answer:
    """Raises one of ``UNREADABLE``."""
    answer: Answer = msgspec.msgpack.decode(data, type=Answer, dec_hook=_array)
    return answer


def _array(_kind: type, written: Any) -> Any:
    dtype, shape, data = written
    return np.frombuffer(data, dtype).reshape(shape)
