"""Records on the wire: the same however the bytes are cut, and nothing is believed that exceeds the bounds."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.errors import ProcessFailed
from cc_tts.processes.channel import (
    COMMON_MESSAGES,
    MAX_MESSAGE_BYTES,
    MAX_PAYLOAD_BYTES,
    Decoder,
    Hello,
    Message,
    Ping,
    Pong,
    Record,
    Shutdown,
    encode,
)

pytestmark = pytest.mark.unit


class Note(Message, frozen=True):
    """A message of these tests."""

    text: str
    number: int = 0


class Stranger(Message, frozen=True):
    """A message nobody here expects."""

    text: str


RECORDS = st.lists(
    st.tuples(
        st.one_of(
            st.builds(Note, text=st.text(max_size=50), number=st.integers(-(2**63), 2**63 - 1)),
            st.builds(Ping, serial=st.integers(0, 2**40)),
            st.builds(Hello, protocol=st.integers(0, 9), process=st.text(max_size=9), pid=st.integers(0, 2**22)),
            st.just(Shutdown()),
        ),
        st.binary(max_size=400),
    ),
    max_size=12,
)


def decoder() -> Decoder:
    return Decoder((*COMMON_MESSAGES, Note))


@given(RECORDS, st.data())
def test_any_cutting_gives_the_same_records(records: list[Record], data: st.DataObject) -> None:
    stream = b"".join(encode(message, payload) for message, payload in records)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = decoder()
    got: list[Record] = []
    for start, end in pairwise([0, *cuts, len(stream)]):
        got += reader.feed(stream[start:end])
    assert got == records
    assert reader.feed(b"") == []


@pytest.mark.parametrize(
    ("message_bytes", "payload_bytes"), [(MAX_MESSAGE_BYTES + 1, 0), (2, MAX_PAYLOAD_BYTES + 1), (2**32 - 1, 2**32 - 1)]
)
def test_an_announcement_beyond_the_bounds_is_refused_before_it_is_read(message_bytes: int, payload_bytes: int) -> None:
    with pytest.raises(ProcessFailed, match="announced"):
        decoder().feed(struct.pack("<II", message_bytes, payload_bytes))


def test_the_bounds_themselves_are_fine() -> None:
    payload = bytes(MAX_PAYLOAD_BYTES)
    assert decoder().feed(encode(Pong(serial=1), payload)) == [(Pong(serial=1), payload)]


@pytest.mark.parametrize(
    ("message", "payload"), [(Note("x" * MAX_MESSAGE_BYTES), b""), (Note(""), bytes(MAX_PAYLOAD_BYTES + 1))]
)
def test_nothing_beyond_the_bounds_is_sent(message: Message, payload: bytes) -> None:
    with pytest.raises(ProcessFailed, match="exceeds"):
        encode(message, payload)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x00",
        b"\x80",
        b"\x81\xa4type\xa7Unknown",
        b"\x82\xa4type\xa4Ping\xa6serial\xa1x",
        b"\xff" * 40,
        b"\x91" * 3000,
        b"\x81\xa1a" * 3000,
        encode(Stranger("hello"))[8:],
    ],
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(ProcessFailed, match="unreadable"):
        decoder().feed(struct.pack("<II", len(body), 0) + body)


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_waits_for_more(garbage: bytes) -> None:
    try:
        records = decoder().feed(garbage)
    except ProcessFailed:
        return
    assert all(isinstance(message, Message) for message, _ in records)
