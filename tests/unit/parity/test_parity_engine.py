import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice2.model.loader import SpeechModel  # noqa: E402
from cc_tts.engines.cosyvoice2.runners.flow import FlowRow, FlowRunner, FlowVoice  # noqa: E402
from cc_tts.engines.cosyvoice2.runners.lm import LmRunner  # noqa: E402
from lab.cosyvoice2.whole_vocoder import CoarseSource  # noqa: E402
from tests.fakes.replayed_graphs import ReplayedGraphs  # noqa: E402
from tests.parity import cases as parity_cases  # noqa: E402
from tests.parity import engine as parity_engine  # noqa: E402
from tests.parity import spec as parity_spec  # noqa: E402
from tests.parity.cases import FEATURE_TOLERANCE, Recorded  # noqa: E402
from tests.parity.command import made_model, main, parse  # noqa: E402
from tests.parity.engine import _Stage, groups, stream_in_batch  # noqa: E402
from tests.parity.engine_lm import (  # noqa: E402
    NUM_SLOTS,
    NUM_SPOKEN,
    BatchPlan,
    TaughtLm,
    ids_in_batch,
    lm_in_batch,
)
from tests.parity.result import EXACT, Comparison, Comparisons, verdict_on  # noqa: E402
from tests.support.golden import GOLDEN, read_arrays  # noqa: E402
from tests.support.torch_threads import one_thread_without_gradients  # noqa: E402

pytestmark = pytest.mark.unit

STREAM: Final = (
    *(f"engine mel_chunk{number}" for number in range(3)),
    "engine mel_stream_final end",
    *(f"engine wav_chunk{number}" for number in range(4)),
    "engine pages left over",
)

_one_thread_without_gradients = pytest.fixture(autouse=True)(one_thread_without_gradients)


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    return read_arrays("tiny.npz")


@pytest.fixture(scope="module")
def model(arrays: Mapping[str, Any]) -> SpeechModel:
    with torch.inference_mode():
        return made_model(parse([str(GOLDEN)]), arrays, torch.device("cpu"), torch.float32)


@pytest.fixture
def recorded(arrays: dict[str, Any]) -> Recorded:
    return Recorded(arrays, torch.device("cpu"), FEATURE_TOLERANCE["tiny"])


def failed(comparisons: Comparisons) -> list[str]:
    verdicts = [verdict_on(item, 0.0, is_float32=True) for item in comparisons]
    assert verdicts
    return [verdict.case for verdict in verdicts if not verdict.is_ok]


@pytest.mark.parametrize(("seed", "altered"), [(1, []), (2, ["mel_chunk1", "wav_chunk2"])])
def test_the_runners_of_the_engine_meet_the_references(
    model: SpeechModel, recorded: Recorded, seed: int, altered: list[str]
) -> None:
    batch = BatchPlan(seed)
    found = [item for _, group in groups(model, but_for(altered, recorded), batch) for item in group]
    assert tuple(item.case for item in found) == (
        "engine llm_logp",
        "engine llm_noprompt_logp",
        "engine ids",
        *STREAM,
    )
    assert failed(iter(found)) == [f"engine {key}" for key in altered]
    assert [item.tolerance for item in found] == [1e-4, 1e-4, 0.0, *[1e-4] * 4, *[1e-3] * 4, 0.0]
    assert len(list(found[2].ours)) == NUM_SPOKEN


@pytest.mark.timeout(300)
def test_replayed_from_graphs_they_meet_the_references(
    model: SpeechModel, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = ReplayedGraphs(monkeypatch)
    assert failed(item for _, group in groups(model, recorded, BatchPlan(1, graphs=True)) for item in group) == []
    assert replayed.num_replays > len(replayed.graphs) > 0


def but_for(keys: Sequence[str], recorded: Recorded) -> Recorded:
    """The last number of some arrays is other than it was."""
    arrays = {key: array.copy() for key, array in recorded.arrays.items()}
    for key in keys:
        arrays[key].flat[-1] += 2e-3
    return Recorded(arrays, recorded.device, recorded.tolerance)


def test_keys_that_a_batch_does_not_look_at_are_missed(
    model: SpeechModel, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LmRunner, "_num_keys", lambda _runner, _length: 32)
    # without a prompt there are 26 positions
    assert failed(lm_in_batch(model.lm, recorded, BatchPlan())) == ["engine llm_logp"]
    assert failed(ids_in_batch(model.lm, recorded, BatchPlan())) == ["engine ids"]


def test_what_a_slot_forgets_of_its_prompt_and_pages_that_stay_are_seen(
    model: SpeechModel, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ = FlowRunner.open

    def forgetful(runner: FlowRunner, slot: int, voice: FlowVoice) -> None:
        open_(runner, slot, voice)
        for context in runner.arena.contexts(slot + 1):
            context.zero_()
        if list(voice.tokens) == recorded.numbers("flow_prompt_token"):
            runner.pool.share(voice.pages)

    monkeypatch.setattr(FlowRunner, "open", forgetful)
    found = failed(stream_in_batch(model, recorded, BatchPlan()))
    assert {"engine mel_chunk0", "engine wav_chunk0", "engine pages left over"} <= set(found)


def test_the_golden_stream_is_never_alone_and_can_be_run_again(
    model: SpeechModel, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it must be where the first time only records graphs."""
    batches: list[Sequence[FlowRow]] = []
    step = FlowRunner.step

    def noted(runner: FlowRunner, rows: Sequence[FlowRow]) -> Any:
        batches.append(rows)
        return step(runner, rows)

    monkeypatch.setattr(FlowRunner, "step", noted)
    batch = BatchPlan(3)
    stage = _Stage(model, recorded, batch)
    mels, pieces = stage.run(batch.draw("streams"))
    assert stage.num_pages_held == 0
    golden = recorded.numbers("flow_token")
    ends = [*(int(end) + 3 for end in np.cumsum(recorded.numbers("chunk_hops"))), len(golden)]
    hops = [golden[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    ours = [(row.slot, rows) for rows in batches for row in rows if list(row.new_tokens) in hops]
    assert [len(piece) for piece in pieces] == [2 * len(recorded.array(f"wav_chunk{i}")) for i in range(4)]
    assert len(ours) == len(hops) == len(mels)
    assert len({slot for slot, _ in ours}) == 1
    assert min(len(rows) for _, rows in ours) > 3
    others = [row for rows in batches for row in rows if row.slot != ours[0][0]]
    assert len({row.slot for row in others}) == NUM_SLOTS - 1
    assert {row.partial for row in others if not row.is_last} == {True, False}
    assert sum(row.is_last for row in others) > 1

    num_batches = len(batches)
    again, same_pieces = stage.run(batch.draw("streams"))
    assert batches[num_batches:] == batches[:num_batches]
    assert same_pieces == pieces
    assert all(torch.equal(mel, same) for mel, same in zip(mels, again, strict=True))
    assert stage.num_pages_held == 0
    assert (batch.num_runs, BatchPlan(graphs=True).num_runs) == (1, 2)


def test_a_taught_model_is_certain_where_it_was_told_and_keeps_its_thoughts(model: SpeechModel) -> None:
    lm = model.lm
    taught = TaughtLm(lm, num_slots=2, num_positions=9)
    taught.forget()
    taught.teach(1, 4, [7])
    ids = torch.tensor([3, 5])
    for lengths, certain in (([3, 3], [False, True]), ([4, 4], [False, False])):
        starts = torch.tensor(lengths)
        answer, _ = taught.decode(ids, starts, lm.new_cache(2, 9))
        thought, _ = lm.decode(ids, starts, lm.new_cache(2, 9))
        for slot, is_certain in enumerate(certain):
            end = lengths[slot] + 1
            torch.testing.assert_close(taught.thoughts(slot, [end])[0], thought[slot])
            assert torch.equal(answer[slot], thought[slot]) != is_certain
            assert (int(answer[slot].softmax(dim=-1).argmax()) == 7 and answer[slot].exp().max() == 1) == is_certain
    assert taught.thoughts(0, [2]).isnan().all()
    active = torch.tensor([False, False])
    taught.decode(ids, torch.tensor([1, 1]), lm.new_cache(2, 9), active=active)
    assert taught.thoughts(0, [2]).isnan().all()


def test_ids_are_not_compared_in_half_precision(model: SpeechModel, recorded: Recorded) -> None:
    lm = TaughtLm(model.lm, num_slots=1, num_positions=1)
    lm.llm_decoder = torch.nn.Linear(1, 1, dtype=torch.bfloat16)
    assert list(ids_in_batch(lm, recorded, BatchPlan())) == []


def test_the_command_runs_it_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[BatchPlan] = []

    def found(model: SpeechModel, recorded: Recorded, batch: BatchPlan) -> Iterator[tuple[str, Comparisons]]:
        assert isinstance(model.vocoder.m_source, CoarseSource)
        assert recorded.tolerance == 1e-4
        asked.append(batch)
        yield "engine", iter([Comparison("engine right", [1], [1], EXACT), Comparison("engine wrong", [1], [2], EXACT)])

    monkeypatch.setattr(parity_cases, "groups", lambda *_: iter(()))
    monkeypatch.setattr(parity_spec, "groups", lambda *_: iter(()))
    monkeypatch.setattr(parity_engine, "groups", found)
    out = tmp_path / "out.json"
    assert main([str(GOLDEN), "--engine", "--seed", "4", "--json", str(out)]) == 1
    assert asked == [BatchPlan(4)]
    assert "1 failed: engine wrong" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert {"engine right", "engine wrong"} <= {case["case"] for case in result["cases"]}
    assert (result["engine"], result["seed"], result["graphs"]) == (True, 4, False)
    assert main([str(GOLDEN)]) == 0
    assert len(asked) == 1


@pytest.mark.parametrize("options", [["--graphs"], ["--engine", "--graphs"]])
def test_graphs_need_the_engine_and_a_gpu(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([str(GOLDEN), *options])
    assert exit_.value.code == 2
    assert "--graphs needs --engine and a CUDA device" in capsys.readouterr().err
