"""What operators see on their terminal."""

import json
from typing import Any

import pytest

from cc_tts.operate import tables
from cc_tts.operate.top import frame

pytestmark = pytest.mark.unit

BARE: dict[str, Any] = {"packets_sent": 0, "packets_received": 0, "packets_lost": 0, "mos": None}
UNHEARD = {**BARE, "packets_sent": 50}


def call(id_: str, **more: Any) -> dict[str, Any]:
    facts = {
        "id": id_,
        "direction": "inbound",
        "caller": "<sip:alice@pbx>",
        "callee": "<sip:100@here>",
        "state": "established",
        "ending": None,
        "held": False,
        "created_at": 1000.0,
        "answered_at": 1010.0,
        "ended_at": None,
        "codec": "PCMU",
        "quality": BARE,
        "sip_call_id": "x@y",
    }
    return {**facts, **more}


def status(**more: Any) -> dict[str, Any]:
    facts = {"not_ready_because": None, "draining": False, "calls": 2, "max_calls": 8, "media_lateness_ms": 1.5}
    return {**facts, "workers": [{"state": "ready", "streams": 2}, {"state": "backoff", "streams": None}], **more}


def test_a_peer_cannot_move_the_cursor() -> None:
    hostile = call("c", caller="<sip:\x1b[2J\x9b1A\u202eevil@pbx>")
    shown = "\n".join(tables.table(tables.CALL_COLUMNS, [tables.call_row(hostile, 1015.0)]))
    assert not any(each in shown for each in "\x1b\x9b\u202e")
    text = tables.as_json(hostile)
    assert not any(each in text for each in "\x1b\x9b\u202e")
    assert json.loads(text) == hostile


def test_columns_are_straight_for_wide_characters() -> None:
    head, first, second = tables.table(("NAME", "X"), [("王小明", "a"), ("Bob", "b")])
    columns = {tables.width(line[: line.rindex(last)]) for line, last in ((head, "X"), (first, "a"), (second, "b"))}
    assert columns == {8}


def test_the_time_of_an_ended_call_stands_still() -> None:
    ended = call("c", state="terminated", ended_at=1075.0, ending={"result": "completed", "reason": "remote_hangup"})
    row = dict(zip(tables.CALL_COLUMNS, tables.call_row(ended, 9999.0), strict=True))
    assert (row["TIME"], row["STATE"]) == ("1:05", "completed: remote_hangup")


@pytest.mark.parametrize(
    ("quality", "mos", "loss"),
    [
        (BARE, "-", "-"),
        ({"packets_sent": 100, "packets_received": 90, "packets_lost": 10, "mos": 2.5}, "2.50!", "10.0%"),
        ({"packets_sent": 100, "packets_received": 100, "packets_lost": 0, "mos": 4.38}, "4.38", "0.0%"),
        (UNHEARD, "unheard!", "-"),
    ],
)
def test_quality_that_callers_complain_about_is_marked(quality: dict[str, Any], mos: str, loss: str) -> None:
    found = call("c", quality=quality)
    assert (tables.mos(found), tables.loss(found)) == (mos, loss)


def test_the_worst_call_is_first() -> None:
    calls = [
        call("good", quality={**BARE, "mos": 4.4}),
        call("unknown"),
        call("bad", quality={**BARE, "mos": 2.0}),
        call("on_hold", quality=UNHEARD, held=True, created_at=1001.0),
        call("unheard", quality=UNHEARD),
        call("over", state="terminated"),
    ]
    lines = frame([("http://a", (status(), calls)), ("http://b", ("nobody answers", []))], (120, 20), 1020.0)
    assert lines[1] == "http://a  ready  calls 2/8  workers 1/2  speaking 2  media late 1.5 ms"
    assert lines[2] == "http://b  nobody answers"
    assert [line.split()[0] for line in lines[5:]] == ["unheard", "bad", "good", "unknown", "on_hold"]


@pytest.mark.parametrize("others", [[], [("http://b", ("nobody answers", []))]])
def test_nothing_is_said_of_the_calls_of_a_server_that_does_not_answer(others: list[Any]) -> None:
    lines = frame([("http://a", ("nobody answers", [])), *others], (80, 24), 0.0)
    assert lines[1] == "http://a  nobody answers"
    assert "no calls are up" not in lines


def test_a_picture_has_the_size_of_the_terminal() -> None:
    calls = [call(f"call_{number:016}", caller="<sip:王小明王小明@pbx>") for number in range(200)]
    lines = frame([("http://a", (status(not_ready_because="draining"), calls))], (40, 10), 1020.0)
    assert len(lines) == 10
    assert all(tables.width(line) <= 40 for line in lines)
    assert lines[-1] == "… 195 more"
