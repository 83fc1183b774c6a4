"""The exception tree. Each class states its stable code, its title, and its HTTP and SIP status; what a class leaves out
is its parent's, so that a class without a code of its own is reported to clients as its parent.

``ServerError``: the request was valid, and a retry may succeed. ``ClientError``: the request must change before it can.
``ConfigError`` and ``ProcessFailed`` and what derives from them appear on the command line and in the log only.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""The errors that msgspec raises for JSON and MessagePack that it cannot read; the last one for too deep nesting."""
MAX_COMPARED_CHARS: Final = 100
"""The longest name from outside that is compared with the known names (unmeasured)."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault in a body: an RFC 6901 JSON pointer and what is wrong there."""

    pointer: str
    detail: str

    def __str__(self) -> str:
        return f"{self.pointer or 'the body'}: {self.detail}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, if one is similar enough."""
    return next(iter(difflib.get_close_matches(name[:MAX_COMPARED_CHARS], list(known), n=1, cutoff=0.5)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``, did you mean X?`` with the nearest known name; empty if none is near."""
    near = nearest(name, known)
    return f", did you mean {near}?" if near else ""


class CcTtsError(Exception):
    """Root of the tree. ``code`` is the stable word in problem+json, logs and events."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    http_status: ClassVar[int] = 500
    sip_status: ClassVar[int] = 500
    by_code: ClassVar[dict[str, "type[CcTtsError]"]] = {}
    """Return every class with a code of its own."""

    def __init_subclass__(
        cls, *, code: str | None = None, title: str | None = None, http: int | None = None, sip: int | None = None
    ) -> None:
        given = {"code": code, "title": title, "http_status": http, "sip_status": sip}
        for name, value in given.items():
            if value is not None:
                setattr(cls, name, value)
        if code is not None:
            cls.by_code[code] = cls

    def __init__(
        self, detail: str = "", *, retry_after_s: int | None = None, field_errors: Sequence[FieldError] = ()
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.retry_after_s = retry_after_s
        self.field_errors = tuple(field_errors)

    @classmethod
    def about(cls, *faults: FieldError) -> Self:
        return cls("; ".join(map(str, faults)), field_errors=faults)


CcTtsError.by_code[CcTtsError.code] = CcTtsError


class ServerError(CcTtsError):
    """The request was valid; the server could not serve it."""


class ClientError(CcTtsError, code="bad_request", title="Bad request", http=400, sip=400):
    """The request must change before it can succeed."""


class EngineFailed(ServerError, code="engine_failed", title="The speech engine failed"):
    """Synthesis of the text broke off."""


class NoAudio(EngineFailed, code="no_audio", title="The speech engine gave no audio"):
    """The engine gave no audio for a text with a letter or a digit, and no other engine can say it."""


class DisclosureFailed(ServerError, code="disclosure_failed", title="The disclosure cannot be spoken"):
    """The disclosure of a call has failed, so its synthetic words are not spoken."""


class EngineOverloaded(
    ServerError, code="engine_overloaded", title="The speech engine is at its limit", http=503, sip=503
):
    """Admission refused the prompt: it would be late, or make a running call late."""


class CapacityExceeded(ServerError, code="capacity_exceeded", title="All lines are busy", http=503, sip=503):
    """There are as many calls as the build of pjsua2 or the configuration allows."""


class Draining(ServerError, code="draining", title="The server is draining", http=503, sip=503):
    """The server finishes its calls and accepts no new ones."""


class UserAgentUnavailable(
    ServerError, code="user_agent_unavailable", title="The SIP user agent is not available", http=503, sip=503
):
    """The UA process is down, restarting, or ended during the request."""


class ServerRestarted(ServerError, code="server_restarted", title="The server was restarted meanwhile"):
    """The operation ended with the server process that had the call before."""


class ProcessFailed(ServerError, code="process_failed", title="A child process failed"):
    """A child process broke its contract: did not start, used another protocol version, or stopped responding."""


class ConfigError(ClientError, code="config", title="Configuration error"):
    """Wrong key, type or value in the configuration."""


class MalformedRequest(ClientError, code="malformed", title="Malformed request"):
    """The request is not JSON, or JSON of the wrong shape."""


class Unauthorized(ClientError, code="unauthorized", title="Authentication needed", http=401, sip=401):
    """No token, or one that is not configured."""


class Forbidden(ClientError, code="forbidden", title="Not allowed", http=403, sip=403):
    """The token is valid but lacks the scope; or the peer is not allowed."""


class TransferNotAllowed(Forbidden, code="transfer_not_allowed", title="Not an allowed target of transfers"):
    """No pattern of ``transfer.allowed`` takes the target."""


class WebhookNotAllowed(Forbidden, code="webhook_not_allowed", title="This webhook is not allowed"):
    """Calls may not have webhooks of their own, or not at this host."""


class NotFound(ClientError, code="not_found", title="Not found", http=404, sip=404):
    """The path is unknown."""


class WebhookNotFound(NotFound, code="webhook_not_found", title="No such webhook"):
    """No endpoint of this name is configured."""


class CallNotFound(NotFound, code="call_not_found", title="No such call"):
    """No call with this id is known."""

    @classmethod
    def named(cls, call_id: str) -> Self:
        return cls(f"no call {call_id[:80]!r}; GET /v1/calls lists those that are kept")


class UtteranceNotFound(NotFound, code="utterance_not_found", title="No such utterance"):
    """No utterance with this id is known."""

    @classmethod
    def named(cls, utterance_id: str) -> Self:
        return cls(f"no utterance {utterance_id[:80]!r}")


class RelayNotAllowed(Forbidden, code="relay_not_allowed", title="This relay is not allowed"):
    """Calls may not be relayed to this host."""


class RelayNotFound(NotFound, code="relay_not_found", title="No relay runs"):
    """No relay runs on this call."""


class GatherNotFound(NotFound, code="gather_not_found", title="No gather runs"):
    """No gather runs on this call."""


class ReferNotFound(NotFound, code="refer_not_found", title="No such REFER waits"):
    """No REFER of this id waits for an answer on the call."""


class RecordingNotFound(NotFound, code="recording_not_found", title="No such recording"):
    """No recording has this id, or the call is not recorded."""


class LexiconNotFound(NotFound, code="lexicon_not_found", title="No such lexicon"):
    """No lexicon has this name."""


class AudioUnreadable(ClientError, code="audio_unreadable", title="Audio that cannot be read", http=422):
    """A file is no audio file that is known here, is damaged or empty, or is too long."""


class TraceNotFound(NotFound, code="trace_not_found", title="No trace of this call"):
    """The SIP messages of a call are not kept, or no longer."""


class VoiceNotFound(NotFound, code="voice_not_found", title="No such voice"):
    """No voice has this id."""


class EnrolmentUnavailable(ServerError, code="enrolment_unavailable", title="No voice can be enrolled here", http=501):
    """The engine, a folder or a package that enrolment needs is not there; the detail names it."""


class EnrolmentBusy(ServerError, code="enrolment_busy", title="Another voice is being enrolled", http=503):
    """One voice is enrolled at a time."""


class EnrolmentFailed(ServerError, code="enrolment_failed", title="The voice could not be enrolled", http=500):
    """The process that encodes the recording broke off or took too long, or the engine did not take the voice."""


class VoiceNotStored(ServerError, code="voice_not_stored", title="The voice cannot be stored", http=507):
    """``tts.voices_dir`` cannot be written: it is read-only, or the disk is full."""


class PromptsFull(ClientError, code="prompts_full", title="No more prompts can be staged", http=507):
    """``prompts.max_prompts`` or ``prompts.max_total_s`` is reached."""


class PromptNotStored(ServerError, code="prompt_not_stored", title="The prompt cannot be stored", http=507, sip=500):
    """``prompts.dir`` cannot be written: it is read-only, or the disk is full. With ``ttl_s`` nothing is written."""


class UrlNotAllowed(Forbidden, code="url_not_allowed", title="This URL may not be fetched"):
    """The host of a URL is not in ``prompts.allowed_hosts``, or has no address that may be reached."""


class FetchFailed(ServerError, code="fetch_failed", title="The audio cannot be fetched", http=502, sip=500):
    """The server of a URL cannot be reached, answers with an error, or sends no audio."""


class LinkNotFound(NotFound, code="link_not_found", title="No such address of speech"):
    """No speech is at this address, or no longer."""


class ModelNotFound(NotFound, code="model_not_found", title="No such model"):
    """No model has this name; ``code`` is OpenAI's."""

    @classmethod
    def named(cls, name: str) -> Self:
        return cls(f"no model {name[:80]!r}; any other name in the field model is taken")


class PromptNotFound(NotFound, code="prompt_not_found", title="No such prompt"):
    """No staged prompt with this id is known, or its audio is not kept."""

    @classmethod
    def named(cls, prompt_id: str, known: Iterable[str] = ()) -> Self:
        return cls(
            f"no prompt is called {prompt_id[:64]!r}{did_you_mean(prompt_id, known)}; GET /v1/prompts lists them all"
        )


class WrongState(ClientError, code="wrong_state", title="Not in this state", http=409):
    """The call or utterance is not in a state that allows this."""


class VoiceNeeded(WrongState, code="voice_needed", title="This voice cannot be removed"):
    """The voice was not enrolled but belongs to the engine, the configuration names it, or there is no other one."""


class DtmfUnsupported(WrongState, code="dtmf_unsupported", title="The far side takes no keys"):
    """The far side of the call takes neither telephone events (RFC 4733) nor keys by SIP INFO."""


class LineUnsupported(WrongState, code="line_unsupported", title="The line of this call cannot do that"):
    """The call came by a line without SIP, which has no hold, no REFER and no bridge: Asterisk can do that itself."""


class DuplicateId(WrongState, code="duplicate_id", title="The id is taken"):
    """The id supplied by the client is taken."""


class GatherActive(WrongState, code="gather_active", title="A gather runs already"):
    """One gather runs on a call at a time."""


class RelayActive(WrongState, code="relay_active", title="A relay runs already"):
    """One relay runs on a call at a time."""


class TransferActive(WrongState, code="transfer_active", title="A transfer runs already"):
    """One transfer runs on a call at a time."""


class BridgeActive(WrongState, code="bridge_active", title="The call is bridged already"):
    """A call is bridged to one other call at a time."""


class BridgeImpossible(WrongState, code="bridge_impossible", title="These calls cannot be bridged"):
    """The two calls are in different SIP processes, which do not exchange audio."""


class RecordingActive(WrongState, code="recording_active", title="The call is recorded already"):
    """A call has one recording at a time."""


class EventsGone(ClientError, code="events_gone", title="Events no longer kept", http=410):
    """The event to continue from is too old, or of an earlier run of the server: connect without it and read the calls
    again.
    """


class TextTooLong(ClientError, code="text_too_long", title="Text too long", http=413, sip=413):
    """More characters than the config allows for one prompt."""


class BodyTooLarge(ClientError, code="body_too_large", title="Request body too large", http=413, sip=413):
    """More bytes than the config allows for one request body."""


class UnsupportedMediaType(
    ClientError, code="unsupported_media_type", title="Unsupported media type", http=415, sip=415
):
    """The body is not application/json."""


class Unprocessable(ClientError, code="unprocessable", title="Cannot be used", http=422):
    """Valid JSON with content that cannot be used."""


class UnknownVoice(Unprocessable, code="unknown_voice", title="Unknown voice"):
    """The engine has no voice of this name."""


class LanguageUnsupported(Unprocessable, code="language_unsupported", title="Language not supported"):
    """The engine cannot speak this language (RFC 6787 completion cause language-unsupported)."""


class NothingToSay(Unprocessable, code="nothing_to_say", title="Nothing to say"):
    """The text holds nothing that can be spoken."""


class SsmlMalformed(Unprocessable, code="ssml_malformed", title="SSML that cannot be read", sip=400):
    """The document is not well-formed XML, is not SSML, or is beyond one of its bounds."""


class LexiconMalformed(Unprocessable, code="lexicon_malformed", title="Lexicon that cannot be used"):
    """The lexicon is not JSON or PLS of the right shape, or has an entry that cannot be used."""


class LexiconNotStored(ServerError, code="lexicon_not_stored", title="The lexicon cannot be stored", http=507, sip=500):
    """``tts.lexicons_dir`` cannot be written: it is read-only, or the disk is full."""


class RecordingOff(Unprocessable, code="recording_off", title="Nothing is recorded here", sip=488):
    """The configuration has no folder for recordings."""


class RecordingStorageFull(
    ServerError, code="recording_storage_full", title="No room for recordings", http=507, sip=500
):
    """The folder of the recordings cannot be written, or less is free than is to be."""


class RecordingsUnreadable(ServerError, code="recordings_unreadable", title="The recordings cannot be read", http=503):
    """The folder of the recordings, or the file of one, cannot be read or changed."""


class UnknownLexicon(Unprocessable, code="unknown_lexicon", title="Unknown lexicon"):
    """A prompt names a lexicon that does not exist (RFC 6787 completion cause lexicon-load-failure)."""


class IdempotencyMismatch(Unprocessable, code="idempotency_mismatch", title="Idempotency-Key reused with another body"):
    """The same Idempotency-Key came with another body."""


class QueueFull(ClientError, code="queue_full", title="Too many prompts queued on this call", http=429):
    """The call's prompt queue is at its configured limit."""


class QuotaExceeded(ClientError, code="quota_exceeded", title="A limit of the tenant is reached", http=429, sip=480):
    """The tenant of the token, or of the call's route, has as much as its limits allow. SIP has 480 for it: after a 503 a
    client would keep away from the whole server (RFC 3261 §21.5.4).
    """
