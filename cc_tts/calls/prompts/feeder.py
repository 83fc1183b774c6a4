"""Synthesises an utterance and sends its audio to the leg, no faster than it is played.

Runs on: the event loop.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial

from cc_tts.audio import AudioFormat
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.events import types
from cc_tts.calls.prompts.speak_events import FIRST_CHUNK, SpeakEvents, TextPlace
from cc_tts.calls.prompts.utterance import Utterance, UtteranceError
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import LanguageUnsupported
from cc_tts.speech.admission import AdmittedStream
from cc_tts.speech.prompt import AudioContent, Content, IncrementalContent, SilenceContent
from cc_tts.speech.timing.spans import close_span, extend_spans
from cc_tts.ua import messages


class Feeder:
    """Feeds the leg of one call. ``buffered_ms``: audio that the leg has not played yet. ``is_heard``: whether the far side
    listens. :attr:`moved` is set when more was played.
    """

    def __init__(
        self,
        call: CallInfo,
        told: SpeakEvents,
        *,
        buffered_ms: Callable[[], float],
        is_heard: Callable[[], bool],
    ) -> None:
        self._call_id = call.id
        self._services = call.services
        self._told = told
        self._tenant = call.tenant
        self._buffered_ms = buffered_ms
        self._is_heard = is_heard
        self._format = AudioFormat(call.services.config.rtp.clock_rate_hz)
        self.moved = asyncio.Event()

    def start_ms(self, content: Content) -> int:
        """Return how much audio the leg must have before it starts to play the content."""
        if isinstance(content, AudioContent):
            return round(content.incremental.start_ms)
        return self._services.threshold.current_ms

    async def feed(self, utterance: Utterance) -> None:
        """Send the whole utterance, with its repetitions; raises the errors of its synthesis."""
        prompt = utterance.prompt
        for turn in range(prompt.repeat):
            if turn and prompt.delay_ms:
                await self._produce(SilenceContent(prompt.delay_ms), utterance, spans=False)
            fed_before_ms = utterance.fed_ms
            await self._produce(prompt.content, utterance, spans=turn == 0)
            if utterance.fed_ms <= fed_before_ms:
                break  # its time is over, or it has no audio: repeating it would not help
        self._services.ua.send(messages.FinishUtterance(self._call_id, utterance.id))

    async def _produce(self, content: Content, utterance: Utterance, *, spans: bool) -> None:
        """Send the chunks of the content while the leg holds less than the window."""
        if self._bytes_left(utterance) <= 0:
            return
        stream, place = self._stream(content, utterance), TextPlace()
        try:
            async for chunk in stream:
                place = place.after(chunk.begins_source)
                self._note(chunk, utterance, place, spans=spans)
                while self._buffered_ms() > self._services.config.playout.window_ms:
                    self.moved.clear()
                    await self.moved.wait()
                data = chunk.data[: self._bytes_left(utterance)]
                if data:
                    self._services.ua.send(messages.Audio(self._call_id, utterance.id), data)
                utterance.fed_ms += self._format.ms_for_bytes(len(data))
                stream.set_buffered_ms(self._buffered_ms())
                if self._bytes_left(utterance) <= 0:
                    return  # the rest was cut off, so its last span has no end
            if spans:
                close_span(utterance.spans, utterance.fed_ms)
        finally:
            await stream.cancel()

    def _stream(self, content: Content, utterance: Utterance) -> AdmittedStream:
        """Return the speech of the content. While the engine, or the tenant's share of it, is full, it waits for a bounded
        time, then uses the fallback engine, if there is one. That a worker is full may only show once it was asked.
        """
        services = self._services
        return AdmittedStream(
            partial(
                services.source.open,
                content,
                rate_hz=self._format.rate_hz,
                call_id=self._call_id,
                utterance_id=utterance.id,
            ),
            services.config.tts.overload_wait_ms,
            hold=partial(services.hold_stream, self._tenant, content),
            asking=partial(services.tenants.asking_engine, self._tenant),
            is_early=lambda: self._buffered_ms() > 0 or not self._is_heard(),
            reopens=not isinstance(content, AudioContent | IncrementalContent),
        )

    def _note(self, chunk: SpeechChunk, utterance: Utterance, place: TextPlace, *, spans: bool) -> None:
        """Note the information that comes with a chunk."""
        if utterance.first_pcm_ns is None and chunk.data:
            utterance.first_pcm_ns = self._services.clock.now_ns()
            utterance.cached = chunk.cached
        if spans:
            extend_spans(utterance.spans, chunk, utterance.fed_ms)
        if chunk.marks and utterance.played_ms:  # perhaps nothing is left to play that would report them
            self._told.progress(utterance)
        if chunk.awaits_text:
            close_span(utterance.spans, utterance.fed_ms)
            self._services.ua.send(messages.ExpectUnderrun(self._call_id, utterance.id))
        if chunk.refused_because:  # the utterance goes on without these words, and completes with the error
            utterance.error = utterance.error or UtteranceError(LanguageUnsupported.code, chunk.refused_because)
            self._told.refused(utterance, chunk, place)
        if chunk.after_loss or chunk.gave_up_after is not None:
            reason: types.RecoveryReason = "worker_lost" if chunk.after_loss else "runaway"
            self._told.recovered(utterance, place if place.text_chunk >= 0 else FIRST_CHUNK, reason)

    def _bytes_left(self, utterance: Utterance) -> int:
        """Return how much more audio of the utterance may be sent."""
        limit_ms = utterance.prompt.max_duration_ms
        return sys.maxsize if limit_ms is None else self._format.bytes_for_ms(limit_ms - utterance.fed_ms)
