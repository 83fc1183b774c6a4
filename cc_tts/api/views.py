"""What clients get to see: responses, built from calls, utterances and voices.

Times of day are seconds since the epoch, as in events.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta

from cc_tts.calls.call import Call as CallBelow
from cc_tts.calls.call import Direction
from cc_tts.calls.call_state import CallState, UtteranceState
from cc_tts.calls.ending import Ending
from cc_tts.calls.utterance import CompletionCause
from cc_tts.calls.utterance import Utterance as UtteranceBelow
from cc_tts.media.quality import Quality
from cc_tts.speech.prompt import Then
from cc_tts.voices.voice import Voice as VoiceBelow
from cc_tts.voices.voice import VoiceKind

EpochSeconds = Annotated[float, Meta(description="Seconds since the Unix epoch.")]
Milliseconds = Annotated[float, Meta(description="Milliseconds.")]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call. ``ending`` is set once ``state`` is terminated; ``utterances`` are ids, oldest first."""

    id: str
    direction: Direction
    state: CallState
    caller: str
    callee: str
    sip_call_id: str
    headers: Mapping[str, str]
    uri_parameters: Annotated[
        Mapping[str, str], Meta(description="Of the Request-URI, as sent; of trusted peers (sip.trusted_peers) only.")
    ]
    codec: str | None
    clock_rate_hz: int | None
    transport: Annotated[str | None, Meta(description="What its SIP came over: udp, tcp or tls.")]
    srtp: Annotated[bool | None, Meta(description="Whether its audio is encrypted; null while there is none.")]
    held: bool
    paused: bool
    created_at: EpochSeconds
    answered_at: EpochSeconds | None
    ended_at: EpochSeconds | None
    ending: Ending | None
    utterances: tuple[str, ...]
    quality: Quality

    @classmethod
    def of(cls, call: CallBelow) -> Self:
        """``call`` as it is now."""
        return cls(
            id=call.id,
            direction=call.direction,
            state=call.state,
            caller=call.caller,
            callee=call.callee,
            sip_call_id=call.sip_call_id,
            headers=call.headers,
            uri_parameters=call.uri_parameters,
            codec=call.codec,
            clock_rate_hz=call.clock_rate_hz,
            transport=call.transport,
            srtp=call.srtp,
            held=call.held,
            paused=call.paused,
            created_at=call.created_at_s,
            answered_at=call.answered_at_s,
            ended_at=call.ended_at_s,
            ending=call.ending,
            utterances=tuple(call.utterances),
            quality=call.quality,
        )


class Calls(msgspec.Struct, frozen=True):
    """Live calls and ended ones still kept, oldest first."""

    calls: list[Call]


class UtteranceError(msgspec.Struct, frozen=True):
    """Why an utterance failed: a stable word and a sentence."""

    code: str
    detail: str


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt on one call. ``spoken_text`` is what the caller heard so far, in the words that were sent."""

    id: str
    call_id: str
    state: UtteranceState
    completion_cause: CompletionCause | None
    text_chars: int
    voice: str
    engine: str
    cached: bool
    then: Then
    accepted_at: EpochSeconds
    time_to_first_pcm_ms: Milliseconds | None
    time_to_first_audio_ms: Milliseconds | None
    played_ms: Milliseconds
    spoken_text: str
    underruns: int
    error: UtteranceError | None

    @classmethod
    def of(cls, utterance: UtteranceBelow) -> Self:
        """``utterance`` as it is now."""
        error = None
        if utterance.error_code is not None:
            error = UtteranceError(utterance.error_code, utterance.error_detail or "")
        return cls(
            id=utterance.id,
            call_id=utterance.call_id,
            state=utterance.state,
            completion_cause=utterance.completion_cause,
            text_chars=utterance.text_chars,
            voice=utterance.voice,
            engine=utterance.engine,
            cached=utterance.cached,
            then=utterance.prompt.then,
            accepted_at=utterance.accepted_at_s,
            time_to_first_pcm_ms=utterance.time_to_first_pcm_ms,
            time_to_first_audio_ms=utterance.time_to_first_audio_ms,
            played_ms=round(utterance.played_ms, 1),
            spoken_text=utterance.spoken_text,
            underruns=utterance.underruns,
            error=error,
        )


class Stopped(msgspec.Struct, frozen=True):
    """Ids of the utterances that were stopped, and how much audio that was ready was thrown away."""

    stopped: list[str]
    discarded_ms: Milliseconds


class Voice(msgspec.Struct, frozen=True, kw_only=True):
    """Who can speak."""

    id: str
    engine: str
    language: Annotated[str, Meta(description="A BCP 47 tag.")]
    kind: VoiceKind
    ready: bool
    description: str
    gender: Annotated[str, Meta(description="``female``, ``male``, or empty where it is not known.")]
    rate_hz: Annotated[int, Meta(description="Sample rate of its speech; calls get it at their own.")]

    @classmethod
    def of(cls, voice: VoiceBelow) -> Self:
        """``voice`` as it is now."""
        return cls(**{name: getattr(voice, name) for name in cls.__struct_fields__})


class Voices(msgspec.Struct, frozen=True):
    """Every voice of every engine."""

    voices: list[Voice]


class Health(msgspec.Struct, frozen=True):
    """``ok``: the process is alive; ``ready``: a call would be answered and spoken to."""

    status: Literal["ok", "ready"]


class Drain(msgspec.Struct, frozen=True):
    """``already``: the drain had begun before."""

    draining: bool
    already: bool
