"""What the flow keeps of sequences that are not at their end (§4.9)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from cc_tts.engines.cosyvoice2.model.networks.flow.encoder import FRAMES_PER_TOKEN, EncoderCache
from cc_tts.engines.cosyvoice2.model.networks.flow.estimator import EstimatorCache


@dataclass(frozen=True, slots=True)
class FlowState:
    """What :meth:`Flow.step` needs of the past of B sequences. The caches are written in place: step from the latest only.

    Counts are of tokens, one number a sequence, and include the prompt.
    """

    encoder: EncoderCache
    estimator: EstimatorCache
    noise: Tensor  # [1, mels, frames]
    speaker: Tensor  # [B, speaker]
    prompt_feat: Tensor  # [B, prompt frames, mels]
    prompt_frames: Tensor  # [B]: how many of them are real
    pending: Tensor  # [B, most pending]: tokens that are known but not kept
    num_pending: tuple[int, ...]
    num_kept: tuple[int, ...]  # tokens in the caches: whole chunks
    num_given: tuple[int, ...]  # tokens whose frames have been given out
    num_new_frames: tuple[int, ...]  # frames that the last step gave out

    def fork(self) -> Self:
        """A copy to step from, while this one stays: the state after a prompt serves all sequences of a voice."""
        encoder, estimator = self.encoder, self.estimator
        return replace(
            self,
            encoder=EncoderCache(
                encoder.tokens.clone(),
                encoder.frames.clone(),
                encoder.lookahead_context.clone(),
                encoder.up_context.clone(),
            ),
            estimator=EstimatorCache(estimator.attention.clone(), estimator.contexts.clone()),
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far each sequence has come; counts as of :class:`FlowState`."""

    num_pending: tuple[int, ...]
    num_kept: tuple[int, ...]
    num_given: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Which tokens a step runs: numbers of the host, one a sequence. The window of a row begins where its caches end."""

    kept_before: tuple[int, ...]
    known: tuple[int, ...]  # tokens of the window
    run: tuple[int, ...]  # those that are run: the others are looked at, or wait
    kept: tuple[int, ...]  # those that stay in the caches: whole chunks
    given: tuple[int, ...]  # tokens whose frames are given out by then, from the start of the sequence
    num_skipped: tuple[int, ...]  # frames of the window that have been given out before, or belong to the prompt
    num_frames: tuple[int, ...]  # frames of the window that are new

    @classmethod
    def of(
        cls,
        state: FlowState | Progress,
        *,
        num_new: int,
        token_len: Sequence[int] | None,
        is_last: bool | Sequence[bool],
        partial: bool | Sequence[bool],
        chunk: int,
        lookahead: int,
    ) -> Self:
        """The plan for ``num_new`` tokens more, see :meth:`Flow.step`."""
        num_rows = len(state.num_kept)
        news = (num_new,) * num_rows if token_len is None else tuple(token_len)
        last = (is_last,) * num_rows if isinstance(is_last, bool) else tuple(is_last)
        begun = (partial,) * num_rows if isinstance(partial, bool) else tuple(partial)
        known = tuple(pending + new for pending, new in zip(state.num_pending, news, strict=True))
        ready = [count if ends else max(0, count - lookahead) for count, ends in zip(known, last, strict=True)]
        kept = tuple(count // chunk * chunk for count in ready)
        run = tuple(r if ends or begins else k for r, k, ends, begins in zip(ready, kept, last, begun, strict=True))
        before = zip(state.num_given, state.num_kept, run, strict=True)
        given = tuple(max(out, start + count) for out, start, count in before)
        pairs = zip(state.num_given, state.num_kept, strict=True)
        skipped = tuple((out - start) * FRAMES_PER_TOKEN for out, start in pairs)
        gains = zip(given, state.num_given, strict=True)
        frames = tuple((after - out) * FRAMES_PER_TOKEN for after, out in gains)
        return cls(state.num_kept, known, run, kept, given, skipped, frames)

    @property
    def num_keys(self) -> int:
        """How many tokens of the caches attention must look at."""
        return max(start + count for start, count in zip(self.kept_before, self.run, strict=True))

    @property
    def counts(self) -> list[tuple[int, ...]]:
        """What the device must know, for one copy to it."""
        return [self.kept_before, self.known, self.run, self.kept, self.num_skipped, self.num_frames]

    def after(self, state: FlowState, pending: Tensor) -> FlowState:
        """The state once the step has been made; ``pending`` [B, n] are the tokens that are not kept."""
        return replace(
            state,
            pending=pending,
            num_pending=tuple(known - kept for known, kept in zip(self.known, self.kept, strict=True)),
            num_kept=tuple(old + new for old, new in zip(self.kept_before, self.kept, strict=True)),
            num_given=self.given,
            num_new_frames=self.num_frames,
        )


@dataclass(frozen=True, slots=True)
class FlowPrompt:
    """The voice, as the flow needs it."""

    token: Tensor  # [1, P]
    feat: Tensor  # [1, 2 P, mels]
    embedding: Tensor  # [1, embedding]
