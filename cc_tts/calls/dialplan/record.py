"""The recording that a route or the header ``X-TTS-Record`` asks for. This module is pure: it has no state."""

from dataclasses import asdict, replace
from typing import Any, Final

from cc_tts.calls.dialplan import parameters
from cc_tts.calls.recording.recording import RecordRequest
from cc_tts.config.record import MAX_RECORDING_MS, MIN_RECORDING_MS, RecordConfig, RouteRecord, RouteRecordConfig
from cc_tts.errors import MalformedRequest, RecordingOff

NAME: Final = "X-TTS-Record"
_WORDS: Final = ("mono", "dual", "yes", "no")


def record_of(header: str, route: RouteRecord, config: RecordConfig) -> RecordRequest | None:
    """Read ``X-TTS-Record``, as in ``dual;beep=yes;finish=#``. The route gives the values that the header leaves out.

    ``no`` switches the route's recording off. ``None``: the call is not recorded unless a client asks for it.

    Raises:
        MalformedRequest: a word or a parameter that does not exist, comes twice or has a wrong value.
        RecordingOff: ``record.dir`` is empty.
    """
    word, wanted = _read(header)
    request = _of_route(route)
    if word == "no" or (request is None and not header.strip()):
        return None
    if not config.dir:
        raise RecordingOff("nothing is recorded here: record.dir is empty")
    if word in ("mono", "dual"):
        wanted["channels"] = word
    request = replace(request or RecordRequest(), **wanted)
    if request.channels == "dual" and request.tracks != "both":
        raise MalformedRequest(f"{NAME}: one direction alone (tracks=) needs mono")
    return request


def _read(header: str) -> tuple[str, dict[str, Any]]:
    first, *rest = (part.strip() for part in header.split(";"))
    if not first or "=" in first:
        return "", parameters.read([first, *rest], NAME, _PARAMETERS)
    word = parameters.word_of(*_WORDS)(first, f"{NAME}: the first word")
    return str(word), parameters.read(rest, NAME, _PARAMETERS)


def _of_route(route: RouteRecord) -> RecordRequest | None:
    if isinstance(route, RouteRecordConfig):
        return RecordRequest(**asdict(route))
    return RecordRequest(channels=route) if route else None


_duration: Final = parameters.whole_number(MIN_RECORDING_MS, MAX_RECORDING_MS)
_PARAMETERS: Final[parameters.Parameters] = {
    "tracks": ("tracks", parameters.word_of("both", "caller", "agent")),
    "encoding": ("encoding", parameters.word_of("ulaw", "pcm16")),
    "max": ("max_duration_ms", _duration),
    "silence": ("silence_timeout_ms", _duration),
    "finish": ("finish_on_key", parameters.keys),
    "beep": ("beep", parameters.yes_or_no),
    "trim": ("trim_silence", parameters.yes_or_no),
    "consent": ("consent", parameters.word_of("required", "given")),
}
"""The parameters of X-TTS-Record, each with its field of the request and the function that reads its value."""
