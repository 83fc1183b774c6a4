"""Which call an operator means."""

from typing import Any

import pytest

from cc_tts.operate.find import Found, far_user, the_call
from cc_tts.operate.servers import NotDone, RunningServer

pytestmark = pytest.mark.unit

SERVER = RunningServer("http://127.0.0.1:8080", None, ())  # type: ignore[arg-type]  # nothing is asked


def call(id_: str, caller: str = "<sip:alice@127.0.0.1>", **more: Any) -> Found:
    facts = {"id": id_, "direction": "inbound", "caller": caller, "callee": "<sip:100@here>", "state": "established"}
    return SERVER, {**facts, "sip_call_id": f"sip-{id_}", **more}


CALLS = (
    call("call_aa11", '"Alice" <sip:+49301234567@pbx>;tag=1'),
    call("call_ab22", "<sip:200@pbx>"),
    call("call_ab33", "<sip:me@here>", direction="outbound", callee="sip:+441632960000@trunk"),
    call("call_cc44", "<sip:300@pbx>", state="terminated"),
    call("call_cd55", "<sip:300@pbx>"),
    call("c-of-a-client", "<sip:%2B4940@pbx>"),
)


@pytest.mark.parametrize(
    ("wanted", "id_"),
    [
        ("call_ab22", "call_ab22"),
        ("call_aa", "call_aa11"),
        ("ab2", "call_ab22"),
        ("c-of", "c-of-a-client"),
        ("sip-call_ab33", "call_ab33"),
        ("+49301234567", "call_aa11"),
        ("0049 30 1234567", "call_aa11"),
        ("+44 1632 960000", "call_ab33"),
        ("200", "call_ab22"),
        ("+4940", "c-of-a-client"),
        ("300", "call_cd55"),  # the live one
        ("call_cc44", "call_cc44"),
    ],
)
def test_a_call_is_found(wanted: str, id_: str) -> None:
    assert the_call(CALLS, wanted)[1]["id"] == id_


def test_two_that_are_meant_are_named() -> None:
    with pytest.raises(NotDone, match=r"'call_ab' is true of 2 calls: call_ab22, call_ab33; name one by its id"):
        the_call(CALLS, "call_ab")


@pytest.mark.parametrize(("wanted", "calls"), [("nobody", CALLS), ("", CALLS), ("me", CALLS), ("1", ())])
def test_what_is_not_there(wanted: str, calls: tuple[Found, ...]) -> None:
    with pytest.raises(NotDone, match="there are none" if not calls else "lists the 6 that are kept"):
        the_call(calls, wanted)


def test_a_far_side_without_a_number_is_its_address() -> None:
    assert far_user(call("c", "<https://example.com>")[1]) == "<https://example.com>"
