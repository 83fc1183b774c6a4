"""How soon each side of a conversation knows what the other did, while other legs speak: one page of figures.

    python -m bench.conversation [--parts keys media barge-in text vad-cost] [--calls 1 20 100] [--others 100]

* keys: a key (RFC 4733), to ``call.gather_complete`` on the WebSocket of events.
* media: a packet of RTP, to the message of ``GET /v1/calls/{id}/media`` that holds it; frames that are missing.
* barge-in: the first packet of a caller's speech, to the last audible packet of the prompt; prompts that stop although
  the caller is silent.
* text: the token that makes the first clause certain, to the first audible packet, for each of ``--engines``. An answer
  has 67 tokens in 2.1 s and is cleared; then each call hears one to its end.
* vad-cost: CPU of the server's processes a leg, not listened to and listened to; no other legs speak.

SIPp places all calls. The others hear a prompt from the cache (``lab.rtp_crowd``); the callers that are measured are
``bench.conversation.callers``, each with a clock of its own. Everything runs on this machine, the application too: its own
time to read a message is in the figures. ``CC_TTS_PJSUA2`` chooses the build of pjsua2 (``server`` unless it is set).
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final

from bench.conversation.parts import Part, Sounds, parts_of, vad_cost
from bench.conversation.stage import MAX_LEVEL_S, Conditions, Found, calls_up, others_speak, server_of
from bench.report import machine, save, show
from lab.load import cpu_s
from lab.server_under_test import Json, Server

PARTS: Final = ("keys", "media", "barge-in", "text", "vad-cost")
ENGINES: Final = ("espeak", "onnx")
SPARE_CALLS: Final = 50
SETTING_UP_S: Final = 60.0
"""For calls that are set up and hung up, besides what is measured."""


async def level_of(server: Server, part: Part, num_calls: int, options: argparse.Namespace) -> Json:
    found = Found()
    also: Json = {}
    for _ in range(options.repeat_one if num_calls == 1 else 1):
        async with asyncio.timeout(MAX_LEVEL_S + SETTING_UP_S), others_speak(server, options.others) as crowd:
            conditions = await Conditions.begin(server, crowd)
            rounds = part.rounds_of_one if num_calls == 1 else 1
            for _ in range(rounds):
                async with calls_up(server, num_calls, part.user, seconds=options.seconds / rounds) as level:
                    found.add(await part.measure(level, options.sounds))
                    report = await level.callers.report()
                    cores = cpu_s(level.callers.pid) / report["heard"]["window_s"]
            also = {"callers_heard": report["heard"], "callers_sent_late_ms": report["sent_late_ms"]}
            also |= await conditions.end()
            also["cores"]["callers"] = round(cores, 3)
    return {"calls": num_calls, "others": options.others, **found.result(), **also}


async def measure(name: str, part: Part, options: argparse.Namespace) -> tuple[list[Json], Json]:
    """One part at every level, against one server; and how it was built."""
    levels: list[Json] = []
    async with server_of(max(options.calls) + options.others + SPARE_CALLS) as (server, _, serving):
        for num_calls in options.calls:
            print(f"{name}: {num_calls} …", flush=True)
            try:
                levels.append(await level_of(server, part, num_calls, options))
            except (TimeoutError, RuntimeError, ExceptionGroup) as error:
                levels.append({"calls": num_calls, "others": options.others, "failed": repr(error)})
            print_level(part, levels[-1])
    return levels, serving


def print_level(part: Part, level: Json) -> None:
    if "failed" in level:
        print(f"failed: {level['failed']}")
        return
    title = f"{level['calls']} calls, {level['others']} others"
    show(title, [(text, level.get(name, {"n": 0})) for name, text in part.rows.items()])
    print(f"  {' · '.join(f'{name} {count}' for name, count in level['counts'].items())}")
    late = level["callers_sent_late_ms"]
    print(f"  cores {level['cores']}")
    print(f"  late frames {level['late_frames']}, callers' packets late p99 {late['p99']} max {late['max']} ms", end="")
    print(f", load {level['load_1min']}", flush=True)


async def costs(options: argparse.Namespace) -> tuple[list[Json], Json]:
    """CPU of listening, at every level."""
    levels: list[Json] = []
    async with server_of(max(options.calls) + SPARE_CALLS) as (server, _, serving):
        for num_calls in options.calls:
            print(f"vad-cost: {num_calls} …", flush=True)
            async with asyncio.timeout(MAX_LEVEL_S + SETTING_UP_S):
                levels.append({"calls": num_calls, **await vad_cost(server, num_calls, options.sounds)})
            print(f"  percent of a core a leg: {levels[-1]}", flush=True)
    return levels, serving


async def run(options: argparse.Namespace) -> Json:
    """Every part; saved after each."""
    result: Json = {"bench": "conversation", "machine": {**machine(), "nice": os.nice(0)}, "parts": {}}
    for name in options.parts:
        if name == "vad-cost":
            result["vad_cost_percent_of_a_core_a_leg"], serving = await costs(options)
        else:
            for each, part in parts_of(name, options.engines).items():
                result["parts"][each], serving = await measure(each, part, options)
        result["pjsua2"] = {key: serving.get(key) for key in ("pjsua2", "pjsip", "max_calls")}
        save(options.name, result)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--calls", type=int, nargs="+", default=[1, 20, 100], metavar="N")
    parser.add_argument("--others", type=int, default=100, metavar="N", help="legs that speak meanwhile")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long a level is measured")
    parser.add_argument(
        "--repeat-one", type=int, default=1, metavar="N", help="measure one call so often, for the counts"
    )
    parser.add_argument("--nice", type=int, default=0, help="priority; below 0 where others use the machine")
    parser.add_argument("--name", default="conversation", help="of the file in bench/results")
    options = parser.parse_args()
    if options.seconds > MAX_LEVEL_S:
        parser.error(f"a level is measured for {MAX_LEVEL_S:.0f} s at most: the others' prompt is not longer")
    os.environ.setdefault("CC_TTS_PJSUA2", "server")
    os.nice(options.nice)
    with tempfile.TemporaryDirectory() as folder:
        options.sounds = Sounds(Path(folder))
        asyncio.run(run(options))
    print(f"\nsaved bench/results/{options.name}.json")


if __name__ == "__main__":
    main()
