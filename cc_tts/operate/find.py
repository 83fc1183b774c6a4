"""Finds the call that a command means: by its id or a prefix of it, its SIP Call-ID, or the number of its far side."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import unquote

from cc_tts.operate.servers import NotDone, RunningServer

MAX_SHOWN: Final = 5
"""The most calls that an error lists (unmeasured)."""
_USER: Final = re.compile(r"(?:sips?|tel):([^@;>]+)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\+?[0-9 ().-]{3,40}")

Found = tuple[RunningServer, dict[str, Any]]


def far_side(call: dict[str, Any]) -> str:
    """Return the URI of the other party of a call."""
    return str(call["caller"] if call["direction"] == "inbound" else call["callee"])


def far_user(call: dict[str, Any]) -> str:
    """Return the number or name of the other party; the whole address if there is none."""
    uri = far_side(call)
    match = _USER.search(uri)
    return unquote(match[1]) if match else uri


def is_live(call: dict[str, Any]) -> bool:
    return bool(call["state"] != "terminated")


def the_call(calls: Iterable[Found], wanted: str) -> Found:
    """Return the call that is meant. A live call is preferred to ended ones.

    Raises:
        NotDone: there is none, or several.
    """
    everyone = list(calls)
    for is_meant in (_has("id"), _has("sip_call_id"), _has_number, _begins):
        matching = [each for each in everyone if is_meant(each[1], wanted)]
        chosen = [each for each in matching if is_live(each[1])] or matching
        if len(chosen) == 1:
            return chosen[0]
        if chosen:
            ids = ", ".join(str(call["id"]) for _, call in chosen[:MAX_SHOWN])
            more = f" and {len(chosen) - MAX_SHOWN} more" if len(chosen) > MAX_SHOWN else ""
            raise NotDone(f"{wanted[:80]!r} is true of {len(chosen)} calls: {ids}{more}; name one by its id")
    known = "there are none" if not everyone else f"`cc-tts calls --all` lists the {len(everyone)} that are kept"
    raise NotDone(f"no call has the id, the beginning of an id, the SIP Call-ID or the number {wanted[:80]!r}; {known}")


def _has(name: str) -> Callable[[dict[str, Any], str], bool]:
    return lambda call, wanted: bool(call[name] == wanted)


def _has_number(call: dict[str, Any], wanted: str) -> bool:
    if wanted in (far_side(call), far_user(call)):
        return True
    return _digits(wanted) == _digits(far_user(call)) != ""


def _begins(call: dict[str, Any], wanted: str) -> bool:
    return bool(wanted) and (call["id"].startswith(wanted) or call["id"].removeprefix("call_").startswith(wanted))


def _digits(number: str) -> str:
    """Return the digits of a number without an international prefix; empty if it is no number."""
    if not _NUMBER.fullmatch(number):
        return ""
    return re.sub("[^0-9]", "", number).removeprefix("00")
