"""The recorded request in the engine's language model runner, among others that come and go (``parity --engine``).

A runner samples by itself. Here it is given a model that is certain of the recorded ids and keeps what it
would have thought. All else is the runner's: slots, ragged prefills, what is kept of a voice, steps of all slots together.

Runs on: the thread that owns the device.
"""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.device import SlotPrefill
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    ForbiddenIds,
    LengthLimits,
    LmInput,
    LmRequest,
)
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.prefill import Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runners import sampler
from cc_tts.engines.cosyvoice.runners.lm import LmRunner, LmVoice
from cc_tts.engines.cosyvoice.runners.sampler import forbid
from cc_tts.errors import EngineFailed
from tests.parity.cases import Recorded
from tests.parity.generation import speak
from tests.parity.result import EXACT, Comparison, Comparisons, count_differences
from tests.parity.samplers import SeededRas, forbidden_row

NUM_SLOTS: Final = 8
NUM_SPOKEN: Final = 10
"""Requests whose ids are compared: two find the slot of one that has gone."""

_NUM_BYSTANDERS: Final = 12
_NEVER: Final = (
    -1e4
)  # finite, for the runner stops a sequence whose numbers are not; its probability is zero all the same


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How the others are drawn, and whether CUDA graphs are replayed."""

    seed: int = 0
    graphs: bool = False

    def draw(self, purpose: str) -> random.Random:
        """A generator that begins anew each time."""
        return random.Random(f"{purpose} {self.seed}")

    @property
    def num_runs(self) -> int:
        """How often everything is run; the last time is compared."""
        return 2 if self.graphs else 1


def happens(draw: random.Random, chance: float) -> bool:
    return draw.random() < chance


class TaughtLm(SpeechLm):
    """A model with the same weights that, after some positions of some slots, is certain of a given id.

    What it really thought there is kept. Made of tensors only, so a runner can record it in CUDA graphs.

    Args:
        lm: whose weights.
        num_slots: slots of the runner.
        num_positions: of each slot.

    """

    def __init__(self, lm: SpeechLm, *, num_slots: int, num_positions: int) -> None:
        with torch.device("meta"):
            super().__init__(lm.config)
        for name, network in lm.named_children():
            setattr(self, name, network)
        self._ids = torch.arange(lm.config.speech_ids.num_rows, device=lm.device)
        shape = (num_slots + 1, num_positions + 1)  # the runner has a slot for rows that only fill a batch up
        self._given = torch.full(shape, -1, dtype=torch.int64, device=lm.device)
        self._thought = torch.zeros((*shape, len(self._ids)), device=lm.device)

    def teach(self, slot: int, num_inputs: int, ids: Sequence[int]) -> None:
        """Give ``ids``, the first of them after ``num_inputs`` positions."""
        self._given[slot, num_inputs : num_inputs + len(ids)] = torch.tensor(ids, device=self._given.device)

    def thoughts(self, slot: int, lengths: Sequence[int]) -> Tensor:
        """Log-probabilities [n, codes + 3] after so many positions of a slot; nothing is forbidden yet."""
        return self._thought[slot, list(lengths)]

    def forget(self) -> None:
        self._thought.fill_(torch.nan)

    def prefill(
        self,
        x: Tensor,
        num_new: Tensor,
        cache: Tensor,
        *,
        starts: Tensor | None = None,
        slots: Tensor | None = None,
        num_keys: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`SpeechLm.prefill`. Rows without slots belong to no sequence, and are nobody's business."""
        answer, cache = super().prefill(x, num_new, cache, starts=starts, slots=slots, num_keys=num_keys)
        if starts is None or slots is None:
            return answer, cache
        return self._taught(answer, slots, torch.where(num_new > 0, starts + num_new, 0)), cache

    def decode(
        self,
        speech_ids: Tensor,
        starts: Tensor,
        cache: Tensor,
        *,
        active: Tensor | None = None,
        num_keys: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`SpeechLm.decode`."""
        answer, cache = super().decode(speech_ids, starts, cache, active=active, num_keys=num_keys)
        slots = torch.arange(len(starts), device=starts.device)
        lengths = starts + 1 if active is None else torch.where(active, starts + 1, 0)
        return self._taught(answer, slots, lengths), cache

    def _taught(self, log_probs: Tensor, slots: Tensor, lengths: Tensor) -> Tensor:
        """Place 0 of a slot is scratch: no answer comes after no positions."""
        self._thought[slots, lengths] = log_probs
        given = self._given[slots, lengths][:, None]  # [B, 1]
        certain = torch.zeros_like(log_probs).masked_fill(self._ids != given, _NEVER)
        return torch.where(given < 0, log_probs, certain)


@dataclass(frozen=True, slots=True)
class _Text:
    """What a slot of the language model is asked to say."""

    slot: int
    request: LmRequest
    inputs: Sequence[LmInput]
    rules: SamplingRules
    seed: int = 0
    has_voice: bool = False

    @property
    def num_positions(self) -> int:
        return len(self.inputs) + self.rules.max_sampled


def lm_in_batch(lm: SpeechLm, recorded: Recorded, batch: BatchPlan) -> Comparisons:
    """Log-probabilities with the drawn ids given, of the request with a prompt and of one without prompt speech."""
    draw = batch.draw("taught")
    slots = draw.sample(range(NUM_SLOTS), NUM_SLOTS)
    text, prompt_text, prompt_speech, forced = (
        recorded.numbers(f"llm_{key}") for key in ("text", "prompt_text", "prompt_speech", "forced")
    )
    ids = lm.config.speech_ids
    prompted = LmRequest(text, prompt_text, prompt_speech)
    short, short_prompt = "llm_noprompt_logp", list[int]()
    if ids.generation > 2:
        short, short_prompt = "llm_instruct_logp", recorded.numbers("llm_instruct_text")
    lessons = (
        ("llm_logp", prompted, recorded.numbers("llm_logp_steps")),
        (short, LmRequest(text, short_prompt), range(len(recorded.array(short)))),
    )
    texts = []
    for slot, (_, request, steps) in zip(slots, lessons, strict=False):
        anything = ForbiddenIds(end=False, unused=False, fill=False)
        rules = SamplingRules(forbidden=anything, min_sampled=request.limits.min_len, max_sampled=max(steps) + 1)
        texts.append(_Text(slot, request, request.inputs_for(ids), rules, has_voice=bool(request.prompt_text)))
    free = slots[len(lessons) :]
    texts += [_random_text(lm, draw, free[number % len(free)], prompt_text) for number in range(_NUM_BYSTANDERS)]
    num_positions = max(each.num_positions for each in texts)

    taught = TaughtLm(lm, num_slots=NUM_SLOTS, num_positions=num_positions)
    for each, (_, _, steps) in zip(texts, lessons, strict=False):
        taught.teach(each.slot, len(each.inputs), forced[: max(steps) + 1])
    runner = LmRunner(taught, num_slots=NUM_SLOTS, num_positions=num_positions, graphs=batch.graphs)
    voice = runner.add_voice(prompt_text)
    with _any_repeats():
        for _ in range(batch.num_runs):
            taught.forget()
            _speak_together(runner, texts, voice, batch.draw("taught rounds"))
    for each, (key, _, steps) in zip(texts, lessons, strict=False):
        thoughts = taught.thoughts(each.slot, [len(each.inputs) + step for step in steps])
        early = [ForbiddenIds(end=step < each.rules.min_sampled, unused=False, fill=False) for step in steps]
        rows = [forbidden_row(forbidden, ids, lm.device, compat=True) for forbidden in early]
        log_probs = forbid(thoughts, torch.stack(rows))
        yield recorded.compare(key, log_probs, case=f"engine {key}")


@contextmanager
def _any_repeats() -> Iterator[None]:
    """What a teacher gives may occur as often as it likes."""
    before = sampler.NUM_REPEATS
    vars(sampler)["NUM_REPEATS"] = math.inf
    try:
        yield
    finally:
        vars(sampler)["NUM_REPEATS"] = before


def ids_in_batch(lm: SpeechLm, recorded: Recorded, batch: BatchPlan) -> Comparisons:
    """Ids that random requests draw together and alone; in half precision two of them may change places, so not there."""
    if lm.dtype is not torch.float32:
        return
    draw = batch.draw("ids")
    prompt_text = recorded.numbers("llm_prompt_text")
    slots = draw.sample(range(NUM_SLOTS), NUM_SLOTS)
    texts = [_random_text(lm, draw, slots[number % NUM_SLOTS], prompt_text) for number in range(NUM_SPOKEN)]
    num_positions = max(each.num_positions for each in texts)
    runner = LmRunner(lm, num_slots=NUM_SLOTS, num_positions=num_positions, graphs=batch.graphs)
    voice = runner.add_voice(prompt_text)
    together: list[list[int]] = []
    for _ in range(batch.num_runs):
        together = _speak_together(runner, texts, voice, batch.draw("ids rounds"))
    alone = []
    for each in texts:
        limits = LengthLimits(each.rules.min_sampled, each.rules.max_sampled)
        alone.append(list(speak(lm, each.request, SeededRas(each.seed), limits=limits)))
    yield Comparison("engine ids", *count_differences(together, alone), EXACT)


def _random_text(lm: SpeechLm, draw: random.Random, slot: int, prompt_text: Sequence[int]) -> _Text:
    text = [draw.randrange(lm.config.text_vocab_size) for _ in range(draw.randint(1, 12))]
    prompt_speech = [draw.randrange(lm.config.num_speech_codes) for _ in range(draw.randint(0, 60))]
    is_prompted = happens(draw, 0.7)
    request = LmRequest(text, prompt_text, prompt_speech) if is_prompted else LmRequest(text)
    rules = SamplingRules.of_request(LengthLimits(draw.randint(0, 6), draw.randint(8, 24)))
    inputs = request.inputs_for(lm.config.speech_ids)
    return _Text(slot, request, inputs, rules, draw.getrandbits(40), has_voice=is_prompted and happens(draw, 0.5))


def _speak_together(runner: LmRunner, texts: Sequence[_Text], voice: LmVoice, draw: random.Random) -> list[list[int]]:
    """Begin, run and end the texts in random rounds; what each has said."""
    spoken: list[list[int]] = [[] for _ in texts]
    waiting = list(range(len(texts)))
    running: dict[int, int] = {}
    while waiting or running:
        begun: dict[int, int] = {}
        for number in waiting:
            slot = texts[number].slot
            if slot not in running and slot not in begun and happens(draw, 0.4):
                begun[slot] = number
        waiting = [number for number in waiting if number not in begun.values()]
        running |= begun
        fed = [(slot, texts[number]) for slot, number in begun.items()]
        runner.start(
            [SlotPrefill(slot, "", Prefill(each.inputs, each.rules), each.seed) for slot, each in fed],
            {slot: voice for slot, each in fed if each.has_voice},
        )
        chosen = [slot for slot in running if happens(draw, 0.8)]
        until = {slot: len(spoken[running[slot]]) + draw.randint(1, 12) for slot in chosen}
        for slot, drawn in runner.decode(until, draw.randint(1, 8)).items():
            if drawn.failed:
                raise EngineFailed(f"slot {slot} of the language model broke off")
            spoken[running[slot]] += drawn.ids
            if drawn.stopped:
                runner.release(slot)
                del running[slot]
    return spoken
