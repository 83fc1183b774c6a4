"""The ``X-TTS-`` headers of an INVITE: what each means, and how its value is read. ``X-TTS-Record`` is in
:mod:`cc_tts.calls.dialplan.record`. This module is pure: it has no state.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from cc_tts.calls.dialplan import parameters
from cc_tts.calls.dialplan.parameters import bounded, language_tag, milliseconds, voice_name
from cc_tts.calls.dialplan.request_uri import percent_decode
from cc_tts.calls.dtmf.gather import MAX_DIGITS, MAX_TIMEOUT_MS, MAX_TRIES, GatherRequest
from cc_tts.config.schema import MAX_LEAD_IN_MS, RouteConfig
from cc_tts.config.sections.models import MAX_INSTRUCTION_CHARS
from cc_tts.config.sip_uri import uri_fault
from cc_tts.errors import MalformedRequest
from cc_tts.speech.prompt import Content, Prompt, StagedContent, TextContent, Then
from cc_tts.speech.ssml import from_ssml

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


def unknown_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the names that begin with ``X-TTS-`` and have no meaning. RFC 3261 §8.2 says that they are ignored."""
    return [name for name in headers if (small := name.lower()).startswith("x-tts-") and small not in HEADERS]


def content_of(tts_headers: Mapping[str, str], style: TextContent, max_text_chars: int) -> Content | None:
    """Return the prompt that the headers carry; ``None`` if they carry none."""
    if prompt_id := tts_headers.get("x-tts-prompt-id", "").strip():
        return StagedContent(prompt_id)
    text = percent_decode(tts_headers.get("x-tts-text", ""), "X-TTS-Text")
    ssml = percent_decode(tts_headers.get("x-tts-ssml", ""), "X-TTS-SSML")
    if text and ssml:
        raise MalformedRequest("X-TTS-Text and X-TTS-SSML exclude each other")
    if ssml:
        return bounded(from_ssml(ssml, style, pointer="X-TTS-SSML"), max_text_chars, "X-TTS-SSML")
    return bounded(replace(style, text=text), max_text_chars, "X-TTS-Text") if text else None


def style_of(tts_headers: Mapping[str, str], route: RouteConfig) -> TextContent:
    return TextContent(
        "",
        voice=voice_name(tts_headers.get("x-tts-voice", ""), "X-TTS-Voice") or route.voice or None,
        language=language_tag(tts_headers.get("x-tts-language", ""), "X-TTS-Language") or route.language or None,
        instructions=_instructions(tts_headers.get("x-tts-instructions", "")) or route.instructions or None,
    )


def _instructions(header: str) -> str | None:
    """Return the instructions on how to speak; ``None`` if there are none."""
    instructions = percent_decode(header, "X-TTS-Instructions").strip()
    if len(instructions) > MAX_INSTRUCTION_CHARS or "<|" in instructions:
        raise MalformedRequest(f"X-TTS-Instructions has {MAX_INSTRUCTION_CHARS} characters at most, and no <|")
    return instructions or None


def lead_in_ms(tts_headers: Mapping[str, str], default_ms: int) -> int:
    value = tts_headers.get("x-tts-delay", "").strip()
    return milliseconds(value, "X-TTS-Delay", at_most=MAX_LEAD_IN_MS) if value else default_ms


def after_prompt(tts_headers: Mapping[str, str]) -> AfterPrompt | None:
    value = tts_headers.get("x-tts-then", "").lower()
    if value not in _THEN:
        raise MalformedRequest("X-TTS-Then is hangup, stay or transfer")
    return _THEN[value]


def transfer_target(tts_headers: Mapping[str, str], route: RouteConfig, asked_then: AfterPrompt | None) -> str:
    """Return the target in the header, or else the route's; empty if the call is not transferred."""
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


def gather_of(header: str, prompt: Prompt | None, then: Then) -> GatherRequest | None:
    """Read ``X-TTS-Gather``, as in ``max=4;finish=#;initial=8000``. ``prompt`` is said first.

    Raises:
        MalformedRequest: a parameter that does not exist, comes twice or has a wrong value.
    """
    if not header.strip():
        return None
    wanted = parameters.read(header.split(";"), "X-TTS-Gather", _GATHER_PARAMETERS)
    request = GatherRequest(prompt=None if prompt is None else replace(prompt, then="stay"), then=then, **wanted)
    if request.min_digits > request.max_digits:
        raise MalformedRequest("X-TTS-Gather: min= is more than max=")
    return request


_GATHER_PARAMETERS: Final[parameters.Parameters] = {
    "min": ("min_digits", parameters.whole_number(0, MAX_DIGITS)),
    "max": ("max_digits", parameters.whole_number(1, MAX_DIGITS)),
    "finish": ("finish_on_key", parameters.keys),
    "valid": ("valid_digits", parameters.keys),
    "initial": ("initial_timeout_ms", parameters.whole_number(1, MAX_TIMEOUT_MS)),
    "inter": ("inter_digit_timeout_ms", parameters.whole_number(1, MAX_TIMEOUT_MS)),
    "timeout": ("timeout_ms", parameters.whole_number(1, MAX_TIMEOUT_MS)),
    "tries": ("max_tries", parameters.whole_number(1, MAX_TRIES)),
    "sensitive": ("sensitive", parameters.yes_or_no),
}
"""The parameters of X-TTS-Gather, each with its field of the request and the function that reads its value."""
