"""The enrolment process: ``Recorded`` on standard input, an ``Answer`` on standard output.

The bytes of the recording come from outside, and libsndfile and onnxruntime are written in C: what crashes them, or takes
their memory, costs this process.
"""

import io
import os
import resource
import sys
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cc_tts.engines.enrolment.messages import Answer, Made, NotMade, Recorded
from cc_tts.errors import AudioUnreadable, CcTtsError, ConfigError, EnrolmentFailed, EnrolmentUnavailable, Unprocessable
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.enrolment import MAX_DURATION_S, MAX_RATE_HZ, Recording, check_reference, voice_key, voice_of

MAX_CPU_S: Final = 120
"""The processor time that an enrolment may take (unmeasured)."""
MAX_READING_BYTES: Final = 2 << 30
"""The address space while the file is read (unmeasured); numpy alone maps some 500 MB."""
MAX_CHANNELS: Final = 8
"""The most channels that are mixed to one (unmeasured)."""
NICENESS: Final = 10
"""The priority is low, since calls come first (unmeasured)."""
NAME: Final = "the recording"
_NOT_AUDIO: Final = "this is no audio file that can be read; send a WAV, FLAC or MP3 file"


def read_recording(data: bytes) -> Recording:
    """Return the samples of an audio file at its own rate, with channels averaged. A file that is too long is read only far
    enough to see that.

    Raises:
        AudioUnreadable: it is no audio file that libsndfile knows, or is damaged.
    """
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.channels > MAX_CHANNELS or not 0 < file.samplerate <= MAX_RATE_HZ:
                raise AudioUnreadable(f"{file.channels} channels at {file.samplerate} Hz are not read")
            limit = int((MAX_DURATION_S + 1) * file.samplerate)
            samples = file.read(limit, dtype="float32", always_2d=True)
            rate_hz: int = file.samplerate
    except (soundfile.LibsndfileError, RuntimeError, TypeError, ValueError):
        raise AudioUnreadable(_NOT_AUDIO) from None
    if not len(samples):
        raise AudioUnreadable("the file has no samples")
    return Recording(np.ascontiguousarray(samples.mean(axis=1)), rate_hz)


def make_voice(recorded: Recorded) -> EnrolledVoice:
    """Check the recording, and run the networks on it.

    Raises:
        Unprocessable: no voice can come of it; the detail says why.
        AudioUnreadable: as :func:`read_recording`.
        EnrolmentUnavailable: the networks, or what runs them, are not there.
    """
    recording = _within(MAX_READING_BYTES, recorded.audio)
    warnings = check_reference(recording, recorded.words, name=NAME)
    from cc_tts.engines.cosyvoice.voice.encoder import CosyVoiceReferenceEncoder

    encoder = CosyVoiceReferenceEncoder(Path(recorded.model_dir))
    try:
        fingerprint = encoder.fingerprint
        features = encoder.encode(recording.audio, recording.rate_hz)
    except (ConfigError, OSError) as error:
        detail = error.detail if isinstance(error, ConfigError) else f"{error.filename}: {error.strerror}"
        raise EnrolmentUnavailable(detail) from None
    words = recorded.words or ""
    key = voice_key(recorded.audio, words, fingerprint, trim_to_chunk=True)
    return voice_of(features, recording, words, key, fingerprint, warnings)


def _within(max_bytes: int, data: bytes) -> Recording:
    """Read the recording within a memory limit. The networks, which we trust, need more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        return read_recording(data)
    except MemoryError:
        raise AudioUnreadable(_NOT_AUDIO) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def answer(data: bytes) -> Answer:
    """Return the voice of a recording, or why there is none. Of an unexpected error only the type is told, since its text
    may hold the transcript.
    """
    try:
        return Made.of(make_voice(msgspec.msgpack.decode(data, type=Recorded)))
    except (Unprocessable, AudioUnreadable, EnrolmentUnavailable) as error:
        return NotMade(error.code, error.detail)
    except CcTtsError as error:
        return NotMade(EnrolmentFailed.code, error.detail)
    except Exception as error:  # noqa: BLE001 - the server is told whatever it is
        return NotMade(EnrolmentFailed.code, f"the encoder failed: {type(error).__name__}")


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
