"""Clock, processor, limits, disks and permissions."""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_tts.config.schema import Config
from cc_tts.doctor.finding import QUICK_S, Finding, Subject
from cc_tts.doctor.probes import Probes

MAX_CLOCK_STEP_NS: Final = 1_000_000
"""A twentieth of a 20 ms tick of the media clock, ns."""
SLOW_CLOCKS: Final = frozenset({"acpi_pm", "hpet", "jiffies", "pit"})
"""Clock sources that are asked over a bus or tick with the scheduler: each reading takes microseconds."""
DESCRIPTORS_A_CALL: Final = 2
DESCRIPTORS_BESIDES: Final = 128
"""Transports, channels, log, HTTP and WebSocket clients."""
MIN_FREE_BYTES: Final = 1024**3
MIN_FREE_TEMPORARY_BYTES: Final = 64 * 1024**2
"""Of the folder for temporary files, which is often in memory."""
CLOCKS: Final = "/sys/devices/system/clocksource/clocksource0"
CPUS: Final = "/sys/devices/system/cpu"
WRITTEN: Final = frozenset({"cache.disk_dir"})
"""Folders that the server makes and fills; the others it only reads."""
_OTHERS_READ: Final = 0o004
_TIMEDATECTL: Final = ("timedatectl", "show", "--property=NTPSynchronized", "--value")


def check_clock(_subject: Subject, probes: Probes) -> Iterator[Finding]:
    """CLOCK_MONOTONIC, and whether the wall clock of the log is right."""
    step_ns = probes.clock_resolution_ns()
    source = probes.read_text(f"{CLOCKS}/current_clocksource") or "source not known"
    if step_ns > MAX_CLOCK_STEP_NS:
        advice = "the 20 ms media clock cannot run on it; use another kernel or machine"
        yield Finding("fail", "clock", f"{source}, steps of {step_ns / 1e6:g} ms", advice)
    elif source in SLOW_CLOCKS:
        advice = f"choose tsc or kvm-clock, if {CLOCKS}/available_clocksource has it"
        yield Finding("warn", "clock", f"{source}, slow to read", advice)
    else:
        yield Finding("ok", "clock", f"{source}, steps of {step_ns} ns")
    is_right = _is_synchronised(probes)
    if is_right is None:
        yield Finding(
            "ok", "wall clock", "not known whether it is synchronised: neither timedatectl nor chronyc reports it"
        )
    elif is_right:
        yield Finding("ok", "wall clock", "synchronised")
    else:
        yield Finding(
            "warn",
            "wall clock",
            "not synchronised",
            "start chrony or systemd-timesyncd: logs and events bear wrong times",
        )


def _is_synchronised(probes: Probes) -> bool | None:
    if probes.has_program("timedatectl"):
        ran = probes.run(_TIMEDATECTL, timeout_s=QUICK_S / 2)
        if ran.status == 0 and ran.output in {"yes", "no"}:
            return ran.output == "yes"
    if probes.has_program("chronyc"):
        ran = probes.run(("chronyc", "-n", "tracking"), timeout_s=QUICK_S / 2)
        if ran.status == 0:
            return any(
                line.split(":", 1)[-1].strip() == "Normal" for line in ran.output.splitlines() if "Leap status" in line
            )
    return None


def check_cpu(_subject: Subject, probes: Probes) -> Iterator[Finding]:
    """How many cores, at what speed, and whether a quota stops them."""
    num_cpus = probes.num_cpus()
    if num_cpus < 2:  # noqa: PLR2004
        advice = "give it two: the 20 ms media clock waits for synthesis otherwise"
        yield Finding("warn", "cpu", "1 core", advice)
    else:
        yield Finding("ok", "cpu", f"{num_cpus} cores")
    texts = [probes.read_text(path) for path in probes.glob(CPUS, "cpu[0-9]*/cpufreq/scaling_governor")]
    governors = Counter(text for text in texts if text)
    others = sorted(set(governors) - {"performance"})
    if others:
        advice = f"cpupower frequency-set -g performance (or write it to {CPUS}/cpu*/cpufreq/scaling_governor)"
        yield Finding("warn", "cpu governor", f"{governors[others[0]]} cores on {', '.join(others)}", advice)
    else:
        detail = "performance" if governors else "none here, as in most virtual machines"
        yield Finding("ok", "cpu governor", detail)
    quota = (probes.read_text("/sys/fs/cgroup/cpu.max") or "max").split()
    if quota[0] != "max":
        detail = f"{quota[0]} of every {quota[-1]} µs: when it is used up, all calls pause for the rest"
        yield Finding("warn", "cpu quota", detail, "reserve cores (cpuset, requests) instead of limiting time")


def check_descriptors(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """``ulimit -n`` against the number of calls."""
    limit = probes.max_open_files()
    wanted = DESCRIPTORS_A_CALL * subject.num_calls + DESCRIPTORS_BESIDES
    detail = f"{limit} for {subject.num_calls} calls"
    advice = f"ulimit -n {max(4096, 2 * wanted)}, or LimitNOFILE= of the service"
    if limit < wanted:
        yield Finding("fail", "ulimit -n", detail, advice)
    elif limit < 2 * wanted:
        yield Finding("warn", "ulimit -n", f"{detail}: enough, but not for many API clients", advice)
    else:
        yield Finding("ok", "ulimit -n", detail)


def check_files(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """Every file and folder that the configuration names, and the room they have."""
    named = dict(_named_paths(subject.config))
    for key, path in named.items():
        if key in WRITTEN:
            yield _written(key, path, probes)
        elif not probes.can_read(path):
            yield Finding("fail", key, f"{path} cannot be read", "create it, or give this user the right to read it")
        elif _is_secret(key) and (probes.mode(path) or 0) & _OTHERS_READ:
            yield Finding("warn", key, f"{path} can be read by everybody", f"chmod o-r {path}")
        else:
            yield Finding("ok", key, f"{path} can be read")
    file = subject.config_file
    if file is not None and _holds_secret(subject.config) and (probes.mode(file) or 0) & _OTHERS_READ:
        yield Finding("warn", "config file", f"{file} holds secrets and can be read by everybody", f"chmod o-r {file}")
    folders = {key: path for key, path in named.items() if key.endswith("_dir")}
    for key, path in {"temporary files": Path(tempfile.gettempdir()), **folders}.items():
        free_bytes = probes.free_bytes(path)
        wanted = MIN_FREE_BYTES if key in folders else MIN_FREE_TEMPORARY_BYTES
        if free_bytes is not None and free_bytes < wanted:
            detail = f"{free_bytes / 2**20:.0f} MiB at {path} ({key})"
            yield Finding("warn", "disk space", detail, f"make room: {wanted >> 20} MiB")
        elif free_bytes is not None:
            yield Finding("ok", "disk space", f"{free_bytes / 2**30:.1f} GiB at {path} ({key})")


def _written(key: str, path: Path, probes: Probes) -> Finding:
    if probes.can_write(path):
        return Finding("ok", key, f"{path} can be written")
    return Finding("fail", key, f"{path} cannot be written", "give this user the right to write it, or name another")


def _named_paths(config: Config) -> Iterator[tuple[str, Path]]:
    """``section.key`` of every key that ends with ``_file`` or ``_dir`` and is set."""
    for section in dataclasses.fields(config):
        values = getattr(config, section.name)
        if not dataclasses.is_dataclass(values):
            continue
        for field in dataclasses.fields(values):
            value = getattr(values, field.name)
            if field.name.endswith(("_file", "_dir")) and isinstance(value, str) and value:
                yield f"{section.name}.{field.name}", Path(value).expanduser()


def _is_secret(key: str) -> bool:
    return key.endswith("key_file")


def _holds_secret(config: Config) -> bool:
    return bool(config.http.tokens or config.registration.password)
