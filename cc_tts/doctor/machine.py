"""Clock, processor, limits, disks and permissions."""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_tts.clock import NS_PER_MS
from cc_tts.doctor.finding import QUICK_S, Finding, Subject, fail, ok, warn
from cc_tts.doctor.probes import Probes

MAX_CLOCK_STEP_NS: Final = NS_PER_MS
"""A twentieth of a 20 ms tick of the media clock, ns (unmeasured)."""
SLOW_CLOCKS: Final = frozenset({"acpi_pm", "hpet", "jiffies", "pit"})
"""Clock sources that are read over a bus or tick with the scheduler: each reading takes microseconds."""
DESCRIPTORS_A_CALL: Final = 2
DESCRIPTORS_BESIDES: Final = 128
"""The descriptors for transports, channels, log, HTTP and WebSocket clients."""
MIN_FREE_BYTES: Final = 1024**3  # unmeasured
MIN_FREE_TEMPORARY_BYTES: Final = 64 * 1024**2
"""The free space that the folder for temporary files should have; it is often in memory (unmeasured)."""
CLOCKS: Final = "sys/devices/system/clocksource/clocksource0"
GOVERNORS: Final = "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"
WALL_CLOCK: Final = {
    None: ok("wall clock", "not known whether it is synchronised: neither timedatectl nor chronyc reports it"),
    True: ok("wall clock", "synchronised"),
    False: warn(
        "wall clock",
        "not synchronised",
        "start chrony or systemd-timesyncd: the times of logs and events are wrong",
    ),
}
"""The finding about the wall clock, by whether it is synchronised."""
_OTHERS_READ: Final = 0o004


def check_clock(subject: Subject) -> Iterator[Finding]:
    """CLOCK_MONOTONIC, and whether the wall clock of the log is right."""
    step_ns = subject.probes.clock_resolution_ns()
    source = subject.probes.text(f"{CLOCKS}/current_clocksource") or "source not known"
    if step_ns > MAX_CLOCK_STEP_NS:
        advice = "the 20 ms media clock cannot run on it; use another kernel or machine"
        yield fail("clock", f"{source}, steps of {step_ns / NS_PER_MS:g} ms", advice)
    elif source in SLOW_CLOCKS:
        advice = f"choose tsc or kvm-clock, if /{CLOCKS}/available_clocksource has it"
        yield warn("clock", f"{source}, slow to read", advice)
    else:
        yield ok("clock", f"{source}, steps of {step_ns} ns")
    yield WALL_CLOCK[_is_synchronised(subject.probes)]


def _is_synchronised(probes: Probes) -> bool | None:
    ran = probes.run(("timedatectl", "show", "--property=NTPSynchronized", "--value"), timeout_s=QUICK_S / 2)
    if ran.status == 0 and ran.output in {"yes", "no"}:
        return ran.output == "yes"
    ran = probes.run(("chronyc", "-n", "tracking"), timeout_s=QUICK_S / 2)
    return bool(re.search(r"Leap status\s*: Normal", ran.output)) if ran.status == 0 else None


def check_cpu(subject: Subject) -> Iterator[Finding]:
    """Yield the number and speed of the cores, and whether a quota limits them."""
    num_cpus = subject.probes.num_cpus()
    advice = "give it two: the 20 ms media clock waits for synthesis otherwise"
    yield ok("cpu", f"{num_cpus} cores") if num_cpus > 1 else warn("cpu", "1 core", advice)
    governors = Counter(subject.probes.texts(GOVERNORS))
    others = sorted(set(governors) - {"performance", ""})
    if others:
        advice = f"cpupower frequency-set -g performance (or write it to /{GOVERNORS.replace('[0-9]', '')})"
        yield warn("cpu governor", f"{governors[others[0]]} cores on {', '.join(others)}", advice)
    else:
        yield ok("cpu governor", "performance" if governors else "none here, as in most virtual machines")
    quota, _, period = subject.probes.text("sys/fs/cgroup/cpu.max").partition(" ")
    if quota not in {"max", ""}:
        detail = f"{quota} of every {period} µs: when it is used up, all calls pause for the rest"
        yield warn("cpu quota", detail, "reserve cores (cpuset, requests) instead of limiting time")


def check_descriptors(subject: Subject) -> Iterator[Finding]:
    """``ulimit -n`` against the number of calls."""
    limit = subject.probes.max_open_files()
    wanted = DESCRIPTORS_A_CALL * subject.num_calls + DESCRIPTORS_BESIDES
    detail = f"{limit} for {subject.num_calls} calls"
    advice = f"ulimit -n {max(4096, 2 * wanted)}, or LimitNOFILE= of the service"
    if limit < wanted:
        yield fail("ulimit -n", detail, advice)
    elif limit < 2 * wanted:
        yield warn("ulimit -n", f"{detail}: enough, but not for many API clients", advice)
    else:
        yield ok("ulimit -n", detail)


def check_files(subject: Subject) -> Iterator[Finding]:
    """Check who can read the configuration file, and whether its folders are accessible and have space."""
    config, file = subject.config, subject.config_file
    secrets = (
        config.http.tokens,
        config.registration.password,
        [trunk.password for trunk in config.trunks.values() if trunk.password],
        config.auth.users,
        config.tls.private_key_password,
        config.remote.token,
    )
    if file is not None and any(secrets) and file.exists() and file.stat().st_mode & _OTHERS_READ:
        yield warn("config file", f"{file} holds secrets and can be read by everybody", f"chmod o-r {file}")
    yield from _space(subject.probes, "temporary files", Path(tempfile.gettempdir()), MIN_FREE_TEMPORARY_BYTES)
    models = config.tts.models.items()
    named = {
        **{f"tts.models.{name}.model_dir": model.model_dir for name, model in models},
        **{f"tts.models.{name}.voices_dir": model.voices_dir for name, model in models},
        "tts.voices_dir": config.tts.voices_dir,
        "cache.disk_dir": config.cache.disk_dir,
    }
    for key, folder in ((key, Path(name).expanduser()) for key, name in named.items() if name):
        if key != "cache.disk_dir" and not os.access(folder, os.R_OK | os.X_OK):
            yield fail(key, f"{folder} cannot be read", "create it, or give this user the right to read it")
        yield from _space(subject.probes, key, folder, MIN_FREE_BYTES)


def _space(probes: Probes, key: str, path: Path, wanted_bytes: int) -> Iterator[Finding]:
    free_bytes = probes.free_bytes(path)
    if free_bytes is None:
        return
    if free_bytes < wanted_bytes:
        detail = f"{free_bytes / 2**20:.0f} MiB at {path} ({key})"
        yield warn("disk space", detail, f"make room: {wanted_bytes >> 20} MiB")
    else:
        yield ok("disk space", f"{free_bytes / 2**30:.1f} GiB at {path} ({key})")
