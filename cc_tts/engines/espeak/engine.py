"""The embedded engine: espeak-ng in the server process. Robotic, in a hundred languages, a thousand times real time.

::

    event loop                                    the espeak thread
    open · push · end ──▸ texts ──▸ turns ──▸ one passage of one stream ──▸ trim ──▸ PcmChunk
    async for ◂──────────────────────────────────────────────────────── queue of the stream

Streams take turns, a passage each: the first passage of a new stream goes before later ones of running streams, and a
stream whose reader is :data:`MAX_AHEAD_MS` behind gets no turn until it has read. Nothing waits for a slow reader.

Between passages there is a pause by punctuation: up to 100 ms of it end the passage, the rest begins the next one, so
that an utterance's last passage does not hold the line for long.
"""

import asyncio
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat, PcmChunk, WordMark
from cc_tts.clock import Clock, MonotonicClock
from cc_tts.engines.espeak.library import (
    ENGINE_NAME,
    MAX_RATE_WPM,
    MIN_RATE_WPM,
    EspeakLibrary,
    EspeakVoices,
    WordEvent,
)
from cc_tts.engines.letters import with_joined_letters
from cc_tts.engines.phonemes import to_espeak
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded
from cc_tts.media.silence_trimmer import CLAUSE_END, SENTENCE_END, SilenceTrimmer, split_pause_after
from cc_tts.processes.watchdog import Watchdog
from cc_tts.voices.inline_ipa import replace_pronounced
from cc_tts.voices.voice import Voice

NATURAL_RATE_WPM: Final = 175
MAX_AHEAD_MS: Final = 4000.0
"""Audio queued for a reader from which on its stream gets no turn, ms."""
MAX_STREAMS: Final = 512
MAX_PASSAGE_CHARS: Final = 240
"""A longer text chunk is said in several passages: 240 characters keep the thread for about 20 ms."""
_RETRY_AFTER_S: Final = 2
STALL_LOOK_S: Final = 0.2
"""How often the thread is looked after while streams are open."""
STOP_TIMEOUT_S: Final = 5.0
"""For the passage that is under way when the engine stops."""

_UNSPEAKABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Passage:
    """What is synthesised in one turn: ``text`` begins at ``position`` of text chunk ``index``."""

    text: str
    position: int
    index: int


def split_passages(text: str, max_chars: int = MAX_PASSAGE_CHARS) -> list[tuple[int, str]]:
    """Cut ``text`` into passages of at most ``max_chars`` characters: after a sentence, a clause, a word, or anywhere.

    Returns the position of each and its text; together they are the whole text.
    """
    passages = []
    start = 0
    while len(text) - start > max_chars:
        window = text[start : start + max_chars]
        end = max_chars
        for stops in (SENTENCE_END, CLAUSE_END, " "):
            # not in the first third: crumbs sound worse than a pause at a lesser place
            if (found := max(window.rfind(stop) for stop in stops)) >= max_chars // 3:
                end = found + 1
                break
        if window.count("[[", 0, end) > window.count("]]", 0, end):
            end = window.rfind("[[", 0, end) or max_chars
        passages.append((start, text[start : start + end]))
        start += end
    passages.append((start, text[start:]))
    return passages


class EspeakStream:
    """See :class:`cc_tts.engines.engine.SpeechStream`. Runs on: the event loop, methods marked otherwise aside."""

    def __init__(self, turns: "_Turns", *, identifier: str, is_english: bool, rate_wpm: int) -> None:
        self.identifier = identifier
        self._is_english = is_english
        self.rate_wpm = rate_wpm
        self.speed = rate_wpm / NATURAL_RATE_WPM
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        # below: guarded by turns.lock
        self.passages: deque[_Passage] = deque()
        self.queued: deque[PcmChunk] = deque()
        self.queued_ms = 0.0
        self.last_turn = 0
        """Its number; 0: none yet."""
        self.has_turn = False
        self.is_over = False
        """Cancelled, or broken off because of ``_failure``."""
        self._is_ended = False
        self._is_told = False
        self._failure: EngineFailed | None = None
        # the espeak thread's own
        self.carried_pause_ms = 0.0
        self.chunk_ms = 0.0

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        """Append one text chunk. Never blocks."""
        text = _UNSPEAKABLE.sub(" ", with_joined_letters(spoken_text) if self._is_english else spoken_text)
        text = replace_pronounced(
            text.replace("[[", "[ ["), lambda ipa, words: to_espeak(ipa, is_english=self._is_english) or words
        )
        passages = [_Passage(part, position, text_chunk_index) for position, part in split_passages(text)]
        with self._turns.lock:
            if self._is_ended:
                raise ValueError("push after end")
            if not self.is_over:
                self.passages.extend(passages)
                self._turns.lock.notify()

    def end(self) -> None:
        """No more text will come."""
        with self._turns.lock:
            self._is_ended = True
        self._news.set()

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Nothing to do: espeak-ng is a thousand times faster than any listener."""

    def __aiter__(self) -> AsyncIterator[PcmChunk]:
        return self

    async def __anext__(self) -> PcmChunk:
        while True:
            with self._turns.lock:
                self._is_told = False
                self._news.clear()
                if self.queued:
                    chunk = self.queued.popleft()
                    self.queued_ms -= chunk.duration_ms
                    if self.passages:
                        self._turns.lock.notify()
                    return chunk
                if self.is_over or (self._is_ended and not self.passages and not self.has_turn):
                    self._turns.streams.pop(self, None)
                    raise self._failure or StopAsyncIteration
            await self._news.wait()

    async def cancel(self) -> None:
        """Stop now and free everything. The iteration ends. Safe to call twice and after the end."""
        with self._turns.lock:
            self.queued.clear()
            self.queued_ms = 0.0
            self._turns.streams.pop(self, None)
        self.break_off(None)

    def deliver(self, chunk: PcmChunk) -> bool:
        """Queue audio for the reader; ``False`` once the stream was cancelled. Runs on: the espeak thread."""
        with self._turns.lock:
            if not self.is_over:
                self.queued.append(chunk)
                self.queued_ms += chunk.duration_ms
                self._tell()
            return not self.is_over

    def turn_over(self) -> None:
        """Note that the turn has ended. Runs on: the espeak thread."""
        with self._turns.lock:
            self.has_turn = False
            self._tell()

    def break_off(self, failure: EngineFailed | None) -> None:
        """End it: what is queued is still given out, then ``failure`` is raised if there is one. Runs on: any thread."""
        with self._turns.lock:
            if not self.is_over:
                self.is_over, self._failure = True, failure
            self.passages.clear()
            self._tell()

    def _tell(self) -> None:
        """Wake the reader, once until it has looked."""
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._news.set)
            except RuntimeError:  # the loop is closed: nobody will read
                self.is_over = True
                self.passages.clear()
                self.queued.clear()


class _Turns:
    """The open streams, and whose passage is next: that of the stream whose last turn is the longest ago. ``lock`` guards
    both.
    """

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.streams: dict[EspeakStream, None] = {}
        """In the order in which they were opened."""
        self.num_turns = 0
        self.is_busy = False
        """Whether the turn given out last is under way."""
        self._is_closed = False

    def is_busy_with(self, turn: int) -> bool:
        """Whether the turn of this number is under way."""
        return self.is_busy and self.num_turns == turn

    def close(self) -> None:
        """Let :meth:`next` return ``None`` from now on."""
        with self.lock:
            self._is_closed = True
            self.lock.notify_all()

    def next(self) -> tuple[EspeakStream, _Passage] | None:
        """Wait for the next turn. Runs on: the espeak thread."""
        with self.lock:
            self.is_busy = False
            while not self._is_closed:
                ready = [each for each in self.streams if each.passages and each.queued_ms < MAX_AHEAD_MS]
                if ready:
                    stream = min(ready, key=lambda each: each.last_turn)
                    self.num_turns += 1
                    stream.last_turn = self.num_turns
                    self.is_busy = stream.has_turn = True
                    return stream, stream.passages.popleft()
                self.lock.wait()
        return None


class EspeakEngine:
    """See :class:`cc_tts.engines.engine.Engine`."""

    name = ENGINE_NAME
    identity = ""

    def __init__(
        self,
        *,
        default_voice: str = "en-us",
        stall_timeout_ms: float = 3000.0,
        clock: Clock | None = None,
        open_library: Callable[[], EspeakLibrary] = EspeakLibrary,
    ) -> None:
        self._default_voice = default_voice
        self._stall_timeout_ms = stall_timeout_ms
        self._clock = clock or MonotonicClock()
        self._open_library = open_library
        self._watch: asyncio.Task[None] | None = None
        self._voices: EspeakVoices | None = None
        self._turns = _Turns()
        self._thread: threading.Thread | None = None
        self._not_ready_because: str | None = "not started"

    def not_ready_because(self, voice: str | None = None) -> str | None:  # noqa: ARG002 - one thread has every voice
        """Why a stream could not be opened now; ``None`` when it could."""
        if self.is_full():
            return f"{len(self._turns.streams)} streams are open, as many as configured"
        return self._not_ready_because

    def is_full(self, voice: str | None = None) -> bool:  # noqa: ARG002 - one thread has every voice
        """Whether as many streams are open as may be; see the contract."""
        return self._not_ready_because is None and len(self._turns.streams) >= MAX_STREAMS

    @property
    def degraded_because(self) -> None:
        """Never; see the contract."""

    def utilisation(self, voice: str) -> float:  # noqa: ARG002 - one thread has every voice
        """Streams that are open, of those that may be; see the contract."""
        return len(self._turns.streams) / MAX_STREAMS

    async def start(self) -> None:
        """Start the thread, load espeak-ng and let it say something. Raises ``EngineFailed`` if it cannot be loaded,
        ``ConfigError`` if the default voice does not exist.
        """
        if self._thread is not None:
            return
        loaded: Future[None] = Future()
        self._turns = _Turns()
        self._thread = threading.Thread(target=self._run, args=(self._turns, loaded), name="espeak", daemon=True)
        self._not_ready_because = "starting"
        self._thread.start()
        try:
            await asyncio.shield(asyncio.wrap_future(loaded))  # cancelled, the thread still reports to it
        except BaseException as error:
            await self.stop()
            if isinstance(error, CcTtsError):
                self._not_ready_because = error.detail
            raise
        self._not_ready_because = None

    async def stop(self) -> None:
        """Cancel every stream and end the thread. Safe to call twice; the engine can start again."""
        self._not_ready_because = "stopped"
        if self._thread is None:
            return
        for stream in tuple(self._turns.streams):
            await stream.cancel()
        thread, self._thread = self._thread, None
        self._turns.close()
        await asyncio.to_thread(thread.join, STOP_TIMEOUT_S)
        if thread.is_alive():
            log.error("engine_does_not_end", engine=self.name)

    def voices(self) -> tuple[Voice, ...]:
        """Every voice, without variants; none before the start."""
        return self._voices.voices if self._voices is not None else ()

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        """Find the voice for a request: an id, perhaps with ``+variant``, else the best one for a BCP 47 tag."""
        if self._voices is None:
            raise EngineFailed(f"espeak-ng is not ready: {self._not_ready_because}")
        return self._voices.resolve(voice, language)

    def open_stand_in(self, voice: str, speed: float = 1.0) -> None:
        """There is no other engine behind this one; see the contract."""

    def open(
        self,
        voice: str,
        speed: float = 1.0,
        *,
        call_id: str = "",  # noqa: ARG002 - for workers
        must_speak: bool = False,  # noqa: ARG002 - for workers
    ) -> EspeakStream:
        """Begin one utterance; see the contract."""
        if self._not_ready_because is not None or self._voices is None:
            raise EngineFailed(f"espeak-ng is not ready: {self._not_ready_because}")
        found = self._voices.resolve(voice, None)
        if len(self._turns.streams) >= MAX_STREAMS:
            raise EngineOverloaded(self.not_ready_because() or "", retry_after_s=_RETRY_AFTER_S)
        rate_wpm = min(max(round(NATURAL_RATE_WPM * speed), MIN_RATE_WPM), MAX_RATE_WPM)
        stream = EspeakStream(
            self._turns,
            identifier=self._voices.identifier(found),
            is_english=found.language.startswith("en"),
            rate_wpm=rate_wpm,
        )
        with self._turns.lock:
            self._turns.streams[stream] = None
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_thread(self._turns), name="watch the espeak thread")
        return stream

    async def _watch_thread(self, turns: _Turns) -> None:
        """While streams are open: when one passage keeps the thread for too long, every stream fails, and the engine is not
        ready until the passage is over. A thread cannot be ended.
        """
        silence = Watchdog(self._clock, max_step_s=2 * STALL_LOOK_S)
        last_turn = 0
        while turns.streams and self._not_ready_because is None:
            await asyncio.sleep(STALL_LOOK_S)
            silence.count(owed=turns.is_busy_with(last_turn))
            last_turn = turns.num_turns
            if silence.seconds * 1000 > self._stall_timeout_ms:
                self._not_ready_because = f"espeak-ng has been busy with one passage for {silence.seconds:.1f} s"
                log.error("engine_stalled", engine=self.name, num_streams=len(turns.streams))
                for stream in tuple(turns.streams):
                    stream.break_off(EngineFailed(self._not_ready_because, retry_after_s=_RETRY_AFTER_S))
                while turns.is_busy_with(last_turn) and self._thread is not None:  # noqa: ASYNC110 - a thread
                    await asyncio.sleep(STALL_LOOK_S)
                if self._thread is not None:
                    self._not_ready_because = None

    def _run(self, turns: _Turns, loaded: Future[None]) -> None:
        """Load, serve turns until closed. Runs on: the espeak thread, which this is."""
        try:
            library = self._open_library()
            rate_hz = library.sample_rate_hz
            voices = EspeakVoices(library.voices(), library.variants(), self._default_voice, rate_hz=rate_hz)
            warm_up = voices.identifier(voices.resolve(None, None))
            library.synthesise("1", voice=warm_up, rate_wpm=NATURAL_RATE_WPM, on_audio=lambda _pcm, _words: True)
        except Exception as error:  # noqa: BLE001 whatever a C library's data may cause
            is_ours = isinstance(error, CcTtsError)
            loaded.set_exception(error if is_ours else EngineFailed(f"espeak-ng did not start: {error!r}"))
            return
        self._voices = voices
        loaded.set_result(None)
        while (turn := turns.next()) is not None:
            stream, passage = turn
            try:
                _PassageSynthesis(AudioFormat(rate_hz), stream, passage).run(library)
            except Exception as error:  # noqa: BLE001 one stream's trouble must not end the thread
                failure = error if isinstance(error, EngineFailed) else EngineFailed(f"espeak-ng: {error!r}")
                log.error("synthesis_failed", engine=self.name, detail=failure.detail, text_chars=len(passage.text))
                stream.break_off(failure)
            stream.turn_over()


class _PassageSynthesis:
    """One turn: trims the silence, puts pauses and words in place, delivers. Runs on: the espeak thread."""

    def __init__(self, audio_format: AudioFormat, stream: EspeakStream, passage: _Passage) -> None:
        self._format = audio_format
        self._stream = stream
        self._passage = passage
        self._trimmer = SilenceTrimmer(audio_format)
        self._words: deque[WordEvent] = deque()
        if passage.position == 0:
            stream.chunk_ms = 0.0
        self._start_ms = stream.chunk_ms  # of the passage's speech in its text chunk
        self._is_delivered = False

    def run(self, library: EspeakLibrary) -> None:
        """Synthesise and deliver the passage."""
        stream = self._stream
        if not self._passage.text.strip():
            return
        library.synthesise(
            self._passage.text, voice=stream.identifier, rate_wpm=stream.rate_wpm, on_audio=self._on_audio
        )
        if not self._trimmer.heard or stream.is_over:
            return
        tail_ms, stream.carried_pause_ms = split_pause_after(self._passage.text, stream.speed)
        self._deliver(self._trimmer.finish(tail_ms), is_last=True)

    def _on_audio(self, pcm: bytes, words: tuple[WordEvent, ...]) -> bool:
        if self._stream.is_over:
            return False
        self._words.extend(words)
        speech = self._trimmer.process(pcm)
        return not speech or self._deliver(speech, is_last=False)

    def _deliver(self, speech: bytes, *, is_last: bool) -> bool:
        stream = self._stream
        if not self._is_delivered:
            self._is_delivered = True
            pause = bytes(self._format.bytes_for_ms(stream.carried_pause_ms))
            stream.carried_pause_ms = 0.0
            self._start_ms += self._format.ms_for_bytes(len(pause))
            speech = pause + speech
        stream.chunk_ms += self._format.ms_for_bytes(len(speech))
        marks = []
        while self._words and (is_last or self._offset_ms(self._words[0]) < stream.chunk_ms):
            word = self._words.popleft()
            position = self._passage.position + min(word.position, len(self._passage.text))
            marks.append(WordMark(position, min(self._offset_ms(word), stream.chunk_ms)))
        return stream.deliver(PcmChunk(self._format, speech, self._passage.index, tuple(marks)))

    def _offset_ms(self, word: WordEvent) -> float:
        sample = max(0, word.sample - self._trimmer.trimmed_lead_samples)
        return round(self._start_ms + self._format.ms_for_samples(sample), 3)
