"""The responses to clients, built from calls, utterances and voices.

Times of day are seconds since the epoch, as in events.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from cc_tts.api.schemas import STYLE, BargeIn
from cc_tts.calls.call_info import Direction
from cc_tts.calls.call_state import CallState, UtteranceState
from cc_tts.calls.dtmf.gather import GatherResult
from cc_tts.calls.ending import Ending
from cc_tts.calls.prompts.utterance import CompletionCause, UtteranceError
from cc_tts.cluster.messages import Node, Worker
from cc_tts.media.quality import Levels, Quality
from cc_tts.speech.prompt import SsmlWarning, Then
from cc_tts.speech.timing.spans import Word
from cc_tts.voices.voice import VoiceKind
from cc_tts.webhooks.endpoint import State as WebhookState

EpochSeconds = Annotated[float, Meta(description="Seconds since the Unix epoch.")]
Milliseconds = Annotated[float, Meta(description="Milliseconds.")]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Built from the attributes of an object of the layers below; ``derived`` returns the other fields."""

    derived: ClassVar[Mapping[str, Callable[[Any], object]]] = {}

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the view of ``source`` now."""
        names = [name for name in cls.__struct_fields__ if name not in given]
        return cls(**{name: cls.derived.get(name, attrgetter(name))(source) for name in names}, **given)


class Call(View, frozen=True, kw_only=True):
    """A call. ``ending`` is set once ``state`` is terminated; ``utterances`` are ids, oldest first. ``voice``,
    ``language``, ``speed``, ``instructions``, ``lexicons`` and ``barge_in`` are what its prompts fall back to.
    """

    derived: ClassVar = {
        **{name: attrgetter(f"defaults.{name}") for name in STYLE},
        "barge_in": lambda call: BargeIn(dtmf=call.defaults.barge_in_dtmf, speech=call.defaults.barge_in_speech),
        "tenant": lambda call: call.tenant or UNSET,
        "trunk": lambda call: call.trunk or UNSET,
        "utterance_ids": lambda call: tuple(call.utterances),
        "bridged_to": lambda call: call.bridge.other or UNSET,
        "levels": lambda _: UNSET,
    }
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
    transport: Annotated[
        str | None,
        Meta(description="What SIP came over: udp, tcp or tls; else asterisk_ws, audiosocket."),
    ]
    srtp: Annotated[bool | None, Meta(description="Whether its audio is encrypted; null while there is none.")]
    held: bool
    paused: bool
    created_at_s: EpochSeconds = field(name="created_at")
    answered_at_s: EpochSeconds | None = field(name="answered_at")
    ended_at_s: EpochSeconds | None = field(name="ended_at")
    disclosed_at_s: Annotated[
        float | None, Meta(description="When the caller had heard that a machine speaks, seconds since the Unix epoch.")
    ] = field(name="disclosed_at")
    ending: Ending | None
    utterance_ids: Sequence[str] = field(name="utterances")
    quality: Quality
    voice: str | None
    language: str | None
    speed: float | None
    instructions: str | None
    lexicons: Sequence[str]
    barge_in: BargeIn
    metadata: Mapping[str, str]
    client_state: str | None
    bridged_to: Annotated[
        str | UnsetType, Meta(description="The call that its far side talks with; left out if there is none.")
    ] = UNSET
    tenant: Annotated[str | UnsetType, Meta(description="Whose call it is; left out if it is no tenant's.")] = UNSET
    trunk: Annotated[str | UnsetType, Meta(description="It is placed by this trunk or came by it.")] = UNSET
    levels: Annotated[
        Levels | UnsetType | None,
        Meta(
            description="Only with ``levels=true``; null while they are not measured yet, which takes a second or two."
        ),
    ] = UNSET


class Calls(msgspec.Struct, frozen=True):
    """Live calls and ended ones still kept, oldest first."""

    calls: list[Call]


class Utterance(View, frozen=True, kw_only=True):
    """One prompt on one call. ``spoken_text`` is what the caller heard so far, in the words that were sent."""

    derived: ClassVar = {
        "then": attrgetter("prompt.then"),
        "client_state": attrgetter("prompt.client_state"),
        "played_ms": lambda utterance: round(utterance.played_ms, 1),
        "words": lambda _: UNSET,
    }
    id: str
    call_id: str
    state: UtteranceState
    completion_cause: CompletionCause | None
    text_chars: int
    voice: str
    engine: str
    cached: bool
    then: Then
    accepted_at_s: EpochSeconds = field(name="accepted_at")
    time_to_first_pcm_ms: Milliseconds | None
    time_to_first_audio_ms: Milliseconds | None
    played_ms: Milliseconds
    spoken_text: str
    underruns: int
    error: UtteranceError | None
    client_state: str | None
    words: Annotated[Sequence[Word] | UnsetType, Meta(description="Only with ``words=true``.")] = UNSET


class Accepted(Utterance, frozen=True, kw_only=True):
    """An utterance that was accepted; ``warnings`` are of its SSML."""

    derived: ClassVar = {
        **Utterance.derived,
        "warnings": lambda utterance: getattr(utterance.prompt.content, "warnings", ()) or UNSET,
    }
    warnings: Annotated[Sequence[SsmlWarning] | UnsetType, Meta(description="Left out where there are none.")] = UNSET


class Gather(View, frozen=True, kw_only=True):
    """A gather: how many keys were pressed in its current try, and what ended it."""

    derived: ClassVar = {
        "state": lambda gather: "in_progress" if gather.result is None else "complete",
        "num_digits": lambda gather: len(gather.digits),
        "max_tries": attrgetter("request.max_tries"),
    }
    id: str = field(name="gather_id")
    state: Literal["in_progress", "complete"]
    num_digits: int
    tries: int
    max_tries: int
    result: GatherResult | None


class Stopped(msgspec.Struct, frozen=True):
    """Ids of the utterances that were stopped, and how much audio that was ready was thrown away."""

    stopped: list[str]
    discarded_ms: Milliseconds


class Voice(View, frozen=True, kw_only=True):
    """A voice that can speak. ``voice_id``, ``name`` and ``category`` are for clients of ElevenLabs."""

    derived: ClassVar = {
        "voice_id": attrgetter("id"),
        "name": attrgetter("id"),
        "category": lambda _: "premade",
        "live": attrgetter("is_live"),
    }
    id: str
    engine: str
    language: Annotated[str, Meta(description="A BCP 47 tag.")]
    kind: VoiceKind
    ready: bool
    description: str
    gender: Annotated[str, Meta(description="``female``, ``male``, or empty where it is not known.")]
    rate_hz: Annotated[int, Meta(description="Sample rate of its speech; calls get it at their own.")]
    cost: Annotated[
        float | None, Meta(description="Seconds of a core for a second of speech on this machine; null: not measured.")
    ]
    streams: Annotated[
        int | None, Meta(description="Listeners at a time that this machine carries; null: not measured.")
    ]
    takes_instructions: Annotated[
        bool, Meta(description="Whether it speaks as ``instructions`` say, and makes the sounds and emphasis of SSML.")
    ]
    model: Annotated[
        str, Meta(description="The model that speaks with it, a name of tts.models; empty for voices of other engines.")
    ]
    live: Annotated[bool, Meta(description="False: it is slower than speech here, and for prompts that are staged.")]
    voice_id: str
    name: str
    category: str


class EnrolledVoice(Voice, frozen=True, kw_only=True):
    """A voice that was enrolled now. ``warnings`` say what is poor about its recording."""

    warnings: Sequence[str]


class Voices(msgspec.Struct, frozen=True):
    """Every voice of every engine."""

    voices: list[Voice]


class LexiconSummary(msgspec.Struct, frozen=True):
    """A lexicon without its entries."""

    name: str
    language: str
    voices: Sequence[str]
    num_entries: int


class Lexicons(msgspec.Struct, frozen=True):
    """Every lexicon, by name."""

    lexicons: list[LexiconSummary]


class Webhook(View, frozen=True, kw_only=True):
    """An endpoint; those of calls have the name ``call``. ``failing``: several attempts in a row failed, so it is only
    probed; ``disabled``: it answered 410, and its events are dropped until a test succeeds or the endpoint changes. ``url``
    is without path and query.
    """

    derived: ClassVar = {
        "name": attrgetter("target.name"),
        "url": attrgetter("target.shown"),
        "types": lambda endpoint: sorted(endpoint.target.types),
        "tenant": attrgetter("target.tenant"),
        "queued": lambda endpoint: len(endpoint.queue),
    }
    name: str
    url: str
    types: Annotated[Sequence[str], Meta(description="Empty: all.")]
    tenant: str
    state: WebhookState
    last_status: Annotated[int | None, Meta(description="Of the last attempt; null if there was no response.")]
    last_error: str
    last_attempt_s: EpochSeconds | None = field(name="last_attempt_at")
    queued: Annotated[int, Meta(description="Events that wait or are under way.")]
    num_in_flight: int = field(name="in_flight")
    oldest_s: Annotated[float | None, Meta(description="Age of the oldest of them, seconds.")]
    num_delivered: int = field(name="delivered")
    num_failed: int = field(name="failed_attempts")
    num_dropped: int = field(name="dropped")


class Webhooks(msgspec.Struct, frozen=True):
    """Every endpoint that events are sent to."""

    webhooks: list[Webhook]


class WebhookTest(msgspec.Struct, frozen=True, kw_only=True):
    """The event is ``taken`` with a status of 2xx; a null status is no response, and ``error`` says why."""

    event_id: str
    taken: bool
    status: int | None
    error: str
    duration_ms: Milliseconds


class StagedPrompt(View, frozen=True, kw_only=True):
    """A prompt that is staged under an id."""

    derived: ClassVar = {"prompt_id": attrgetter("id"), "error": lambda prompt: prompt.error or UNSET}
    prompt_id: str
    kind: Annotated[Literal["text", "ssml", "audio"], Meta(description="What it was staged from.")]
    state: Literal["making", "ready", "failed"]
    duration_ms: Annotated[int, Meta(description="Of its audio; 0 while there is none.")]
    chars: int
    cached: Annotated[bool, Meta(description="Whether its audio is in memory; otherwise it is made when it is spoken.")]
    pin: bool
    expires_at_s: EpochSeconds | None = field(name="expires_at")
    error: Annotated[str | UnsetType, Meta(description="The code of what failed; left out while nothing did.")] = UNSET

    @property
    def id(self) -> str:
        return self.prompt_id


class StagedPrompts(msgspec.Struct, frozen=True):
    """The prompts that are staged, by their ids."""

    prompts: list[StagedPrompt]


class Health(msgspec.Struct, frozen=True):
    """``ok``: the process is alive; ``ready``: a call would be answered and spoken to."""

    status: Literal["ok", "ready"]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The connection to `cc-tts pool`. What the pool told may be ``age_s`` old: 0 while connected, null if it was never
    reached; ``reason`` says why it is not connected.
    """

    connected: bool
    age_s: float | None
    reason: str = ""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Several servers as one service. ``node`` is this one; ``nodes`` the others, as the pool last told of them, or by name
    and address as ``cluster.nodes`` has them; ``workers`` those of the pool, and others that this server has reached.
    ``pool`` is null without one.
    """

    node: Node
    not_ready_because: str | None
    nodes: tuple[Node, ...]
    workers: tuple[Worker, ...]
    pool: Pool | None


class Drain(msgspec.Struct, frozen=True):
    """``already``: the drain had begun before."""

    draining: bool
    already: bool
