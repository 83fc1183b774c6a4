"""The same work with each technique off and on, side by side in one run.

python -m bench.engine.ladder [--size tiny|full] [--device cpu|cuda] [--rounds 3]

Variants take turns, A B C A B C, so what else the machine does hits all of them; ratios are taken within a round.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final

from torch.utils.flop_counter import FlopCounterMode

from bench.engine.figures import flatness, ratios
from bench.engine.lab import Lab, keep, lab_of, parser_of
from bench.engine.work import ChunkWork, DrawWork, SpeechWork
from lab.server_under_test import Json

NUM_SEQUENCES: Final = 8
NUM_TOKENS: Final = 150
NUM_CHUNKS: Final = 12
NOT_HERE: Final = "not here: needs CUDA"

Ways = Mapping[str, Callable[[], None]]


def timed_ms(lab: Lab, work: Callable[[], object]) -> float:
    """What ``work`` costs, on the clock of the lab."""
    clock = time.process_time if lab.has_work_clock else time.perf_counter
    lab.synchronize()
    begin = clock()
    work()
    lab.synchronize()
    return (clock() - begin) * 1000.0


def take_turns(lab: Lab, ways: Ways, num_rounds: int) -> list[dict[str, float]]:
    """Cost of each way in each round; a round before them warms up and is not counted."""
    return [{name: timed_ms(lab, way) for name, way in ways.items()} for _ in range(num_rounds + 1)][1:]


def speech_rungs(lab: Lab, work: SpeechWork, num_rounds: int) -> Json:
    ways = {"recompute": work.recompute, "incremental": work.incremental, "incremental_batch_of_8": work.batched}
    if work.has_graphs:
        ways["graphs_batch_of_8"] = work.graphed
    result = ratios(take_turns(lab, ways, num_rounds), "recompute")
    if not work.has_graphs:
        result["graphs_batch_of_8"] = NOT_HERE
    return result


def draw_rungs(lab: Lab, work: DrawWork, num_rounds: int, *, has_graphs: bool) -> Json:
    """Text to speech tokens."""
    ways = {"one_at_a_time": work.one_at_a_time, "batch_of_8": work.batched}
    if has_graphs:
        ways["graphs_batch_of_8"] = work.graphed
    result = ratios(take_turns(lab, ways, num_rounds), "one_at_a_time")
    if not has_graphs:
        result["graphs_batch_of_8"] = NOT_HERE
    return result


def chunk_costs(lab: Lab, work: ChunkWork, num_rounds: int) -> Json:
    """Cost of each chunk at a fixed hop of 25; both ways take turns chunk by chunk."""
    costs: dict[str, list[list[float]]] = {"incremental": [], "recompute": []}
    for _ in range(num_rounds + 1):
        work.begin()
        rows: dict[str, list[float]] = {"incremental": [], "recompute": []}
        for call in work.calls:
            rows["incremental"].append(timed_ms(lab, lambda call=call: work.incremental(call)))  # type: ignore[misc]
            rows["recompute"].append(timed_ms(lab, lambda call=call: work.recompute(call)))  # type: ignore[misc]
        for name, row in rows.items():
            costs[name].append(row)
    result: Json = {"hop_tokens": 25, "chunks": f"2 to {len(work.calls)}", "operations": _operations(work)}
    for name, table in costs.items():
        medians = [statistics.median(column) for column in zip(*table[1:], strict=True)]
        result[name] = {"by_chunk_ms": [round(cost, 2) for cost in medians], **flatness(medians[1:])}
    is_met = result["incremental"]["is_flat"] and not result["recompute"]["is_flat"]
    result["verdict"] = "incremental is flat and recompute grows" if is_met else "NOT MET"
    return result


def _operations(work: ChunkWork) -> Json:
    """The same as a count of multiplications and additions, which no noise touches."""
    result: Json = {}
    for name, way in (("incremental", work.incremental), ("recompute", work.recompute)):
        work.begin()
        counts = []
        for call in work.calls:
            with FlopCounterMode(display=False) as counter:
                way(call)
            counts.append(counter.get_total_flops() / 1e6)
        figures_ = flatness(counts[1:])
        result[name] = {
            "by_chunk_million": [round(count, 1) for count in counts],
            "worst_deviation": figures_["worst_deviation"],
            "last_to_first": figures_["last_to_first"],
            "is_flat": figures_["is_flat"],
        }
    return result


def run(lab: Lab, arguments: argparse.Namespace) -> Json:
    model = lab.model()
    work = SpeechWork(lab, model, num_sequences=NUM_SEQUENCES, num_tokens=NUM_TOKENS)
    rounds = arguments.rounds
    result: Json = {
        "work": f"{NUM_SEQUENCES} sequences of {NUM_TOKENS} tokens, prompt of 125, hops 25 50 100",
    }
    draws = DrawWork(lab, model, num_sequences=NUM_SEQUENCES, num_tokens=NUM_TOKENS)
    result["speech"] = speech_rungs(lab, work, rounds)
    result["draws"] = draw_rungs(lab, draws, rounds, has_graphs=work.has_graphs)
    result["chunk_cost"] = chunk_costs(lab, ChunkWork(work, num_chunks=NUM_CHUNKS), 2 * rounds - 1)
    return result


def show(result: Json) -> None:
    for part in ("speech", "draws"):
        print(f"\n{part}: median ms, times less than the first")
        for name, row in result[part].items():
            line = row if isinstance(row, str) else f"{row['median_ms']:>9}  x{row['times_less']}"
            print(f"  {name:26} {line}")
    chunks = result["chunk_cost"]
    print(f"\nchunk cost, ms: {chunks['verdict']}")
    for name in ("incremental", "recompute"):
        print(f"  {name:12} {chunks[name]['by_chunk_ms']}  last to first {chunks[name]['last_to_first']}")
        operations = chunks["operations"][name]
        print(f"  {'operations':12} {operations['by_chunk_million']}  last to first {operations['last_to_first']}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each variant")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 2
    with lab_of(arguments) as lab:
        result = run(lab, arguments)
        show(result)
        keep(lab, arguments, result)


if __name__ == "__main__":
    main()
