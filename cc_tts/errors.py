"""The exception tree, with the HTTP and SIP status of each class.

A name in brackets is the module of ``cc_tts`` that a class lives in when it is not this one. A class without a ``code`` of
its own is reported to clients as its parent. Subclasses of ``ConfigError`` and ``ProcessFailed`` appear on the command line
and in the log only.

::

    CcTtsError
    ├── ServerError                   the request was valid; a retry may succeed
    │   ├── EngineFailed              500 / 500   synthesis broke off
    │   ├── EngineOverloaded          503 / 503   admission refused the prompt            (Retry-After)
    │   │   └── PagesExhausted        503 / 503   the cache of the networks is full [engines.cosyvoice2.engine.device]
    │   ├── CapacityExceeded          503 / 503   as many calls as the build or config allows (Retry-After)
    │   ├── Draining                  503 / 503   the server takes no new work            (Retry-After)
    │   ├── UserAgentUnavailable      503 / 503   the UA process is down or restarting    (Retry-After)
    │   ├── NotReady                  503 / -     a call would not be spoken to now       (Retry-After) [api.http.problems]
    │   ├── DeadlineExceeded          503 / -     not done within the time limit          (Retry-After) [api.http.problems]
    │   ├── PlayoutOverflow           -           flow control of the playout was broken [media.playout_events]
    │   └── ProcessFailed             500 / 500   a child process broke its contract
    │       ├── EncoderFailed         -           a network that encodes a recording [engines.cosyvoice2.voice.encoder]
    │       └── DownloadFailed        -           the model could not be downloaded [engines.cosyvoice2.model.download]
    └── ClientError                   the request must change before it can succeed
        ├── ConfigError               -           wrong key, type or value in the configuration
        │   ├── ModelError            -           the model directory cannot be used [engines.cosyvoice2.model.checkpoint]
        │   │   ├── ModelFileMissing  -           a file is not there             [engines.cosyvoice2.model.checkpoint]
        │   │   ├── ModelFileDamaged  -           cut short, empty, or something else [engines.cosyvoice2.model.checkpoint]
        │   │   ├── UnsafeCheckpoint  -           would run code when read    [engines.cosyvoice2.model.checkpoint]
        │   │   ├── WrongModelVersion -           of CosyVoice 1 or 3             [engines.cosyvoice2.model.checkpoint]
        │   │   └── TensorMismatch    -           tensors missing, unknown or misshapen [engines.cosyvoice2.model.checkpoint]
        │   └── DownloaderMissing     -           the downloader is not installed [engines.cosyvoice2.model.download]
        ├── MalformedRequest          400 / 400   not JSON, not the right shape
        ├── Unauthorized              401 / 401   no or wrong token
        ├── Forbidden                 403 / 403   the token lacks the scope; the peer is not allowed
        ├── NotFound                  404 / 404   unknown path
        │   ├── CallNotFound
        │   ├── UtteranceNotFound
        │   └── PromptNotFound
        ├── MethodNotAllowed          405 / -     the path has other methods      [api.http.problems]
        ├── RequestTimeout            408 / -     the body took too long to arrive [api.http.problems]
        ├── WrongState                409 / 400   the call or utterance is not in a state that allows this
        │   └── DuplicateId           409 / 400   the id is taken
        ├── TextTooLong               413 / 413   more characters than the config allows
        ├── BodyTooLarge              413 / 413   more bytes than the config allows
        ├── UnsupportedMediaType      415 / 415   not application/json
        ├── ExpectationFailed         417 / -     an Expect header that is not served [api.http.problems]
        ├── Unprocessable             422 / 400   valid JSON with content that cannot be used
        │   ├── UnknownVoice          422 / 400
        │   ├── LanguageUnsupported   422 / 400
        │   ├── NothingToSay          422 / 400   the text normalises to nothing
        │   ├── IdempotencyMismatch   422 / -     the same Idempotency-Key came with another body
        │   └── PromptUnusable        422 / 400   a recording that cannot be used for a voice [voices.enrolment]
        ├── UpgradeRequired           426 / -     a WebSocket path without its handshake [api.http.problems]
        └── QueueFull                 429 / -     the call's prompt queue is at its limit
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

MAX_COMPARED_CHARS: Final = 100
"""Length of a name from outside that is compared with the known names."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault in a body: an RFC 6901 JSON pointer and what is wrong there."""

    pointer: str
    detail: str


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name, if one is similar enough."""
    return next(iter(difflib.get_close_matches(name[:MAX_COMPARED_CHARS], list(known), n=1, cutoff=0.5)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``, did you mean X?`` with the nearest known name; empty if none is near."""
    near = nearest(name, known)
    return f", did you mean {near}?" if near else ""


class CcTtsError(Exception):
    """Root of the tree. ``code`` is the stable word in problem+json, logs and events."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    http_status: ClassVar[int] = 500
    sip_status: ClassVar[int] = 500

    def __init__(
        self, detail: str = "", *, retry_after_s: int | None = None, field_errors: Sequence[FieldError] = ()
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.retry_after_s = retry_after_s
        self.field_errors = tuple(field_errors)


class ServerError(CcTtsError):
    """The request was valid; the server could not serve it."""


class ClientError(CcTtsError):
    """The request must change before it can succeed."""

    code = "bad_request"
    title = "Bad request"
    http_status = 400
    sip_status = 400


class EngineFailed(ServerError):
    """Synthesis broke off."""

    code = "engine_failed"
    title = "The speech engine failed"


class EngineOverloaded(ServerError):
    """Admission refused the prompt: it would be late, or make a running call late."""

    code = "engine_overloaded"
    title = "The speech engine is at its limit"
    http_status = 503
    sip_status = 503


class CapacityExceeded(ServerError):
    """As many calls as the build of pjsua2 or the config allows."""

    code = "capacity_exceeded"
    title = "All lines are busy"
    http_status = 503
    sip_status = 503


class Draining(ServerError):
    """The server finishes its calls and accepts no new ones."""

    code = "draining"
    title = "The server is draining"
    http_status = 503
    sip_status = 503


class UserAgentUnavailable(ServerError):
    """The UA process is down, restarting, or ended during the request."""

    code = "user_agent_unavailable"
    title = "The SIP user agent is not available"
    http_status = 503
    sip_status = 503


class ProcessFailed(ServerError):
    """A child process broke its contract: did not start, used another protocol version, or stopped responding."""

    code = "process_failed"
    title = "A child process failed"


class ConfigError(ClientError):
    """Wrong key, type or value in the configuration."""

    code = "config"
    title = "Configuration error"


class MalformedRequest(ClientError):
    """Not JSON, or JSON of the wrong shape."""

    code = "malformed"
    title = "Malformed request"


class Unauthorized(ClientError):
    """No token, or one that is not configured."""

    code = "unauthorized"
    title = "Authentication needed"
    http_status = 401
    sip_status = 401


class Forbidden(ClientError):
    """The token is valid but lacks the scope; or the peer is not allowed."""

    code = "forbidden"
    title = "Not allowed"
    http_status = 403
    sip_status = 403


class NotFound(ClientError):
    """Unknown path."""

    code = "not_found"
    title = "Not found"
    http_status = 404
    sip_status = 404


class CallNotFound(NotFound):
    """No call with this id is known."""

    code = "call_not_found"
    title = "No such call"


class UtteranceNotFound(NotFound):
    """No utterance with this id is known."""

    code = "utterance_not_found"
    title = "No such utterance"


class PromptNotFound(NotFound):
    """No staged prompt with this id is known."""

    code = "prompt_not_found"
    title = "No such prompt"


class WrongState(ClientError):
    """The call or utterance is not in a state that allows this."""

    code = "wrong_state"
    title = "Not in this state"
    http_status = 409


class DuplicateId(WrongState):
    """The id supplied by the client is taken."""

    code = "duplicate_id"
    title = "The id is taken"


class TextTooLong(ClientError):
    """More characters than the config allows for one prompt."""

    code = "text_too_long"
    title = "Text too long"
    http_status = 413
    sip_status = 413


class BodyTooLarge(ClientError):
    """More bytes than the config allows for one request body."""

    code = "body_too_large"
    title = "Request body too large"
    http_status = 413
    sip_status = 413


class UnsupportedMediaType(ClientError):
    """The body is not application/json."""

    code = "unsupported_media_type"
    title = "Unsupported media type"
    http_status = 415
    sip_status = 415


class Unprocessable(ClientError):
    """Valid JSON with content that cannot be used."""

    code = "unprocessable"
    title = "Cannot be used"
    http_status = 422


class UnknownVoice(Unprocessable):
    """The engine has no voice of this name."""

    code = "unknown_voice"
    title = "Unknown voice"


class LanguageUnsupported(Unprocessable):
    """The engine cannot speak this language (RFC 6787 completion cause language-unsupported)."""

    code = "language_unsupported"
    title = "Language not supported"


class NothingToSay(Unprocessable):
    """The text holds nothing that can be spoken."""

    code = "nothing_to_say"
    title = "Nothing to say"


class IdempotencyMismatch(Unprocessable):
    """The same Idempotency-Key came with another body."""

    code = "idempotency_mismatch"
    title = "Idempotency-Key reused with another body"


class QueueFull(ClientError):
    """The call's prompt queue is at its configured limit."""

    code = "queue_full"
    title = "Too many prompts queued on this call"
    http_status = 429
