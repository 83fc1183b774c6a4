import json
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from bench.engine import gpu as engine_gpu
from bench.engine.front import num_tokens_of, sentences, sized_text
from bench.engine.gpu import Step, plan, run
from bench.engine.model import PROMPT_TOKENS, VOICE, model_at, voice, voices
from bench.engine.variants import DoublingHops
from cc_tts.engines.cosyvoice2.engine.schedule import LOOKAHEAD_TOKENS, exact_hop
from cc_tts.engines.cosyvoice2.engine.sequence import Sequence, Stream
from cc_tts.errors import Unprocessable
from cc_tts.media.listener_clock import ListenerClock

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("seconds", "tokens"), [(0.0, 1), (1.0, 25), (6.5, 162), (10.0, 250)])
def test_a_text_says_how_long_it_is(seconds: float, tokens: int) -> None:
    assert num_tokens_of(sized_text(seconds)) == tokens


@pytest.mark.parametrize("text", ["", "hello", "-3 words", "0 words"])
def test_a_text_without_a_length_is_refused(text: str) -> None:
    with pytest.raises(Unprocessable):
        num_tokens_of(text)


def test_sentences_depend_on_the_seed_alone() -> None:
    assert sentences(5, seed=1) == sentences(5, seed=1) != sentences(5, seed=2)
    assert all(50 <= num_tokens_of(text) <= 250 for text in sentences(100, seed=3))


def test_voices_are_different_and_on_the_grid() -> None:
    speakers = voices("tiny", 3)
    assert list(speakers) == [VOICE, "cold-0", "cold-1", "cold-2"]
    assert PROMPT_TOKENS % 25 == 13
    assert not (speakers["cold-0"].flow_mel == speakers["cold-1"].flow_mel).all()
    assert len(voice("x", "full", num_prompt=110).flow_tokens) == 110


def test_a_model_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hift.pt").write_bytes(b"mine")
    assert model_at(tmp_path, "tiny") == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["hift.pt"]


@pytest.mark.parametrize(
    ("num_prompt", "first_hop", "hops"),
    [(125, 25, [25, 50, 100, 100]), (113, 12, [12, 25, 50, 100]), (110, 15, [15, 25, 50]), (110, 25, [40, 50, 100])],
)
def test_hops_double_on_the_grid(num_prompt: int, first_hop: int, hops: list[int]) -> None:
    clock = ListenerClock(first_audio_target_ms=300.0, guard_ms=60.0)
    stream = Stream(stream_id=0, voice_id=VOICE, speed=1.0, is_interleaved=False, clock=clock)
    sequence = Sequence(
        key=0,
        stream=stream,
        marks=[(0, 0)],
        seed=0,
        hop=exact_hop(num_prompt, first_hop),
        num_prompt=num_prompt,
        slot=0,
    )
    engine = DoublingHops.__new__(DoublingHops)
    found = []
    for _ in hops:
        found.append(sequence.needed_tokens - sequence.num_given - LOOKAHEAD_TOKENS)
        sequence.num_given += found[-1]
        engine._choose_hop(sequence, 0.0)
    assert found == hops


def test_the_gpu_plan_begins_with_tests_and_parity_if_it_can(tmp_path: Path) -> None:
    with_golden = plan(tmp_path, tmp_path, tmp_path, "cuda")
    names = [step.name for step in with_golden]
    assert names[:5] == ["tests", "parity_float32", "phone", "parity_bfloat16", "parity_float16"]
    assert "--graphs" in with_golden[1].argv
    assert len(set(names)) == len(names)
    assert [step.name for step in plan(None, tmp_path, tmp_path, "cuda")] == [n for n in names if "parity" not in n]


def test_a_rehearsal_on_a_cpu_is_the_same_without_what_needs_a_card(tmp_path: Path) -> None:
    there = {step.name: step.argv for step in plan(tmp_path, tmp_path, tmp_path, "cuda:0")}
    here = {step.name: step.argv for step in plan(tmp_path, tmp_path, tmp_path, "cpu", size="tiny", is_quick=True)}
    assert list(here) == [name for name in there if name not in {"tests", "parity_bfloat16", "parity_float16"}]
    assert "--graphs" not in here["parity_float32"]
    for name, argv in here.items():
        assert argv[argv.index("--size") + 1] == "tiny"
        assert argv[argv.index("--device") + 1] == "cpu"
        assert ("--quick" in argv) is not name.startswith("parity")


def test_steps_that_came_to_their_end_or_are_too_late_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_gpu, "_do", lambda step, _limit_s: {"status": 0, "took_s": 1.0, "command": step.name})
    before = {
        "good": {"status": 0},
        "bad": {"status": 1},
        "slow": {"status": "ran past its time"},
        "of old": {"status": 0},
    }
    (tmp_path / engine_gpu.SUMMARY).write_text(json.dumps({"machine": {}, "steps": before}))
    steps = [Step(name, (), 1.0) for name in ("good", "bad", "slow", "new")] + [Step("long", (), 1e12)]
    done = run(steps, tmp_path, until_s=time.monotonic() + 1e6)
    assert {name: each["status"] for name, each in done.items()} == {
        "good": 0,
        "bad": 1,
        "slow": 0,
        "of old": 0,
        "new": 0,
    }
    assert json.loads((tmp_path / engine_gpu.SUMMARY).read_text())["steps"] == done
    assert capsys.readouterr().out.splitlines() == [
        "== good: ended with 0 before",
        "== bad: ended with 1 before",
        "== slow: 0 after 1.0 s",
        "== new: 0 after 1.0 s",
        "== long: no time left",
    ]
