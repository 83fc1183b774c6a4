"""The record of a call that the UA process keeps for the server that adopts it. It holds lasting facts, but no texts and no
digits, except the words of the disclosure, the instructions and the relay. The UA process does not read it. Fields that
later versions add have defaults, so that a record of another version can be read; :data:`VERSION` counts incompatible
changes.
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
"""The most utterances in a record, unmeasured. A record is made with each event, so its size is bounded."""
WITH_TEXT: Final = frozenset({"x-tts-text", "x-tts-ssml"})
"""Headers of an INVITE (in lower case) that hold text to be spoken; the URI parameter ``play`` (RFC 4240) does, too."""

PROGRESS: Final = ("created_at_s", "paused", "local_reason", "no_answer_at_s", "amd_stage")
"""Fields of a record that have the same names in a call, and that a restored call gets back step by step."""


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
        """Return the part of an utterance that another server needs."""
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
    """The bridge to another call. ``is_up``: it was made. ``waits``: it is made when this call is answered or, for an agent
    who is briefed first (``is_briefed``), after the briefing. ``is_placed``: the call was placed for the bridge.
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
    """The record of one call. ``run`` identifies the events of the server that has the call. ``no_answer_at_s``: the
    wall-clock time at which an unanswered outgoing call is given up.
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
"""Fields of a record that have the same names in a call, and with which a restored call is made."""
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(CallRecord)


def encode(record: CallRecord) -> bytes:
    """Encode a record. Headers and URI parameters are left out if they would make it too large."""
    encoded = _encoder.encode(record)
    if len(encoded) > MAX_RECORD_BYTES:
        encoded = _encoder.encode(msgspec.structs.replace(record, headers={}, uri_parameters={}))
    return encoded


def decode(encoded: bytes) -> CallRecord | None:
    """Decode a record; ``None`` if there is none, or none that this version can read."""
    try:
        record = _decoder.decode(encoded)
    except UNREADABLE:
        return None
    return record if record.version == VERSION else None


def without_text(headers: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the headers and URI parameters of an INVITE without those that hold text to be spoken."""
    return {
        "headers": {name: value for name, value in headers.items() if name.lower() not in WITH_TEXT},
        "uri_parameters": {name: value for name, value in parameters.items() if name != "play"},
    }


def facts_of(record: CallRecord) -> dict[str, Any]:
    facts = {name: getattr(record, name) for name in FACTS}
    return facts | {"headers": dict(record.headers), "uri_parameters": dict(record.uri_parameters)}
