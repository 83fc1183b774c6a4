"""An announcement that a Request-URI asks for, as in ``sip:annc@host;play=tts:Hello`` (RFC 4240). This module is pure: it
has no state.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cc_tts.calls.dialplan.parameters import NUMBER, bounded, language_tag, milliseconds, voice_name
from cc_tts.calls.dialplan.request_uri import percent_decode
from cc_tts.config.schema import Config, RouteConfig
from cc_tts.config.sections.prompts import is_url
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import MalformedRequest, NotFound
from cc_tts.speech.prompt import Content, Prompt, StagedContent, TextContent, Then, UrlContent
from cc_tts.speech.ssml import from_ssml

MAX_DELAY_MS: Final = 120_000
"""The longest silence between two repeats; unmeasured."""
_SCHEMES: Final = "play=tts:TEXT, play=ssml:DOCUMENT, play=prompt:ID or play=https:URL"
_SPEED: Final = re.compile(r"[0-9](\.[0-9]{1,3})?")


def announcement_route(parameters: Mapping[str, str]) -> RouteConfig:
    """The route of an announcement, whose voice and language are parameters of the URI."""
    given = {name: percent_decode(parameters.get(name, ""), f"{name}=") for name in ("voice", "locale")}
    locale = language_tag(given["locale"], "locale").replace("_", "-")
    return RouteConfig(voice=voice_name(given["voice"], "voice"), language=locale, then="hangup")


def announcement(parameters: Mapping[str, str], style: TextContent, then: Then, config: Config) -> Prompt:
    """Read an announcement's Request-URI (RFC 4240 §3)."""
    scheme, text = _announced_text(parameters)
    style = replace(style, speed=_speed(parameters.get("speed")))
    content: Content = announced_content(text)
    if scheme in ("tts", "ssml"):
        spoken = from_ssml(text, style, pointer="play=ssml:") if scheme == "ssml" else replace(style, text=text)
        content = bounded(spoken, config.tts.max_text_chars, "play=")
    limit_ms = round(config.calls.max_announcement_s * 1000)
    return Prompt(
        content=content,
        then=then,
        unattended=True,
        repeat=_repeat(parameters.get("repeat", "1"), config.calls.max_repeat),
        delay_ms=milliseconds(parameters.get("delay", "0"), "delay=", at_most=MAX_DELAY_MS),
        max_duration_ms=min(milliseconds(parameters.get("duration", "0"), "duration=") or limit_ms, limit_ms),
    )


def announced_content(prompt: str) -> StagedContent | UrlContent:
    return UrlContent(prompt) if is_url(prompt) else StagedContent(prompt)


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


def _repeat(value: str, limit: int) -> int:
    if value.lower() == "forever":
        return limit
    if not NUMBER.fullmatch(value) or int(value) < 1:
        raise MalformedRequest("repeat= is a number from 1, or forever")
    return min(int(value), limit)


def _speed(value: str | None) -> float | None:
    if value is None:
        return None
    if not _SPEED.fullmatch(value) or not MIN_SPEED <= float(value) <= MAX_SPEED:
        raise MalformedRequest(f"speed= is a factor from {MIN_SPEED} to {MAX_SPEED}")
    return float(value)
