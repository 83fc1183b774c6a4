"""What our BYE and our refusals report to the far side. No pjsua2 here."""

from typing import Final

NORMAL_CLEARING: Final = 16
_Q850: Final = {
    "error": 41,
    "sip_error": 41,
    "draining": 41,
    "rtp_inactivity": 102,
}
"""Causes of ITU-T Q.850 for reasons other than an ordinary end."""
_TEXTS: Final = {NORMAL_CLEARING: "Normal call clearing", 41: "Temporary failure", 102: "Recovery on timer expiry"}


def bye_headers(
    *, cause: str, played_ms: float, sip_code: int = 0, reason: str = "", digits: str = ""
) -> dict[str, str]:
    """The headers.

    Args:
        cause: how the last prompt was completed if that ended the call, else the reason of the ending.
        played_ms: how much of the last prompt was played.
        sip_code: the status that whoever ended the call gave for it, 0 if none; Reason has it (RFC 3326 §2).
        reason: words for it, printable ASCII.
        digits: what a gather has collected; left out if empty.
    """
    if sip_code:
        why = f"SIP;cause={sip_code}"
    else:
        number = _Q850.get(cause, NORMAL_CLEARING)
        why, reason = f"Q.850;cause={number}", reason or _TEXTS[number]
    if reason:
        why += f";text={quoted(reason)}"
    collected = {"X-TTS-Digits": digits} if digits else {}
    return {"X-TTS-Cause": cause, **collected, "X-TTS-Played-Ms": str(round(played_ms)), "Reason": why}


def refusal_headers(*, server: str, reason: str, retry_after_s: int) -> dict[str, str]:
    """The headers of a final refusal: Server, the reason as a Warning (RFC 3261 §20.43), Retry-After; empty ones are left
    out.
    """
    headers = {
        "Server": server,
        "Warning": f"399 cc-tts {quoted(reason)}" if reason else "",
        "Retry-After": str(retry_after_s) if retry_after_s else "",
    }
    return {name: value for name, value in headers.items() if value}


def quoted(text: str) -> str:
    """``text`` as a quoted string (RFC 3261 §25.1); what is not printable becomes a blank."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'
