"""The gain that brings each voice to ``tts.target_dbfs``. Runs on: the event loop."""

from collections.abc import Callable
from functools import partial
from typing import Final

from cc_tts.audio import AudioFormat
from cc_tts.media.levels import active_level_dbfs
from cc_tts.speech.chunks import SpokenPrompt
from cc_tts.voices.voice import Voice

ASSUMED_DBFS: Final = -20.5
"""The assumed level of an unknown voice: about that of espeak-ng, and between those of CosyVoice2's references."""
LEARNING_MS: Final = 6000.0  # measured
"""The audio of a voice from which its level is measured once: single prompts of 1 to 3 s of one voice differ by up to 2.4
dB.
"""


class VoiceLevels:
    """The levels that the engines know, and those of other voices, measured over their first seconds. A cloned voice is as
    loud as its reference, and only its speech shows how loud that is.
    """

    def __init__(self, target_dbfs: float) -> None:
        self._target_dbfs = target_dbfs
        self._learned: dict[str, float] = {}
        self._heard: dict[str, bytearray] = {}
        self._rates_hz: dict[str, int] = {}

    def gain_db(self, voice: Voice) -> float:
        """Return the gain from the voice's own level to the target."""
        level_dbfs = voice.level_dbfs
        if level_dbfs is None:
            self._heard.setdefault(voice.id, bytearray())
            level_dbfs = self._learned.get(voice.id, ASSUMED_DBFS)
        return self._target_dbfs - level_dbfs

    def meter(self, prompt: SpokenPrompt) -> Callable[[bytes], None] | None:
        """Return a meter for the audio of a prompt before its gain; ``None`` if there is nothing to learn."""
        if prompt.voice in self._learned or prompt.voice not in self._heard:
            return None
        return partial(self._hear, prompt.voice, AudioFormat(prompt.rate_hz))

    def _hear(self, voice_id: str, audio_format: AudioFormat, pcm: bytes) -> None:
        if (
            voice_id in self._learned
            or self._rates_hz.setdefault(voice_id, audio_format.rate_hz) != audio_format.rate_hz
        ):
            return
        heard = self._heard[voice_id]
        heard += pcm
        if audio_format.ms_for_bytes(len(heard)) >= LEARNING_MS:
            level = active_level_dbfs(bytes(heard), audio_format.rate_hz)
            heard.clear()
            if level is not None:
                self._learned[voice_id] = level
