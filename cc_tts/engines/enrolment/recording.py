"""Reads the recording of a voice, on the command line and in the enrolment process."""

import numpy as np

from cc_tts.errors import AudioUnreadable
from cc_tts.media import sound_file
from cc_tts.voices.enrolment import MAX_DURATION_S, ReferenceRecording


def read_recording(data: bytes) -> ReferenceRecording:
    """Return the samples of an audio file at its own rate, with channels averaged. A file that is too long is read only far
    enough to see that.

    Raises:
        AudioUnreadable: it is no audio file that libsndfile knows, is damaged, or cut short.
    """
    with sound_file.opened(data) as file:
        limit = int((MAX_DURATION_S + 1) * file.samplerate)
        samples = file.read(limit, dtype="float32", always_2d=True)
        rate_hz: int = file.samplerate
    if not len(samples):
        raise AudioUnreadable(sound_file.NO_SAMPLES)
    return ReferenceRecording(np.ascontiguousarray(samples.mean(axis=1)), rate_hz, data)
