"""PJSIP's log: what is counted, and what is not taken for it."""

from types import SimpleNamespace

import pytest

from cc_tts.ua.pjsip_log import PjsipLog
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


def written(*lines: str, level: int = 1) -> dict[str, int]:
    """Failed assertions in these lines of PJSIP's log."""
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
