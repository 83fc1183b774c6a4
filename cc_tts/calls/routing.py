"""The route of an INVITE: which prompt it carries and how it is answered. This module is pure: it has no state.

Precedence: ``X-TTS-Prompt-Id``, ``X-TTS-Text`` or ``X-TTS-SSML``, ``play=`` of an RFC 4240 Request-URI, the greeting of the
route for the Request-URI's user, or for the trunk. Prompts are taken from trusted peers only; otherwise anybody who can send
an INVITE could have any text spoken.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

from cc_tts.calls.dialplan import parameters as header_parameters
from cc_tts.calls.dialplan.record import record_of
from cc_tts.calls.dtmf.gather import MAX_DIGITS, MAX_TIMEOUT_MS, MAX_TRIES, GatherRequest
from cc_tts.calls.recording.recording import RecordRequest
from cc_tts.config.schema import MAX_LEAD_IN_MS, Config, MediaDialect, RouteConfig
from cc_tts.config.sections.models import MAX_INSTRUCTION_CHARS
from cc_tts.config.sections.prompts import is_url
from cc_tts.config.sections.relay import RelaySettings
from cc_tts.config.sections.trunks import OF_TRUNK
from cc_tts.config.sip_uri import uri_fault
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import (
    CcTtsError,
    Forbidden,
    MalformedRequest,
    NotFound,
    NothingToSay,
    TextTooLong,
    did_you_mean,
)
from cc_tts.speech.prompt import (
    Content,
    Disclosure,
    Prompt,
    PromptDefaults,
    StagedContent,
    TextContent,
    Then,
    UrlContent,
    text_of,
)
from cc_tts.speech.ssml import from_ssml

ANNOUNCEMENT_USER: Final = "annc"
MAX_URI_CHARS: Final = 8192
"""The longest Request-URI that is read; unmeasured. An announcement's text is in it (RFC 4240)."""
_LANGUAGE: Final = re.compile(r"(?=.{1,35}$)[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8})*", re.ASCII)
"""A BCP 47 language tag, as the API takes it."""
_VOICE: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
MAX_SHOWN_PARAMETERS: Final = 64
"""URI parameters that the API shows of a call; unmeasured."""
MAX_DELAY_MS: Final = 120_000
"""The longest silence between two repeats; unmeasured."""
_SCHEMES: Final = "play=tts:TEXT, play=ssml:DOCUMENT, play=prompt:ID or play=https:…"
_NUMBER: Final = re.compile("[0-9]{1,9}")
_SPEED: Final = re.compile(r"[0-9](\.[0-9]{1,3})?")
HEADERS: Final = frozenset(
    f"x-tts-{name}"
    for name in (
        *("text", "ssml", "prompt-id", "voice", "language", "instructions"),
        *("then", "transfer", "delay", "gather", "record"),
    )
)
"""The headers of an INVITE that have a meaning here, in small letters."""
AfterPrompt = Literal["stay", "hangup", "transfer"]
_THEN: Final[Mapping[str, AfterPrompt | None]] = {"": None, "hangup": "hangup", "stay": "stay", "transfer": "transfer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDecision:
    """How to answer, and what to speak first, after ``lead_in_ms`` of silence. ``defaults`` are those of the call;
    ``unanswered`` is spoken if a call is not answered that waits for it.
    ``media_url`` is the application that is to take its audio, ``relay`` the one that is to talk. ``gather`` has ``prompt``
    in it. ``transfer_to`` is whom the caller is handed over to after the prompt; nobody has checked whether that is allowed.
    ``refer``: who decides on a REFER of the caller. ``record``: the call is recorded like this from its first frame on.
    ``disclosure`` is said before synthetic words.
    """

    answer: Literal["now", "ring", "manual"]
    prompt: Prompt | None
    defaults: PromptDefaults
    ring_ms: int = 0
    unanswered: Prompt | None = None
    lead_in_ms: int = 0
    gather: GatherRequest | None = None
    disclosure: Disclosure | None = None
    media_url: str = ""
    media_dialect: MediaDialect = "cc-tts"
    relay: RelaySettings | None = None
    transfer_to: str = ""
    refer: Literal["refuse", "allow", "ask"] = "refuse"
    record: RecordRequest | None = None


def unknown_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the names that begin as ours do and have no meaning. RFC 3261 §8.2 has them passed over."""
    return [name for name in headers if (small := name.lower()).startswith("x-tts-") and small not in HEADERS]


def decide(
    *, request_uri: str, trusted: bool, headers: Mapping[str, str], config: Config, trunk: str = ""
) -> RouteDecision:
    """Route one INVITE; ``trusted``: it came from a peer in ``sip.trusted_peers``. ``trunk``: the one that it came by.

    Raises:
        NotFound: no route takes the user (404), or the prompt named does not exist.
        Forbidden: an announcement or a transfer was asked for by a peer that is not trusted (403).
        MalformedRequest: a header or URI parameter cannot be read (400).
        NothingToSay: it is to be hung up after its prompt and has none (400): it would be silent until somebody hangs up.
        TextTooLong: more text than ``tts.max_text_chars`` (413).
        SsmlMalformed: an SSML document that cannot be read (400).
        RecordingOff: it is to be recorded, and ``record.dir`` is empty (488).
    """
    user, parameters = parse_uri(request_uri)
    tts_headers = {name.lower(): value for name, value in headers.items()} if trusted else {}
    announces = _announces(user, tts_headers, trusted=trusted)
    route = _announcement_route(parameters) if announces else _route(user, config.routes, trusted=trusted, trunk=trunk)
    if not trusted and any(name.lower() == "x-tts-transfer" for name in headers):
        raise Forbidden("X-TTS-Transfer is taken from the peers in sip.trusted_peers only")
    asked_then = _then(tts_headers)
    transfer_to = _transfer_to(tts_headers, route, asked_then)
    then: Then = "stay" if transfer_to else "hangup" if (asked_then or route.then) == "hangup" else "stay"
    if transfer_to and (route.answer == "manual" or route.media_url or route.relay):
        raise MalformedRequest("the application of this route transfers the call: POST /v1/calls/{id}/transfer")
    style = _style(tts_headers, route)
    prompt = (
        _announcement(parameters, style, then, config)
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
        answer=route.answer,
        ring_ms=route.ring_ms,
        prompt=prompt,
        defaults=PromptDefaults(
            voice=style.voice,
            language=style.language,
            instructions=style.instructions,
            barge_in_speech=None if route.barge_in_speech == "" else route.barge_in_speech,
        ),
        unanswered=_unanswered(route, style),
        lead_in_ms=_lead_in(tts_headers, route.lead_in_ms),
        disclosure=Disclosure.of(route.disclosure, config.calls.disclosure),
        media_url=route.media_url,
        media_dialect=route.media_dialect,
        relay=route.relay or None,
        gather=gather,
        transfer_to=transfer_to,
        refer=route.refer,
        record=record_of(tts_headers.get("x-tts-record", ""), route.record, config.record),
    )


def greeting_of(route: RouteConfig) -> Prompt | None:
    """Whoever answers a call that is placed in place of one of the route hears this; ``None``: nothing."""
    then: Then = "hangup" if route.then == "hangup" else "stay"
    return _first_prompt({}, route, _style({}, route), then, max_text_chars=0)


def _transfer_to(tts_headers: Mapping[str, str], route: RouteConfig, asked_then: AfterPrompt | None) -> str:
    """The target of a header, else the route's; empty if the call is not to be transferred."""
    asked = tts_headers.get("x-tts-transfer", "").strip()
    target = asked[1:-1] if asked.startswith("<") and asked.endswith(">") else asked
    if target and (fault := uri_fault(target)):
        raise MalformedRequest(f"X-TTS-Transfer: {fault}")
    if target and asked_then in ("hangup", "stay"):
        raise MalformedRequest(f"X-TTS-Transfer goes with X-TTS-Then: transfer, not with {asked_then}")
    if not target and asked_then == "transfer" and not route.transfer_to:
        raise MalformedRequest("X-TTS-Then: transfer needs X-TTS-Transfer with a SIP URI, or a route with transfer_to")
    is_wanted = bool(target) or (asked_then or route.then) == "transfer"
    return (target or route.transfer_to) if is_wanted else ""


def route_of(request_uri: str, config: Config, trunk: str = "") -> tuple[str, str]:
    """The key of ``[routes]`` that takes an INVITE that came by ``trunk`` (``annc`` for announcements), and whose call it
    is: both empty if none does; the second also for the operator's.
    """
    try:
        user, _ = parse_uri(request_uri)
        tenant = _route(user, config.routes, trusted=False, trunk=trunk).tenant
    except (MalformedRequest, NotFound):
        return "", ""
    return user if user == ANNOUNCEMENT_USER else _key(user, config.routes, trunk), tenant


def _style(tts_headers: Mapping[str, str], route: RouteConfig) -> TextContent:
    return TextContent(
        "",
        voice=_named(tts_headers, "X-TTS-Voice", _VOICE) or route.voice or None,
        language=_named(tts_headers, "X-TTS-Language", _LANGUAGE) or route.language or None,
        instructions=_instructions(tts_headers.get("x-tts-instructions", "")) or route.instructions or None,
    )


def _instructions(header: str) -> str | None:
    """How to speak, in words; ``None`` without them."""
    instructions = percent_decode(header, "X-TTS-Instructions").strip()
    if len(instructions) > MAX_INSTRUCTION_CHARS or "<|" in instructions:
        raise MalformedRequest(f"X-TTS-Instructions has {MAX_INSTRUCTION_CHARS} characters at most, and no <|")
    return instructions or None


def _named(values: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    """A voice or a language that the caller names; empty if none."""
    value = values.get(name.lower(), "").strip()
    if value and not form.fullmatch(value):
        raise MalformedRequest(f"{name}: {'no language tag' if form is _LANGUAGE else 'no name of a voice'}")
    return value


def gather_of(header: str, prompt: Prompt | None, then: Then) -> GatherRequest | None:
    """Read what ``X-TTS-Gather`` asks for, as in ``max=4;finish=#;initial=8000``; ``prompt`` is said first.

    Raises:
        MalformedRequest: a parameter that does not exist, comes twice or has a wrong value.
    """
    if not header.strip():
        return None
    wanted = header_parameters.read(header.split(";"), "X-TTS-Gather", _GATHER_PARAMETERS)
    request = GatherRequest(prompt=None if prompt is None else replace(prompt, then="stay"), then=then, **wanted)
    if request.min_digits > request.max_digits:
        raise MalformedRequest("X-TTS-Gather: min= is more than max=")
    return request


_GATHER_PARAMETERS: Final[header_parameters.Parameters] = {
    "min": ("min_digits", header_parameters.whole_number(0, MAX_DIGITS)),
    "max": ("max_digits", header_parameters.whole_number(1, MAX_DIGITS)),
    "finish": ("finish_on_key", header_parameters.keys),
    "valid": ("valid_digits", header_parameters.keys),
    "initial": ("initial_timeout_ms", header_parameters.whole_number(1, MAX_TIMEOUT_MS)),
    "inter": ("inter_digit_timeout_ms", header_parameters.whole_number(1, MAX_TIMEOUT_MS)),
    "timeout": ("timeout_ms", header_parameters.whole_number(1, MAX_TIMEOUT_MS)),
    "tries": ("max_tries", header_parameters.whole_number(1, MAX_TRIES)),
    "sensitive": ("sensitive", header_parameters.yes_or_no),
}
"""The parameters of X-TTS-Gather, each with the field of the request and what reads its value."""


def _first_prompt(
    tts_headers: Mapping[str, str], route: RouteConfig, style: TextContent, then: Then, max_text_chars: int
) -> Prompt | None:
    content = _header_content(tts_headers, style, max_text_chars)
    if content is None and route.greeting_prompt:
        content = _announced(route.greeting_prompt)
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
    """Return the prompt that the caller hears when the application does not answer."""
    if not route.unanswered_greeting:
        return None
    content = replace(style, text=route.unanswered_greeting)
    return Prompt(content=content, queue="replace", then="hangup", unattended=True)


def _key(user: str, routes: Mapping[str, RouteConfig], trunk: str) -> str:
    """The key of the route of a user; for one that has none that of the trunk that the call came by, and else ``*``."""
    if user in routes and not user.startswith(OF_TRUNK):  # a caller can write anything there
        return user
    return key if trunk and (key := OF_TRUNK + trunk) in routes else "*"


def _route(user: str, routes: Mapping[str, RouteConfig], *, trusted: bool, trunk: str) -> RouteConfig:
    """The route of a user. Only a trusted peer learns which other names there are."""
    if user == ANNOUNCEMENT_USER:
        return RouteConfig(then="hangup")
    found = routes.get(_key(user, routes, trunk))
    if found is None:
        raise NotFound(f"no route for user {user[:64]!r}" + (did_you_mean(user, routes) if trusted else ""))
    return found


def _announcement_route(parameters: Mapping[str, str]) -> RouteConfig:
    given = {name: percent_decode(parameters.get(name, ""), f"{name}=") for name in ("voice", "locale")}
    locale = _named(given, "locale", _LANGUAGE).replace("_", "-")
    return RouteConfig(voice=_named(given, "voice", _VOICE), language=locale, then="hangup")


def _nothing_to_say(headers: Mapping[str, str], *, trusted: bool) -> CcTtsError:
    if not trusted and any(name.lower() in ("x-tts-text", "x-tts-ssml") for name in headers):
        return Forbidden("X-TTS-Text and X-TTS-SSML are taken from the peers in sip.trusted_peers only")
    return NothingToSay(
        "nothing to say before the hangup: X-TTS-Text and X-TTS-SSML are empty or missing, and the route has no greeting"
    )


def uri_parameters(uri: str) -> dict[str, str]:
    """The parameters of a Request-URI to be shown, at most :data:`MAX_SHOWN_PARAMETERS`; none if it cannot be read."""
    try:
        parameters = parse_uri(uri)[1]
    except MalformedRequest:
        return {}
    return dict(itertools.islice(parameters.items(), MAX_SHOWN_PARAMETERS))


def parse_uri(uri: str) -> tuple[str, dict[str, str]]:
    """User and parameters of a SIP URI (RFC 3261 §19.1.1); parameter names in lower case, values as sent. A password and
    what a telephone number carries along (``+4930123;phone-context=…``) are no part of the user.

    Raises:
        MalformedRequest: not a SIP URI.
    """
    if len(uri) > MAX_URI_CHARS:
        raise MalformedRequest(f"the Request-URI is longer than {MAX_URI_CHARS} characters")
    match = re.match(r"sips?:(?:([^@]*)@)?[^;?@]+((?:;[^?]*)?)(?:\?.*)?$", uri, re.IGNORECASE | re.DOTALL)
    if match is None:
        raise MalformedRequest("the Request-URI is not a SIP URI")
    user = percent_decode(re.split("[:;]", match[1] or "", maxsplit=1)[0], "the Request-URI's user")
    parameters: dict[str, str] = {}
    for part in (match[2] or "").split(";"):
        name, _, value = part.partition("=")
        if name:
            parameters.setdefault(name.strip().lower(), value.strip())
    return user, parameters


def percent_decode(text: str, what: str) -> str:
    """Percent-encoded UTF-8 (RFC 3986 §2.1) to text.

    Raises:
        MalformedRequest: not ASCII, a broken escape, not UTF-8, or a NUL.
    """
    if not text.isascii() or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise MalformedRequest(f"{what} must be percent-encoded UTF-8 in ASCII")
    try:
        decoded = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedRequest(f"{what} is not UTF-8 once its percent escapes are undone") from None
    if "\0" in decoded:
        raise MalformedRequest(f"{what} holds a NUL")
    return decoded


def _then(tts_headers: Mapping[str, str]) -> AfterPrompt | None:
    value = tts_headers.get("x-tts-then", "").lower()
    if value not in _THEN:
        raise MalformedRequest("X-TTS-Then is hangup, stay or transfer")
    return _THEN[value]


def _lead_in(tts_headers: Mapping[str, str], default_ms: int) -> int:
    value = tts_headers.get("x-tts-delay", "").strip()
    return _milliseconds(value, "X-TTS-Delay", at_most=MAX_LEAD_IN_MS) if value else default_ms


def _header_content(tts_headers: Mapping[str, str], style: TextContent, max_text_chars: int) -> Content | None:
    """The words of a header; ``None`` without one."""
    if prompt_id := tts_headers.get("x-tts-prompt-id", "").strip():
        return StagedContent(prompt_id)
    text = percent_decode(tts_headers.get("x-tts-text", ""), "X-TTS-Text")
    ssml = percent_decode(tts_headers.get("x-tts-ssml", ""), "X-TTS-SSML")
    if text and ssml:
        raise MalformedRequest("X-TTS-Text and X-TTS-SSML exclude each other")
    if ssml:
        return _bounded(from_ssml(ssml, style, pointer="X-TTS-SSML"), max_text_chars, "X-TTS-SSML")
    return _bounded(replace(style, text=text), max_text_chars, "X-TTS-Text") if text else None


def _announcement(parameters: Mapping[str, str], style: TextContent, then: Then, config: Config) -> Prompt:
    """Read an announcement's Request-URI (RFC 4240 §3)."""
    scheme, text = _announced_text(parameters)
    style = replace(style, speed=_speed(parameters.get("speed")))
    content: Content = _announced(text)
    if scheme in ("tts", "ssml"):
        spoken = from_ssml(text, style, pointer="play=ssml:") if scheme == "ssml" else replace(style, text=text)
        content = _bounded(spoken, config.tts.max_text_chars, "play=")
    limit_ms = round(config.calls.max_announcement_s * 1000)
    return Prompt(
        content=content,
        then=then,
        unattended=True,
        repeat=_repeat(parameters.get("repeat", "1"), config.calls.max_repeat),
        delay_ms=_milliseconds(parameters.get("delay", "0"), "delay=", at_most=MAX_DELAY_MS),
        max_duration_ms=min(_milliseconds(parameters.get("duration", "0"), "duration=") or limit_ms, limit_ms),
    )


def _announced_text(parameters: Mapping[str, str]) -> tuple[str, str]:
    play = parameters.get("play")
    if not play:
        raise MalformedRequest("play= is missing from the announcement's Request-URI")
    scheme, colon, text = percent_decode(play, "play=").partition(":")
    if not colon:
        raise NotFound(f"play= names nothing known here; use {_SCHEMES}")
    match scheme.lower():
        case "tts" | "ssml" | "prompt" as known:
            return known, text
        case "http" | "https" as known:
            return known, f"{known}:{text}"
        case _:
            raise NotFound(f"play={scheme[:16]}: is not known here; use {_SCHEMES}")


def _announced(prompt: str) -> StagedContent | UrlContent:
    return UrlContent(prompt) if is_url(prompt) else StagedContent(prompt)


def _repeat(value: str, limit: int) -> int:
    if value.lower() == "forever":
        return limit
    if not _NUMBER.fullmatch(value) or int(value) < 1:
        raise MalformedRequest("repeat= is a number from 1, or forever")
    return min(int(value), limit)


def _milliseconds(value: str, what: str, *, at_most: int | None = None) -> int:
    if not _NUMBER.fullmatch(value) or (at_most is not None and int(value) > at_most):
        limit = "" if at_most is None else f", at most {at_most}"
        raise MalformedRequest(f"{what} is a number of milliseconds{limit}")
    return int(value)


def _speed(value: str | None) -> float | None:
    if value is None:
        return None
    if not _SPEED.fullmatch(value) or not MIN_SPEED <= float(value) <= MAX_SPEED:
        raise MalformedRequest(f"speed= is a factor from {MIN_SPEED} to {MAX_SPEED}")
    return float(value)


def _bounded(content: Content, limit: int, what: str) -> Content:
    if (num_chars := len(text_of(content))) > limit:
        raise TextTooLong(f"{what} holds {num_chars} characters; tts.max_text_chars is {limit}")
    return content
