"""The comparisons with what the specification recorded of decisions: ids drawn, calls made, inputs fed (§11).

No weights are needed for them, and nothing may differ.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SOS, TASK, LmInput, SpeechIds, Table
from cc_tts.engines.cosyvoice.prefill import BistreamState
from lab.cosyvoice.chunked_vocoder import ChunkedVocoder, Crossfade
from lab.cosyvoice.golden_fill import hashed_normal
from lab.cosyvoice.schedule import HopSchedule, calls_for
from tests.parity.bistream import SteppedBistream
from tests.parity.result import EXACT, Comparison, Comparisons
from tests.parity.samplers import OfficialRas

Cases = Sequence[dict[str, Any]]

_HOP_SAMPLES: Final = 480


def count_differences(ours: Iterable[object], recorded: Iterable[object]) -> tuple[list[int], list[int]]:
    """A comparison of things that are no numbers: 1 for each that differs, against zeros."""
    wrong = [int(a != b) for a, b in zip(ours, recorded, strict=True)]
    return wrong, [0] * len(wrong)


def official_sampler(cases: Cases) -> Comparisons:
    """The ids that the official sampler drew from seeded generators; on the CPU whatever the device."""
    drawn = []
    for number, case in enumerate(cases):
        scores = torch.log_softmax(hashed_normal(f"input:ras{number}", (SpeechIds().fill + 1,)) * case["scale"], dim=-1)
        sampler = OfficialRas(exponentials=_exponentials_of_mkl(case["seed"]))
        drawn.append(sampler(scores, case["decoded"]))
    yield Comparison("spec ras", *count_differences(drawn, [case["token"] for case in cases]), EXACT)


def _exponentials_of_mkl(seed: int) -> Callable[[Tensor], Tensor]:
    """What ``exponential_`` draws where torch is built with MKL, as it was where the cases were recorded.

    Torch asks its Mersenne twister for one seed a call, and MKL's MCG31 (L'Ecuyer's multiplicative congruential
    generator modulo 2**31 - 1) for the uniform numbers, of which the logarithm is taken.
    """
    twister = np.random.RandomState(seed)
    modulus = 2**31 - 1

    def draw(like: Tensor) -> Tensor:
        state = int(twister.randint(0, 2**32, dtype=np.uint32)) % modulus or 1
        states = []
        for _ in range(like.numel()):
            states.append(state)
            state = 1132489760 * state % modulus
        return -(torch.tensor(states, dtype=torch.float64) / modulus).log().to(like.dtype)

    return draw


def schedule(cases: Cases) -> Comparisons:
    """Which calls of flow and vocoder are made, and how many samples come out of each."""
    keys = ("flow_calls", "hift_calls", "out_samples", "hop_after")
    recorded = [[case[key] for key in keys] for case in cases]
    yield Comparison("spec schedule", *count_differences([_calls(case) for case in cases], recorded), EXACT)


def _calls(case: dict[str, Any]) -> list[object]:
    hops = HopSchedule(case["prompt_tokens"], hop=case["hop_at_start"], compat=True)
    calls = list(calls_for(hops, case["total_tokens"]))
    vocoder_calls: list[dict[str, int]] = []

    def silence(
        mel: Tensor, *, cache_source: Tensor | None = None, draws: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        del draws
        num_frames = mel.shape[2]
        vocoder_calls.append({"mel": num_frames, "cache": 0 if cache_source is None else cache_source.shape[2]})
        return torch.zeros(1, _HOP_SAMPLES * num_frames), torch.zeros(1, 1, _HOP_SAMPLES * num_frames)

    chunked = ChunkedVocoder(silence)
    crossfade: Crossfade | None = None
    num_samples = []
    for call in calls:
        audio, crossfade = chunked.push(torch.zeros(1, 1, 2 * call.num_new), crossfade, is_last=call.finalize)
        num_samples.append(audio.shape[1])
    flow_calls = [{"tokens": call.num_tokens, "streaming": call.streaming, "finalize": call.finalize} for call in calls]
    return [flow_calls, vocoder_calls, num_samples, hops.hop]


def bistream(cases: Cases) -> Comparisons:
    """The order in which streamed text and speech are fed."""
    recorded = [(case["feeds"], case["out"]) for case in cases]
    yield Comparison("spec bistream", *count_differences([_fed(case) for case in cases], recorded), EXACT)


def _fed(case: dict[str, Any]) -> tuple[list[str], list[int]]:
    """A sampler counts up from 501, says FILL where the case tells it to, and ends so many draws after the last text."""
    run = SteppedBistream(range(1, case["prompt_text"] + 1), range(case["prompt_speech"]), compat=True)
    ids = SpeechIds()
    feeds: list[str] = []
    out: list[int] = []
    num_draws = num_last = 0
    arrivals: list[int | None] = [1000 + number for number in range(case["tts_text"])]
    for text_id in (*arrivals, None):
        if text_id is None:
            run.end_text()
        else:
            run.add_text([text_id])
        while (step := run.next_step()) is not None:
            drawn = step.forced
            if drawn is None:
                is_last = run.state is BistreamState.LAST
                num_draws, num_last = num_draws + 1, num_last + is_last
                is_fill = len(run.history) in case["sampler_returns_fill_at_out_index"] and not is_last
                drawn = ids.end if num_last > case["sampler_eos_after"] else ids.fill if is_fill else 500 + num_draws
            feeds.append(" ".join(_spelled(item) for item in step.inputs))
            token = run.take(drawn)
            if token is not None:
                out.append(token)
    return feeds, out


def _spelled(item: LmInput) -> str:
    words = {SOS: "SOS", TASK: "TASK"}
    return words.get(item, f"{'t' if item.table is Table.TEXT else 's'}{item.row}")
