"""The calls of the flow for one sequence (§6).

Hops grow, because a long hop is cheap to run and only the first one is waited for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, LOOKAHEAD_TOKENS, hop_to_grid
from cc_tts.engines.cosyvoice.engine.sequence import Sequence

MAX_HOP_TOKENS: Final = 100
_GROWTH: Final = 2


@dataclass(frozen=True, slots=True)
class FlowCall:
    """One call of the flow; counts are of generated tokens, without the prompt."""

    num_tokens: int  # known to the flow, the lookahead included
    num_given: int  # whose frames earlier calls gave out
    num_new: int  # whose frames this call gives out
    finalize: bool


class HopSchedule:
    """The calls of one sequence of the engine, as its tokens arrive.

    Args:
        num_prompt: tokens of the flow's prompt.
        hop: tokens of the first call, but for what the prompt lacks to the grid. One shorter than a chunk is taken as it is,
            so it is exact if it ends on the grid, see :func:`exact_hop`. The next call is back on the grid.

    """

    def __init__(self, num_prompt: int, *, hop: int = CHUNK_TOKENS) -> None:
        self.hop = hop
        self._num_prompt = num_prompt
        self._num_given = 0
        self._is_over = False

    @property
    def needed_tokens(self) -> int:
        """How many tokens must be there for the next call, unless they end before."""
        return self._num_given + self._next_new() + LOOKAHEAD_TOKENS

    def poll(self, num_tokens: int, *, finished: bool) -> FlowCall | None:
        """The next call when ``num_tokens`` are there, or None.

        Args:
            num_tokens: tokens so far.
            finished: there will be no more; the call that takes the rest is the last one.

        """
        if self._is_over:
            return None
        if num_tokens >= self.needed_tokens:
            new = self._next_new()
            call = FlowCall(self.needed_tokens, self._num_given, new, finalize=False)
            self._num_given += new
            self.hop = max(self.hop, CHUNK_TOKENS, min(MAX_HOP_TOKENS, _GROWTH * self.hop))
            return call
        if not finished:
            return None
        self._is_over = True
        return FlowCall(num_tokens, self._num_given, num_tokens - self._num_given, finalize=True)

    def _next_new(self) -> int:
        if self.hop < CHUNK_TOKENS:
            return self.hop
        return hop_to_grid(self._num_prompt + self._num_given, self.hop)


def calls_for(schedule: HopSchedule, num_tokens: int) -> Iterator[FlowCall]:
    """All calls of a sequence of ``num_tokens`` that are all there already."""
    while (call := schedule.poll(num_tokens, finished=True)) is not None:
        yield call


def calls_with_hops(hops: Iterable[int], num_tokens: int) -> Iterator[FlowCall]:
    """Calls that give out ``hops`` tokens one after the other and then the rest, all of them under the chunk mask."""
    given = 0
    for hop in hops:
        yield FlowCall(given + hop + LOOKAHEAD_TOKENS, given, hop, finalize=False)
        given += hop
    yield FlowCall(num_tokens, given, num_tokens - given, finalize=True)


def double_hop(sequence: Sequence, _now_ms: float) -> None:
    """For an executor that chooses hops as :class:`HopSchedule` does, whatever the listener holds."""
    sequence.hop = max(sequence.hop, CHUNK_TOKENS, min(MAX_HOP_TOKENS, _GROWTH * sequence.hop))
