import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import (  # noqa: E402
    SOS,
    TASK,
    LengthLimits,
    LmRequest,
    SpeechIds,
    speech_inputs,
    text_inputs,
)
from cc_tts.engines.cosyvoice2.model.networks.lm.lm import SpeechLm  # noqa: E402
from cc_tts.engines.cosyvoice2.model.sizes import TIED_HEAD  # noqa: E402
from cc_tts.errors import EngineFailed  # noqa: E402
from lab.cosyvoice2.golden_fill import fill_by_kind  # noqa: E402
from lab.cosyvoice2.networks import lm_of  # noqa: E402
from tests.parity.generation import CachedSequence, ForcedTokens, speak, speak_streamed  # noqa: E402
from tests.parity.samplers import OfficialRas, SeededRas  # noqa: E402
from tests.support.golden import Arrays, read_arrays, tiny_shapes  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit

TOLERANCE: Final = 1e-4
IDS: Final = SpeechIds(243)

_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.fixture(scope="module")
def golden() -> Arrays:
    return read_arrays("tiny.npz")


@pytest.fixture(scope="module")
def lm() -> SpeechLm:
    """The small model of the references, filled by their rule."""
    shapes = tiny_shapes("llm")
    return lm_of(fill_by_kind({key: shape for key, shape in shapes.items() if key != TIED_HEAD}, "llm."))


def ids(golden: Arrays, key: str) -> list[int]:
    return [int(value) for value in golden[key].ravel()]


def max_error(log_probs: Sequence["Tensor"], expected: "np.ndarray[Any, Any]") -> float:
    ours = torch.stack(list(log_probs)).numpy()
    assert np.array_equal(np.isneginf(ours), np.isneginf(expected))
    finite = np.isfinite(expected)
    return float(np.abs(ours[finite] - expected[finite]).max())


def pieces(text: list[int], sizes: Sequence[int]) -> list[list[int]]:
    rest = iter(text)
    return [list(itertools.islice(rest, size)) for size in sizes]


# --- the references


def test_log_probs_of_zero_shot_are_the_recorded_ones(lm: SpeechLm, golden: Arrays) -> None:
    prompt = {"prompt_text": ids(golden, "llm_prompt_text"), "prompt_speech": ids(golden, "llm_prompt_speech")}
    request = LmRequest(ids(golden, "llm_text"), **prompt)
    steps, forced = ids(golden, "llm_logp_steps"), ids(golden, "llm_forced")
    sampler = ForcedTokens(forced)
    spoken = list(itertools.islice(speak(lm, request, sampler, compat=True), max(steps) + 1))
    assert spoken == forced[: max(steps) + 1]
    assert max_error([sampler.log_probs[step] for step in steps], golden["llm_logp"]) < TOLERANCE


def test_log_probs_without_a_prompt_are_the_recorded_ones(lm: SpeechLm, golden: Arrays) -> None:
    sampler = ForcedTokens(ids(golden, "llm_forced"))
    request = LmRequest(ids(golden, "llm_text"))
    list(itertools.islice(speak(lm, request, sampler, compat=True), 4))
    assert max_error(sampler.log_probs, golden["llm_noprompt_logp"]) < TOLERANCE


def test_streamed_text_gives_the_recorded_tokens_and_log_probs(lm: SpeechLm, golden: Arrays) -> None:
    """The reference was given its text in pieces, past the front end that hands over one token at a time."""
    sampler = ForcedTokens(ids(golden, "bi_forced"))
    spoken = speak_streamed(
        lm,
        pieces(ids(golden, "bi_text"), ids(golden, "bi_sizes")),
        sampler,
        prompt_text=ids(golden, "llm_prompt_text"),
        prompt_speech=ids(golden, "bi_prompt_speech"),
        compat=True,
    )
    assert list(spoken) == ids(golden, "bi_out")
    assert len(sampler.log_probs) == int(golden["bi_n_logp"])
    steps = ids(golden, "bi_logp_steps")
    assert max_error([sampler.log_probs[step] for step in steps], golden["bi_logp"]) < TOLERANCE


# --- requests


def test_layouts() -> None:
    zero_shot = LmRequest([1, 2], prompt_text=[3], prompt_speech=[4, 5])
    assert zero_shot.inputs == [SOS, *text_inputs([3, 1, 2]), TASK, *speech_inputs([4, 5])]
    assert zero_shot.limits == LengthLimits(min_len=4, max_len=40)  # the prompt's text does not count
    assert LmRequest([1, 2]).inputs == [SOS, *text_inputs([1, 2]), TASK]


# --- the loop


class Endless(ForcedTokens):
    """Draws speech tokens, and never the end."""

    def __init__(self) -> None:
        super().__init__(itertools.cycle(range(200)))


def test_speech_ends_at_its_greatest_length(lm: SpeechLm) -> None:
    assert list(speak(lm, LmRequest([1, 2]), Endless())) == list(range(40))
    assert list(speak(lm, LmRequest([1, 2]), Endless(), limits=LengthLimits(0, 7))) == list(range(7))
    assert list(speak(lm, LmRequest([]), Endless())) == []


@pytest.mark.parametrize("stop", [IDS.end, IDS.unused, IDS.fill])
def test_every_special_id_ends_the_speech(lm: SpeechLm, stop: int) -> None:
    request = LmRequest([1, 2])
    assert list(speak(lm, request, ForcedTokens([5, 6, stop, 8]), compat=True)) == [5, 6]


@pytest.mark.parametrize(
    ("compat", "early", "late"), [(False, [1, 1, 1], [0, 1, 1]), (True, [1, 0, 0], [0, 0, 0])], ids=["ours", "compat"]
)
def test_what_the_sampler_is_shown(lm: SpeechLm, compat: bool, early: list[int], late: list[int]) -> None:
    sampler = Endless()
    list(speak(lm, LmRequest([1, 2]), sampler, compat=compat, limits=LengthLimits(4, 6)))
    shown = [torch.isneginf(log_probs[243:]).int().tolist() for log_probs in sampler.log_probs]
    assert shown == [early] * 4 + [late] * 2


def test_tokens_come_as_they_are_drawn(lm: SpeechLm) -> None:
    sampler = Endless()
    tokens = speak(lm, LmRequest([1, 2]), sampler)
    assert sampler.log_probs == []
    next(tokens)
    assert len(sampler.log_probs) == 1


def test_feeding_in_parts_is_feeding_at_once(lm: SpeechLm) -> None:
    inputs = LmRequest([1, 2, 3], prompt_text=[4, 5], prompt_speech=[6, 7, 8]).inputs
    at_once = CachedSequence(lm, num_positions=10).feed(inputs)
    for cut in range(1, len(inputs)):
        sequence = CachedSequence(lm, num_positions=10)
        sequence.feed(inputs[:cut])
        torch.testing.assert_close(sequence.feed(inputs[cut:]), at_once, rtol=0.0, atol=2e-5)
        assert sequence.length == len(inputs)


def test_a_full_cache_fails(lm: SpeechLm) -> None:
    sequence = CachedSequence(lm, num_positions=3)
    sequence.feed(text_inputs([1, 2, 3]))
    with pytest.raises(EngineFailed, match="4 positions does not fit into the 3"):
        sequence.feed(speech_inputs([1]))


def test_a_seed_decides_what_is_spoken(lm: SpeechLm) -> None:
    request = LmRequest([1, 2, 3])
    first, again, other = (list(speak(lm, request, SeededRas(seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert 6 <= len(first) <= 60
    assert all(token < IDS.num_codes for token in first)


def test_the_official_sampler_speaks_too(lm: SpeechLm) -> None:
    torch.manual_seed(1)
    spoken = list(speak(lm, LmRequest([1, 2]), OfficialRas(), compat=True))
    assert all(token < IDS.num_codes for token in spoken)


SIZES: Final = ([17], [1] * 17, [5, 5, 5, 2], [3, 9, 5], [16, 1])


@pytest.mark.parametrize("num_prompt", [0, 8, 20, 40])
def test_any_cutting_of_a_text_is_spoken_alike(lm: SpeechLm, num_prompt: int) -> None:
    """20 tokens of prompt speech need ten text tokens; 40 need fifteen, and the last cut makes them wait for all text."""
    spoken = [
        list(
            speak_streamed(
                lm, pieces(list(range(17)), sizes), SeededRas(5), prompt_text=[30, 31], prompt_speech=range(num_prompt)
            )
        )
        for sizes in SIZES
    ]
    assert spoken[0]
    assert all(tokens == spoken[0] for tokens in spoken)


def test_a_short_streamed_text_is_spoken_as_a_whole(lm: SpeechLm) -> None:
    request = LmRequest([1, 2, 3], prompt_text=[30, 31], prompt_speech=range(40))
    streamed = speak_streamed(
        lm, [[1], [2, 3]], SeededRas(3), prompt_text=request.prompt_text, prompt_speech=request.prompt_speech
    )
    assert list(streamed) == list(speak(lm, request, SeededRas(3)))


def test_a_stream_that_outgrows_its_cache_fails(lm: SpeechLm) -> None:
    tokens = speak_streamed(lm, [range(30)], Endless(), num_positions=40)
    with pytest.raises(EngineFailed, match="does not fit into the 40"):
        list(tokens)
