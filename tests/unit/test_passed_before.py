"""A run of CI leaves out what passed earlier in it."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.unit

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite with one test of each outcome, under the conftest of this one."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def breaks_afterwards():
            yield
            raise OSError

        def test_passes(): pass
        def test_passes_longer(): pass
        def test_fails(): assert False
        def test_is_skipped(): pytest.skip("no peer")
        def test_breaks(breaks_afterwards): pass
        """
    )
    return pytester


def test_only_what_passed_in_all_phases_is_left_out(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC_TTS_WRITE_PASSED", str(tmp_path / "passed"))
    suite.runpytest().assert_outcomes(passed=3, failed=1, skipped=1, errors=1)
    monkeypatch.delenv("CC_TTS_WRITE_PASSED")
    monkeypatch.setenv("CC_TTS_LEAVE_OUT_PASSED", str(tmp_path / "passed"))
    suite.runpytest().assert_outcomes(passed=1, failed=1, skipped=1, errors=1, deselected=2)


def test_a_run_of_which_all_passed_before_succeeds(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC_TTS_WRITE_PASSED", str(tmp_path / "passed"))
    suite.runpytest()
    monkeypatch.delenv("CC_TTS_WRITE_PASSED")
    monkeypatch.setenv("CC_TTS_LEAVE_OUT_PASSED", str(tmp_path / "passed"))
    again = suite.runpytest("-k", "passes")
    again.assert_outcomes(deselected=5)
    assert again.ret == pytest.ExitCode.OK
