"""From text tokens to speech tokens for one sequence: the input of each way to speak, and the loop (§3.2, §3.3, §7.5).

The engine runs many sequences at a time; this is the plain form of what it must do, and the one held against references.

Runs on: the thread that owns the device.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import (
    ForbiddenIds,
    LengthLimits,
    LmInput,
    LmRequest,
    Table,
    speech_inputs,
)
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.runners.sampler import forbid
from cc_tts.errors import EngineFailed
from tests.parity.bistream import SteppedBistream
from tests.parity.samplers import Sampler, forbidden_row


class CachedSequence:
    """One sequence in the first slot of a cache; feeds inputs and answers with the log-probabilities after the last one."""

    def __init__(self, lm: SpeechLm, *, num_positions: int) -> None:
        self._lm = lm
        self._num_positions = num_positions
        self._cache = lm.new_cache(1, num_positions)
        self.length = 0

    @torch.inference_mode()
    def feed(self, inputs: Sequence[LmInput]) -> Tensor:
        """Run the inputs after all that were fed before; log-probabilities [codes + 3].

        Raises:
            EngineFailed: the cache is full.

        """
        end = self.length + len(inputs)
        if end > self._num_positions:
            raise EngineFailed(
                f"a sequence of {end} positions does not fit into the {self._num_positions} of its cache"
            )
        lm = self._lm
        starts = torch.tensor([self.length], device=lm.device)
        if len(inputs) == 1 and inputs[0].table is Table.SPEECH:
            speech_ids = torch.tensor([inputs[0].row], device=lm.device)
            log_probs, self._cache = lm.decode(speech_ids, starts, self._cache, num_keys=end)
        else:
            tables, rows, num_new = lm.pack([inputs])
            log_probs, self._cache = lm.prefill(
                lm.embed(tables, rows), num_new, self._cache, starts=starts, num_keys=end
            )
        self.length = end
        return log_probs[0]


class ForcedTokens:
    """A sampler that returns given ids in order and keeps what it was shown: teacher forcing for comparisons (§11)."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = iter(ids)
        self.log_probs: list[Tensor] = []

    def __call__(self, log_probs: Tensor, history: Sequence[int]) -> int:
        """The next given id."""
        self.log_probs.append(log_probs)
        return next(self._ids)


def speak(
    lm: SpeechLm,
    request: LmRequest,
    sampler: Sampler,
    *,
    limits: LengthLimits | None = None,
    compat: bool = False,
) -> Iterator[int]:
    """The speech tokens of a text that is there as a whole, as they are drawn (§3.3).

    ``limits`` stand in for those of the request. With ``compat`` the ids that mean nothing here can be drawn and end the
    speech, as they officially do; otherwise they are forbidden (§12).
    """
    limits = request.limits if limits is None else limits
    inputs = request.inputs_for(lm.config.speech_ids)
    sequence = CachedSequence(lm, num_positions=len(inputs) + limits.max_len)
    history: list[int] = []
    for step in range(limits.max_len):
        forbidden = ForbiddenIds(end=step < limits.min_len, unused=not compat, fill=not compat)
        row = forbidden_row(forbidden, lm.config.speech_ids, lm.device, compat=compat)
        drawn = sampler(forbid(sequence.feed(inputs), row), history)
        if drawn >= lm.config.num_speech_codes:
            return
        history.append(drawn)
        yield drawn
        inputs = speech_inputs([drawn])


def speak_streamed(
    lm: SpeechLm,
    pieces: Iterable[Sequence[int]],
    sampler: Sampler,
    *,
    prompt_text: Iterable[int] = (),
    prompt_speech: Iterable[int] = (),
    num_instruction: int = 0,
    num_positions: int = 4096,
    compat: bool = False,
) -> Iterator[int]:
    """The speech tokens of a text that comes in pieces, as soon as they can be drawn (§3.5).

    ``num_instruction`` tokens of the prompt's text come before the groups.

    The official front end hands over one text token at a time, which matters with ``compat`` only.

    Raises:
        EngineFailed: the speech outgrew ``num_positions``, or with ``compat`` an id was drawn that has no meaning there.

    """
    bistream = SteppedBistream(
        prompt_text, prompt_speech, speech_ids=lm.config.speech_ids, num_instruction=num_instruction, compat=compat
    )
    sequence = CachedSequence(lm, num_positions=num_positions)
    for piece in pieces:
        bistream.add_text(piece)
        yield from _steps(bistream, sequence, sampler)
    bistream.end_text()
    yield from _steps(bistream, sequence, sampler)


def _steps(bistream: SteppedBistream, sequence: CachedSequence, sampler: Sampler) -> Iterator[int]:
    """Run until more text is needed or all is spoken."""
    while (step := bistream.next_step()) is not None:
        log_probs = sequence.feed(step.inputs)
        drawn = step.forced
        if drawn is None:
            row = forbidden_row(step.forbidden, bistream.ids, log_probs.device, compat=bistream.compat)
            drawn = sampler(forbid(log_probs, row), bistream.history)
        emitted = bistream.take(drawn)
        if emitted is not None:
            yield emitted
