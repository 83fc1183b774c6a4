"""The route of an INVITE: which prompt it carries and how it is answered. This module is pure: it has no state.

Precedence: ``X-TTS-Prompt-Id``, ``X-TTS-Text`` or ``X-TTS-SSML``, ``play=`` of an RFC 4240 Request-URI, the greeting of the
route for the Request-URI's user, or for the trunk. Prompts are taken from trusted peers only; otherwise anybody who can send
an INVITE could have any text spoken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cc_tts.calls.dialplan.announcement import announced_content, announcement, announcement_route
from cc_tts.calls.dialplan.record import record_of
from cc_tts.calls.dialplan.request_uri import ANNOUNCEMENT_USER, parse_uri
from cc_tts.calls.dialplan.tts_headers import (
    after_prompt,
    content_of,
    gather_of,
    lead_in_ms,
    style_of,
    transfer_target,
)
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.recording.recording import RecordRequest
from cc_tts.config.schema import Config, RouteConfig
from cc_tts.config.sections.trunks import OF_TRUNK
from cc_tts.errors import CcTtsError, Forbidden, MalformedRequest, NotFound, NothingToSay, did_you_mean
from cc_tts.speech.prompt import Disclosure, Prompt, PromptDefaults, TextContent, Then


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDecision:
    """How a call is answered, and what it says first, after ``lead_in_ms`` of silence."""

    route: RouteConfig
    """The route; an announcement of RFC 4240 has one of its own."""
    prompt: Prompt | None
    defaults: PromptDefaults
    """The defaults of the call's later prompts."""
    unanswered: Prompt | None = None
    """This prompt is spoken if no application answers the call in time."""
    lead_in_ms: int = 0
    gather: GatherRequest | None = None
    """The digits to collect; ``prompt`` is part of the request."""
    disclosure: Disclosure | None = None
    """The caller hears this before the first synthetic words."""
    transfer_to: str = ""
    """The target of a transfer after the prompt. Whether it is allowed has not been checked."""
    record: RecordRequest | None = None
    """How the call is recorded, from its first frame on."""


def decide(
    *, request_uri: str, trusted: bool, headers: Mapping[str, str], config: Config, trunk: str = ""
) -> RouteDecision:
    """Route one INVITE. ``trusted``: its sender is one of ``sip.trusted_peers``. ``trunk``: the trunk that it came by.

    Raises:
        NotFound: no route takes the user (404), or the prompt named does not exist.
        Forbidden: an announcement or a transfer was asked for by a peer that is not trusted (403).
        MalformedRequest: a header or URI parameter cannot be read (400).
        NothingToSay: the call would be hung up after its prompt, and there is no prompt (400).
        TextTooLong: more text than ``tts.max_text_chars`` (413).
        SsmlMalformed: an SSML document that cannot be read (400).
        RecordingOff: the call should be recorded, and ``record.dir`` is empty (488).
    """
    user, parameters = parse_uri(request_uri)
    tts_headers = {name.lower(): value for name, value in headers.items()} if trusted else {}
    announces = _announces(user, tts_headers, trusted=trusted)
    route = announcement_route(parameters) if announces else _route(user, config.routes, trusted=trusted, trunk=trunk)
    if not trusted and any(name.lower() == "x-tts-transfer" for name in headers):
        raise Forbidden("X-TTS-Transfer is taken from the peers in sip.trusted_peers only")
    asked_then = after_prompt(tts_headers)
    transfer_to = transfer_target(tts_headers, route, asked_then)
    then: Then = "stay" if transfer_to else "hangup" if (asked_then or route.then) == "hangup" else "stay"
    if transfer_to and (route.answer == "manual" or route.media_url or route.relay):
        raise MalformedRequest("the application of this route transfers the call: POST /v1/calls/{id}/transfer")
    style = style_of(tts_headers, route)
    prompt = (
        announcement(parameters, style, then, config)
        if announces
        else _first_prompt(tts_headers, route, style, then, config.tts.max_text_chars)
    )
    gather = gather_of(tts_headers.get("x-tts-gather", ""), prompt, "stay" if asked_then == "stay" else "hangup")
    if gather is not None and transfer_to:
        raise MalformedRequest(
            "X-TTS-Gather and a transfer exclude each other: the digits are in our BYE, transfer then"
        )
    if prompt is None and gather is None and then == "hangup" and route.answer != "manual":
        raise _nothing_to_say(headers, trusted=trusted)
    return RouteDecision(
        route=route,
        prompt=prompt,
        defaults=PromptDefaults(
            voice=style.voice,
            language=style.language,
            instructions=style.instructions,
            barge_in_speech=None if route.barge_in_speech == "" else route.barge_in_speech,
        ),
        unanswered=_unanswered(route, style),
        lead_in_ms=lead_in_ms(tts_headers, route.lead_in_ms),
        disclosure=Disclosure.of(route.disclosure, config.calls.disclosure),
        gather=gather,
        transfer_to=transfer_to,
        record=record_of(tts_headers.get("x-tts-record", ""), route.record, config.record),
    )


def greeting_of(route: RouteConfig) -> Prompt | None:
    """Return the greeting of a route, for the party that answers when we call somebody in place of that route."""
    then: Then = "hangup" if route.then == "hangup" else "stay"
    return _first_prompt({}, route, style_of({}, route), then, max_text_chars=0)


def route_of(request_uri: str, config: Config, trunk: str = "") -> tuple[str, str]:
    """Return the key of ``[routes]`` that matches an INVITE (``annc`` for announcements), and the tenant of that route.

    Both are empty if no route matches. The tenant is also empty if the call is the operator's own.
    """
    try:
        user, _ = parse_uri(request_uri)
        tenant = _route(user, config.routes, trusted=False, trunk=trunk).tenant
    except (MalformedRequest, NotFound):
        return "", ""
    return user if user == ANNOUNCEMENT_USER else _key(user, config.routes, trunk), tenant


def _first_prompt(
    tts_headers: Mapping[str, str], route: RouteConfig, style: TextContent, then: Then, max_text_chars: int
) -> Prompt | None:
    content = content_of(tts_headers, style, max_text_chars)
    if content is None and route.greeting_prompt:
        content = announced_content(route.greeting_prompt)
    elif content is None and route.greeting:
        content = replace(style, text=route.greeting)
    return None if content is None else Prompt(content=content, then=then, unattended=True)


def _announces(user: str, tts_headers: Mapping[str, str], *, trusted: bool) -> bool:
    """Whether an announcement of RFC 4240 is asked for, and not overridden by a header."""
    if user != ANNOUNCEMENT_USER or any(map(tts_headers.get, ("x-tts-text", "x-tts-ssml", "x-tts-prompt-id"))):
        return False
    if not trusted:
        raise Forbidden("announcements are for the peers in sip.trusted_peers")
    return True


def _unanswered(route: RouteConfig, style: TextContent) -> Prompt | None:
    """Return the prompt that the caller hears when no application answers."""
    if not route.unanswered_greeting:
        return None
    content = replace(style, text=route.unanswered_greeting)
    return Prompt(content=content, queue="replace", then="hangup", unattended=True)


def _key(user: str, routes: Mapping[str, RouteConfig], trunk: str) -> str:
    """Return the key of the user's route; without one the key of the trunk's route, and otherwise ``*``."""
    if user in routes and not user.startswith(OF_TRUNK):  # a caller can write anything there
        return user
    return key if trunk and (key := OF_TRUNK + trunk) in routes else "*"


def _route(user: str, routes: Mapping[str, RouteConfig], *, trusted: bool, trunk: str) -> RouteConfig:
    """Return the route of a user. The error suggests other names to trusted peers only."""
    if user == ANNOUNCEMENT_USER:
        return RouteConfig(then="hangup")
    found = routes.get(_key(user, routes, trunk))
    if found is None:
        raise NotFound(f"no route for user {user[:64]!r}" + (did_you_mean(user, routes) if trusted else ""))
    return found


def _nothing_to_say(headers: Mapping[str, str], *, trusted: bool) -> CcTtsError:
    if not trusted and any(name.lower() in ("x-tts-text", "x-tts-ssml") for name in headers):
        return Forbidden("X-TTS-Text and X-TTS-SSML are taken from the peers in sip.trusted_peers only")
    return NothingToSay(
        "nothing to say before the hangup: X-TTS-Text and X-TTS-SSML are empty or missing, and the route has no greeting"
    )
