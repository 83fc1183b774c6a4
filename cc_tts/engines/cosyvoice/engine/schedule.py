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
"""The tokens of the first hop: with the 8 mel frames that the vocoder holds back, 320 ms of audio; the rest of a chunk
is the end of the prompt.
"""
HOPS: Final = (CHUNK_TOKENS, 2 * CHUNK_TOKENS, 4 * CHUNK_TOKENS)
"""The tokens of later calls: a long hop is cheap to run, and only the first one is waited for."""
ALL_AT_ONCE: Final = sys.maxsize
"""A hop that no sequence has the tokens for: one call when all tokens are there."""


def hop_to_grid(behind: int, hop: int) -> int:
    """The fewest tokens, ``hop`` of them or more, that bring a sequence from ``behind`` tokens to a line of the grid."""
    return hop + -(behind + hop) % CHUNK_TOKENS


def exact_hop(num_prompt: int, least: int = FIRST_HOP_TOKENS) -> int:
    """The hop to begin with, ``least`` tokens or a few more, so that the first call ends on the grid."""
    return min(hop_to_grid(num_prompt, least), max(least, CHUNK_TOKENS))
