"""Calls over a bad network: is the media clock kept, are calls set up, keys understood? ``python -m bench.impaired``

Softphones call through :class:`lab.impairer.Network`, which loses, disorders and repeats SIP, RTP and RTCP in both
directions. Gaps are between the server's packets as they come to it, before it harms them, by the kernel's clock; phones and
network share the server's machine. All the other figures are the server's and the softphones' own.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from typing import Any

from bench.report import machine, percentiles, save, show
from cc_tts.softphone.rtp.packets import SAMPLES_PER_PACKET
from cc_tts.ua import pjsua2_build
from lab.impairer import Impairment, Network, Sent
from lab.ports import HOST
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess

CALLS_A_PHONE = 4
SENTENCE = "This announcement is long on purpose, so that there is time to listen to it. "
GAP_LIMIT_MS = 40.0
ANSWER_TIMEOUT_S = 35.0
LEVELS = {
    "clean": Impairment(),
    "loss_10": Impairment(loss=0.1, reordering=0.1, duplication=0.05, jitter_ms=10),
    "loss_30": Impairment(loss=0.3, reordering=0.2, duplication=0.1, jitter_ms=20),
}

Json = dict[str, Any]


async def one_call(server: Server, network: Network, phone: SoftphoneProcess, name: str, talk_s: float) -> Json:
    """Call, listen, press a key, hang up; returns what became of it."""
    dialing = await phone.dial(f"sip:long@{HOST}:{network.sip_port}", call=name, timeout_s=ANSWER_TIMEOUT_S)
    answered = await phone.wait_event("answered", call=name, timeout_s=ANSWER_TIMEOUT_S)
    await asyncio.sleep(talk_s)
    await phone.dtmf("5", call=name, duration_ms=200)
    await asyncio.sleep(1.0)
    report = await phone.hangup(call=name)
    call_id = await server.call_id(report["sip_call_id"])
    call = await server.read(f"/v1/calls/{call_id}")
    utterance = await server.read(f"/v1/utterances/{call['utterances'][0]}")
    return {
        "set_up_ms": (answered["at_ns"] - dialing["at_ns"]) / 1e6,
        "interrupted": utterance["completion_cause"] == "barge_in",
        "underruns": utterance["underruns"],
        "lost": report["rtp"]["lost"],
        "packets": report["rtp"]["packets"],
    }


def packet_gaps_of(sent: list[Sent]) -> Json:
    """Gaps of all calls, and whether their packets are numbered and stamped without a hole."""
    gaps = [(b - a) / 1e6 for each in sent for a, b in zip(each.at_ns, each.at_ns[1:], strict=False)]
    steps = [step for each in sent for step in each.steps()]
    return {
        "gap_ms": percentiles(gaps),
        "holes": sum(each.holes for each in sent),
        "odd_steps": sum(step != SAMPLES_PER_PACKET for step in steps),
    }


async def level(server: Server, impairment: Impairment, num_calls: int, talk_s: float, seed: int) -> Json:
    """All calls at once through one network."""
    async with contextlib.AsyncExitStack() as stack:
        phones, networks = [], []
        for number in range(-(-num_calls // CALLS_A_PHONE)):
            network = Network(server.sip_port, impairment, seed=seed + number)
            networks.append(await stack.enter_async_context(network))
            phones.append(await stack.enter_async_context(await SoftphoneProcess.start()))
        tasks = []
        for number in range(num_calls):
            way = networks[number // CALLS_A_PHONE], phones[number // CALLS_A_PHONE]
            tasks.append(asyncio.create_task(one_call(server, *way, str(number), talk_s)))
            await asyncio.sleep(0.1)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        calls_left = await until_over(server)
        done = [each for each in ended if isinstance(each, dict)]
        for each in ended:
            if isinstance(each, BaseException):
                print(f"a call failed: {each!r}", file=sys.stderr)
        return {
            "network": {word: sum(each.counts[word] for each in networks) for word in ("sent", "lost")},
            "calls": num_calls,
            "calls_done": len(done),
            "calls_left": calls_left,
            "keys_understood": sum(each["interrupted"] for each in done),
            "underruns": sum(each["underruns"] for each in done),
            "set_up_ms": percentiles([each["set_up_ms"] for each in done]),
            "lost_share_heard": round(
                sum(each["lost"] for each in done) / max(1, sum(each["lost"] + each["packets"] for each in done)), 3
            ),
            "packet_gaps": packet_gaps_of([sent for each in networks for sent in each.sent]),
        }


async def until_over(server: Server) -> int:
    """Wait until the server has no call; returns how many it keeps past the time in which SIP repeats a BYE."""
    for _ in range(int(ANSWER_TIMEOUT_S / 0.1)):
        left: int = sum(call["state"] != "terminated" for call in (await server.read("/v1/calls"))["calls"])
        if not left:
            break
        await asyncio.sleep(0.1)
    return left


async def measure(num_calls: int, talk_s: float, seed: int) -> Json:
    """Every level with a fresh server."""
    levels = {}
    for name, impairment in LEVELS.items():
        greeting = f'routes.long.greeting="{SENTENCE * 20}"'
        async with await Server.with_settings(greeting) as server:
            levels[name] = await level(server, impairment, num_calls, talk_s, seed)
    return levels


def main() -> int:
    """Measure, print, save; 1 if a call or packets were lost."""
    parser = argparse.ArgumentParser(prog="python -m bench.impaired", description="calls over a bad network")
    parser.add_argument("--calls", type=int, default=8 if pjsua2_build.is_built() else 4)
    parser.add_argument("--talk-s", type=float, default=10.0, help="before the key is pressed, seconds")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if pjsua2_build.is_built():
        os.environ.setdefault(pjsua2_build.VARIABLE, "server")
    described = {**machine(), "pjsua2": os.environ.get(pjsua2_build.VARIABLE, "wheel")}
    levels = asyncio.run(measure(arguments.calls, arguments.talk_s, arguments.seed))
    show(
        f"{arguments.calls} calls: gap between packets",
        [(name, each["packet_gaps"]["gap_ms"]) for name, each in levels.items()],
    )
    show("from INVITE to 200", [(name, each["set_up_ms"]) for name, each in levels.items()])
    for name, each in levels.items():
        print(f"  {name}: {each['calls_done']} of {each['calls']} calls, {each['keys_understood']} keys understood")
    print(save("impaired", {"machine": described, "seed": arguments.seed, "levels": levels}))
    good = all(
        each["calls_done"] == each["keys_understood"] == each["calls"]
        and not each["calls_left"]
        and not each["packet_gaps"]["holes"]
        and each["packet_gaps"]["gap_ms"]["p99"] <= GAP_LIMIT_MS
        for each in levels.values()
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
