"""Who answered? Made calls through the detection of machines, with the real model. ``python -m bench.answering_machines``

One half of the calls is what constants were tuned on, the other has voices, languages and texts of its own. The detection is
called as the VAD process calls it, all calls of a kind at once; nothing else of the server runs. ``as Asterisk`` is the same
with ``long_greeting: machine``.
"""

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final, get_args

from bench.report import machine, percentiles, save
from cc_tts.vad.answering.legs import AnsweringLegs
from cc_tts.vad.answering.settings import Amd, Answered, Finding, GreetingEnded
from cc_tts.vad.detector import LegAudio
from cc_tts.vad.silero import SileroModel, find_model
from lab.answered_calls import Call, Maker
from lab.answered_texts import Half
from lab.caller_audio import RATE_HZ, frames

Json = dict[str, Any]
Found = tuple[Call, list[Finding]]

FRAME_NS: Final = 20_000_000
BEEP_LATE_MS: Final = 400.0
"""A beep counts as heard if the end of the greeting is told within this after its end, and not before (unmeasured)."""


def findings(calls: list[Call], model: SileroModel, settings: Amd) -> list[Found]:
    legs = AnsweringLegs(model, RATE_HZ)
    found: dict[str, list[Finding]] = defaultdict(list)
    for number in range(len(calls)):
        legs.classify(str(number), settings, 0, is_answered=True)
    audio = [frames(call.pcm) for call in calls]
    for at in range(max(map(len, audio))):
        batch = [
            LegAudio(str(number), is_sent=False, at_ns=at * FRAME_NS, pcm=each[at])
            for number, each in enumerate(audio)
            if at < len(each)
        ]
        for each in legs.push(batch):
            found[each.leg].append(each.finding)
    return [(call, found[str(number)]) for number, call in enumerate(calls)]


def result_of(found: list[Finding]) -> str:
    """Who answered; ``none``: nothing was said of it."""
    return next((each.result for each in found if isinstance(each, Answered)), "none")


def is_right(call: Call, found: list[Finding]) -> bool:
    """Whether it is known who answered, and of a machine when to speak."""
    if result_of(found) != call.result:
        return False
    ended = next((each for each in found if isinstance(each, GreetingEnded)), None)
    if call.result != "machine":
        return True
    if call.beep_ms is None:
        return ended is not None and ended.by == "silence"
    return ended is not None and ended.by == "beep" and 0 <= ended.at_ms - call.beep_ms <= BEEP_LATE_MS


def table(results: Iterable[Found]) -> Json:
    """Each kind of call: how many, how many right, what was found."""
    rows: Json = {}
    for kind, those in groupby(results, key=lambda each: each[0].kind):
        group = list(those)
        after = [each.at_ms for _, found in group for each in found if isinstance(each, Answered)]
        rows[kind] = {
            "calls": len(group),
            "right": sum(is_right(*each) for each in group),
            "found": dict(Counter(result_of(found) for _, found in group)),
            "after_ms": percentiles(after),
        }
    return rows


def summary(results: list[Found]) -> Json:
    people = [found for call, found in results if call.result == "human"]
    beeps = [
        each.at_ms - call.beep_ms
        for call, found in results
        if call.beep_ms is not None
        for each in found
        if isinstance(each, GreetingEnded) and each.by == "beep"
    ]
    of_acceptance = [each for each in results if each[0].result in ("human", "machine")]
    return {
        "calls": len(results),
        "right": sum(is_right(*each) for each in results),
        "people_and_machines": len(of_acceptance),
        "people_and_machines_right": sum(is_right(*each) for each in of_acceptance),
        "people_taken_for_machines": sum(result_of(found) == "machine" for found in people),
        "from_end_of_beep_ms": percentiles(beeps),
        "kinds": table(results),
    }


def show(title: str, figures: Json) -> None:
    share = figures["right"] / figures["calls"]
    both = figures["people_and_machines_right"] / figures["people_and_machines"]
    print(f"\n{title}: {figures['calls']} calls, {share:.1%} right; people and machines {both:.1%} right")
    print(f"people taken for machines: {figures['people_taken_for_machines']}")
    for kind, row in figures["kinds"].items():
        found = ", ".join(
            f"{result} {count}" for result, count in sorted(row["found"].items(), key=lambda each: -each[1])
        )
        print(f"  {kind:30} {row['right']:>4} of {row['calls']:<4} {found}")


def main() -> None:
    """Make the calls, judge them, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-kind", type=int, default=50, help="calls of each of the twelve kinds, in each half")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--half", choices=get_args(Half), help="only this half, and nothing is written")
    parser.add_argument("--wrong", action="store_true", help="print what went wrong")
    arguments = parser.parse_args()
    model = SileroModel(find_model(), RATE_HZ)
    result: Json = {"machine": machine(), "per_kind": arguments.per_kind, "seed": arguments.seed}
    for half in (arguments.half,) if arguments.half else get_args(Half):
        calls = list(Maker(half, arguments.seed).calls(arguments.per_kind))
        begun_s = time.process_time()
        results = judged(calls, model, Amd())
        cpu_s = time.process_time() - begun_s
        result[half] = summary(results)
        result[half]["cpu_ms_per_s_of_audio"] = round(1000 * cpu_s / sum(len(call.pcm) / 16_000 for call in calls), 2)
        show(half, result[half])
        if arguments.wrong:
            for call, found in results:
                if not is_right(call, found):
                    print("   wrong:", call.kind, call.note, call.beep_ms, found)
        result[f"{half}, as Asterisk"] = summary(judged(calls, model, Amd(long_greeting="machine")))
        show(f"{half}, as Asterisk", result[f"{half}, as Asterisk"])
    if not arguments.half:
        print(save("answering_machines", result))


def judged(calls: list[Call], model: SileroModel, settings: Amd) -> list[Found]:
    return [
        each
        for _, group in groupby(calls, key=lambda call: call.kind)
        for each in findings(list(group), model, settings)
    ]


if __name__ == "__main__":
    main()
