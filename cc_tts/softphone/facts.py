"""Observed state of a call and its ending, as plain values without pjsua2."""

import re
from dataclasses import dataclass

from cc_tts.softphone.plan import DialPlan
from cc_tts.softphone.report import Ending


@dataclass(slots=True)
class CallFacts:
    """Observed state of a call with instants (CLOCK_MONOTONIC, ns)."""

    invite_ns: int = 0
    trying_ns: int | None = None
    ringing_ns: int | None = None
    answered_ns: int | None = None
    hangup_ns: int | None = None
    ended_ns: int = 0
    sip_call_id: str = ""
    is_connected: bool = False
    is_disconnected: bool = False
    has_any_response: bool = False
    has_remote_bye: bool = False
    is_timed_out: bool = False
    last_code: int = 0
    last_reason: str = ""
    retry_after: str = ""
    remote_sdp: str = ""
    is_media_changed: bool = False


def ending_of(facts: CallFacts, plan: DialPlan) -> Ending:
    """The ending of a call that is over, from its observed state."""
    code, reason = facts.last_code, facts.last_reason
    delta = re.match(r"\d{1,9}", facts.retry_after, re.ASCII)  # RFC 3261 §20.33: comment and parameters may follow
    retry_after_s = None if delta is None else int(delta[0])
    if facts.answered_ns is not None and facts.is_connected:
        if facts.has_remote_bye:
            return Ending("completed", "them", code, reason)
        if facts.hangup_ns is not None:
            return Ending("completed", "us", code, reason)
        return Ending("failed", "nobody", code, reason)
    if not facts.has_any_response:
        if facts.is_timed_out:
            reason = f"no SIP answer from {plan.uri} within {plan.answer_timeout_s:g} s"
        elif facts.hangup_ns is not None:
            return Ending("cancelled", "us", code, reason)
        return Ending("unreachable", "nobody", reason=reason)
    if facts.is_timed_out:
        return Ending("no_answer", "us", code, f"not answered within {plan.answer_timeout_s:g} s")
    if facts.hangup_ns is not None:
        return Ending("cancelled", "us", code, reason)
    return Ending("refused", "them", code, reason, retry_after_s)
