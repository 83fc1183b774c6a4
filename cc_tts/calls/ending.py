"""How a call ended: the same two words in log, metric, event and API."""

from dataclasses import dataclass
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from cc_tts.ua.messages import EndedBy

Result = Literal["completed", "unanswered", "rejected", "failed"]

REDIRECTION: Final = 3
"""The class of 300 to 399 (RFC 3261 §7.2)."""
REQUEST_TERMINATED: Final = 487
_REFUSALS: Final = {
    401: "auth_failed",
    403: "forbidden",
    404: "not_found",
    406: "not_acceptable",
    407: "auth_failed",
    408: "no_answer",
    415: "not_acceptable",
    480: "unavailable",
    486: "busy",
    487: "cancelled",
    488: "not_acceptable",
    503: "overload",
    600: "busy",
    603: "declined",
    606: "not_acceptable",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """``result`` is the class, ``reason`` the cause, ``sip_code`` what was on the wire (200 for a BYE). ``contacts`` is
    there for a redirection that was not followed: the URIs it names.
    """

    result: Result
    reason: str
    sip_code: int | None = None
    contacts: tuple[str, ...] | UnsetType = UNSET


def ending_of(
    *,
    was_established: bool,
    ended_by: EndedBy,
    sip_code: int,
    local_reason: str | None,
    direction: str,
    contacts: tuple[str, ...] = (),
) -> Ending:
    """Sort the UA's report.

    Args:
        was_established: the call had been answered.
        ended_by: who ended it, by the UA's account.
        sip_code: the last status on the wire.
        local_reason: our own word for it if we ended it.
        direction: ``inbound`` or ``outbound``.
        contacts: those of a redirection.
    """
    if ended_by == "unreachable":
        return Ending("failed", ended_by)
    if ended_by in ("rtp_inactivity", "not_acceptable"):
        return Ending("failed", ended_by, sip_code)
    if was_established:
        if ended_by == "failure":
            return Ending("failed", "no_response", sip_code)
        if ended_by == "local":
            return Ending("completed", local_reason or "local_hangup", sip_code)
        return Ending("completed", "remote_hangup", sip_code)
    if ended_by == "local":
        reason = local_reason or ("cancelled" if direction == "outbound" else "declined")
        return Ending("unanswered" if direction == "outbound" else "rejected", reason, sip_code)
    if direction == "inbound":
        # answered with 200 but never acknowledged, or cancelled by the caller
        reason = (
            "cancelled" if sip_code == REQUEST_TERMINATED else "no_ack" if ended_by == "failure" else "remote_hangup"
        )
        return Ending("failed" if reason == "no_ack" else "unanswered", reason, sip_code)
    if sip_code // 100 == REDIRECTION:
        return Ending("rejected", "redirected", sip_code, contacts)
    reason = _REFUSALS.get(sip_code, "sip_error")
    if reason in ("no_answer", "cancelled"):
        return Ending("unanswered", reason, sip_code)
    return Ending("rejected" if sip_code < 500 or sip_code >= 600 else "failed", reason, sip_code)  # noqa: PLR2004
