"""What the stages are expected to cost on one H200 in bfloat16 with graphs, ms: engine-performance §4.2, §4.6 to §4.8.

Calculated and published, not measured: no GPU was at hand. No torch.
"""

from typing import Final

from cc_tts.engines.cosyvoice2.engine.capacity import StageCosts

KEYS_LIKE_ONE_FRAME: Final = 1160.0


def prefill_ms(num_positions: int) -> float:
    """§4.7: 2 to 4 ms for one; what more cost is by their arithmetic."""
    return 3.0 + num_positions / 1000.0


def lm_step_ms(num_rows: int) -> float:
    """§4.2, the realistic column: 1.1 ms for one, 1.6 for 64, 3 for 256."""
    return 1.1 + 0.5 * num_rows / 64 if num_rows <= 64 else 1.6 + 1.4 * (num_rows - 64) / 192


def flow_ms(num_frames: int, num_keys: int) -> float:
    """§4.7 and §4.8: 10 to 15 ms for one chunk, 50 to 80 for 64, encoder included; for 16 some more than it says."""
    return 10.0 + 0.0115 * num_frames * (1.0 + num_keys / KEYS_LIKE_ONE_FRAME)


def vocoder_ms(num_frames: int) -> float:
    """§4.6 and §4.8: 3 to 5 ms for one chunk, 10 to 15 for 64."""
    return 4.0 + 0.0025 * num_frames


def simulated_costs() -> StageCosts:
    """What start-up would have measured, in the same sizes."""
    costs = StageCosts()
    for _ in range(40):  # a mean moves by a fifth each time
        for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            costs.lm_step.observe(rows, lm_step_ms(rows))
            costs.prefill.observe(100 * rows, prefill_ms(100 * rows))
        for rows in (1, 2, 4, 8, 16, 32):
            for chunks, keys in ((1, 400), (2, 500), (4, 800)):
                frames = 50 * chunks
                costs.observe_call(rows * frames, keys, flow_ms(rows * frames, keys), vocoder_ms(rows * frames))
    return costs
