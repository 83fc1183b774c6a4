"""The same work with each technique off and on, side by side in one run.

python -m bench.engine.ladder [--size tiny|full] [--device cpu|cuda] [--rounds 3]
python -m bench.engine.ladder --operators [--size tiny|full] [--name engine_operators]

Variants take turns, A B C A B C, so what else the machine does hits all of them; ratios are taken within a round.
``--operators`` counts instead how many operators the networks ask the device for: what a launch of each costs is most of
what a small batch costs. Views are left out: they ask for nothing. One operator is one kernel on a card, or some; on a CPU
it can be several calls.
"""

import argparse
import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.figures import TOKENS_PER_S, flatness, ratios
from bench.engine.lab import Lab, Rig, keep, lab_of, parser_of
from bench.engine.phone_load import Caller, PhoneLoad, figures
from bench.engine.variants import FirstComeFirstServed
from bench.engine.work import ChunkWork, DrawWork, SpeechWork
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from lab.cosyvoice.launches import Operators
from lab.cosyvoice.whole_vocoder import vocode
from lab.server_under_test import Json

NUM_SEQUENCES: Final = 8
NUM_TOKENS: Final = 150
NUM_CHUNKS: Final = 12
NOT_HERE: Final = "not here: needs CUDA"
FULL_LOAD: Final = 0.8
"""Of what the device can speak in batches of 8: so many callers are given to both ways of scheduling."""
MAX_CALLERS: Final = 128
NUM_DRAWN: Final = (8, 16)
"""The difference of two draws is steps alone."""
NUM_CHUNKS_COUNTED: Final = 2

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


def scheduling(rig: Rig, num_callers: int, *, seconds: float, num_rounds: int) -> Json:
    """The same callers under both ways of scheduling, in turns; nobody is refused."""
    ways: dict[str, type[Engine]] = {"first_come_first_served": FirstComeFirstServed, "deadline_and_slack": Engine}
    config = EngineConfig(admits_all=True)
    rounds: dict[str, list[Json]] = {name: [] for name in ways}
    for number in range(num_rounds):
        for name, kind in ways.items():
            engine = rig.engine(config, kind)
            load = PhoneLoad(engine, rig.clock, seed=number)
            callers = [Caller(next_ms=100.0 * each) for each in range(num_callers)]
            tally = load.run(
                callers,
                for_ms=1000.0 * seconds,
                warm_up_ms=100.0 * num_callers,
                num_pages_used=lambda: rig.runner.num_pages - rig.runner.num_free_pages,
            )
            engine.close()
            rounds[name].append(figures(tally))
    result: Json = {"callers": num_callers, "seconds_each": seconds, "rounds": rounds}
    for name, each in rounds.items():
        result[name] = {
            "first_audio_p95_ms": _median_of(each, "first_audio_ms", "p95"),
            "underrun_rate_over_60_ms": _median_of(each, "underrun_rate", "over_60_ms_jitter_buffer"),
            "busy_share": statistics.median(figure["busy_share"] for figure in each),
            "worst_deficit_ms": max(figure["worst_deficit_ms"] for figure in each),
        }
    return result


def _median_of(rounds: list[Json], part: str, name: str) -> float | None:
    found = [each[part][name] for each in rounds if each[part].get(name) is not None]
    return round(statistics.median(found), 4) if found else None


def capacity(lab: Lab, work: SpeechWork, draws: DrawWork) -> float:
    """Seconds of speech that batches of 8 make in a second."""
    ways = (work.graphed, draws.graphed) if work.has_graphs else (work.batched, draws.batched)
    cost_ms = sum(timed_ms(lab, way) for way in ways)
    return NUM_SEQUENCES * NUM_TOKENS / TOKENS_PER_S * 1000.0 / cost_ms


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
    audio_s_per_s = capacity(lab, work, draws)
    result["audio_s_per_s_in_batches_of_8"] = round(audio_s_per_s, 1)
    num_callers = arguments.callers or max(2, min(MAX_CALLERS, int(FULL_LOAD * audio_s_per_s)))
    del work, draws, model
    if arguments.seconds > 0:
        rig = lab.rig(max_streams=num_callers)
        num_rounds = 1 if arguments.quick else 3
        result["scheduling"] = scheduling(rig, rig.max_streams, seconds=arguments.seconds, num_rounds=num_rounds)
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
    if "scheduling" in result:
        print(f"\nscheduling, {result['scheduling']['callers']} callers")
        for name in ("first_come_first_served", "deadline_and_slack"):
            print(f"  {name:26} {result['scheduling'][name]}")


def counted(work: Callable[[], object]) -> Counter[str]:
    """The operators of ``work``, which is run once before."""
    work()
    counting = Operators()
    with counting:
        work()
    return counting.counts


@contextlib.contextmanager
def counted_in(module: nn.Module) -> Iterator[Counter[str]]:
    """The operators of one call of ``module``, made by whoever runs the network meanwhile."""
    counting, counts = Operators(), Counter[str]()

    def begin(*_args: object) -> None:
        counting.counts.clear()
        counting.__enter__()  # type: ignore[no-untyped-call]

    def end(*_args: object) -> None:
        counting.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        counts.clear()
        counts.update(counting.counts)

    handles = (module.register_forward_pre_hook(begin), module.register_forward_hook(end))
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def told(counts: Counter[str]) -> Json:
    return {"operators": counts.total(), "by_name": dict(counts.most_common())}


def operators(lab: Lab) -> Json:
    """A decode step, one layer of it, and a chunk of 25 tokens through flow and through vocoder."""
    model = lab.model()
    short, long = (counted(DrawWork(lab, model, num_sequences=2, num_tokens=number).batched) for number in NUM_DRAWN)
    step = Counter({name: (long[name] - short[name]) // (NUM_DRAWN[1] - NUM_DRAWN[0]) for name in long})
    with counted_in(model.lm.backbone.layers[0]) as layer:
        DrawWork(lab, model, num_sequences=2, num_tokens=NUM_DRAWN[0]).batched()
    work = ChunkWork(SpeechWork(lab, model, num_sequences=1, num_tokens=100), num_chunks=NUM_CHUNKS_COUNTED)
    work.begin()
    work.incremental(work.calls[0])
    with Operators() as flow:
        work.incremental(work.calls[1])
    mel = torch.zeros((1, model.flow.config.estimator.num_mels, 50), device=lab.device)
    lengths = torch.tensor([49], device=lab.device)
    with torch.inference_mode():
        even = counted(lambda: vocode(model.vocoder, mel))
        uneven = counted(lambda: vocode(model.vocoder, mel, mel_len=lengths))
    num_steps = model.flow.config.num_steps
    return {
        "layers_of_the_language_model": model.lm.config.num_layers,
        "euler_steps": num_steps,
        "decode_step_of_2": told(step),
        "layer_of_it": told(layer),
        "flow_chunk": told(flow.counts),
        "vocoder_chunk": told(even),
        "vocoder_chunk_of_a_row_that_is_shorter": told(uneven),
    }


def show_operators(result: Json) -> None:
    """Print how many, and the most frequent ones."""
    for name in (name for name, value in result.items() if isinstance(value, dict)):
        most = ", ".join(f"{operator} {count}" for operator, count in list(result[name]["by_name"].items())[:6])
        print(f"{name:40} {result[name]['operators']:6}  {most}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each variant")
    parser.add_argument("--callers", type=int, default=0, help="for the scheduling; 0: as many as fill the device")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each scheduling run; 0: leave it out")
    parser.add_argument("--operators", action="store_true", help="count operators instead")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 2
    with lab_of(arguments) as lab:
        result = operators(lab) if arguments.operators else run(lab, arguments)
        (show_operators if arguments.operators else show)(result)
        keep(lab, arguments, result)


if __name__ == "__main__":
    main()
