"""Does anything grow? Short calls in a row; memory, threads and file descriptors of both processes as they go.

python -m bench.growth [--calls 500]
"""

import argparse
import asyncio
from pathlib import Path

from bench.report import machine, save
from lab.server_under_test import Json, Server
from lab.softphone import SoftphoneProcess

CALLS_AT_ONCE = 3
SAMPLES = 10
WARM_UP_SHARE = 0.2


def footprint(pid: int) -> Json:
    """Resident memory, threads and descriptors of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "rss_mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "threads": int(status["Threads"]),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


async def short_call(server: Server, phone: SoftphoneProcess, name: str) -> None:
    """Dial, hear a few words to their end, hang up."""
    await phone.dial(server.uri("bench"), call=name)
    answered = await phone.wait_event("answered", call=name, timeout_s=10)
    call_id = await server.call_id(answered["sip_call_id"])
    await server.ask(f"/v1/calls/{call_id}/speak", {"text": f"Call {name}."})
    await phone.wait_event("speech_end", call=name, timeout_s=10)
    await phone.hangup(call=name)


async def run(num_calls: int) -> Json:
    """Make the calls."""
    samples: list[Json] = []
    async with (
        await Server.with_settings("calls.max_ended_calls=20") as server,
        await SoftphoneProcess.start() as phone,
    ):
        pids = {"server": server.pid, "ua": server.ua_pid()}
        for number in range(0, num_calls, CALLS_AT_ONCE):
            if number % max(1, num_calls // SAMPLES) < CALLS_AT_ONCE:
                samples.append({"calls": number, **{name: footprint(pid) for name, pid in pids.items()}})
                print(samples[-1], flush=True)
            await asyncio.gather(*(short_call(server, phone, str(number + n)) for n in range(CALLS_AT_ONCE)))
        samples.append({"calls": num_calls, **{name: footprint(pid) for name, pid in pids.items()}})
        print(samples[-1], flush=True)
    warm = samples[round(len(samples) * WARM_UP_SHARE)]
    growth = {
        name: {key: round(samples[-1][name][key] - warm[name][key], 1) for key in warm[name]}
        for name in ("server", "ua")
    }
    print(f"growth from call {warm['calls']} to {num_calls}: {growth}")
    return {
        "bench": "growth",
        "machine": machine(),
        "calls": num_calls,
        "since_call": warm["calls"],
        "growth": growth,
        "samples": samples,
    }


def main() -> None:
    """Run and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    arguments = parser.parse_args()
    result = asyncio.run(run(arguments.calls))
    print(f"saved {save('growth', result)}")


if __name__ == "__main__":
    main()
