"""Handlers of ``/v1/calls``: list, place, answer, hold and end calls; send and collect keys."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from cc_tts.api import schemas, sip_fields, views
from cc_tts.api.context import CONTEXT, ApiContext
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import HOLDER, current_tenant
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.webhooks.routes import check_webhook, readable_by
from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.dialplan.trunks import target_fault
from cc_tts.calls.originate import OriginateRequest
from cc_tts.calls.transfers.bridge import new_bridge_id
from cc_tts.config.schema import CallWebhook
from cc_tts.errors import (
    CallNotFound,
    CapacityExceeded,
    ClientError,
    DisclosureFailed,
    Draining,
    DtmfUnsupported,
    DuplicateId,
    EngineOverloaded,
    FieldError,
    GatherActive,
    GatherNotFound,
    LanguageUnsupported,
    LineUnsupported,
    MalformedRequest,
    NothingToSay,
    PromptNotFound,
    QueueFull,
    QuotaExceeded,
    SsmlMalformed,
    TextTooLong,
    UnknownLexicon,
    UnknownVoice,
    Unprocessable,
    UrlNotAllowed,
    UserAgentUnavailable,
    WebhookNotAllowed,
    WrongState,
)
from cc_tts.speech.prompt import (
    Content,
    Disclosure,
    Prompt,
    PromptDefaults,
    SequenceContent,
    SilenceContent,
    StagedContent,
    TextContent,
    ToneContent,
    UrlContent,
)
from cc_tts.ua.messages import OnHangup
from cc_tts.vad.answering.settings import Amd
from cc_tts.vad.client import SpeechNotHeard

ON_A_CALL: Final = (CallNotFound, WrongState, UserAgentUnavailable)
"""The errors of every command on a call."""
OF_TEXT: Final = (
    TextTooLong,
    UnknownVoice,
    UnknownLexicon,
    LanguageUnsupported,
    NothingToSay,
    SsmlMalformed,
    EngineOverloaded,
    QuotaExceeded,
)
"""The errors of text to speak."""
OF_PROMPT: Final = (DuplicateId, QueueFull, Draining, PromptNotFound, SpeechNotHeard, DisclosureFailed)
"""The errors of every prompt on a call, besides those of its text."""
OF_PLACING: Final = (
    DuplicateId,
    UserAgentUnavailable,
    CapacityExceeded,
    Draining,
    LineUnsupported,
    PromptNotFound,
    SpeechNotHeard,
    DisclosureFailed,
    *OF_TEXT,
)
"""The errors of placing a call, and of what it says first."""

_SIP_CALL_ID: Final = re.compile(r"[!-~]{1,1024}")
"""``callid`` of RFC 3261 §25.1, which has no bound, and other characters that peers send."""

_LEVELS: Final = Query(
    "levels", "true: with how loud calls are, which is measured while somebody asks.", ("false", "true")
)

ROUTES: Final = RouteTable("Calls")


class WantedBridge(schemas.Body, frozen=True, kw_only=True):
    """A bridge, and the other call of it."""

    call_id: schemas.Id
    on_hangup: OnHangup = "end"
    bridge_id: schemas.Id | None = None

    def kept(self, client_state: str | None, *, waits: bool = False) -> KeptBridge:
        return KeptBridge(
            id=self.bridge_id or new_bridge_id(),
            other_call_id=self.call_id,
            on_hangup=self.on_hangup,
            client_state=client_state,
            waits=waits,
        )


class BridgeTo(WantedBridge, frozen=True):
    """The call that another one is placed for. Both are then in one SIP process, which bridging needs."""

    on_answer: Annotated[
        bool, Meta(description="Bridge them when the new call is answered; false: `bridge` follows, if any.")
    ] = True


class Originate(schemas.Body, frozen=True):
    """A call to place. ``speak`` is spoken as soon as the call is answered: text, or a body as for …/speak. With ``amd``,
    events tell who answers.
    """

    to: schemas.Target
    from_: schemas.Target | None = msgspec.field(default=None, name="from")
    trunk: schemas.TrunkName | None = None
    headers: schemas.Headers = msgspec.field(default_factory=dict)
    timeout_s: schemas.RingTimeout | None = None
    voice: schemas.VoiceId | None = None
    speak: schemas.Text | schemas.Speak | UnsetType = UNSET
    call_id: schemas.Id | None = None
    display_name: schemas.DisplayName | None = None
    asserted_identity: schemas.Identity | None = None
    metadata: schemas.Metadata = msgspec.field(default_factory=dict)
    client_state: schemas.ClientState | None = None
    amd: Amd | None = None
    bridge: BridgeTo | None = None
    disclosure: Annotated[
        str,
        Meta(
            description="Said once before the first synthetic words, and nothing interrupts it: text, or prompt:ID for a "
            "staged prompt. Left out or empty: calls.disclosure of the config."
        ),
    ] = ""
    webhook: Annotated[
        CallWebhook | None,
        Meta(description="Where the events of this call go besides, if webhooks.allow_per_call is on."),
    ] = None

    def request(self) -> OriginateRequest:
        """Return the request for the calls layer.

        Raises:
            Unprocessable: a URI, a header or the prompt cannot be used.
        """
        checked: tuple[tuple[str, str | None, Callable[[str], str | None]], ...] = (
            ("/to", self.to, target_fault),
            ("/from", self.from_, target_fault),
            ("/display_name", self.display_name, sip_fields.display_name_fault),
            ("/asserted_identity", self.asserted_identity, sip_fields.identity_fault),
        )
        faults = [
            FieldError(pointer, fault)
            for pointer, value, fault_of in checked
            if value is not None and (fault := fault_of(value)) is not None
        ]
        if faults := faults + sip_fields.header_faults(self.headers):
            raise Unprocessable.about(*faults)
        made = ("speak", "bridge", "disclosure")
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in made}
        schemas.check_text(self.disclosure, "/disclosure")
        bridge = None if self.bridge is None else self.bridge.kept(self.client_state, waits=self.bridge.on_answer)
        return OriginateRequest(
            **fields,
            prompt=self._prompt(),
            disclosure=Disclosure.of(self.disclosure),
            bridge=bridge,
        )

    def _prompt(self) -> Prompt | None:
        if self.speak is UNSET:
            return None
        if isinstance(self.speak, str):
            schemas.check_text(self.speak, "/speak")
            return Prompt(content=TextContent(self.speak, self.voice), client_state=self.client_state)
        prompt = self.speak.prompt(pointer="/speak", voice=self.voice)
        return replace(prompt, client_state=self.client_state) if prompt.client_state is None else prompt


def fields_of_text(text: str, options: str = "") -> dict[type[ClientError], str]:
    """Return the field of a body for each error of text to speak. ``text`` points to the text, ``options`` to its options;
    SSML names voices and languages itself.
    """
    is_ssml = text.endswith("/ssml")
    return {
        DuplicateId: f"{options}/utterance_id",
        UnknownVoice: text if is_ssml else f"{options}/voice",
        UnknownLexicon: f"{options}/lexicons",
        LanguageUnsupported: text if is_ssml else f"{options}/language",
        NothingToSay: text,
        TextTooLong: text,
        SpeechNotHeard: f"{options}/barge_in/speech",
        PromptNotFound: f"{options}/prompt_id",
        UrlNotAllowed: f"{options}/url",
    }


_FIELDS: Final[Mapping[type[Content], str]] = {
    SequenceContent: "ssml",
    ToneContent: "tone",
    SilenceContent: "silence_ms",
    StagedContent: "prompt_id",
    UrlContent: "url",
}
"""The fields from which prompts have their content, if not from ``text``."""


def fields_of_prompt(prompt: Prompt, pointer: str = "") -> dict[type[ClientError], str]:
    """Return the field for each error of a prompt whose body is at ``pointer``."""
    content = f"{pointer}/{_FIELDS.get(type(prompt.content), 'text')}"
    return fields_of_text(content, pointer) | {Unprocessable: content}


def call_of(request: web.Request) -> Call:
    """Return the call in the path.

    Raises:
        CallNotFound: there is none, or it is not of the token's tenant.
    """
    call_id, tenant = request.match_info["id"], current_tenant()
    call = request.app[CONTEXT].registry.call(call_id)
    if tenant and call.tenant != tenant:
        raise CallNotFound.named(call_id)
    return call


def another_call(request: web.Request, call_id: str, pointer: str) -> Call:
    """Return the call that a field of the body names.

    Raises:
        Unprocessable: there is none, or it is not of the token's tenant.
    """
    tenant, registry = current_tenant(), request.app[CONTEXT].registry
    try:
        call = registry.call(call_id)
    except CallNotFound:
        call = None
    if call is None or tenant not in ("", call.tenant):
        raise Unprocessable.about(FieldError(pointer, CallNotFound.named(call_id).detail))
    return call


async def match_lexicons(request: web.Request, prompt: Prompt | None) -> None:
    """Apply the lexicons to a long prompt before the command, since that takes long."""
    if prompt is not None:
        source, defaults = request.app[CONTEXT].services.source, call_of(request).defaults
        await source.match_lexicons(defaults.applied_to(prompt).content)


async def check_prompts(call: Call, context: ApiContext, prompts: Mapping[str, Prompt | None]) -> None:
    """Refuse the prompts of a command before any of it is carried out. ``prompts`` is by the pointers to their bodies.

    Raises:
        CcTtsError: one is of no use, which is about a field.
    """
    for pointer, prompt in prompts.items():
        if prompt is None:
            continue
        with bodies.located(fields_of_prompt(prompt, pointer)):
            await context.services.source.match_lexicons(call.defaults.applied_to(prompt).content)
            call.services.checked(prompt, call.tenant, call.defaults)


def command(request: web.Request, client_state: str | None, act: Callable[[Call], None]) -> views.Call:
    """Carry out a command on the call in the path, and set the call's client state if the command has one."""
    call = call_of(request)
    act(call)
    if client_state is not None:
        call.client_state = client_state
        call.keep()
    return views.Call.of(call)


@ROUTES.add(
    "GET",
    "/v1/calls",
    scope="read",
    query=(
        Query("state", "Only calls in this state.", tuple(CallState)),
        Query("sip_call_id", "Only calls of this SIP Call-ID, as a PBX or a trace has it."),
        _LEVELS,
    ),
    for_tenants=True,
)
async def list_calls(request: web.Request) -> views.Calls:
    """Live calls, and ended calls for calls.ended_retention_s."""
    text = request.query.get("state")
    try:
        state = CallState(text) if text else None
    except ValueError:
        raise MalformedRequest(f"state is one of {', '.join(CallState)}") from None
    sip_call_id = request.query.get("sip_call_id")
    if sip_call_id is not None and not _SIP_CALL_ID.fullmatch(sip_call_id):
        raise MalformedRequest(
            "sip_call_id is the Call-ID of a SIP dialog: 1 to 1024 printable ASCII characters, no blanks"
        )
    tenant, calls = current_tenant(), request.app[CONTEXT].registry.calls(state, sip_call_id)
    return views.Calls([_shown(request, call) for call in calls if tenant in ("", call.tenant)])


@ROUTES.add(
    "POST",
    "/v1/calls",
    scope="call",
    status=201,
    location="/v1/calls/",
    errors=(*OF_PLACING, WebhookNotAllowed, WrongState),
    for_tenants=True,
    examples={
        "reminder": {
            "to": "sip:1000@pbx.example.com",
            "speak": {"text": "Your appointment is tomorrow at nine.", "then": "hangup"},
            "metadata": {"campaign": "spring"},
        },
        "with headers": {
            "to": "sip:1000@pbx.example.com",
            "from": "sip:4711@pbx.example.com",
            "display_name": "Support",
            "headers": {"X-Ticket": "17"},
            "timeout_s": 20,
            "client_state": "ticket-17",
        },
        "for a call": {"to": "sip:1000@pbx.example.com", "bridge": {"call_id": "call_5d41402abc4b2a76"}},
        "who answers": {"to": "sip:1000@pbx.example.com", "amd": {"initial_silence_ms": 3000}},
    },
)
async def originate_call(request: web.Request, body: Originate) -> views.Call:
    """Place a call; its progress comes as events."""
    wanted = replace(body.request(), tenant=current_tenant())
    if wanted.bridge is not None:
        another_call(request, wanted.bridge.other_call_id, "/bridge/call_id")
    if wanted.amd is not None:
        with bodies.located({SpeechNotHeard: "/amd"}):
            request.app[CONTEXT].services.vad.check()
    if wanted.webhook is not None:
        check_webhook(request.app[CONTEXT].webhooks, wanted.webhook)
    if not isinstance(body.speak, schemas.Speak):
        fields = fields_of_text("/speak", "/speak") | {UnknownVoice: "/voice", LanguageUnsupported: "/speak"}
    elif body.speak.ssml is UNSET:
        fields = fields_of_text("/speak/text", "/speak")
        if body.speak.voice is None:
            fields[UnknownVoice] = "/voice"
    else:
        fields = fields_of_text("/speak/ssml", "/speak")
    if wanted.prompt is not None:
        prompt = PromptDefaults(voice=wanted.voice).applied_to(wanted.prompt)
        await request.app[CONTEXT].services.source.match_lexicons(prompt.content)
    with bodies.located(fields | {DuplicateId: "/call_id"}):
        return views.Call.of(await request.app[CONTEXT].registry.originate(wanted))


@ROUTES.add("GET", "/v1/calls/{id}", scope="read", query=(_LEVELS,), errors=(CallNotFound,))
async def get_call(request: web.Request) -> views.Call:
    """Show one call, also one that has ended lately."""
    return _shown(request, call_of(request))


def _shown(request: web.Request, call: Call) -> views.Call:
    if _LEVELS.choice(request) == "true":
        call.audio.measure_levels()
        return views.Call.of(call, levels=call.levels)
    return views.Call.of(call)


@ROUTES.add(
    "PATCH",
    "/v1/calls/{id}",
    scope="call",
    errors=(CallNotFound, WrongState, UnknownVoice, UnknownLexicon, LanguageUnsupported, SpeechNotHeard),
    examples={
        "language": {"language": "de", "voice": None},
        "protected": {"barge_in": {"dtmf": False}, "speed": 0.9},
        "by speech": {"barge_in": {"speech": {"min_speech_ms": 200, "action": "pause"}}},
        "metadata": {"metadata": {"customer": "4711", "campaign": None}},
    },
)
async def update_call(request: web.Request, body: schemas.CallUpdate) -> views.Call:
    """Change what prompts of a call fall back to, its metadata and client state."""
    call = call_of(request)
    defaults, metadata = body.merged_defaults(call.defaults), body.merged_metadata(call.metadata)
    client_state = call.client_state if body.client_state is UNSET else body.client_state
    with bodies.located(fields_of_text("")):
        call.update(defaults=defaults, metadata=metadata, client_state=client_state)
    return views.Call.of(call)


@ROUTES.add("POST", "/v1/calls/{id}/answer", scope="call", errors=ON_A_CALL)
async def answer_call(request: web.Request, body: schemas.Command) -> views.Call:
    """Answer a call of a route with answer = manual."""
    return command(request, body.client_state, lambda call: call.answer())


@ROUTES.add("POST", "/v1/calls/{id}/ring", scope="call", errors=ON_A_CALL)
async def ring_call(request: web.Request, body: schemas.Ring) -> views.Call:
    """Send 180, or 183 with early media."""
    return command(request, body.client_state, lambda call: call.ring(early_media=body.early_media))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/hangup",
    scope="call",
    errors=ON_A_CALL,
    examples={"busy": {"sip_code": 486, "reason": "Busy Here"}},
)
async def hangup_call(request: web.Request, body: schemas.Hangup) -> views.Call:
    """End a call: BYE, CANCEL or a refusal."""
    return command(request, body.client_state, lambda call: call.hangup(sip_code=body.sip_code, reason=body.reason))


@ROUTES.add("DELETE", "/v1/calls/{id}", scope="call", errors=(CallNotFound, UserAgentUnavailable))
async def end_call(request: web.Request, body: schemas.Hangup) -> views.Call:
    """End a call as hangup does; one that has ended is left as it is."""
    if (call := call_of(request)).state is CallState.TERMINATED:
        return views.Call.of(call)
    return await hangup_call(request, body)


@ROUTES.add("POST", "/v1/calls/{id}/hold", scope="call", errors=(*ON_A_CALL, LineUnsupported))
async def hold_call(request: web.Request, body: schemas.Command) -> views.Call:
    """Put the call on hold."""
    return command(request, body.client_state, lambda call: call.set_hold(hold=True))


@ROUTES.add("POST", "/v1/calls/{id}/unhold", scope="call", errors=(*ON_A_CALL, LineUnsupported))
async def unhold_call(request: web.Request, body: schemas.Command) -> views.Call:
    """Take the call off hold."""
    return command(request, body.client_state, lambda call: call.set_hold(hold=False))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/dtmf",
    scope="call",
    errors=(*ON_A_CALL, DtmfUnsupported, LineUnsupported),
    examples={"digits": {"digits": "12#", "duration_ms": 160}},
)
async def send_dtmf(request: web.Request, body: schemas.Dtmf) -> views.Call:
    """Send digits: by RFC 4733, or by SIP INFO where the far side takes that alone."""
    return command(request, body.client_state, lambda call: call.send_dtmf(body.digits, duration_ms=body.duration_ms))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/gather",
    scope="call",
    status=201,
    errors=(*ON_A_CALL, GatherActive, *OF_PROMPT, *OF_TEXT, UrlNotAllowed),
    examples={
        "menu": {"max_digits": 1, "prompt": {"text": "For sales press 1, for support press 2."}},
        "card": {"sensitive": True, "digits_to": {"connection": "payments"}, "min_digits": 12, "max_digits": 19},
    },
)
async def start_gather(request: web.Request, body: schemas.Gather) -> views.Gather:
    """Collect keys; call.gather_complete has the result."""
    call, wanted = call_of(request), body.request()
    wanted = replace(wanted, digits_to=readable_by(request.app[CONTEXT].webhooks, call, wanted.digits_to, HOLDER.get()))
    prompts = {"/prompt": wanted.prompt, "/invalid_prompt": wanted.invalid_prompt}
    await check_prompts(call, request.app[CONTEXT], prompts)
    with bodies.located({DuplicateId: "/prompt/utterance_id"}):
        return views.Gather.of(call.gather(wanted))


@ROUTES.add("GET", "/v1/calls/{id}/gather", scope="read", errors=(CallNotFound, GatherNotFound))
async def get_gather(request: web.Request) -> views.Gather:
    """The gather that runs."""
    return views.Gather.of(call_of(request).keys.running)


@ROUTES.add("DELETE", "/v1/calls/{id}/gather", scope="call", errors=(*ON_A_CALL, GatherNotFound))
async def stop_gather(request: web.Request) -> views.Gather:
    """Stop the gather that runs; its result is cancelled."""
    return views.Gather.of(call_of(request).stop_gather())
