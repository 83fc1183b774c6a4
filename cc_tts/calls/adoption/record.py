"""The record of a call that the UA process keeps for the server that adopts it: facts that last, neither texts nor digits,
the words of its disclosure, of its instructions and of its relay aside.

The UA process does not read it. Fields that later versions add have defaults, so that a record of another version can be
read; :data:`VERSION` counts changes for which that is not so.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import msgspec

from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.prompts.utterance import Utterance
from cc_tts.calls.recording.recording import Recording, RecordingStamp
from cc_tts.calls.relay.request import RelayRequest
from cc_tts.config.schema import CallWebhook, MediaDialect, SpeechBargeIn
from cc_tts.errors import UNREADABLE
from cc_tts.processes.channel import MAX_MESSAGE_BYTES
from cc_tts.speech.prompt import Disclosure, Prompt, PromptDefaults, TextContent, Then
from cc_tts.ua.messages import OnHangup

VERSION: Final = 1
MAX_RECORD_BYTES: Final = MAX_MESSAGE_BYTES // 4
"""A quarter of what the channel takes in one message (unmeasured)."""
MAX_UTTERANCES: Final = 100
"""How many of the next utterances a record has, unmeasured. A record is made with each event, so it has a bound."""
WITH_TEXT: Final = frozenset({"x-tts-text", "x-tts-ssml"})
"""Headers of an INVITE that hold what is to be said (in lower case); so does the URI parameter ``play`` (RFC 4240)."""

PROGRESS: Final = ("created_at_s", "paused", "local_reason", "no_answer_at_s", "amd_stage")
"""Fields of a record that a call has under the same names, and takes back later."""


class KeptUtterance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An utterance that was not complete."""

    id: str
    accepted_at_s: float
    text_chars: int
    voice: str = ""
    engine: str = ""
    client_state: str | None = None
    then: Then = "stay"
    unattended: bool = False
    barge_in_dtmf: bool = False
    barge_in_speech: SpeechBargeIn | None = None

    @classmethod
    def of(cls, utterance: Utterance) -> Self:
        """Keep what another server needs of an utterance."""
        names = ("id", "accepted_at_s", "text_chars", "voice", "engine", "barge_in_dtmf", "barge_in_speech")
        of_prompt = ("client_state", "then", "unattended")
        return cls(
            **{name: getattr(utterance, name) for name in names},
            **{name: getattr(utterance.prompt, name) for name in of_prompt},
        )

    def revive(self, call_id: str, *, then: Then, now_ns: int) -> Utterance:
        prompt = Prompt(content=TextContent(""), then=then, client_state=self.client_state, unattended=self.unattended)
        utterance = Utterance(
            id=self.id,
            call_id=call_id,
            prompt=prompt,
            voice=self.voice,
            engine=self.engine,
            accepted_at_s=self.accepted_at_s,
            barge_in_dtmf=self.barge_in_dtmf,
            barge_in_speech=self.barge_in_speech,
            origin_ns=now_ns,
        )
        utterance.text_chars = self.text_chars
        return utterance


class KeptGather(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The gather that ran."""

    id: str
    tries: int
    sensitive: bool = False
    client_state: str | None = None
    then: Then = "stay"


class KeptTransfer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The transfer that ran. ``is_sent``: the REFER went out. ``holds``: the call was held for it."""

    id: str
    state: Literal["requested", "accepted", "trying", "ringing", "answered", "succeeded", "failed"]
    is_sent: bool
    mode: Literal["blind", "attended", "warm"]
    timeout_ms: int
    holds: bool = False
    on_failure: Literal["keep", "hangup"] = "keep"
    hold: bool = True
    client_state: str | None = None


class KeptBridge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The bridge to another call: asked for, and ``is_up`` once it was made. ``waits``: it is made when this call is
    answered, or, if its far side ``is_briefed`` before, when that is over. ``is_placed``: the call was placed for it.
    """

    id: str
    other_call_id: str
    on_hangup: OnHangup = "end"
    client_state: str | None = None
    is_up: bool = False
    waits: bool = False
    is_briefed: bool = False
    is_placed: bool = False


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call. ``run`` is that of the events of the server that has it. ``no_answer_at_s``: when an outgoing call is given
    up, on the wall clock.
    """

    version: int
    direction: Literal["inbound", "outbound"]
    caller: str
    callee: str
    created_at_s: float
    run: str
    tenant: str = ""
    headers: Mapping[str, str] = {}
    uri_parameters: Mapping[str, str] = {}
    transport: str | None = None
    metadata: Mapping[str, str] = {}
    client_state: str | None = None
    defaults: PromptDefaults = msgspec.field(default_factory=PromptDefaults)
    paused: bool = False
    local_reason: str | None = None
    no_answer_at_s: float | None = None
    amd_stage: Literal["", "answer", "greeting"] = ""
    media_route: tuple[str, MediaDialect] | None = None
    relay_request: RelayRequest | None = None
    webhook: CallWebhook | None = None
    referral: tuple[str, str] | None = None
    route: str = ""
    trunk: str = ""
    peer: str = ""
    utterances: tuple[KeptUtterance, ...] = ()
    gather: KeptGather | None = None
    transfer: KeptTransfer | None = None
    bridge: KeptBridge | None = None
    recording: Recording | None = None
    recordings: tuple[RecordingStamp, ...] = ()
    disclosure: Disclosure | None = None
    disclosed_at_s: float | None = None
    traceparent: str = ""


FACTS: Final = tuple(
    each.name
    for each in dataclasses.fields(CallInfo)
    if each.name in CallRecord.__struct_fields__ and each.name not in (*PROGRESS, "headers", "uri_parameters")
)
"""Fields of a record that a call has under the same names, and begins with when it is restored."""
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(CallRecord)


def encode(record: CallRecord) -> bytes:
    """A record as it is kept; without headers and URI parameters if it would be too large with them."""
    encoded = _encoder.encode(record)
    if len(encoded) > MAX_RECORD_BYTES:
        encoded = _encoder.encode(msgspec.structs.replace(record, headers={}, uri_parameters={}))
    return encoded


def decode(encoded: bytes) -> CallRecord | None:
    """``None``: there is none, or not one that this version reads."""
    try:
        record = _decoder.decode(encoded)
    except UNREADABLE:
        return None
    return record if record.version == VERSION else None


def without_text(headers: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, Any]:
    """The headers and URI parameters of an INVITE that a record has: none that holds what is to be said."""
    return {
        "headers": {name: value for name, value in headers.items() if name.lower() not in WITH_TEXT},
        "uri_parameters": {name: value for name, value in parameters.items() if name != "play"},
    }


def facts_of(record: CallRecord) -> dict[str, Any]:
    facts = {name: getattr(record, name) for name in FACTS}
    return facts | {"headers": dict(record.headers), "uri_parameters": dict(record.uri_parameters)}
