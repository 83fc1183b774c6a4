"""Progress of the softphone is printed in the order in which it happened."""

import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.softphone.command import ProgressEvents

pytestmark = pytest.mark.unit


def test_what_is_known_late_comes_in_its_place() -> None:
    progress = ProgressEvents()
    for at_ms, name in ((0, "dialing"), (500, "answered"), (700, "dtmf_sent"), (650, "speech_end"), (2000, "ended")):
        progress.add({"event": name, "at_ns": at_ms * NS_PER_MS})
    early = [event["event"] for event in progress.due(750 * NS_PER_MS)]
    late = [event["event"] for event in progress.due(2000 * NS_PER_MS)]
    assert early == ["dialing"]
    assert late == ["answered", "speech_end", "dtmf_sent"]
    assert [event["event"] for event in progress.due()] == ["ended"]
    assert list(progress.due()) == []


def test_errors_are_said_even_where_no_progress_is() -> None:
    progress = ProgressEvents(only_errors=True)
    for name in ("dialing", "error", "ended"):
        progress.add({"event": name, "at_ns": 0})
    assert [event["event"] for event in progress.due()] == ["error"]
