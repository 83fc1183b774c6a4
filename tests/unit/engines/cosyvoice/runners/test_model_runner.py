"""Slots, pages and voices of the three networks together."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.clock import MonotonicClock
from cc_tts.engines.cosyvoice.engine.device import (
    PagesExhausted,
    SlotPrefill,
    SpeakJob,
)
from cc_tts.engines.cosyvoice.model.loader import SpeechModel, load_model
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LengthLimits, SpeechIds
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.prefill import Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runners.flow import FlowRunner, FlowVoice
from cc_tts.engines.cosyvoice.runners.lm import LmRunner
from cc_tts.engines.cosyvoice.runners.runner import ModelRunner
from cc_tts.engines.cosyvoice.runners.vocoder import VocoderRunner
from cc_tts.errors import EngineFailed
from lab.cosyvoice.tiny_model import make_tiny_model
from tests.support.tiny_speakers import tiny_speaker
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

SPEAKERS = {  # of long and other one fits into the least memory
    "short": tiny_speaker("cross_lingual", num_prompt=30, id="short"),
    "long": tiny_speaker("cross_lingual", num_prompt=400, id="long"),
    "other": tiny_speaker("cross_lingual", num_prompt=475, id="other"),
    "builtin": tiny_speaker("builtin"),
}
NUM_SLOTS = 4

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[SpeechModel, TextTokenizer]:
    directory: Path = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    tokenizer = TextTokenizer.from_directory(directory / "CosyVoice-BlankEN")
    return load_model(directory, device="cpu"), tokenizer


def make_runner(model: tuple[SpeechModel, TextTokenizer], *, num_pages: int = 60) -> ModelRunner:
    return ModelRunner(
        *model, SPEAKERS, num_slots=NUM_SLOTS, num_positions=512, num_pages=num_pages, clock=MonotonicClock()
    )


def prefill(slot: int, voice_id: str, num_inputs: int = 3, num_sampled: int = 40, **fields: Any) -> SlotPrefill:
    inputs = SpeechIds().unistream_inputs((), range(num_inputs), ())
    rules = SamplingRules.of_request(LengthLimits(num_sampled, num_sampled))
    return SlotPrefill(slot, voice_id, Prefill(inputs, rules, **fields), seed=slot)


def job(slot: int, num_tokens: int = 40, **fields: Any) -> SpeakJob:
    tokens = [token % 200 for token in range(num_tokens)]
    return SpeakJob(**{"slot": slot, "tokens": tokens, "is_first": True, "is_last": True, **fields})


def held(runner: ModelRunner) -> tuple[list[int], int]:
    """Slots that the language model has in use, and pages that cannot be taken."""
    return sorted(runner.decode({}, 0)), runner.num_pages - runner.num_free_pages


def is_kept(runner: ModelRunner, voice_id: str) -> bool:
    """Whether the voice is there already, so that its sequences need no pages for the whole chunks of its reference."""
    return runner.pages_needed(voice_id, 0) < -(-len(SPEAKERS[voice_id].flow_tokens) // 25)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The voices whose references were run."""
    ids = {len(speaker.flow_tokens): voice_id for voice_id, speaker in SPEAKERS.items()}
    found, add_voice = [], FlowRunner.add_voice

    def noting(flow: FlowRunner, reference: FlowReference) -> FlowVoice:
        voice = add_voice(flow, reference)
        found.append(ids[reference.token.shape[1]])
        return voice

    monkeypatch.setattr(FlowRunner, "add_voice", noting)
    return found


def test_a_sequence_takes_its_slot_everywhere_and_gives_it_back(model: Any) -> None:
    runner = make_runner(model)
    runner.start([prefill(0, "short"), prefill(2, "builtin")])
    drawn = runner.decode({0: 40, 2: 40}, 39)
    assert {slot: len(answer.ids) for slot, answer in drawn.items()} == {0: 40, 2: 40}
    batch = runner.speak([job(0, is_last=False), job(2)]).batch()
    first, second = batch.pieces
    assert first is not None
    assert second is not None
    assert len(second) == 40 * 1920
    slots, num_pages = held(runner)
    assert slots == [0, 2]
    assert num_pages > 0
    for slot in (0, 2, 0, 3):
        runner.release(slot)
    assert held(runner) == ([], 0)


def test_pages_needed_are_the_pages_taken(model: Any) -> None:
    runner = make_runner(model)
    for voice_id in ("short", "builtin"):
        needed = runner.pages_needed(voice_id, 40)
        free = runner.num_free_pages
        runner.start([prefill(0, voice_id)])
        runner.speak([job(0)])
        assert free - runner.num_free_pages == needed
        runner.release(0)
        num_shared = max(0, len(SPEAKERS[voice_id].flow_tokens) - 3) // 25
        assert runner.pages_needed(voice_id, 40) == needed - num_shared


def test_voices_are_computed_once_and_make_room_when_nobody_speaks_with_them(model: Any, computed: list[str]) -> None:
    runner = make_runner(model, num_pages=32)
    runner.start([prefill(0, "long")])
    with pytest.raises(PagesExhausted):
        runner.start([prefill(1, "builtin"), prefill(2, "other")])
    assert held(runner)[0] == [0]
    runner.start([prefill(1, "long")])
    assert computed == ["long", "builtin"]
    runner.release(0)
    with pytest.raises(PagesExhausted):
        runner.start([prefill(2, "other")])
    runner.release(1)
    runner.start([prefill(2, "other")])
    runner.release(2)
    assert held(runner) == ([], 0)
    assert computed == ["long", "builtin", "other"]
    assert [voice_id for voice_id in ("long", "other") if is_kept(runner, voice_id)] == ["other"]


def test_idle_voices_give_way_to_speech(model: Any) -> None:
    runner = make_runner(model, num_pages=32)
    assert runner.keep_voices(["long"]) == ()
    assert is_kept(runner, "long")
    runner.start([prefill(0, "builtin", num_sampled=450)])
    runner.speak([job(0, 450)])
    assert not is_kept(runner, "long")


def test_a_feeding_that_does_not_fit_changes_nothing(model: Any) -> None:
    runner = make_runner(model)
    with pytest.raises(EngineFailed, match="does not fit into 512"):
        runner.start([prefill(0, "short"), prefill(1, "short", num_inputs=511)])
    assert held(runner) == ([], 0)
    runner.start([prefill(0, "short"), prefill(1, "short")])


def test_as_many_prompts_are_kept_as_half_of_the_pages_hold(model: Any, computed: list[str]) -> None:
    voices = ("short", "builtin", "long", "other")
    assert make_runner(model, num_pages=100).keep_voices(voices) == ()
    computed.clear()
    runner = make_runner(model, num_pages=32)
    assert runner.keep_voices(voices) == ("long", "other")
    assert computed == ["short", "builtin"]


def test_warming_up_leaves_nothing(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(model)
    monkeypatch.setattr(LmRunner, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(VocoderRunner, "warm_up", lambda *_, **__: None)
    told: list[str] = []
    runner.warm_up(told.append, max_rows=1)
    assert [line.split(":")[0] for line in told] == [
        "graphs of the language model",
        "graphs of the flow",
        "graphs of the vocoder",
    ]
    assert held(runner) == ([], 0)
