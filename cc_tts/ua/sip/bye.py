"""The headers of our BYE and our refusals that give the reason. No pjsua2 here."""

from typing import Final

from cc_tts.ua.messages import Hangup

NORMAL_CLEARING: Final = 16
Q850_CAUSES: Final = {
    "error": 41,
    "prompt_failed": 41,
    "relay_failed": 41,
    "sip_error": 41,
    "draining": 41,
    "rtp_inactivity": 102,
    "no_response": 102,
}
"""The causes of ITU-T Q.850 for endings other than a normal one."""
_TEXTS: Final = {NORMAL_CLEARING: "Normal call clearing", 41: "Temporary failure", 102: "Recovery on timer expiry"}


def bye_headers(hangup: Hangup, *, played_ms: float) -> dict[str, str]:
    """Return the headers of our BYE: X-TTS-Cause, X-TTS-Played-Ms of the last prompt, the collected digits and the result of
    a transfer if there are any, and Reason with the SIP status if one ended the call (RFC 3326 §2), else with a cause of
    ITU-T Q.850.
    """
    number = Q850_CAUSES.get(hangup.cause, NORMAL_CLEARING)
    why = f"SIP;cause={hangup.sip_code}" if hangup.sip_code else f"Q.850;cause={number}"
    if reason := hangup.reason or ("" if hangup.sip_code else _TEXTS[number]):
        why += f";text={quoted(reason)}"
    results = {"X-TTS-Digits": hangup.digits, "X-TTS-Transfer-Result": hangup.transfer_result}
    given = {name: value for name, value in results.items() if value}
    return {"X-TTS-Cause": hangup.cause, **given, "X-TTS-Played-Ms": str(round(played_ms)), "Reason": why}


def refusal_headers(hangup: Hangup, *, server: str) -> dict[str, str]:
    """Return Server, Warning with the reason (RFC 3261 §20.43) and Retry-After of a final refusal, as far as
    they are set.
    """
    headers = {
        "Server": server,
        "Warning": f"399 cc-tts {quoted(hangup.reason)}" if hangup.reason else "",
        "Retry-After": str(hangup.retry_after_s) if hangup.retry_after_s else "",
    }
    return {name: value for name, value in headers.items() if value}


def quoted(text: str) -> str:
    """Return ``text`` as a quoted string (RFC 3261 §25.1); what is not printable becomes a blank."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'
