"""How a call ended, in the same two words for the log, metrics, events and the API."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from cc_tts.ua.messages import CallEnded, EndedBy
from cc_tts.ua.sip.bye import NORMAL_CLEARING, Q850_CAUSES
from cc_tts.ua.sip.reason import RemoteReason

Result = Literal["completed", "unanswered", "rejected", "failed"]

PROMPT_FAILED: Final = "prompt_failed"
"""The reason of a call that we hang up because its prompt failed. It must not count as a success."""
RELAY_FAILED: Final = "relay_failed"
"""The reason of a call whose relay failed, because its application did not do its part."""
REDIRECTION: Final = 3
SERVER_FAILURE: Final = 5
"""Classes of 300 to 399 and of 500 to 599 (RFC 3261 §7.2)."""
REQUEST_TERMINATED: Final = 487
_REFUSALS: Final = {
    **dict.fromkeys((401, 407), "auth_failed"),
    403: "forbidden",
    404: "not_found",
    **dict.fromkeys((406, 415, 488, 606), "not_acceptable"),
    408: "no_answer",
    480: "unavailable",
    **dict.fromkeys((486, 600), "busy"),
    487: "cancelled",
    503: "overload",
    603: "declined",
}
_Q850_OF_SIP: Final = {
    **dict.fromkeys((404, 485, 604), 1),
    **dict.fromkeys((486, 600), 17),
    480: 18,
    **dict.fromkeys((401, 402, 403, 407, 603), 21),
    410: 22,
    **dict.fromkeys((482, 483), 25),
    484: 28,
    502: 38,
    **dict.fromkeys((400, 481, 500, 503), 41),
    405: 63,
    **dict.fromkeys((406, 415, 501), 79),
    **dict.fromkeys((408, 504), 102),
    **dict.fromkeys((413, 414, 416, 420, 421, 423, 505, 513), 127),
}
"""Causes of ITU-T Q.850 that stand for the statuses of refusals (RFC 3398 §8.2.6.1)."""


@dataclass(frozen=True, slots=True)
class Ending:
    """``result`` is the class, ``reason`` the cause, ``sip_code`` the status on the wire (200 for a BYE). ``contacts``: the
    URIs of a redirection that was not followed. ``remote_reasons``: the ``Reason`` headers (RFC 3326) of the far side's BYE,
    CANCEL or refusal.
    """

    result: Result
    reason: str
    sip_code: int | None = None
    contacts: tuple[str, ...] | UnsetType = UNSET
    remote_reasons: tuple[RemoteReason, ...] | UnsetType = UNSET


def ending_of(ended: CallEnded, *, was_established: bool, local_reason: str | None, direction: str) -> Ending:
    """Classify the report of the UA process. ``local_reason`` is our reason if we ended the call."""
    ending = _sorted(ended, was_established=was_established, local_reason=local_reason, direction=direction)
    return replace(ending, remote_reasons=ended.remote_reasons) if ended.remote_reasons else ending


def _sorted(ended: CallEnded, *, was_established: bool, local_reason: str | None, direction: str) -> Ending:
    by, sip_code = ended.ended_by, ended.sip_code
    if by == "unreachable":
        return Ending("failed", by)
    if by in ("rtp_inactivity", "not_acceptable"):
        return Ending("failed", by, sip_code)
    if was_established:
        return _established(by, sip_code, local_reason)
    if direction == "inbound":
        return _inbound(by, sip_code, local_reason)
    return _outbound(by, sip_code, local_reason, ended.contacts)


def _established(ended_by: EndedBy, sip_code: int, local_reason: str | None) -> Ending:
    if ended_by == "failure":
        return Ending("failed", "no_response", sip_code)
    if ended_by == "bridge":
        return Ending("completed", "bridge_ended", sip_code)
    if ended_by != "local":
        return Ending("completed", "remote_hangup", sip_code)
    return Ending(
        "failed" if local_reason in (PROMPT_FAILED, RELAY_FAILED) else "completed",
        local_reason or "local_hangup",
        sip_code,
    )


def _inbound(ended_by: EndedBy, sip_code: int, local_reason: str | None) -> Ending:
    """Classify an incoming call that was not answered, whose 200 was not acknowledged, or that the caller cancelled."""
    if ended_by == "local":
        return Ending("rejected", local_reason or "declined", sip_code)
    if sip_code == REQUEST_TERMINATED:
        return Ending("unanswered", "cancelled", sip_code)
    if ended_by == "failure":
        return Ending("failed", "no_ack", sip_code)
    return Ending("unanswered", "remote_hangup", sip_code)


def _outbound(ended_by: EndedBy, sip_code: int, local_reason: str | None, contacts: tuple[str, ...]) -> Ending:
    if ended_by == "local":
        return Ending("unanswered", local_reason or "cancelled", sip_code)
    if sip_code // 100 == REDIRECTION:
        return Ending("rejected", "redirected", sip_code, contacts)
    reason = _REFUSALS.get(sip_code, "sip_error")
    if reason in ("no_answer", "cancelled"):
        return Ending("unanswered", reason, sip_code)
    return Ending("failed" if sip_code // 100 == SERVER_FAILURE else "rejected", reason, sip_code)


def q850_cause(ending: Ending, *, was_established: bool, our_cause: str) -> int | None:
    """Return the ITU-T Q.850 cause of the ending, as a switch would record it; ``None`` if the standard has none. A cause
    that the far side names is preferred to the one that its status maps to. ``our_cause`` is the cause in our BYE, empty
    without one.
    """
    if ending.remote_reasons:
        for reason in ending.remote_reasons:
            if reason.protocol == "Q.850" and reason.cause is not None:
                return reason.cause
    if not was_established:
        return None if ending.sip_code is None else _Q850_OF_SIP.get(ending.sip_code)
    if ending.result == "failed":
        return Q850_CAUSES.get(ending.reason)
    return Q850_CAUSES.get(our_cause, NORMAL_CLEARING)
