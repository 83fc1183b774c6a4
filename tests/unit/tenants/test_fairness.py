"""Who may begin to speak while the engine is busy."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.tenants.fairness import BUSY, REFUSED_WINDOW_S, RESERVE, Fairness
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

EVEN = {"a": 1.0, "b": 1.0}
QUIET, TIGHT, LAST = BUSY, BUSY + 0.05, 1 - RESERVE + 0.05


def test_nobody_is_refused_while_there_is_room() -> None:
    fairness = Fairness(FakeClock())
    fairness.note_refused("b")
    assert not fairness.refuses("a", running={"a": 100}, weights=EVEN, utilisation=QUIET)


def test_who_has_more_than_its_share_waits_for_those_who_were_refused() -> None:
    clock = FakeClock()
    fairness = Fairness(clock)
    running = {"a": 6, "b": 4}
    assert not fairness.refuses("a", running=running, weights=EVEN, utilisation=TIGHT)
    fairness.note_refused("b")
    assert fairness.refuses("a", running=running, weights=EVEN, utilisation=TIGHT)
    assert not fairness.refuses("b", running=running, weights=EVEN, utilisation=TIGHT)
    clock.advance(REFUSED_WINDOW_S * 1000 + 1)
    assert not fairness.refuses("a", running=running, weights=EVEN, utilisation=TIGHT)


def test_weights_count() -> None:
    fairness = Fairness(FakeClock())
    fairness.note_refused("b")
    running = {"a": 6, "b": 4}
    assert not fairness.refuses("a", running=running, weights={"a": 2.0, "b": 1.0}, utilisation=TIGHT)


def test_two_that_are_both_above_their_share_do_not_keep_each_other_out() -> None:
    fairness = Fairness(FakeClock())
    fairness.note_refused("a")
    fairness.note_refused("b")
    running, weights = {"a": 5, "b": 5, "c": 1}, {"a": 1.0, "b": 1.0, "c": 1.0}
    assert not fairness.refuses("a", running=running, weights=weights, utilisation=TIGHT)
    assert not fairness.refuses("b", running=running, weights=weights, utilisation=TIGHT)


def test_the_last_tenth_is_for_those_below_their_share() -> None:
    fairness = Fairness(FakeClock())
    assert fairness.refuses("a", running={"a": 10}, weights=EVEN, utilisation=LAST)
    assert not fairness.refuses("b", running={"a": 10}, weights=EVEN, utilisation=LAST)
    assert not fairness.refuses("a", running={"a": 10}, weights={"a": 1.0}, utilisation=LAST), "it is alone"


def test_what_is_for_no_tenant_is_one_more_party() -> None:
    fairness = Fairness(FakeClock())
    fairness.note_refused("")
    assert fairness.refuses("a", running={"a": 5}, weights={"a": 1.0}, utilisation=TIGHT)
    assert not fairness.refuses("", running={"a": 5}, weights={"a": 1.0}, utilisation=TIGHT)


@given(
    st.lists(st.sampled_from("abc"), min_size=50, max_size=200),
    st.integers(5, 40),
    st.tuples(*[st.floats(0.1, 10)] * 3),
)
def test_of_an_engine_that_all_want_everybody_gets_a_part(
    asking: list[str], places: int, weights: tuple[float, ...]
) -> None:
    """Somebody is always let in while there is a place, so that the engine does not stand idle for fairness."""
    clock = FakeClock()
    fairness, running = Fairness(clock), Counter[str]()
    by_name = dict(zip("abc", weights, strict=True))
    for name in asking:
        clock.advance(10)
        utilisation = running.total() / places
        if utilisation >= 1:
            fairness.note_refused(name)
            running[max(running, key=lambda each: running[each])] -= 1
            continue
        refused = {
            each: fairness.refuses(each, running=running, weights=by_name, utilisation=utilisation) for each in "abc"
        }
        assert not all(refused.values())
        if not refused[name]:
            running[name] += 1


def test_a_tenant_that_floods_leaves_room_for_another() -> None:
    """Ten texts at once; each is spoken for a second. One tenant asks all the time, the other now and then."""
    clock = FakeClock()
    fairness = Fairness(clock)
    running: list[tuple[str, int]] = []
    refused, let_in = Counter[str](), Counter[str]()
    for turn in range(2000):
        clock.advance(10)
        running = [(name, end_ns) for name, end_ns in running if end_ns > clock.now_ns()]
        for name in ("flood", "quiet") if turn % 25 == 0 else ("flood",):
            counts = Counter(each for each, _ in running)
            utilisation = len(running) / 10
            if utilisation >= 1:
                fairness.note_refused(name)
                refused[name] += 1
            elif fairness.refuses(name, running=counts, weights={"flood": 1.0, "quiet": 1.0}, utilisation=utilisation):
                refused[name] += 1
            else:
                running.append((name, clock.now_ns() + 10**9))
                let_in[name] += 1
    assert let_in["quiet"] >= 70, (let_in, refused)
    assert let_in["flood"] > let_in["quiet"]
