"""Lines of the log: whole, bounded, not repeated without end; libraries' lines among them."""

import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from cc_tts import logs
from tests.fakes.fake_line import FakeClock
from tests.support.memory import held_bytes

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logs.configure(level="critical")
    sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    text = capsys.readouterr().err
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(process="server")
    logs.get("some.module").info("begun", call_id="c1", token="secret-token", odd="two\nlines")
    (line,) = written(capsys)
    assert line.pop("time").endswith("Z")
    assert line == {
        "call_id": "c1",
        "token": "(not logged)",
        "odd": "two\nlines",
        "event": "begun",
        "module": "some.module",
        "process": "server",
        "level": "info",
    }


@pytest.mark.parametrize("name", ["text", "ssml", "spoken_text", "instructions", "password", "authorization"])
def test_no_line_has_what_is_said_or_how_nor_a_secret(capsys: pytest.CaptureFixture[str], name: str) -> None:
    logs.configure(process="server")
    logs.get("m").info("begun", **{name: "speak calmly"})
    (line,) = written(capsys)
    assert line[name] == "(not logged)"


def test_the_level_can_be_changed_for_loggers_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(level="warning")
    bound = logs.get("m").bind(call_id="c1")
    bound.info("no")
    logs.set_level("debug")
    bound.debug("yes")
    logs.set_level("error")
    bound.warning("no")
    assert [line["event"] for line in written(capsys)] == ["yes"]


def test_a_command_that_breaks_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(level="critical", json=False, process="say")
    error = AttributeError("no such thing")
    sys.excepthook(type(error), error, None)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "AttributeError: no such thing\n"


def test_libraries_log_whole_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(level="debug")
    for name in ("asyncio", "aiohttp.server", "some.library"):
        logging.getLogger(name).info("text of a prompt")
        failure = OSError(24, "Too many open files")
        logging.getLogger(name).error("socket.accept() %s\nsecond line", "failed", exc_info=failure)
    logging.getLogger("broken").warning("%d", "no number")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    lines = written(capsys)
    assert [line["module"] for line in lines] == ["asyncio", "aiohttp.server", "some.library", "broken", "py.warnings"]
    assert {line["event"] for line in lines} == {"library_log"}
    assert lines[0]["detail"] == "socket.accept() failed\nsecond line"
    assert "Too many open files" in lines[0]["exception"]
    assert lines[0]["level"] == "error"


def test_what_nobody_caught_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()

    def fail() -> None:
        raise RuntimeError("in a thread")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    sys.excepthook(RuntimeError, RuntimeError("outside"), None)
    lines = written(capsys)
    assert [line["event"] for line in lines] == ["uncaught_exception"] * 2
    assert "in a thread" in lines[0]["exception"]
    assert "outside" in lines[1]["exception"]


@pytest.mark.parametrize("value", ["x" * 100_000, "ü" * 100_000, ["y" * 9000] * 3, "\x00" * 5000])
def test_a_long_line_is_cut_and_stays_json(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logs.get("m").warning("long", detail=value, reason="short")
    text = capsys.readouterr().err
    assert len(text.encode()) <= logs.MAX_LINE_BYTES
    assert json.loads(text)["reason"] == "short"


def test_repeated_lines_are_counted_and_the_count_is_reported() -> None:
    clock = FakeClock()
    limit = logs.RepeatLimit(clock)
    passed = [limit.admit("error", {"event": "failed", "module": "m", "errno": n})[0] for n in range(1000)]
    assert passed.count(True) == logs.MAX_REPEATS
    assert limit.admit("error", {"event": "other", "module": "m"}) == (True, [])
    assert limit.admit("error", {"event": "failed", "module": "m", "call_id": "c2"}) == (True, [])
    clock.advance(logs.REPEATS_WINDOW_S * 1000)
    assert limit.admit("info", {"event": "anything"}) == (True, [("failed", 1000 - logs.MAX_REPEATS)])
    assert limit.admit("error", {"event": "failed", "module": "m"}) == (True, [])


def test_lines_below_warning_are_repeated_only_if_they_are_equal() -> None:
    limit = logs.RepeatLimit(FakeClock())
    assert all(limit.admit("info", {"event": "call_ended", "call_id": str(n)})[0] for n in range(1000))
    same = [limit.admit("info", {"event": "call_ended", "call_id": "c1"})[0] for _ in range(100)]
    assert same.count(True) <= logs.MAX_REPEATS


def test_the_count_of_kinds_is_bounded() -> None:
    limit = logs.RepeatLimit(FakeClock())

    def admit(numbers: range) -> int:
        for n in numbers:
            limit.admit("info", {"event": "e", "n": n})
        return held_bytes(limit)

    few = admit(range(logs.MAX_KINDS))
    assert admit(range(logs.MAX_KINDS, 5 * logs.MAX_KINDS + 10)) < 1.5 * few


def test_the_suppressed_count_is_written(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(logs, "MonotonicClock", lambda: clock)
    logs.configure()
    for _ in range(50):
        logs.get("m").warning("again")
    clock.advance(logs.REPEATS_WINDOW_S * 1000)
    logs.get("m").info("later")
    lines = written(capsys)
    assert [line["event"] for line in lines] == ["again"] * logs.MAX_REPEATS + ["lines_suppressed", "later"]
    assert lines[-2]["of"] == "again"
    assert lines[-2]["count"] == 50 - logs.MAX_REPEATS
    assert lines[-2]["level"] == "warning"


def test_a_log_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    logs.configure()
    logs.get("m").error("lost")
