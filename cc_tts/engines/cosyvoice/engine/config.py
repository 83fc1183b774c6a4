"""The parameters of the engine's decisions. The values of a deployment are checked with its settings."""

import sys
from dataclasses import dataclass

from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, FIRST_HOP_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Limits of admission, of the rounds of the language model, and of the flow calls."""

    first_audio_target_ms: float = 300.0  # a stream whose first audio would come later is refused
    guard_ms: float = 60.0  # how long before a listener runs dry its next audio must be handed out
    max_streams: int = 256
    max_utilisation: float = 0.9  # share of the device's time that all streams together may need
    first_hop_tokens: int = FIRST_HOP_TOKENS
    """The least number of tokens of the first flow call; it is rounded up to the chunk grid
    (:func:`schedule.hop_to_grid`).
    """
    interleaved: bool = False  # the text chunks of a stream extend one sequence, if its speed is not changed
    stops_runaways: bool = True  # speech that repeats itself or does not end (runaway)
    ends_speech: bool = True  # the weights were trained, so that speech which reaches the model's limit has run away
    overlaps: bool = False  # flow and vocoder run beside the language model
    admits_all: bool = False  # refuse only if no slot is free: for calibration and comparisons

    max_prefill_positions: int = 16384  # of one round; a single longer prefill is done all the same
    max_steps_per_round: int = 8
    run_ahead_tokens: int = 2 * CHUNK_TOKENS
    """How many tokens beyond its next flow call a sequence may sample while there are free rows."""
    wait_slack_ms: float = 300.0  # a flow call with more slack waits for more rows to share it
    easy_slack_ms: float = 600.0
    """Flow calls with more slack than this run in the order of their sequences, the oldest first: a sequence that ends frees
    its pages.
    """
    max_flow_rows: int = 32
    max_flow_keys: int = sys.maxsize  # frames that a row of a call attends to
    max_flow_frames: int = 6400  # of one call, with the padding; a single longer row is taken all the same
