import pytest

from cc_tts.softphone.rtp.packets import (
    DTMF_DIGITS,
    EVENT_PAYLOAD_TYPE,
    SAMPLES_PER_PACKET,
    SILENCE,
    Keypress,
    OutgoingStream,
    RtpError,
    RtpPacket,
    RtpSource,
    TelephoneEvent,
    event_code,
    is_rtcp,
)
from tests.support.memory import held_bytes

pytestmark = pytest.mark.unit

PLAIN = bytes.fromhex("8000123400000a0b0c0d0e0f") + b"\xff" * 160


def test_header_is_read_and_written_bit_exactly() -> None:
    packet = RtpPacket.from_bytes(PLAIN)
    assert packet == RtpPacket(0, 0x1234, 0x00000A0B, 0x0C0D0E0F, b"\xff" * 160)
    assert packet.to_bytes() == PLAIN
    wrapping = RtpPacket(101, 65535, 2**32 - 1, 1, b"abcd", marker=True)
    assert RtpPacket.from_bytes(wrapping.to_bytes()) == wrapping


@pytest.mark.parametrize(
    ("data", "payload"),
    [
        (bytes.fromhex("82080001000000010000000200000007000000080102"), b"\x01\x02"),
        (bytes.fromhex("900000010000000100000002bede0001aabbccdd0102"), b"\x01\x02"),
        (bytes.fromhex("a0000001000000010000000201020003"), b"\x01"),
        (bytes.fromhex("800000010000000100000002"), b""),
    ],
    ids=["two CSRCs", "header extension", "three bytes of padding", "no payload"],
)
def test_optional_parts_of_the_header(data: bytes, payload: bytes) -> None:
    assert RtpPacket.from_bytes(data).payload == payload


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "too short"),
        (PLAIN[:11], "too short"),
        (b"\x40" + PLAIN[1:], "version"),
        (bytes.fromhex("8f0000010000000100000002") + bytes(8), "CSRC"),
        (bytes.fromhex("900000010000000100000002bede"), "cut off"),
        (bytes.fromhex("900000010000000100000002bede0002aabbccdd"), "longer than"),
        (bytes.fromhex("a0000001000000010000000201020000"), "padding"),
        (bytes.fromhex("a0000001000000010000000201020009"), "padding"),
        (bytes.fromhex("a0000001000000010000000d"), "padding"),
    ],
)
def test_invalid_packets_are_refused(data: bytes, fault: str) -> None:
    with pytest.raises(RtpError, match=fault):
        RtpPacket.from_bytes(data)


@pytest.mark.parametrize(("second", "expected"), [(200, True), (207, True), (0, False), (0x80, False), (101, False)])
def test_rtcp_is_told_from_rtp(second: int, *, expected: bool) -> None:
    assert is_rtcp(bytes((0x80, second, 0, 1))) is expected


@pytest.mark.parametrize(
    ("data", "event", "digit"),
    [
        (bytes.fromhex("050a00a0"), TelephoneEvent(5, end=False, duration=160), "5"),
        (bytes.fromhex("0b8a0320"), TelephoneEvent(11, end=True, duration=800), "#"),
        (bytes.fromhex("10ff0001"), TelephoneEvent(16, end=True, duration=1), "[16]"),
    ],
)
def test_telephone_event(data: bytes, event: TelephoneEvent, digit: str) -> None:
    assert TelephoneEvent.from_bytes(data) == event
    assert event.digit == digit
    if data[1] & 0x3F == 10:
        assert event.to_bytes() == data


def test_short_telephone_event_is_refused() -> None:
    with pytest.raises(RtpError, match="too short"):
        TelephoneEvent.from_bytes(b"\x05\x0a\x00")


def test_event_codes_are_the_rfcs() -> None:
    assert [event_code(digit) for digit in "0123456789*#ABCDd"] == [*range(16), 15]
    assert len(DTMF_DIGITS) == 16


@pytest.mark.parametrize("digit", ["", "x", "12", " "])
def test_what_is_no_digit_names_the_digits(digit: str) -> None:
    with pytest.raises(ValueError, match="right are 0 1 2"):
        event_code(digit)


@pytest.mark.parametrize(
    ("sequences", "packets", "lost", "duplicates", "reordered", "wild"),
    [
        ([], 0, 0, 0, 0, 0),
        ([5, 6, 7], 3, 0, 0, 0, 0),
        ([5, 8], 2, 2, 0, 0, 0),
        ([65534, 65535, 0, 1], 4, 0, 0, 0, 0),
        ([65534, 1], 2, 2, 0, 0, 0),
        ([5, 7, 6, 8], 4, 0, 0, 1, 0),
        ([65535, 1, 0, 2], 4, 0, 0, 1, 0),
        ([5, 6, 6, 5, 7], 3, 0, 2, 0, 0),
        ([6, 5, 7], 3, 0, 0, 1, 0),
        ([0, 65535, 1], 3, 0, 0, 1, 0),
        ([5, 6, 30000, 7], 3, 0, 0, 0, 1),
        ([5, 6, 30000, 30001, 30002], 4, 0, 0, 0, 1),
        ([5, 8, 30000, 30001, 30003], 4, 3, 0, 0, 1),
    ],
    ids=[
        "nothing",
        "in order",
        "two lost",
        "wrap",
        "lost across the wrap",
        "reordered",
        "reordered across the wrap",
        "duplicates",
        "first two swapped",
        "first two swapped at the wrap",
        "a wild one",
        "the sender began anew",
        "lost before and after",
    ],
)
def test_sequence_numbers(
    sequences: list[int], packets: int, lost: int, duplicates: int, reordered: int, wild: int
) -> None:
    source = RtpSource(1)
    for sequence in sequences:
        source.update(sequence)
    seen = (source.packets, source.lost, source.duplicates, source.reordered, source.wild)
    assert seen == (packets, lost, duplicates, reordered, wild)


def test_long_stream_over_many_wraps_loses_nothing() -> None:
    source = RtpSource(1)
    for number in range(200_000):
        source.update((65_000 + number) % 65536)
    assert (source.packets, source.lost, source.expected) == (200_000, 0, 200_000)
    assert held_bytes(source) < 10_000


@pytest.mark.parametrize(
    ("late_ms", "expected_ms"),
    [([0, 0, 0], 0.0), ([0, 16], 1.0), ([0, 16, 16], 0.9375), ([0, 16, 0], 1.9375)],
    ids=["in time", "one late", "and it stays late", "and comes back"],
)
@pytest.mark.parametrize("begin", [0, 2**32 - SAMPLES_PER_PACKET])
def test_jitter_follows_a8(begin: int, late_ms: list[int], expected_ms: float) -> None:
    source = RtpSource(1)
    for number, late in enumerate(late_ms):
        source.update_jitter((begin + number * SAMPLES_PER_PACKET) % 2**32, (number * 20 + late) * 1_000_000)
    assert source.jitter_ticks / 8 == pytest.approx(expected_ms, abs=1e-6)


def stream() -> OutgoingStream:
    return OutgoingStream(0, ssrc=1, sequence=65534, timestamp=2**32 - 160)


def run(tx: OutgoingStream, ticks: int, *, start_ns: int = 0) -> list[RtpPacket]:
    return [tx.tick(start_ns + n * 20_000_000, event_payload_type=EVENT_PAYLOAD_TYPE)[0] for n in range(ticks)]


def test_silence_runs_on_across_both_wraps_without_marker() -> None:
    packets = run(stream(), 4)
    assert [p.sequence for p in packets] == [65534, 65535, 0, 1]
    assert [p.timestamp for p in packets] == [2**32 - 160, 0, 160, 320]
    assert not any(p.marker for p in packets)
    assert all(p.payload == SILENCE[0] for p in packets)
    skipping = stream()
    skipping.skip(10)
    (packet,) = run(skipping, 1)
    assert (packet.sequence, packet.timestamp) == (65534, 9 * 160), "time passes while nothing is sent"


def test_key_press_is_built_as_rfc_4733_wants() -> None:
    tx = stream()
    tx.press(Keypress(event_code("#"), 60))
    packets = run(tx, 6)
    events = [TelephoneEvent.from_bytes(p.payload) for p in packets if p.payload_type == EVENT_PAYLOAD_TYPE]
    assert [(e.event, e.end, e.duration) for e in events] == [
        (11, False, 160),
        (11, False, 320),
        (11, True, 480),
        (11, True, 480),
        (11, True, 480),
    ]
    assert [p.marker for p in packets] == [True, False, False, False, False, False]
    assert {p.timestamp for p in packets[:5]} == {2**32 - 160}
    assert [p.sequence for p in packets] == [65534, 65535, 0, 1, 2, 3]
    assert packets[5].payload_type == 0
    assert packets[5].timestamp == (2**32 - 160 + 5 * 160) % 2**32


def test_keys_wait_for_their_instant_and_keep_a_pause() -> None:
    tx = stream()
    tx.press(Keypress(2, 40, 100_000_000))
    tx.press(Keypress(1, 40))
    kinds = ["k" if p.payload_type == EVENT_PAYLOAD_TYPE else "-" for p in run(tx, 20)]
    assert "".join(kinds) == "kkkk-----kkkk-------"


def test_keys_wait_while_the_far_side_takes_none() -> None:
    tx = OutgoingStream(8, ssrc=1, sequence=0, timestamp=0)
    tx.press(Keypress(1, 40))
    packet, started, _ = tx.tick(0, event_payload_type=None)
    assert (packet.payload_type, packet.payload, started) == (8, SILENCE[8], None)
    assert run(tx, 1)[0].payload_type == EVENT_PAYLOAD_TYPE


def test_what_is_said_takes_the_place_of_silence() -> None:
    tx = stream()
    run(tx, 1)
    tx.say(b"\x01" * 200)
    ticked, saying = [], []
    for _ in range(3):
        ticked.append(tx.tick(0, event_payload_type=EVENT_PAYLOAD_TYPE))
        saying.append(tx.is_saying)
    assert saying == [True, True, False]
    assert [each.packet.payload for each in ticked] == [b"\x01" * 160, b"\x01" * 40 + b"\xff" * 120, SILENCE[0]]
    assert [each.begins_to_say for each in ticked] == [True, False, False]
    assert [each.packet.timestamp for each in ticked] == [0, 160, 320]


def test_what_is_said_later_waits_for_its_time() -> None:
    tx = stream()
    tx.say(b"\x01" * 160, after_ms=40)
    ticked = [tx.tick(0, event_payload_type=EVENT_PAYLOAD_TYPE) for _ in range(4)]
    assert [each.packet.payload for each in ticked] == [SILENCE[0], SILENCE[0], b"\x01" * 160, SILENCE[0]]
    assert [each.begins_to_say for each in ticked] == [False, False, True, False]


def test_loss_since_the_last_report() -> None:
    source = RtpSource(1)
    for sequence in (0, 1, 3):
        source.update(sequence)
    assert source.fraction_lost() == 64
    assert source.fraction_lost() == 0
    source.update(4)
    source.update(2)
    assert source.fraction_lost() == 0
    source.update(8)
    assert source.fraction_lost() == 192
