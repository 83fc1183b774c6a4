"""What the demonstration of a cluster lets pass, and its voice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.cluster_demo import NS, VOICES, Call, Run
from tests.e2e.kamailio import ProxiedCaller
from tests.support.piper_voice import make_piper_voice

pytestmark = pytest.mark.unit

OVER_NS = 100 * NS


def call(node: str, *, to_ns: int = OVER_NS) -> Call:
    return Call(ProxiedCaller("tone", 5060), node=node, status=200, heard={"to_ns": to_ns, "silences": []})


def run() -> Run:
    """Everything as it should be."""
    lost, kept, new = call("line-1", to_ns=50 * NS), call("line-2"), call("line-2")
    return Run(
        num_calls=2,
        calls=[lost, kept],
        new_calls=[new],
        killed_node="line-1",
        heard_pause_ms=410.0,
        worker_streams=2,
        resumed=2,
        over_ns=OVER_NS,
        byes_answered=2,
    )


def test_a_run_without_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run().faults() == []
    run().show()
    assert "line-1, killed" in capsys.readouterr().out


def silent_to_the_end(seen: Run) -> None:
    seen.kept[0].heard["to_ns"] = OVER_NS - 2 * NS


def hung_up(seen: Run) -> None:
    seen.kept[0].has_bye = True


def refused(seen: Run) -> None:
    seen.new_calls[0].status = 503


def at_the_dead_node(seen: Run) -> None:
    seen.new_calls[0].node = "line-1"


def all_at_one_node(seen: Run) -> None:
    seen.calls[0].node = "line-2"


def prompts_broke_off(seen: Run) -> None:
    seen.failed_prompts = 1


def not_said_on(seen: Run) -> None:
    seen.resumed = 1


def worker_without_work(seen: Run) -> None:
    seen.worker_streams = seen.resumed = 0


def deaf(seen: Run) -> None:
    seen.heard_pause_ms = 0.0


def no_answer_to_bye(seen: Run) -> None:
    seen.byes_answered = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (silent_to_the_end, "1 calls ended that no killed process had"),
        (hung_up, "1 calls ended that no killed process had"),
        (refused, r"1 calls were not answered: \[503\]"),
        (at_the_dead_node, "1 new calls are not at the node that is left"),
        (all_at_one_node, "one node had no calls"),
        (prompts_broke_off, "1 prompts broke off"),
        (not_said_on, "of 2 prompts of the killed worker 1 went on"),
        (worker_without_work, "of 0 prompts of the killed worker 0 went on"),
        (deaf, "was heard as 0 ms"),
        (no_answer_to_bye, "1 calls could not be hung up"),
    ],
)
def test_what_should_not_have_happened(change: Callable[[Run], None], words: str) -> None:
    seen = run()
    change(seen)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(seen.faults())


def test_the_silence_of_a_phase() -> None:
    one = call("line-2")
    one.heard["silences"] = [[10 * NS, 400.0], [20 * NS, 60.0], [21 * NS, 80.0]]
    assert one.longest_silence_ms(15 * NS, 25 * NS) == 80.0
    assert one.longest_silence_ms(30 * NS, 40 * NS) == 0.0


def test_the_voice_is_the_one_that_its_maker_makes(tmp_path: Path) -> None:
    path = make_piper_voice(tmp_path, "tone", tone_hz=440.0, ms_each=25.0)
    for made in (path, path.with_name("tone.onnx.json")):
        assert made.read_bytes() == (VOICES / made.name).read_bytes()
