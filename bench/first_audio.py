"""How soon the wire carries speech, how even the packets are, how fast a prompt is cut: measured at the caller's socket.

    python -m bench.first_audio [--prompts 200] [--cuts 60] [--quick]

The caller is ``cc-tts call``'s softphone in a process of its own; times are its kernel's receive timestamps. Each part runs
once with the machine to itself and once with a counting loop on every core.
"""

import argparse
import asyncio
import contextlib
import itertools
import time
from typing import Any

from bench.report import BusyCores, machine, percentiles, save, show
from cc_tts.clock import NS_PER_MS
from lab.server_under_test import Json, Server
from lab.softphone import SoftphoneProcess

WORDS = ("Ready.", "Thank you.", "One moment.", "Please wait.", "Your call is next.")
LONG = (
    "This sentence is long enough to be interrupted, because it goes on and on without any pause for quite a while. "
    * 4
)
QUIET_S = 0.45
API_REQUESTS_PER_S = 50
BEAT_S = 20.0


async def dial(server: Server, phone: SoftphoneProcess, name: str) -> str:
    """Call the server; its route answers at once and says nothing. The id of the call."""
    await phone.dial(server.uri("bench"), call=name)
    answered = await phone.wait_event("answered", call=name, timeout_s=10)
    return await server.call_id(answered["sip_call_id"])


async def first_audio(server: Server, phone: SoftphoneProcess, *, calls: int, prompts: int) -> Json:
    """Speak ``prompts`` prompts, spread over ``calls`` calls at once."""
    lines = {name: await dial(server, phone, name) for name in (f"c{index}" for index in range(calls))}
    marks: dict[str, list[tuple[int, int]]] = {name: [] for name in lines}
    server_says: list[float] = []

    async def talk(name: str, call_id: str, count: int) -> None:
        words = itertools.cycle(WORDS)
        for _ in range(count):
            posted_ns = time.monotonic_ns()
            utterance = await server.ask(f"/v1/calls/{call_id}/speak", {"text": next(words)})
            accepted_ns = time.monotonic_ns()
            marks[name].append((posted_ns, accepted_ns))
            done = await log.wait("speak.complete", utterance_id=utterance["id"])
            server_says.append(done["data"]["time_to_first_audio_ms"])
            await asyncio.sleep(QUIET_S)

    async with server.events() as log:
        await asyncio.gather(*(talk(*line, prompts // calls) for line in lines.items()))
    from_post: list[float] = []
    from_accept: list[float] = []
    gaps: list[Any] = []
    for name in lines:
        report = await phone.hangup(call=name)
        starts = [spurt["start_at_ns"] for spurt in report["talkspurts"]]
        for posted_ns, accepted_ns in marks[name]:
            first_ns = next(start for start in starts if start >= posted_ns)
            from_post.append((first_ns - posted_ns) / NS_PER_MS)
            from_accept.append((first_ns - accepted_ns) / NS_PER_MS)
        gaps.append({"lost": report["rtp"]["lost"], **report["rtp"]["gap_ms"]})
    return {
        "calls": calls,
        "accepted_to_speech_ms": percentiles(from_accept),
        "posted_to_speech_ms": percentiles(from_post),
        "server_time_to_first_audio_ms": percentiles(server_says),
        "packets": gaps,
    }


async def packet_gaps(server: Server, phone: SoftphoneProcess) -> Json:
    """The gaps between packets of four speaking calls while the API takes 50 requests a second."""
    lines = {name: await dial(server, phone, name) for name in ("b0", "b1", "b2", "b3")}
    for call_id in lines.values():
        await server.ask(f"/v1/calls/{call_id}/speak", {"text": LONG * 3})
    period_s = 1 / API_REQUESTS_PER_S
    answered: list[float] = []
    pending: set[asyncio.Task[None]] = set()

    async def request(number: int) -> None:
        began = time.monotonic_ns()
        if number % 5 == 0:
            call_id = lines[f"b{number % len(lines)}"]
            await server.ask(f"/v1/calls/{call_id}/speak", {"text": "And one more thing."})
        else:
            await server.read("/v1/calls")
        answered.append((time.monotonic_ns() - began) / NS_PER_MS)

    start_s = time.monotonic()
    for number in itertools.count():
        due_s = start_s + number * period_s
        if due_s > start_s + BEAT_S:
            break
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        task = asyncio.create_task(request(number))
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.gather(*pending)
    reports = [await phone.hangup(call=name) for name in lines]
    return {
        "calls": len(lines),
        "api_requests_per_s": round(len(answered) / BEAT_S, 1),
        "api_answer_ms": percentiles(answered),
        "gap_ms": [report["rtp"]["gap_ms"] for report in reports],
        "gap_p99_ms_worst_call": max(report["rtp"]["gap_ms"]["p99"] for report in reports),
        "lost": sum(report["rtp"]["lost"] for report in reports),
    }


async def cut(server: Server, phone: SoftphoneProcess, *, by: str, count: int) -> Json:
    """From the request, or from the first packet of the key, to the last packet with speech."""
    call_id = await dial(server, phone, "k")
    asked: list[tuple[int, int]] = []
    for _ in range(count):
        await server.ask(f"/v1/calls/{call_id}/speak", {"text": LONG})
        await phone.wait_event("speech_start", call="k", timeout_s=10)
        await asyncio.sleep(0.4)
        if by == "stop":
            asked_ns = time.monotonic_ns()
            await server.ask(f"/v1/calls/{call_id}/stop", {"scope": "all"})
        else:
            asked_ns = (await phone.dtmf("5", call="k"))["at_ns"]
        await asyncio.sleep(QUIET_S)
        asked.append((asked_ns, time.monotonic_ns()))
    report = await phone.hangup(call="k")
    took: list[float] = []
    for asked_ns, until_ns in asked:
        spurts = [spurt for spurt in report["talkspurts"] if spurt["start_at_ns"] < until_ns]
        # a prompt that was between two words when it was cut tells nothing
        if spurts and spurts[-1]["end_at_ns"] > asked_ns:
            took.append((spurts[-1]["end_at_ns"] - asked_ns) / NS_PER_MS)
    return {"by": by, "asked": count, "to_last_speech_packet_ms": percentiles(took)}


async def run(arguments: argparse.Namespace) -> Json:
    """Every part, idle and busy."""
    result: Json = {"bench": "first_audio", "machine": machine()}
    for load in ("idle", "busy"):
        print(
            f"{load}: {arguments.prompts} prompts on 1 and on 4 calls, packet gaps, {arguments.cuts} cuts each way …",
            flush=True,
        )
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(await Server.with_settings("calls.max_queued_prompts=1000"))
            phone = await stack.enter_async_context(await SoftphoneProcess.start())
            if load == "busy":
                await stack.enter_async_context(BusyCores())
            result[load] = {
                "one_call": await first_audio(server, phone, calls=1, prompts=arguments.prompts),
                "four_calls": await first_audio(server, phone, calls=4, prompts=arguments.prompts),
                "packet_gaps": await packet_gaps(server, phone),
                "cut_by_stop": await cut(server, phone, by="stop", count=arguments.cuts),
                "cut_by_dtmf": await cut(server, phone, by="dtmf", count=arguments.cuts),
            }
        part = result[load]
        show(
            f"{load} cores",
            [
                ("accepted to first speech, 1 call", part["one_call"]["accepted_to_speech_ms"]),
                ("accepted to first speech, 4 calls", part["four_calls"]["accepted_to_speech_ms"]),
                ("POST sent to first speech, 1 call", part["one_call"]["posted_to_speech_ms"]),
                ("POST sent to first speech, 4 calls", part["four_calls"]["posted_to_speech_ms"]),
                *(
                    (f"packet gap, call {n + 1} of 4, API busy", {"n": gap["count"], **gap})
                    for n, gap in enumerate(part["packet_gaps"]["gap_ms"])
                ),
                ("API answer at 50 requests a second", part["packet_gaps"]["api_answer_ms"]),
                ("stop to last speech packet", part["cut_by_stop"]["to_last_speech_packet_ms"]),
                ("key to last speech packet", part["cut_by_dtmf"]["to_last_speech_packet_ms"]),
            ],
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="20 prompts and 8 cuts, not saved")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.prompts, arguments.cuts = 20, 8
    result = asyncio.run(run(arguments))
    if not arguments.quick:
        print(f"\nsaved {save('first_audio', result)}")


if __name__ == "__main__":
    main()
