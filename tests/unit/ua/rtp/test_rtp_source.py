"""What is told of RTP from elsewhere."""

from types import SimpleNamespace

import pytest

from cc_tts.ua.rtp.source import REPORT_DISCARDED, RtpSourceWatch
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit


def told(watch: RtpSourceWatch, *looks: str, num_discarded: int = 0) -> list[str]:
    """Events of the log when the leg's RTP comes from these, one after the other."""
    with capture_logs() as lines:
        for source in looks:
            transport = SimpleNamespace(srcRtpName=source)
            leg = SimpleNamespace(getMedTransportInfo=[transport].__getitem__)
            watch.poll(leg, 0, num_discarded=num_discarded)
    return [line["event"] for line in lines]


def test_a_build_that_follows_tells_once_that_the_source_changed() -> None:
    watch = RtpSourceWatch("call_1", follows_rtp=True)
    assert told(watch, "", "0.0.0.0:0", "192.0.2.1:4000", "192.0.2.1:4000") == []
    assert told(watch, "192.0.2.9:4000") == ["rtp_source_changed"]
    assert told(watch, "192.0.2.1:4000", "192.0.2.9:4000") == []


def test_a_change_that_was_negotiated_is_none() -> None:
    watch = RtpSourceWatch("call_1", follows_rtp=True)
    assert told(watch, "192.0.2.1:4000") == []
    watch.new_stream()
    assert told(watch, "192.0.2.9:4000") == []
    assert told(watch, "192.0.2.1:4000") == ["rtp_source_changed"]


@pytest.mark.parametrize("follows_rtp", [False, True])
def test_what_was_thrown_away_is_told_once(follows_rtp: bool) -> None:
    watch = RtpSourceWatch("call_1", follows_rtp=follows_rtp)
    assert told(watch, "192.0.2.1:4000", "192.0.2.1:4000", num_discarded=REPORT_DISCARDED - 1) == []
    assert told(watch, "", "", num_discarded=REPORT_DISCARDED) == ["rtp_discarded"]
