"""The order in which keys go out by INFO."""

import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.ua.sip.info_keys import MAX_PENDING, InfoKeys

pytestmark = pytest.mark.unit


class Line:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.failed: list[str] = []
        self.keys = InfoKeys(self.sent.append, self.failed.append)


def test_a_key_waits_for_the_answer_and_the_length_of_the_one_before() -> None:
    line = Line()
    line.keys.put("1#", 100, 0)
    assert line.sent == ["Signal=1\r\nDuration=100\r\n"]
    line.keys.tick(150 * NS_PER_MS)
    assert len(line.sent) == 1, "not answered yet"
    line.keys.answered(200)
    line.keys.tick(50 * NS_PER_MS)
    assert len(line.sent) == 1, "still pressed"
    line.keys.tick(100 * NS_PER_MS)
    assert line.sent[1:] == ["Signal=#\r\nDuration=100\r\n"]
    line.keys.answered(200)
    line.keys.tick(1000 * NS_PER_MS)
    assert (len(line.sent), line.failed) == (2, [])


def test_after_a_refusal_the_rest_is_not_sent() -> None:
    line = Line()
    line.keys.put("123", 100, 0)
    line.keys.answered(415)
    line.keys.tick(1000 * NS_PER_MS)
    assert (len(line.sent), line.failed) == (1, ["the far side answered 415 to INFO"])
    line.keys.put("4", 100, 2000 * NS_PER_MS)
    assert line.sent[-1].startswith("Signal=4"), "the next command is tried again"


def test_a_key_that_cannot_be_sent_does_not_keep_later_ones_waiting() -> None:
    line, sent = Line(), list[str]()

    def send(body: str) -> None:
        sent.append(body)
        if len(sent) == 1:
            raise RuntimeError("no dialog")

    line.keys = InfoKeys(send, line.failed.append)
    with pytest.raises(RuntimeError):
        line.keys.put("12", 100, 0)
    line.keys.tick(1000 * NS_PER_MS)
    assert len(sent) == 1, "the rest is not sent without it"
    line.keys.put("3", 100, 2000 * NS_PER_MS)
    assert sent[-1].startswith("Signal=3")


def test_no_more_keys_wait_than_have_room() -> None:
    line = Line()
    line.keys.put("1" * MAX_PENDING, 100, 0)
    line.keys.put("22", 100, 0)
    assert (len(line.sent), len(line.failed)) == (1, 1)
