"""The number of tokens of each flow call (§6).

The mask of the flow is a grid of chunks of 25 tokens that begins with the prompt, and a call is exact when it ends on that
grid. A prompt of 13 tokens more than a multiple of 25 allows a first hop of 12 that does: its call solves one chunk
after 15 sampled tokens. Each call needs three tokens of lookahead besides.
"""

import sys
from typing import Final

CHUNK_TOKENS: Final = 25
LOOKAHEAD_TOKENS: Final = 3
FRAMES_PER_TOKEN: Final = 2
FIRST_HOP_TOKENS: Final = 12
"""The tokens of the first hop: with the 8 mel frames that the vocoder holds back, they give 320 ms of audio; the end of the
prompt fills the rest of the chunk.
"""
HOPS: Final = (CHUNK_TOKENS, 2 * CHUNK_TOKENS, 4 * CHUNK_TOKENS)
"""The tokens of later calls: a long hop costs less, and only the first one is waited for."""
ALL_AT_ONCE: Final = sys.maxsize
"""More tokens than any sequence has: one call, once all tokens are there."""


def hop_to_grid(behind: int, hop: int) -> int:
    """Return the smallest number of tokens, at least ``hop``, that brings a sequence from ``behind`` tokens to the grid."""
    return hop + -(behind + hop) % CHUNK_TOKENS


def exact_hop(num_prompt: int, least: int = FIRST_HOP_TOKENS) -> int:
    """Return the first hop, ``least`` tokens or a few more, so that the first call ends on the grid."""
    return min(hop_to_grid(num_prompt, least), max(least, CHUNK_TOKENS))
