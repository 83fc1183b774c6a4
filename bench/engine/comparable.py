"""Benchmark A: a closed loop as the published one, directly on the engine.

python -m bench.engine.comparable [--size tiny|full] [--device cpu|cuda] [--concurrency 1,2,4,6,8,10]

26 rows in contiguous shards, one request after the other in each; no pacing, nobody is refused. A first pass is dropped. Not
as published: the rows' texts (their number and amount of speech are the same), no gRPC, and of a cold prompt only what the
networks of the engine do is inside: features and speech tokens of the recording are there already.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.engine.figures import ROW_SECONDS, shards
from bench.engine.front import sized_text
from bench.engine.lab import Lab, Rig, keep, lab_of, parser_of
from bench.engine.model import VOICE, cold_voice
from bench.engine.phone_load import PCM_BYTES_PER_MS
from bench.report import percentiles
from cc_tts.clock import ms_between
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.engine_core import StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineFailed
from lab.server_under_test import Json

CONCURRENCY: Final = (1, 2, 4, 6, 8, 10)
ROWS: Final = {"cpu": 10, "cuda": len(ROW_SECONDS)}
MAX_STEPS_IN_A_ROW: Final = 1_000_000


@dataclass(slots=True)
class Request:
    opened_ns: int
    audio_ms: list[float] = field(default_factory=list)
    came_ms: list[float] = field(default_factory=list)
    total_ms: float = 0.0


class ClosedLoop:
    """One pass over the rows at one concurrency."""

    def __init__(self, rig: Rig, engine: Engine, *, is_cold: bool) -> None:
        self._rig = rig
        self._engine = engine
        self._is_cold = is_cold
        self._open: dict[int, tuple[Request, list[int]]] = {}
        self._done: list[Request] = []

    def run(self, rows: Sequence[int], concurrency: int) -> Json:
        """Figures of the pass; ``rows`` are places in ``ROW_SECONDS``."""
        clock = self._rig.clock
        begin_ns = clock.now_ns()
        for shard in shards(rows, concurrency):
            self._next(shard)
        for _ in range(MAX_STEPS_IN_A_ROW):
            if not self._open:
                break
            self._step()
        return self._figures(ms_between(begin_ns, clock.now_ns()))

    def _next(self, shard: list[int]) -> None:
        if not shard:
            return
        row, *rest = shard
        if self._is_cold:
            self._rig.forget_voices()
        request = Request(self._rig.clock.now_ns())
        self._engine.open(StreamRequest(stream_id=row, voice=cold_voice(row) if self._is_cold else VOICE))
        self._engine.push(row, sized_text(ROW_SECONDS[row], row), 0)
        self._engine.end(row)
        self._open[row] = (request, rest)

    def _step(self) -> None:
        outs = self._engine.step()
        now_ns = self._rig.clock.now_ns()
        for out in outs:
            request, rest = self._open[out.stream_id]
            since_ms = ms_between(request.opened_ns, now_ns)
            if isinstance(out, SpeechChunk):
                request.audio_ms.append(len(out.data) / PCM_BYTES_PER_MS)
                request.came_ms.append(since_ms)
                self._engine.taken(out.stream_id, math.inf, None)
                continue
            if out.error is not None:
                raise EngineFailed(f"row {out.stream_id}: {out.error}")
            request.total_ms = since_ms
            del self._open[out.stream_id]
            self._done.append(request)
            self._next(rest)

    def _figures(self, wall_ms: float) -> Json:
        done = self._done
        audio_ms = sum(sum(request.audio_ms) for request in done)
        later = [request.came_ms[1] - request.came_ms[0] for request in done if len(request.came_ms) > 1]
        return {
            "first_chunk_ms": percentiles([request.came_ms[0] for request in done]),
            "second_chunk_after_ms": percentiles(later),
            "total_ms": percentiles([request.total_ms for request in done]),
            "first_chunk_audio_ms": percentiles([request.audio_ms[0] for request in done]),
            "chunks": sum(len(request.came_ms) for request in done),
            "rtf": round(wall_ms / audio_ms, 4),
            "audio_s": round(audio_ms / 1000.0, 1),
            "wall_s": round(wall_ms / 1000.0, 2),
        }


WAYS: Final = {"default": False, "default, cold prompt": True}
"""Whether the voice is computed in the request."""


def run(lab: Lab, arguments: argparse.Namespace) -> Json:
    """A kept voice at all concurrencies, a cold prompt at the first and the last one."""
    rows = list(range(len(ROW_SECONDS)))[: arguments.rows or ROWS[lab.device.type]]
    concurrency = [int(each) for each in arguments.concurrency.split(",")]
    rig = lab.rig(max_streams=max(concurrency), num_cold=len(rows))
    result: Json = {
        "rows": len(rows),
        "row_seconds": ROW_SECONDS[: len(rows)],
        "sampler": "RAS, seeded",
        "euler_steps": 10,
        "flow": "the U-Net of CosyVoice2, masked in every chunk",
        "ways": {},
    }
    for name, is_cold in WAYS.items():
        result["ways"][name] = {}
        for count in [concurrency[0], *concurrency[1:][-1:]] if is_cold else concurrency:
            if count > rig.max_streams:
                result["ways"][name][str(count)] = f"memory holds {rig.max_streams} streams"
                continue
            for is_counted in (False, True) if lab.is_cuda or not result["ways"][name] else (True,):
                engine = rig.engine(EngineConfig(admits_all=True))
                figures = ClosedLoop(rig, engine, is_cold=is_cold).run(rows if is_counted else rows[: 2 * count], count)
                engine.close()
            result["ways"][name][str(count)] = figures
            first = figures["first_chunk_ms"]
            print(
                f"{name:30} c{count:<3} mean {first['mean']:>9} p50 {first['p50']:>9} p95 {first['p95']:>9}",
                end=" ms  ",
            )
            print(f"first {figures['first_chunk_audio_ms']['p50']} ms of audio, RTF {figures['rtf']}", flush=True)
    result["warm_up"] = (
        "two rows a task before, dropped: before each cell on a card, before the first of each way on a CPU"
    )
    result["memory"] = rig.memory()
    return result


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--concurrency", default=",".join(str(each) for each in CONCURRENCY))
    parser.add_argument("--rows", type=int, default=0, help="of the 26; 10 on a CPU without it")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows, arguments.concurrency = 4, "1,2"
    with lab_of(arguments) as lab:
        keep(lab, arguments, run(lab, arguments))


if __name__ == "__main__":
    main()
