"""Messages of MRCPv2: cut out of a stream in whatever pieces it comes, and written to the byte."""

from pathlib import Path

import pytest

from cc_tts.mrcp.control.message import (
    MAX_MESSAGE_BYTES,
    MalformedMessage,
    MessageReader,
    RefusedMessage,
    Request,
    RequestState,
    StatusCode,
    event,
    request,
    response,
)

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parents[2] / "data" / "mrcp"
CHANNEL = "32aecb234338@speechsynth"
SPEAK = request(
    "SPEAK",
    543257,
    [("Channel-Identifier", CHANNEL), ("Content-Type", "text/plain")],
    "Grüß Gott. Your balance is 12 €.".encode(),
)


def read(data: bytes) -> list[Request | RefusedMessage]:
    return list(MessageReader().feed(data))


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def test_a_message_that_comes_byte_by_byte_is_the_same() -> None:
    reader = MessageReader()
    found = [each for at in range(len(SPEAK)) for each in reader.feed(SPEAK[at : at + 1])]
    assert found == read(SPEAK)
    assert [each.body for each in found if isinstance(each, Request)] == ["Grüß Gott. Your balance is 12 €.".encode()]


def test_messages_that_come_together_are_taken_apart() -> None:
    stop = request("STOP", 543258, [("Channel-Identifier", CHANNEL)])
    found = read(SPEAK + stop + SPEAK[:10])
    assert [(each.method, each.request_id) for each in found if isinstance(each, Request)] == [
        ("SPEAK", 543257),
        ("STOP", 543258),
    ]


@pytest.mark.parametrize("body_bytes", [0, *range(1, 30), 838, 839, 840, 841, 842, 9_870, 9_890, 60_000])
def test_the_length_counts_its_own_digits(body_bytes: int) -> None:
    written = request("SPEAK", 1, [("Channel-Identifier", CHANNEL)], b"x" * body_bytes)
    assert int(written.split(b" ", 2)[1]) == len(written)


@pytest.mark.parametrize("filler", range(60))
def test_the_length_is_right_where_it_gets_one_digit_more(filler: int) -> None:
    written = event("SPEAK-COMPLETE", 1, RequestState.COMPLETE, [("X", "x" * filler)])
    assert int(written.split(b" ", 2)[1]) == len(written)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
        b"MRCP/2.0 5 SPEAK 1\r\n\r\n",
        b"MRCP/2.0 -1 SPEAK 1\r\n",
        b"MRCP/2.0 " + b"9" * 40,
        b"MRCP/2.0 100 " + b"A" * 300,
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read(data)


def test_a_message_that_is_too_large_is_refused_and_passed_over() -> None:
    start = f"MRCP/2.0 {MAX_MESSAGE_BYTES + 1000} SPEAK 7\r\n".encode()
    stop = request("STOP", 8, [("Channel-Identifier", CHANNEL)])
    data = start + b"x" * (MAX_MESSAGE_BYTES + 1000 - len(start)) + stop
    reader = MessageReader()
    found = [each for at in range(0, len(data), 1000) for each in reader.feed(data[at : at + 1000])]
    assert found[0] == RefusedMessage(StatusCode.TOO_LARGE, 7)
    assert [each.request_id for each in found] == [7, 8]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"MRCP/1.0 31 SPEAK 7\r\nA: b\r\n\r\n  ", StatusCode.UNSUPPORTED_VERSION),
        (b"MRCP/2.0 30 SPEAK 7\r\nno header\r\n"[:27] + b"\r\n\r\n"[:3], StatusCode.ILLEGAL_VALUE),
        (b"MRCP/2.0 50 SPEAK 7\r\nContent-Length: 5000\r\n\r\nabcde", StatusCode.ILLEGAL_VALUE),
    ],
)
def test_a_message_that_cannot_be_carried_out_has_a_status(data: bytes, status: StatusCode) -> None:
    written = b" ".join([data.split(b" ", 2)[0], str(len(data)).encode(), data.split(b" ", 2)[2]])
    assert read(written) == [RefusedMessage(status, 7)]


def test_headers_are_read_whatever_their_case_and_folded_ones_are_joined() -> None:
    rest = b"channel-identifier: a@speechsynth\r\nVOICE-NAME: anna\r\n berta\r\n\r\n"
    data = b" SPEAK 1\r\n" + rest
    (found,) = read(f"MRCP/2.0 {len(data) + 11}".encode() + data)
    assert isinstance(found, Request)
    assert (found.channel_id, found.header("Voice-Name")) == ("a@speechsynth", "anna berta")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("speak.bin", SPEAK),
        (
            "in_progress.bin",
            response(
                543257,
                StatusCode.SUCCESS,
                RequestState.IN_PROGRESS,
                [("Channel-Identifier", CHANNEL), ("Speech-Marker", "timestamp=857206027059")],
            ),
        ),
        (
            "speak_complete.bin",
            event(
                "SPEAK-COMPLETE",
                543257,
                RequestState.COMPLETE,
                [("Channel-Identifier", CHANNEL), ("Completion-Cause", "000 normal")],
            ),
        ),
        (
            "stopped.bin",
            response(
                543259,
                StatusCode.SUCCESS,
                RequestState.COMPLETE,
                [("Channel-Identifier", CHANNEL), ("Active-Request-Id-List", "543257,543258")],
            ),
        ),
        (
            "wrong_state.bin",
            response(543260, StatusCode.WRONG_STATE, RequestState.COMPLETE, [("Channel-Identifier", CHANNEL)]),
        ),
    ],
)
def test_messages_are_written_as_the_golden_files_have_them(name: str, written: bytes) -> None:
    assert written == golden(name)


def test_no_header_can_add_another_line() -> None:
    written = response(1, StatusCode.SUCCESS, RequestState.COMPLETE, [("Channel-Identifier", "a\r\nInjected: b")])
    assert b"\r\nInjected" not in written
