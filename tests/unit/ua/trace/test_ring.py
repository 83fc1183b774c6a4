"""The ring of messages: bounded, and calls are not pushed out by strangers."""

import pytest

from cc_tts.ua.messages import TracedMessage
from cc_tts.ua.trace import ring
from cc_tts.ua.trace.ring import TraceRing

pytestmark = pytest.mark.unit


def message(text: bytes = b"x") -> TracedMessage:
    return TracedMessage(at_ns=1, is_sent=True, transport="udp", local=("a", 1), remote=("b", 2), text=text)


def texts(kept: TraceRing, sip_call_id: str) -> list[bytes]:
    return [each.text for each in kept.messages(sip_call_id)]


def test_the_last_messages_of_a_call_are_kept() -> None:
    kept = TraceRing(3)
    for number in range(5):
        if number == 4:
            kept.know("call")  # those before are kept too
        kept.add("call", message(b"%d" % number))
    assert texts(kept, "call") == [b"2", b"3", b"4"]
    assert texts(kept, "other") == []


def test_a_flood_of_strangers_pushes_out_strangers_only() -> None:
    kept = TraceRing(10)
    kept.add("call", message())
    kept.know("call")
    for number in range(3 * ring.MAX_STRANGERS):
        kept.add(f"stranger-{number}", message())
    assert texts(kept, "call") == [b"x"]
    assert texts(kept, "stranger-0") == []
    assert texts(kept, f"stranger-{3 * ring.MAX_STRANGERS - 1}") == [b"x"]


def test_the_calls_that_were_silent_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "MAX_TOTAL_BYTES", 100)
    kept = TraceRing(10)
    for name in ("old", "busy", "new"):
        kept.add(name, message(b"x" * 30))
        kept.know(name)
    kept.add("old", message(b"y"))
    kept.add("new", message(b"z" * 20))
    assert texts(kept, "busy") == []
    assert texts(kept, "old") == [b"x" * 30, b"y"]


def test_long_messages_of_one_call_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "MAX_CALL_BYTES", 100)
    kept = TraceRing(50)
    for number in range(10):
        kept.add("call", message(b"%d" % number * 40))
        kept.know("call")
    assert texts(kept, "call") == [b"8" * 40, b"9" * 40]
