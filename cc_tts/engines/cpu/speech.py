"""Builds the audio of a text chunk from a model's output: trims the silence around sentences, inserts our pauses, and places
the words. Runs on: a synthesis thread.
"""

import math
from collections import deque

from cc_tts.audio import AudioFormat, WordMark
from cc_tts.engines.cpu.contract import Parts, SentenceAudio, WordStart
from cc_tts.engines.cpu.costs import Cost
from cc_tts.media.silence_trimmer import SilenceTrimmer, split_pause_after


class ChunkSpeech:
    """One text chunk, whose ``parts`` are made one at a time. Up to 100 ms of the pause after a sentence end it, and the
    rest begins the next one, so that the last sentence of an utterance does not hold the line for long.
    ``carried_pause_ms``: what the chunk before has left, and what this one leaves.
    """

    def __init__(
        self,
        parts: Parts,
        audio_format: AudioFormat,
        speed: float,
        carried_pause_ms: float,
        *,
        index: int,
        num_characters: int,
    ) -> None:
        self.parts = parts
        self.index = index
        self._num_characters = num_characters
        self.audio_format = audio_format
        self._spent_ms = 0.0
        self._first_ms = math.inf
        self._speed = speed
        self.carried_pause_ms = carried_pause_ms
        self._given_ms = 0.0
        self._begin_sentence()

    def _begin_sentence(self) -> None:
        self._trimmer = SilenceTrimmer(self.audio_format)
        self._words: deque[WordStart] = deque()
        self._start_ms = self._given_ms
        self._is_begun = False

    def spent(self, elapsed_ms: float) -> None:
        """Note the time that a part took."""
        self._spent_ms += elapsed_ms
        if self._given_ms and math.isinf(self._first_ms):
            self._first_ms = self._spent_ms

    @property
    def cost(self) -> Cost | None:
        """Return the cost of the chunk, or ``None`` if nothing was heard."""
        if not self._given_ms:
            return None
        return Cost(self._spent_ms / self._given_ms, self._spent_ms / self._num_characters, self._first_ms)

    def take(self, audio: SentenceAudio) -> tuple[bytes, tuple[WordMark, ...]]:
        """Take audio; return what can be delivered now, and the words that begin in it."""
        self._words.extend(audio.words)
        pcm = self._trimmer.process(audio.pcm)
        if pcm and not self._is_begun:
            self._is_begun = True
            pause = bytes(self.audio_format.bytes_for_ms(self.carried_pause_ms))
            self.carried_pause_ms = 0.0
            self._start_ms += self.audio_format.ms_for_bytes(len(pause))
            pcm = pause + pcm
        if is_last := audio.ends_with is not None and self._trimmer.heard:
            tail_ms, self.carried_pause_ms = split_pause_after(audio.ends_with or "", self._speed)
            pcm += self._trimmer.finish(tail_ms)
        self._given_ms += self.audio_format.ms_for_bytes(len(pcm))
        words = self._begun_words(is_last=is_last) if pcm else ()
        if audio.ends_with is not None:
            self._begin_sentence()
        return pcm, words

    def _begun_words(self, *, is_last: bool) -> tuple[WordMark, ...]:
        marks = []
        while self._words and (is_last or self._offset_ms(self._words[0]) < self._given_ms):
            word = self._words.popleft()
            marks.append(WordMark(word.position, min(self._offset_ms(word), self._given_ms)))
        return tuple(marks)

    def _offset_ms(self, word: WordStart) -> float:
        sample = max(0, word.sample - self._trimmer.trimmed_lead_samples)
        return round(self._start_ms + self.audio_format.ms_for_samples(sample), 3)
