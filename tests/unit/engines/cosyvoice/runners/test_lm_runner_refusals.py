from typing import Final

import pytest

pytest.importorskip("torch")

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    SOS,
    LengthLimits,
    LmInput,
    LmRequest,
    SpeechIds,
    Table,
    speech_inputs,
    text_inputs,
)
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.prefill import SamplingRules
from cc_tts.engines.cosyvoice.runners.lm import LmPrefill, LmRunner
from cc_tts.errors import EngineFailed
from lab.cosyvoice.networks import lm_of
from lab.cosyvoice.tiny_model import NUM_CODES, tiny_states
from tests.parity.generation import speak
from tests.parity.samplers import SeededRas
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.fixture(scope="module")
def lm() -> SpeechLm:
    return lm_of(tiny_states()["llm"])


RULES: Final = SamplingRules.of_request(LengthLimits(0, 9))


@pytest.mark.parametrize(
    ("prefill", "message"),
    [
        (LmPrefill(0, text_inputs([512]), RULES), "past the end"),
        (LmPrefill(0, text_inputs([-1]), RULES), "past the end"),
        (LmPrefill(0, speech_inputs([NUM_CODES]), RULES), "past the end"),
        (LmPrefill(0, [LmInput(Table.SPECIAL, 2)], RULES), "past the end"),
    ],
)
def test_a_prefill_that_cannot_be_is_refused_and_nothing_is_run(lm: SpeechLm, prefill: LmPrefill, message: str) -> None:
    runner = LmRunner(lm, num_slots=3, num_positions=200)
    request, limits = LmRequest([1]), LengthLimits(9, 9)
    runner.start([LmPrefill(1, request.inputs_for(SpeechIds()), SamplingRules.of_request(limits), 1)])
    with pytest.raises(ValueError, match=message):
        runner.start([LmPrefill(2, request.inputs_for(SpeechIds()), RULES, 1), prefill])
    drawn = runner.decode({1: 9}, 9)
    assert {slot: list(news.ids) for slot, news in drawn.items()} == {
        1: list(speak(lm, request, SeededRas(1), limits=limits))
    }


def test_inputs_that_do_not_fit_are_refused(lm: SpeechLm) -> None:
    runner = LmRunner(lm, num_slots=2, num_positions=4)
    with pytest.raises(EngineFailed, match="5 positions does not fit into 4"):
        runner.start([LmPrefill(0, [SOS] * 4, RULES), LmPrefill(1, [SOS] * 5, RULES)])
    with pytest.raises(ValueError, match="5 positions does not fit"):
        runner.add_voice(range(4))
    with pytest.raises(ValueError, match="past the end"):
        runner.add_voice([512])
    assert runner.decode({}, 0) == {}
