"""Mutated messages for the MRCP process, a thousand a minute for ten minutes: no process ends, and its memory stays.

``python -m bench.mrcp [--minutes N] [--per-minute N] [--out FILE]``
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from lab.mrcp_mutations import Mutations
from lab.ports import free_ports
from lab.server_under_test import Server

MAX_GROWTH = 1.15
"""The process may have so many times the memory that it had after the first minute."""


def memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def measure(minutes: int, per_minute: int) -> dict[str, object]:
    """Run it; returns the figures."""
    first = free_ports(60)
    ports = {"sip_port": first, "control_port": first + 2, "rtp_port_min": first + 4, "rtp_port_max": first + 59}
    settings = [f"mrcp.{name}={port}" for name, port in ports.items()]
    async with await Server.with_settings("mrcp.enabled=true", "mrcp.idle_timeout_s=10", *settings) as server:
        (pid,) = server.pids_of("cc_tts.mrcp")
        memory = {"mrcp": [memory_kib(pid)], "server": [memory_kib(server.pid)]}
        sent = 0
        for minute in range(minutes):
            mutations = Mutations(first, first + 2, seed=minute + 1)
            await mutations.run(per_minute, per_s=per_minute / 60)
            sent += mutations.sent.total()
            memory["mrcp"].append(memory_kib(pid))
            memory["server"].append(memory_kib(server.pid))
            print(f"minute {minute + 1}: {memory['mrcp'][-1]} KiB, server {memory['server'][-1]} KiB", flush=True)
        same = server.pids_of("cc_tts.mrcp") == [pid] and server.returncode is None
        return {"messages": sent, "memory_kib": memory, "no_process_ended": same, "cpus": os.cpu_count()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mrcp")
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--per-minute", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    figures = asyncio.run(measure(options.minutes, options.per_minute))
    text = json.dumps(figures, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    memory = figures["memory_kib"]
    assert isinstance(memory, dict)
    grew = any(each[-1] > MAX_GROWTH * each[min(1, len(each) - 1)] for each in memory.values())
    return 0 if figures["no_process_ended"] and not grew else 1


if __name__ == "__main__":
    sys.exit(main())
