"""Observed state of a call and its ending, as plain values without pjsua2."""

from dataclasses import dataclass

from cc_tts.softphone.plan import DialPlan
from cc_tts.softphone.report import Party, SoftphoneEnding
from cc_tts.ua.sip.reason import RemoteReason


@dataclass(slots=True)
class CallFacts:
    """The observed state of a call, with instants (CLOCK_MONOTONIC, ns)."""

    invite_ns: int = 0
    trying_ns: int | None = None
    ringing_ns: int | None = None
    answered_ns: int | None = None
    hangup_ns: int | None = None
    ended_ns: int = 0
    sip_call_id: str = ""
    is_connected: bool = False
    has_any_response: bool = False
    has_remote_bye: bool = False
    is_timed_out: bool = False
    last_code: int = 0
    last_reason: str = ""
    retry_after_s: int | None = None
    remote_sdp: str = ""
    remote_reasons: tuple[RemoteReason, ...] = ()


def ending_of(facts: CallFacts, plan: DialPlan) -> SoftphoneEnding:
    code, reason = facts.last_code, facts.last_reason
    if facts.is_connected:
        by: Party = "them" if facts.has_remote_bye else "us" if facts.hangup_ns is not None else "nobody"
        if by == "them":
            reason = next((each.text for each in facts.remote_reasons if each.text), reason)
        return SoftphoneEnding("failed" if by == "nobody" else "completed", by, code, reason)
    if facts.is_timed_out:
        if not facts.has_any_response:
            reason = f"no SIP answer from {plan.uri} within {plan.timeout_s:g} s"
            return SoftphoneEnding("unreachable", "nobody", reason=reason)
        return SoftphoneEnding("no_answer", "us", code, f"not answered within {plan.timeout_s:g} s")
    if facts.hangup_ns is not None:
        return SoftphoneEnding("cancelled", "us", code, reason)
    if not facts.has_any_response:
        return SoftphoneEnding("unreachable", "nobody", reason=reason)
    return SoftphoneEnding("refused", "them", code, reason, facts.retry_after_s)
