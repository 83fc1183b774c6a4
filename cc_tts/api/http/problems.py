"""Errors as ``application/problem+json`` (RFC 9457).

``type`` is ``urn:cc-tts:problem:CODE``, ``instance`` the path that was asked for, ``code`` the stable word of
``errors.py``. Nothing of an unexpected exception reaches the client.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from cc_tts.api.http.route import CARTESIA, DEEPGRAM, ELEVENLABS, OPENAI
from cc_tts.errors import CcTtsError, ClientError, FieldError, MalformedRequest, ServerError, UnknownVoice

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:cc-tts:problem:"
DEFAULT_RETRY_AFTER_S: Final = 5  # unmeasured
"""``Retry-After`` of a 503 or 429 whose error has none."""
MAX_DETAIL_CHARS: Final = 1000  # unmeasured
MAX_INSTANCE_CHARS: Final = 500  # unmeasured

OPENAI_PATHS: Final = ("/v1/audio/", "/v1/models", f"{OPENAI}/")
"""The beginnings of the paths that OpenAI's client packages use."""
DEEPGRAM_PATHS: Final = ("/v1/speak", "/v2/speak", f"{DEEPGRAM}/")
"""The beginnings of the paths that Deepgram's client packages use."""
ELEVENLABS_PATHS: Final = ("/v1/text-to-speech/", "/v2/voices", "/v1/user", f"{ELEVENLABS}/")
"""The beginnings of the paths that ElevenLabs' client packages use. On paths shared with others their header identifies
them.
"""
CARTESIA_PATHS: Final = ("/tts/", "/voices", f"{CARTESIA}/")
"""The beginnings of the paths that Cartesia's client packages use."""
RETRYABLE: Final = frozenset({429, 503})


class MethodNotAllowed(ClientError, code="method_not_allowed", title="Method not allowed", http=405):
    """The path exists, the method does not (RFC 9110 §15.5.6)."""


class RequestTimeout(ClientError, code="request_timeout", title="The request took too long to arrive", http=408):
    """The body did not arrive within ``http.request_timeout_s`` (RFC 9110 §15.5.9)."""


class UpgradeRequired(ClientError, code="upgrade_required", title="This path speaks WebSocket", http=426):
    """A WebSocket path was asked for without a WebSocket handshake (RFC 9110 §15.5.22)."""


class DeadlineExceeded(ServerError, code="deadline_exceeded", title="The server took too long", http=503):
    """The server did not finish the request within ``http.request_timeout_s``."""


class NotReady(ServerError, code="not_ready", title="Not ready", http=503):
    """A new call could not be answered and spoken to now."""


class ExpectationFailed(ClientError, code="expectation_failed", title="Expectation failed", http=417):
    """An Expect header other than 100-continue (RFC 9110 §15.5.18)."""


class OtherNode(ClientError, code="other_node", title="The call is at another node", http=307):
    """The call or utterance belongs to the node in its id: send the request there with the same token (RFC 9110 §15.4.8)."""

    def __init__(self, node: str, api: str, path: str) -> None:
        super().__init__(f"it is of node {node}; send this request to {api}, with your token")
        self.api = api
        self.location = api + path


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that an error answers. ``has_elevenlabs_key``: its token is in ElevenLabs' header."""

    path: str
    request_id: str = ""
    has_elevenlabs_key: bool = False


class SpeechError(msgspec.Struct):
    """The error in OpenAI's shape: its client packages show only ``error.message``."""

    message: str
    type: str
    code: str
    param: str | None = None


class Problem(msgspec.Struct, omit_defaults=True):
    """A problem document (RFC 9457 §3).

    ``errors`` names the faults of a body by JSON pointers (RFC 6901); ``reason`` is set by ``/readyz`` only,
    ``api``, the base URL of another node, by 307 only, ``error`` by the paths of OpenAI only.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: tuple[FieldError, ...] = ()
    reason: str = ""
    api: str = ""
    error: SpeechError | None = None


def document(error: CcTtsError, *, instance: str) -> bytes:
    detail = _clean(error.detail, MAX_DETAIL_CHARS)
    problem = Problem(
        type=TYPE_PREFIX + error.code,
        title=error.title,
        status=error.http_status,
        detail=detail,
        instance=_clean(instance, MAX_INSTANCE_CHARS),
        code=error.code,
        errors=tuple(
            FieldError(_clean(e.pointer, MAX_DETAIL_CHARS), _clean(e.detail, MAX_DETAIL_CHARS))
            for e in error.field_errors
        ),
        reason=detail if isinstance(error, NotReady) else "",
        api=error.api if isinstance(error, OtherNode) else "",
        error=_as_openai(error, detail) if instance.startswith(OPENAI_PATHS) else None,
    )
    return msgspec.json.encode(problem)


def _as_openai(error: CcTtsError, detail: str) -> SpeechError:
    kind = "server_error" if isinstance(error, ServerError) else "invalid_request_error"
    field = error.field_errors[0].pointer.removeprefix("/").replace("/", ".") if error.field_errors else ""
    return SpeechError(detail or error.title, kind, error.code, field or None)


def _body_of(error: CcTtsError, asked: Asked) -> tuple[bytes, str]:
    """Return the body for ``error`` in the client's format, and its media type."""
    message = _clean(error.detail, MAX_DETAIL_CHARS) or error.title
    told: dict[str, Any]
    if asked.path.startswith(ELEVENLABS_PATHS) or asked.has_elevenlabs_key:
        status = "voice_not_found" if isinstance(error, UnknownVoice) else error.code
        told = {"detail": {"status": status, "message": message}}
    elif asked.path.startswith(DEEPGRAM_PATHS):
        told = {"err_code": error.code, "err_msg": message, "request_id": asked.request_id}
    elif asked.path.startswith(CARTESIA_PATHS):
        told = {"error_code": error.code, "title": error.title, "message": message, "status_code": error.http_status}
        told["request_id"] = asked.request_id
    else:
        return document(error, instance=asked.path), CONTENT_TYPE
    return msgspec.json.encode(told), "application/json"


def response_for(error: CcTtsError, asked: Asked) -> web.Response:
    status = error.http_status
    body, content_type = _body_of(error, asked)
    response = web.Response(body=body, status=status, content_type=content_type)
    if error.retry_after_s is not None or status in RETRYABLE:
        response.headers["Retry-After"] = str(error.retry_after_s or DEFAULT_RETRY_AFTER_S)
    if isinstance(error, UpgradeRequired):
        response.headers["Upgrade"] = "websocket"
    if isinstance(error, OtherNode):
        response.headers["Location"] = error.location
    return response


def internal_error(asked: Asked) -> web.Response:
    return response_for(CcTtsError("something unexpected happened; the log has the details"), asked)


def response_for_http(error: web.HTTPException, asked: Asked, *, method: str) -> web.Response:
    """Return the response that replaces aiohttp's plain text."""
    match error:
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            response = response_for(MethodNotAllowed(f"{method[:20]} is not possible here; use {allowed}"), asked)
            response.headers["Allow"] = allowed
            return response
        case web.HTTPExpectationFailed():
            return response_for(ExpectationFailed(), asked)
    if 400 <= error.status < 500:  # noqa: PLR2004 - the client's errors
        return response_for(MalformedRequest(error.reason), asked)
    return internal_error(asked)


def _clean(text: str, max_chars: int) -> str:
    """Bound a text, and make it encodable as UTF-8."""
    return text[:max_chars].encode("utf-8", "replace").decode("utf-8")
