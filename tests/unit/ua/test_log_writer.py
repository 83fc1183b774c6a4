"""PJSIP's log: what is counted, and what is not taken for it."""

from types import SimpleNamespace

import pytest

from cc_tts.ua.pjsip.pjsip_log import PjsipLog
from tests.fakes.fake_line import FakeClock
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit


def written(*lines: str, level: int = 1) -> dict[str, int]:
    writer = PjsipLog(FakeClock())
    for line in lines:
        writer.write(SimpleNamespace(level=level, msg=f"{line}\n"))
    failed = dict(writer.take_assertions())
    assert not writer.take_assertions()
    return failed


def test_failed_assertions_are_counted_by_place() -> None:
    first = '12:34:56.789 ../src/pjsip/sip_dialo  Assert failed: a && "b"'
    second = "12:34:56.790                 rtp.c !..Assert failed: status == 0"
    assert written(first, second, first) == {'../src/pjsip/sip_dialo a && "b"': 2, "rtp.c status == 0": 1}


def test_what_somebody_sent_is_no_assertion() -> None:
    packet = "12:34:56.789 sip_endpoint.c  Error processing packet from 1.2.3.4:5: x [code 1]:\nAssert failed: mine"
    name = "12:34:56.789 sip_inv.c  Invalid name: Assert failed: mine"
    assert written(packet, name) == {}
    assert written("12:34:56.789 x.c  Assert failed: mine", level=2) == {}


def logged(*entries: tuple[int, str]) -> list[dict[str, object]]:
    writer = PjsipLog(FakeClock())
    with capture_logs() as lines:
        for level, text in entries:
            writer.write(SimpleNamespace(level=level, msg=f"{text}\n"))
    return [dict(line) for line in lines]


MESSAGE = (
    "INVITE sip:annc@10.0.0.5;play=tts:secret SIP/2.0\r\nVia SIP/2.0/UDP x\r\nX-TTS-Text: secret]:\r\n"
    'Authorization: Digest username="a", response="secret"\r\n\r\nsecret'
)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            f"12:34:56.789 sip_transport.c  .Dropped packet:{MESSAGE}\n-- end of packet.",
            "sip_transport.c  .Dropped packet",
        ),
        ("12:34:56.789 sip_transport.c  Dropped packet:GET /secret]: secret", "sip_transport.c  Dropped packet"),
        (f"12:34:56.789 sip_x.c  Some dump to come:\n{MESSAGE}", "sip_x.c  Some dump to come"),
        (
            f"12:34:56.789 pjsua_core.c  .RX 512 bytes INVITE from UDP 10.0.0.9:5060:\n{MESSAGE}\n--end msg--",
            "UDP 10.0.0.9",
        ),
        (
            f"12:34:56.789 sip_endpoint.c  Error processing packet from 10.0.0.9:5060: No Via [code 1]:\n{MESSAGE}",
            "from 10.0.0.9:5060: No Via [code 1]",
        ),
        ("12:34:56.789 pjsua_call.c  Making call to sip:a@10.0.0.9;play=tts:secret", "call to sip:a@10.0.0.9;…"),
        ("12:34:56.789 x.c  to <sip:a@10.0.0.9?X-TTS-Text=secret> now", "<sip:a@10.0.0.9;…> now"),
        ("12:34:56.789 x.c  Invalid header X-TTS-Text: secret words", "Invalid header X-TTS-Text: …"),
        ("12:34:56.789 x.c  Proxy-Authorization: Digest secret", "Proxy-Authorization: …"),
        ('12:34:56.789 x.c  realm="a", response="secret"', 'realm="a", response= …'),
        (
            "12:34:56.789 sip_parser.c  Error parsing 'secret': String value was greater",
            "Error parsing '…': String value",
        ),
        ("12:34:56.789 sip_parser.c  Error parsing header: 'X a secret' line 3 col 5", "parsing '…' line 3"),
        (
            "12:34:56.789 sip_transport.c  exception when parsing 'Via' header on line 3",
            "parsing 'Via' header on line 3",
        ),
        ("12:34:56.789 strm0x1  Received DTMF digit secret, vol=10", "Received DTMF …"),
        ("12:34:56.789 pjsua_aud.c  Call 3 dialing DTMF secret", "Call 3 dialing DTMF …"),
        ("12:34:56.789 srtp0x1  TX: AES_CM_128_HMAC_SHA1_80 key=secret", "key=…"),
    ],
)
def test_nothing_of_a_message_is_logged_at_any_level(entry: str, said: str) -> None:
    for level in range(1, 7):
        (line,) = logged((level, entry))
        assert said in str(line["detail"])
        assert "secret" not in str(line)


def test_the_level_of_pjsip_decides_how_a_line_is_logged() -> None:
    lines = logged((1, "a"), (2, "b"), (3, "c"), (5, "d"))
    assert [(line["log_level"], line["pjsip_level"]) for line in lines] == [
        ("error", 1),
        ("warning", 2),
        ("info", 3),
        ("info", 5),
    ]
    why = (
        "12:34:56.789 sip_transport.c  Dropping 512 bytes packet from UDP 10.0.0.9:5060 : syntax error on line 3 col 5"
    )
    (line,) = logged((2, why))
    assert str(line["detail"]).startswith(why)


def test_messages_that_cannot_be_read_are_a_warning_once_a_second() -> None:
    bad = (1, "12:34:56.789 sip_endpoint.c  Error processing packet from 10.0.0.9:5060: x [code 1]:\nsecret")
    dropped = (4, "12:34:56.789 sip_transport.c  Dropped packet:secret\n-- end of packet.")
    number = (1, "12:34:56.789 sip_parser.c  Error parsing '12': x")
    (line,) = logged(bad, dropped, bad, number)
    assert line["log_level"] == "warning"
