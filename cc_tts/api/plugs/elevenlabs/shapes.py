"""The messages and parameters of ElevenLabs' API that we use; all others are ignored."""

import re
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from cc_tts.api import schemas
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.route import Query
from cc_tts.api.plugs.alignment import Characters
from cc_tts.api.plugs.encoder import FORMATS, Output
from cc_tts.api.plugs.speech_context import ClientSpeed
from cc_tts.errors import FieldError, Unprocessable
from cc_tts.speech.prompt import TextContent

DEFAULT_FORMAT: Final = "mp3_44100_128"
"""The default of ElevenLabs."""
MAX_INACTIVITY_S: Final = 180  # configurable as in ElevenLabs' API
DEFAULT_INACTIVITY_S: Final = 20  # configurable as in ElevenLabs' API
MAX_KBPS: Final = 320  # the highest bit rate of MP3 (ISO/IEC 11172-3)
MAX_OPUS_KBPS: Final = 256  # measured: more than that FFmpeg's libopus refuses for one channel
NO_LIMIT: Final = 2**31 - 1
"""The number for "no limit", as clients need a number: the largest that all languages can read."""
RATES_HZ: Final = (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_OUTPUT_FORMAT: Final = re.compile(r"(?P<name>mp3|opus|pcm|ulaw|alaw|wav)_(?P<rate>\d{4,5})(?:_(?P<kbps>\d{2,3}))?")

OUTPUT_FORMAT: Final = Query(
    "output_format",
    f"NAME_RATE or NAME_RATE_KBPS: mp3, opus, pcm, wav at {', '.join(map(str, RATES_HZ))} Hz, ulaw_8000, alaw_8000; "
    f"{DEFAULT_FORMAT} if left out.",
)
LANGUAGE: Final = Query("language_code", "The language of the text; found from the text if left out.")
INACTIVITY: Final = Query(
    "inactivity_timeout", f"Seconds after which a text that does not go on ends: {DEFAULT_INACTIVITY_S} if left out."
)


class VoiceSettings(msgspec.Struct, frozen=True):
    """The settings of a voice, of which the speed has an effect."""

    speed: ClientSpeed | None = None


class TextToSpeech(msgspec.Struct, frozen=True):
    """The text to say. Unknown fields have no effect."""

    text: schemas.Text
    voice_settings: VoiceSettings | None = None
    language_code: schemas.Language | None = None


class ElevenLabsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a client of a WebSocket. Unknown fields have no effect."""

    text: str | None = None
    context_id: Annotated[str, Meta(max_length=256)] | None = None
    camel_id: Annotated[str, Meta(max_length=256)] | None = msgspec.field(default=None, name="contextId")
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    voice_settings: VoiceSettings | None = None
    xi_api_key: str | None = None
    hyphened_key: str | None = msgspec.field(default=None, name="xi-api-key")
    authorization: str | None = None

    @property
    def key(self) -> str:
        """Return the key of a client that cannot set headers, such as a browser; empty if it has none."""
        return self.xi_api_key or self.hyphened_key or (self.authorization or "").rpartition(" ")[2]

    @property
    def id(self) -> str | None:
        return self.context_id or self.camel_id


class Voice(msgspec.Struct, frozen=True):
    """A voice, as ElevenLabs' API lists it."""

    voice_id: str
    name: str
    category: str
    labels: dict[str, str]
    description: str = ""


class VoicePage(msgspec.Struct, frozen=True):
    """All voices of the server, in one page."""

    voices: list[Voice]
    has_more: bool = False
    total_count: int = 0
    next_page_token: None = None


class Subscription(msgspec.Struct, frozen=True):
    """The characters of a tenant: those of today, and those that a day has."""

    character_count: int
    character_limit: int
    tier: str = "cc-tts"
    status: str = "active"


class User(msgspec.Struct, frozen=True):
    """The tenant whose token a request has, as ElevenLabs' clients ask for it to try their key."""

    user_id: str
    subscription: Subscription
    is_new_user: bool = False
    is_onboarding_completed: bool = True


def output_of(request: web.Request) -> Output:
    """Return the output format of a request.

    Raises:
        Unprocessable: there is no such format.
    """
    value = request.query.get("output_format", DEFAULT_FORMAT)
    match = _OUTPUT_FORMAT.fullmatch(value)
    kbps = int(match["kbps"] or 0) if match else 0
    rate_hz = int(match["rate"]) if match else 0
    if match is None or not _is_taken(match["name"], rate_hz, kbps):
        detail = (
            f"{value[:40]!r} is no format here; take one as in mp3_44100_128, pcm_16000, opus_48000_64 or ulaw_8000"
        )
        raise Unprocessable(detail, field_errors=[FieldError("/output_format", detail)])
    return Output(FORMATS[match["name"]], rate_hz, 1000 * kbps or None)


def _is_taken(name: str, rate_hz: int, kbps: int) -> bool:
    return rate_hz in (FORMATS[name].rates_hz or RATES_HZ) and kbps <= (MAX_OPUS_KBPS if name == "opus" else MAX_KBPS)


def words_of(request: web.Request, settings: VoiceSettings | None, *, language: str | None = None) -> TextContent:
    """Return the style of a request's words; their text is empty."""
    language = language or request.query.get("language_code") or None
    return TextContent("", request.match_info["voice"], language, settings.speed if settings else None)


def inactivity_s(request: web.Request) -> float:
    """Return the seconds after which a text that does not continue ends; raises ``Unprocessable``."""
    value = request.query.get(INACTIVITY.name, str(DEFAULT_INACTIVITY_S))
    if not re.fullmatch(r"\d{1,3}", value) or not 1 <= int(value) <= MAX_INACTIVITY_S:
        raise Unprocessable(f"inactivity_timeout is 1 to {MAX_INACTIVITY_S} seconds")
    return float(value)


def in_milliseconds(characters: Characters) -> dict[str, Any]:
    """Return the alignment for a WebSocket message."""
    return {
        "chars": characters.characters,
        "charStartTimesMs": [round(each) for each in characters.starts_ms],
        "charDurationsMs": [round(each) for each in characters.durations_ms],
    }


def in_seconds(characters: Characters, *, offset_ms: float = 0.0) -> dict[str, Any]:
    starts_ms = [offset_ms + each for each in characters.starts_ms]
    ends_ms = [start + length for start, length in zip(starts_ms, characters.durations_ms, strict=True)]
    return {
        "characters": characters.characters,
        "character_start_times_seconds": [round(each / 1000, 4) for each in starts_ms],
        "character_end_times_seconds": [round(each / 1000, 4) for each in ends_ms],
    }


def voices_of(request: web.Request) -> list[Voice]:
    voices = request.app[CONTEXT].services.source.engine.voices()
    return [
        Voice(each.id, each.id, "premade", {"language": each.language, "gender": each.gender}, each.description)
        for each in voices
    ]
