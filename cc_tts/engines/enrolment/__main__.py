"""The enrolment process: ``Recorded`` on standard input, an ``Answer`` on standard output.

The bytes of the recording come from outside, and libsndfile and onnxruntime are written in C: what crashes them, or takes
their memory, costs this process.
"""

import os
import resource
import sys
from pathlib import Path
from typing import Final

import msgspec

from cc_tts.engines.enrolment.messages import Answer, Made, NotMade, Recorded, encoded_answer
from cc_tts.engines.enrolment.recording import read_recording
from cc_tts.errors import AudioUnreadable, CcTtsError, ConfigError, EnrolmentFailed, EnrolmentUnavailable, Unprocessable
from cc_tts.media.sound_file import NOT_AUDIO
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.enrolment import ReferenceRecording, enrol

MAX_CPU_S: Final = 120
"""The processor time that an enrolment may take (unmeasured)."""
MAX_READING_BYTES: Final = 2 << 30
"""The address space while the file is read (unmeasured); numpy alone maps some 500 MB."""
NICENESS: Final = 10
"""The priority is low, since calls come first (unmeasured)."""
NAME: Final = "the recording"


def make_voice(recorded: Recorded) -> EnrolledVoice:
    """Check the recording, and run the networks on it.

    Raises:
        Unprocessable: no voice can come of it; the detail says why.
        AudioUnreadable: as :func:`cc_tts.engines.enrolment.recording.read_recording`.
        EnrolmentUnavailable: the networks, or what runs them, are not there.
    """
    recording = _within(MAX_READING_BYTES, recorded.audio)
    from cc_tts.engines.cosyvoice.voice.encoder import CosyVoiceReferenceEncoder

    try:
        return enrol(recording, recorded.words, CosyVoiceReferenceEncoder(Path(recorded.model_dir)), name=NAME)
    except (ConfigError, OSError) as error:
        detail = error.detail if isinstance(error, ConfigError) else f"{error.filename}: {error.strerror}"
        raise EnrolmentUnavailable(detail) from None


def _within(max_bytes: int, data: bytes) -> ReferenceRecording:
    """Read the recording within a memory limit. The networks, which we trust, need more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        return read_recording(data)
    except MemoryError:
        raise AudioUnreadable(NOT_AUDIO) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def answer(data: bytes) -> Answer:
    """Return the voice of a recording, or why there is none. Of an unexpected error only the type is told, since its text
    may hold the transcript.
    """
    try:
        return Made(make_voice(msgspec.msgpack.decode(data, type=Recorded)))
    except (Unprocessable, AudioUnreadable, EnrolmentUnavailable) as error:
        return NotMade(error.code, error.detail)
    except CcTtsError as error:
        return NotMade(EnrolmentFailed.code, error.detail)
    except Exception as error:  # noqa: BLE001 - the server is told whatever it is
        return NotMade(EnrolmentFailed.code, f"the encoder failed: {type(error).__name__}")


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    sys.stdout.buffer.write(encoded_answer(answer(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
