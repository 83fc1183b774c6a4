"""What a machine lacks is said in one line each."""

import pytest

from tests.support import needs

pytestmark = pytest.mark.unit


def test_a_missing_need_skips_and_says_what_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC_TTS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install sip-tester"):
        needs.missing("peers", "sipp is not installed: apt-get install sip-tester")


def test_a_missing_need_that_is_required_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_TTS_REQUIRE", "asterisk,peers")
    with pytest.raises(pytest.fail.Exception, match="apt-get install sip-tester"):
        needs.missing("peers", "sipp is not installed: apt-get install sip-tester")
    with pytest.raises(pytest.skip.Exception):
        needs.missing("kamailio", "Kamailio is not here: sip/peers/kamailio/fetch.sh")


def test_the_summary_has_one_line_a_reason() -> None:
    lines = needs.summary(
        [
            "Skipped: sipp is not installed: apt-get install sip-tester",
            "Skipped: could not import 'torch': No module named 'torch'",
            "Skipped: could not import 'onnx': No module named 'onnx'",
            "Skipped: could not import 'torch': No module named 'torch'",
        ]
    )
    assert lines == [
        "    3  the packages of the neural engine are not installed: make neural",
        "    1  sipp is not installed: apt-get install sip-tester",
    ]
