"""How loud a caller must be: noise, a prompt that plays, its echo."""

import pytest

from cc_tts.vad.detector import WINDOW_NS
from cc_tts.vad.energy import (
    ABOVE_FLOOR_DB,
    ECHO_MARGIN_DB,
    ECHO_NS,
    MAX_FLOOR_DBFS,
    MIN_ECHO_RETURN_LOSS_DB,
    MIN_LEVEL_DBFS,
    PLAYING_DB,
    SILENCE_DBFS,
    SPEAKING_DB,
    START_ECHO_RETURN_LOSS_DB,
    EnergyGate,
    dbfs,
)
from tests.support.memory import held_bytes

pytestmark = pytest.mark.unit


class Line:
    """Windows one after the other."""

    def __init__(self) -> None:
        self.gate = EnergyGate()
        self.now_ns = 10**12

    def run(self, count: int, received: float, *, sent: float = SILENCE_DBFS, is_caller: bool = False) -> "Line":
        for _ in range(count):
            self.gate.sent(self.now_ns, sent)
            self.gate.heard(self.now_ns, received, is_caller=is_caller)
            self.now_ns += WINDOW_NS
        return self

    @property
    def threshold(self) -> float:
        return self.gate.threshold_dbfs(self.now_ns)


def test_levels_are_those_of_a_mean_square() -> None:
    assert (dbfs(1.0), dbfs(0.01), dbfs(0.0)) == (0.0, -20.0, SILENCE_DBFS)


def test_a_quiet_line_has_the_least_threshold() -> None:
    assert Line().run(100, -70.0).threshold == MIN_LEVEL_DBFS


def test_the_floor_follows_the_noise_and_no_further_than_its_ceiling() -> None:
    line = Line().run(1000, -50.0)
    assert line.threshold == pytest.approx(-50.0 + ABOVE_FLOOR_DB, abs=0.1)
    assert line.run(1000, -20.0).threshold == MAX_FLOOR_DBFS + ABOVE_FLOOR_DB
    assert line.run(20, -80.0).threshold == MIN_LEVEL_DBFS, "silence is believed at once"


def test_speech_is_no_noise() -> None:
    before = Line().run(200, -70.0).gate.floor_dbfs
    assert Line().run(200, -70.0).run(100, -20.0, is_caller=True).gate.floor_dbfs == before


def test_who_speaks_may_become_softer_on_a_quiet_line() -> None:
    line = Line().run(100, -70.0)
    assert line.gate.threshold_dbfs(line.now_ns, is_speaking=True) == MIN_LEVEL_DBFS - SPEAKING_DB


def test_more_is_needed_while_a_prompt_plays_and_shortly_after() -> None:
    line = Line().run(100, -70.0).run(1, -70.0, sent=-45.0)
    assert line.threshold == MIN_LEVEL_DBFS + PLAYING_DB
    assert line.run(ECHO_NS // WINDOW_NS + 1, -70.0).threshold == MIN_LEVEL_DBFS


def test_an_echo_is_too_soft_from_the_beginning() -> None:
    line = Line().run(100, -70.0).run(1, -70.0, sent=-14.0)
    assert line.threshold == -14.0 - START_ECHO_RETURN_LOSS_DB + ECHO_MARGIN_DB
    assert line.gate.threshold_dbfs(line.now_ns, is_speaking=True) == line.threshold, "no softer for who speaks"


@pytest.mark.parametrize("loss_db", [14.0, 20.0, 30.0])
def test_the_loss_of_the_echo_is_learned(loss_db: float) -> None:
    line = Line().run(100, -70.0).run(600, -14.0 - loss_db, sent=-14.0)
    assert line.gate.echo_return_loss_db == pytest.approx(loss_db, abs=1.0)
    assert line.threshold > -14.0 - loss_db


def test_what_was_sent_long_ago_is_forgotten_though_nothing_is_received() -> None:
    gate = EnergyGate()
    for number in range(1000):
        gate.sent(number * WINDOW_NS, -14.0)
    before = held_bytes(gate)
    for number in range(1000, 5000):
        gate.sent(number * WINDOW_NS, -14.0)
    assert held_bytes(gate) < 1.5 * before


def test_where_nothing_comes_back_a_soft_caller_is_heard() -> None:
    assert Line().run(200, -70.0, sent=-14.0).threshold == MIN_LEVEL_DBFS + PLAYING_DB


def test_a_loud_echo_is_not_believed_to_be_louder_than_the_prompt() -> None:
    assert Line().run(600, -10.0, sent=-14.0).gate.echo_return_loss_db == MIN_ECHO_RETURN_LOSS_DB


def test_the_caller_teaches_nothing_about_the_echo() -> None:
    line = Line().run(600, -44.0, sent=-14.0)
    before = line.gate.echo_return_loss_db
    assert line.run(300, -20.0, sent=-14.0, is_caller=True).gate.echo_return_loss_db == before
