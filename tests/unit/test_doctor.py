"""The doctor's checks on a machine that is made up."""

import errno
import json
import os
import shutil
import sys
import threading
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cc_tts.config import load as configuration
from cc_tts.config.schema import CacheConfig, Config, PlayoutConfig, RtpConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.doctor import machine, network, software
from cc_tts.doctor.command import CHECKS, bounded, examine, run
from cc_tts.doctor.finding import Check, Finding, Subject
from cc_tts.doctor.probes import Probes, Ran
from cc_tts.engines.cosyvoice.model.directory import PUBLISHED
from cc_tts.errors import UnknownVoice
from cc_tts.port_owner import Kind

pytestmark = pytest.mark.unit

OURS = "/opt/cc-tts/bin/python -m cc_tts.ua"
CPUFREQ = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
TLS = ('sip.transports=["tls"]', "tls.certificate_file=/c.pem", "tls.private_key_file=/k.pem")


class Machine(Probes):
    """A machine that is fit; each test breaks one thing. The kernel's files lie below a folder of the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bind_errors: dict[int, int] = {}
        self.holders: dict[int, str] = {}
        self.address = "8.8.4.4"
        self.has_own_name = True
        self.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
        self.write(CPUFREQ, "performance\n")
        self.write("proc/sys/net/core/rmem_max", "8388608\n")
        self.write("proc/sys/net/core/wmem_max", "8388608\n")
        self.write("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
        self.write("proc/sys/net/ipv4/ip_local_reserved_ports", "\n")
        self.free: int | None = 50 * 2**30
        self.programs: dict[str, Ran] = {"timedatectl": Ran(0, "yes")}
        self.children: dict[str, Ran] = {
            software.PJSUA2: Ran(0, f"noise\n{pjsua2(2000)}\nmore noise"),
            software.CONFIGURATION: Ran(0, configured()),
            software.VAD: Ran(0, json.dumps({"path": "/silero_vad.onnx", "fault": ""})),
            software.TORCH: Ran(0, json.dumps({"version": "2.13.0", "cuda": "12.8", "devices": [gpu(40)]})),
            "cc_tts.cli": Ran(0, "This directory can be used."),
        }
        self.num_open_files = 65_536
        self.cpus = 8
        self.step_ns = 60

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def bind_error(self, kind: Kind, host: str, port: int) -> OSError | None:
        number = self.bind_errors.get(port)
        return None if number is None else OSError(number, os.strerror(number))

    def holder(self, kind: Kind, port: int) -> str:
        return self.holders.get(port, "")

    def local_address(self) -> str:
        return self.address

    def resolves(self, name: str) -> bool:
        return self.has_own_name

    def free_bytes(self, path: Path) -> int | None:
        return self.free

    def run(self, command: Sequence[str], *, timeout_s: float, text: str = "") -> Ran:
        if command[0] == sys.executable:
            return self.children[command[2]]
        return self.programs.get(command[0], Ran(None, "No such file or directory"))

    def max_open_files(self) -> int:
        return self.num_open_files

    def num_cpus(self) -> int:
        return self.cpus

    def clock_resolution_ns(self) -> int:
        return self.step_ns


def pjsua2(max_calls: int) -> str:
    name = "server build" if max_calls > 4 else "PyPI wheel"
    return json.dumps({"version": "2.17", "max_calls": max_calls, "name": name})


def configured(*, faults: Sequence[str] = (), warnings: Sequence[str] = ()) -> str:
    return json.dumps({"faults": faults, "warnings": warnings})


def gpu(free_gib: float) -> Mapping[str, Any]:
    return {"name": "GPU", "free": int(free_gib * 2**30), "total": 80 * 2**30}


@pytest.fixture
def fit(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def subject(
    machine: Probes, *overrides: str, limit: int | None = 2000, deep: bool = False, file: Path | None = None
) -> Subject:
    loaded = configuration.load(overrides=("sip.host=10.0.0.5", *overrides))
    return Subject(loaded, machine, file, deep=deep, build_max_calls=limit)


def statuses(findings: Iterable[Finding]) -> dict[str, str]:
    """The worst status of each thing looked at."""
    worst: dict[str, str] = {}
    for finding in findings:
        order = ("ok", "warn", "fail")
        worst[finding.what] = max(worst.get(finding.what, "ok"), finding.status, key=order.index)
        assert finding.status == "ok" or finding.advice, finding
    return worst


def test_a_fit_machine_passes(fit: Machine) -> None:
    settings = configuration.load(overrides=("sip.host=0.0.0.0", "sip.max_calls=90", "rtp.port_max=30000"))
    findings = list(examine(Subject(settings, fit)))
    assert [finding for finding in findings if finding.status != "ok"] == []
    assert {finding.what for finding in findings} >= {
        "pjsua2",
        "sip.port",
        "rtp ports",
        "clock",
        "cpu",
        "configuration",
    }


# --- network


@pytest.mark.parametrize(
    ("settings", "local", "status", "words"),
    [
        (("sip.host=127.0.0.1",), "", "warn", "only this machine"),
        (("sip.host=0.0.0.0",), "203.0.113.5", "warn", "private"),
        (("sip.host=0.0.0.0",), "8.8.4.4", "ok", "8.8.4.4"),
        (("sip.host=0.0.0.0",), "", "warn", "no route"),
        (("sip.host=192.168.1.4",), "8.8.4.4", "warn", "192.168.1.4"),
        (("sip.host=10.1.1.1", "sip.public_address=8.8.4.4"), "", "ok", "reported to peers: 8.8.4.4"),
    ],
)
def test_addresses(settings: tuple[str, ...], local: str, status: str, words: str, fit: Machine) -> None:
    fit.address = local
    (finding,) = (f for f in network.check_addresses(subject(fit, *settings)) if f.what == "sip.host")
    assert (finding.status, words in finding.detail) == (status, True), finding


def test_a_host_name_without_an_address(fit: Machine) -> None:
    assert statuses(network.check_addresses(subject(fit)))["host name"] == "ok"
    fit.has_own_name = False
    assert statuses(network.check_addresses(subject(fit)))["host name"] == "warn"


@pytest.mark.parametrize(
    ("number", "holder", "status", "words"),
    [
        (errno.EADDRINUSE, OURS, "ok", "running cc-tts"),
        (errno.EADDRINUSE, "/usr/sbin/asterisk -f", "fail", "asterisk"),
        (errno.EADDRINUSE, "", "fail", "not to be seen"),
        (errno.EADDRNOTAVAIL, "", "fail", "10.0.0.5:5060/udp: "),
        (errno.EACCES, "", "fail", "10.0.0.5:5060/udp: "),
    ],
)
def test_a_port_that_cannot_be_bound(number: int, holder: str, status: str, words: str, fit: Machine) -> None:
    fit.bind_errors, fit.holders = {5060: number}, {5060: holder}
    found = list(network.check_ports(subject(fit, 'sip.transports=["udp"]')))
    assert statuses(found) == {"sip.port": status, "http.port": "ok"}
    assert words in found[0].detail


def test_the_ports_of_several_user_agents(fit: Machine) -> None:
    fit.bind_errors = {5071: errno.EADDRINUSE}
    found = list(network.check_ports(subject(fit, 'sip.transports=["udp"]', "ua.processes=2")))
    assert [(each.what, each.status) for each in found] == [
        ("sip.port", "ok"),
        ("ua.first_port", "ok"),
        ("ua.first_port", "fail"),
        ("http.port", "ok"),
    ]


@pytest.mark.parametrize(
    ("settings", "limit", "status"),
    [
        ((), 100, "ok"),
        ((), 101, "warn"),
        (("sip.max_calls=101",), 2000, "fail"),
        (("sip.max_calls=101", "rtp.port_max=16585"), 2000, "ok"),
        (("sip.max_calls=101",), 4, "ok"),
        ((), None, "ok"),
    ],
)
def test_media_ports_for_every_call(settings: tuple[str, ...], limit: int | None, status: str, fit: Machine) -> None:
    found = list(network.check_rtp(subject(fit, *settings, limit=limit)))
    assert found[0].status == status
    if status != "ok":
        assert "rtp.port_max = 16585, or sip.max_calls = 100" in found[0].advice


def test_media_ports_that_are_taken(fit: Machine) -> None:
    fit.bind_errors = {16400: errno.EADDRINUSE, 16401: errno.EADDRINUSE, 16402: errno.EADDRNOTAVAIL}
    fit.holders = {16400: OURS, 16401: OURS}
    found = list(network.check_rtp(subject(fit, limit=4)))
    assert (found[1].status, found[1].detail) == ("ok", "2 are in use by calls")
    fit.holders[16401] = "/usr/bin/other"
    found = list(network.check_rtp(subject(fit, limit=4)))
    assert found[1].status == "warn"
    assert "16401" in found[1].detail


def test_media_ports_among_the_kernels_own(fit: Machine) -> None:
    settings = ("rtp.port_min=30000", "rtp.port_max=32768")
    assert statuses(network.check_rtp(subject(fit, *settings, limit=4))) == {"rtp ports": "warn"}
    fit.write("proc/sys/net/ipv4/ip_local_reserved_ports", "30000-32768\n")
    assert statuses(network.check_rtp(subject(fit, *settings, limit=4))) == {"rtp ports": "ok"}


@pytest.mark.parametrize(("limit", "text", "status"), [(49, "212992", "ok"), (50, "212992", "warn"), (50, "", "ok")])
def test_socket_buffers(limit: int, text: str, status: str, fit: Machine) -> None:
    fit.write("proc/sys/net/core/rmem_max", text)
    found = statuses(network.check_udp_buffers(subject(fit, limit=limit)))
    assert found == {"udp rmem_max": status, "udp wmem_max": "ok"}


# --- machine


@pytest.mark.parametrize(
    ("step_ns", "source", "status"),
    [(60, "tsc", "ok"), (4_000_000, "tsc", "fail"), (600, "hpet", "warn"), (60, None, "ok")],
)
def test_clock(step_ns: int, source: str | None, status: str, fit: Machine) -> None:
    fit.step_ns = step_ns
    clock_source = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    (fit.root / clock_source).unlink()
    if source is not None:
        fit.write(clock_source, source)
    assert statuses(machine.check_clock(subject(fit)))["clock"] == status


@pytest.mark.parametrize(
    ("programs", "status", "words"),
    [
        ({"timedatectl": Ran(0, "yes")}, "ok", "synchronised"),
        ({"timedatectl": Ran(0, "no")}, "warn", "not synchronised"),
        ({"timedatectl": Ran(1, "no bus"), "chronyc": Ran(0, "Stratum : 3\nLeap status     : Normal")}, "ok", "sync"),
        ({"chronyc": Ran(0, "Leap status     : Not synchronised")}, "warn", "not synchronised"),
        ({"chronyc": Ran(None, "no answer within 2.5 s")}, "ok", "not known"),
        ({}, "ok", "not known"),
    ],
)
def test_wall_clock(programs: dict[str, Ran], status: str, words: str, fit: Machine) -> None:
    fit.programs = programs
    (finding,) = (f for f in machine.check_clock(subject(fit)) if f.what == "wall clock")
    assert (finding.status, words in finding.detail) == (status, True)


def test_cpu(fit: Machine) -> None:
    fit.cpus = 1
    fit.write(CPUFREQ.replace("cpu0", "cpu1"), "powersave\n")
    fit.write("sys/fs/cgroup/cpu.max", "150000 100000\n")
    assert statuses(machine.check_cpu(subject(fit))) == {"cpu": "warn", "cpu governor": "warn", "cpu quota": "warn"}
    shutil.rmtree(fit.root / "sys/devices")
    fit.write("sys/fs/cgroup/cpu.max", "max 100000\n")
    assert statuses(machine.check_cpu(subject(fit))) == {"cpu": "warn", "cpu governor": "ok"}


@pytest.mark.parametrize(("limit", "status"), [(527, "fail"), (528, "warn"), (1056, "ok")])
def test_descriptors(limit: int, status: str, fit: Machine) -> None:
    fit.num_open_files = limit
    assert statuses(machine.check_descriptors(subject(fit, "sip.max_calls=200"))) == {"ulimit -n": status}


def test_files_and_disks(fit: Machine, tmp_path: Path) -> None:
    voices, written, config_file = tmp_path / "v", tmp_path / "c", tmp_path / "c.toml"
    voices.mkdir()
    config_file.touch(0o640)
    settings = (f"tts.models.main.model_dir={tmp_path}", f"tts.voices_dir={voices}", "http.tokens=a-secret-token")
    looked_at = subject(fit, *settings, file=config_file)
    found = statuses(machine.check_files(looked_at))
    assert found == {"disk space": "ok"}
    voices.rmdir()
    config_file.chmod(0o644)
    fit.free = 2**20
    found = statuses(machine.check_files(looked_at))
    assert found == {"tts.voices_dir": "fail", "config file": "warn", "disk space": "warn"}
    found_of_cache = list(machine.check_files(subject(fit, f"cache.disk_dir={written}")))
    assert [finding.status for finding in found_of_cache] == ["warn", "warn"]
    assert str(written) in found_of_cache[1].detail
    fit.free = None
    assert statuses(machine.check_files(subject(fit, file=config_file))) == {}


@pytest.mark.parametrize(
    "secret",
    [
        "http.tokens=a-secret-token",
        "registration.password=secret",
        'auth.users=[{username="pbx", password="a-secret"}]',
        "tls.private_key_password=secret",
        "remote.token=a-long-secret",
    ],
)
def test_a_configuration_with_secrets_that_everybody_can_read(secret: str, fit: Machine, tmp_path: Path) -> None:
    config_file = tmp_path / "c.toml"
    config_file.touch()
    config_file.chmod(0o644)
    assert statuses(machine.check_files(subject(fit, secret, file=config_file)))["config file"] == "warn"
    assert "config file" not in statuses(machine.check_files(subject(fit, file=config_file)))


# --- software


@pytest.mark.parametrize(
    ("ran", "status", "limit", "words"),
    [
        (Ran(0, pjsua2(2000)), "ok", 2000, "2000 calls"),
        (Ran(0, pjsua2(4)), "warn", 4, "PyPI wheel"),
        (Ran(1, "Traceback\nModuleNotFoundError: No module named 'pjsua2'"), "fail", None, "No module named"),
        (Ran(-11, ""), "fail", None, "signal 11"),
        (Ran(None, "no answer within 30 s"), "fail", None, "no answer"),
        (Ran(0, "[]"), "fail", None, "[]"),
        (Ran(0, ""), "fail", None, "gave no answer"),
    ],
)
def test_pjsua2(ran: Ran, status: str, limit: int | None, words: str, fit: Machine) -> None:
    fit.children[software.PJSUA2] = ran
    looked_at = subject(fit, limit=None)
    (finding,) = software.check_pjsua2(looked_at)
    assert (finding.status, looked_at.build_max_calls) == (status, limit)
    assert words in finding.detail


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (("sip.max_calls=4",), {"pjsua2": "warn"}),
        (("sip.max_calls=5",), {"pjsua2": "warn", "sip.max_calls": "warn"}),
        (("sip.max_calls=5", "ua.processes=2", 'sip.transports=["udp"]'), {"pjsua2": "warn"}),
        (TLS, {"pjsua2": "warn", "tls": "fail"}),
        (("sip.host=8.8.4.4",), {"pjsua2": "warn", "sip.host": "fail"}),
        (("sip.host=8.8.4.4", "sip.allow_pypi_wheel=true"), {"pjsua2": "warn"}),
    ],
)
def test_what_the_wheel_does_not_do(settings: tuple[str, ...], found: dict[str, str], fit: Machine) -> None:
    fit.children[software.PJSUA2] = Ran(0, pjsua2(4))
    findings = list(software.check_pjsua2(subject(fit, *settings)))
    assert statuses(findings) == found
    assert all(
        "CC_TTS_PJSUA2=server" in finding.advice or "cc-tts pjsua2 build" in finding.advice for finding in findings
    )


def test_the_server_build_does_it(fit: Machine) -> None:
    looked_at = subject(fit, *TLS, "sip.host=8.8.4.4", "sip.max_calls=500")
    assert statuses(software.check_pjsua2(looked_at)) == {"pjsua2": "ok"}


def test_configuration(fit: Machine) -> None:
    assert statuses(software.check_configuration(subject(fit))) == {"configuration": "ok"}
    faults = ["tts.voice: no voice is called 'x'; did you mean 'y'?", "cache.disk_dir: Not a directory"]
    fit.children[software.CONFIGURATION] = Ran(
        0, configured(faults=faults, warnings=["c.pem expires; have it renewed"])
    )
    assert [(each.status, each.detail, each.advice) for each in software.check_configuration(subject(fit))] == [
        ("fail", "tts.voice: no voice is called 'x'", "did you mean 'y'?"),
        ("fail", "cache.disk_dir: Not a directory", "change the keys that it names"),
        ("warn", "c.pem expires", "have it renewed"),
    ]
    fit.children[software.CONFIGURATION] = Ran(-11, "")
    (finding,) = software.check_configuration(subject(fit))
    assert (finding.status, finding.detail) == ("fail", "could not be checked: crashed with signal 11")


def test_a_configuration_is_checked_by_a_process_of_its_own(tmp_path: Path) -> None:
    settings = ("tts.engine=espeak", "sip.port=0", "http.port=0", "http.tokens=a-secret-token")
    looked_at = Subject(configuration.load(overrides=settings))
    assert statuses(software.check_configuration(looked_at)) == {"configuration": "ok"}
    wrong = ("sip.host=192.0.2.7", "tts.voice=en-uss", "cache.disk_dir=/dev/null/cache")
    found = list(software.check_configuration(Subject(configuration.load(overrides=(*settings, *wrong)))))
    assert [finding.status for finding in found] == ["fail", "fail", "fail"]
    assert [finding.detail.partition(":")[0] for finding in found] == ["sip.host", "cache.disk_dir", "tts.voice"]


@pytest.mark.parametrize(
    ("devices", "gpus", "found"),
    [
        ('["auto"]', [gpu(40)], {"device auto": "ok"}),
        ('["auto"]', [gpu(2)], {"device auto": "warn"}),
        ('["auto"]', [], {"device auto": "warn"}),
        ('["cpu"]', [], {"device cpu": "ok"}),
        ('["cuda:0", "cuda:1"]', [gpu(40)], {"device cuda:0": "ok", "device cuda:1": "fail"}),
    ],
)
def test_devices(devices: str, gpus: list[Any], found: dict[str, str], fit: Machine) -> None:
    fit.children[software.TORCH] = Ran(0, json.dumps({"version": "2", "cuda": "", "devices": gpus}))
    checked = statuses(software.check_torch(subject(fit, "tts.engine=cosyvoice2", f"tts.devices={devices}")))
    assert checked == {"torch": "ok", **found}


@pytest.mark.parametrize(("device", "status"), [("auto", "warn"), ("cuda:0", "fail")])
def test_a_driver_that_is_too_old_is_named_with_the_one_that_is_needed(device: str, status: str, fit: Machine) -> None:
    fit.children[software.TORCH] = Ran(0, json.dumps({"version": "2.13.0", "cuda": "13.0", "devices": []}))
    fit.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n")
    _, found = software.check_torch(subject(fit, "tts.engine=cosyvoice2", f'tts.devices=["{device}"]'))
    assert found.status == status
    assert "driver 535.183.01 was found" in found.detail
    assert "needs driver 580 or newer" in found.detail
    assert "CUDA 12 " in found.advice


def test_nvidia_smi_says_the_driver_where_the_kernel_shows_none(fit: Machine) -> None:
    fit.children[software.TORCH] = Ran(0, json.dumps({"version": "2.13.0", "cuda": "13.0", "devices": []}))
    fit.programs["nvidia-smi"] = Ran(0, "580.95.05")
    _, found = software.check_torch(subject(fit, "tts.engine=cosyvoice2", 'tts.devices=["auto"]'))
    assert "driver 580.95.05 was found, which is new enough" in found.detail
    assert "CUDA_VISIBLE_DEVICES" in found.advice


@pytest.mark.parametrize(
    ("settings", "fault", "found"),
    [
        ([], "", "ok"),
        ([], "needs the model; install it", "ok"),
        (["calls.barge_in_speech=true"], "", "ok"),
        (["calls.barge_in_speech=true"], "needs the model; install it", "fail"),
        (["routes.*.barge_in_speech={min_speech_ms = 200}"], "needs the model; install it", "fail"),
        (["vad.model_file=/missing"], "there is no file /missing", "fail"),
    ],
)
def test_the_model_that_hears_speech(fit: Machine, settings: list[str], fault: str, found: str) -> None:
    fit.children[software.VAD] = Ran(0, json.dumps({"path": "/silero_vad.onnx", "fault": fault}))
    assert statuses(software.check_vad(subject(fit, *settings))) == {"vad": found}


def test_torch_that_is_not_there(fit: Machine) -> None:
    fit.children[software.TORCH] = Ran(1, "ModuleNotFoundError: No module named 'torch'")
    assert statuses(software.check_torch(subject(fit, "tts.engine=cosyvoice2"))) == {"torch": "fail"}
    assert list(software.check_torch(subject(fit))) == []
    elsewhere = ("tts.engine=cosyvoice2", "tts.devices=[]", 'tts.workers=["grpc://10.0.0.5:7400"]')
    assert list(software.check_torch(subject(fit, *elsewhere))) == []


def test_model(fit: Machine, tmp_path: Path) -> None:
    looked_at = subject(fit, "tts.engine=cosyvoice2", f"tts.models.main.model_dir={tmp_path}")
    assert statuses(software.check_model(looked_at)) == {"model": "fail"}
    for need, status in (("engine", "warn"), ("enrolment", "ok")):  # without the second it enrols no voice
        for file in PUBLISHED[2]:
            if file.need == need:
                write_hole(tmp_path / file.name, file.num_bytes)
        assert statuses(software.check_model(looked_at)) == {"model": status}
    write_hole(tmp_path / "llm.pt", 7)
    (finding,) = software.check_model(looked_at)
    assert "not of the published size: llm.pt" in finding.detail
    looked_at.deep = True
    assert statuses(software.check_model(looked_at)) == {"model": "ok"}
    fit.children["cc_tts.cli"] = Ran(1, "/m\nwrong: llm.pt: cut short\nThis directory cannot be used.")
    (finding,) = software.check_model(looked_at)
    assert (finding.status, finding.detail) == ("fail", "wrong: llm.pt: cut short")


def write_hole(path: Path, num_bytes: int) -> None:
    """A file of this size that takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(num_bytes)


def test_voices(fit: Machine, tmp_path: Path) -> None:
    looked_at = subject(fit, "tts.engine=cosyvoice2", f"tts.voices_dir={tmp_path}")
    assert statuses(software.check_voices(looked_at)) == {"voices": "ok"}
    (tmp_path / "anna.voice.json").write_text("{")
    assert statuses(software.check_voices(looked_at)) == {"voices": "warn"}
    (tmp_path / "anna.voice.json").write_text(
        json.dumps({"id": "anna", "language": "en", "mode": "cross_lingual", "key": "0" * 64})
    )
    (finding, *_) = software.check_voices(looked_at)
    assert (finding.status, "features" in finding.detail) == ("warn", True)


# --- the report


def test_a_check_that_hangs_does_not_hold_the_report(fit: Machine) -> None:
    never = threading.Event()

    def hang(_subject: Subject) -> Iterable[Finding]:
        never.wait()
        return ()

    (finding,) = bounded(Check("disk", hang, timeout_s=0.0), subject(fit))
    never.set()
    assert (finding.status, finding.what) == ("warn", "disk")
    assert "no answer within 0 s" in finding.detail


def test_a_check_that_breaks_is_a_finding(fit: Machine) -> None:
    def break_down(_subject: Subject) -> Iterable[Finding]:
        raise KeyError("cpu")

    (finding,) = bounded(Check("cpu", break_down), subject(fit))
    assert (finding.status, finding.detail) == ("warn", "could not be checked: KeyError: 'cpu'")


def test_what_others_wrote_stays_on_its_line() -> None:
    assert str(Finding("fail", "http.port", "taken by: a\n\x1b[2Jb")) == "fail  http.port       taken by: a  [2Jb"


def test_every_check_is_bounded() -> None:
    assert all(0 < check.timeout_s <= 2000 for check in CHECKS)
    assert len({check.what for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(("broken", "status"), [(False, 0), (True, 1)])
@pytest.mark.parametrize("as_json", [False, True])
def test_exit_status_and_form(
    as_json: bool, broken: bool, status: int, fit: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    if broken:
        fit.bind_errors = {8080: errno.EADDRINUSE}
    assert run(Namespace(config=None, json=as_json, deep=False, path=False), Config(), probes=fit) == status
    out = capsys.readouterr().out
    if as_json:
        report = json.loads(out)
        assert report["ok"] is (status == 0)
        assert {"status", "what", "detail", "advice"} == set(report["findings"][0])
        return
    lines = out.splitlines()
    assert all(line.split()[0] in ("ok", "warn", "fail") for line in lines)
    assert all("→" in line for line in lines if not line.startswith("ok"))
    assert any(line.startswith("fail  http.port") for line in lines) is broken


@pytest.mark.parametrize(
    ("config", "voice", "path"),
    [
        (
            Config(tts=TtsConfig(engine="espeak")),
            None,
            (
                "text ▸ cache 64 MiB ▸ chunker 60/200 characters ▸ engine(espeak, en-us) ▸ resampler 22050▸8000"
                " ▸ level -20 dBFS ▸ chunks 200 ms ▸ window 1000 ms ▸ UA ▸ playout (starts at 40 to 300 ms)"
                " ▸ PCMU or PCMA or G722 or L16"
            ),
        ),
        (
            Config(
                tts=TtsConfig(engine="espeak", first_chunk_max_chars=40, chunk_max_chars=90),
                cache=CacheConfig(enabled=False),
                rtp=RtpConfig(clock_rate_hz=16000, codecs=("G722", "PCMA")),
                playout=PlayoutConfig(window_ms=600, start_threshold_min_ms=60, start_threshold_max_ms=200),
            ),
            "de",
            (
                "text ▸ chunker 40/90 characters ▸ engine(espeak, de) ▸ resampler 22050▸16000"
                " ▸ level -20 dBFS ▸ chunks 200 ms"
                " ▸ window 600 ms ▸ UA ▸ playout (starts at 60 to 200 ms) ▸ G722 or PCMA"
            ),
        ),
    ],
)
def test_the_path_of_a_prompt_is_that_of_the_configuration(
    capsys: pytest.CaptureFixture[str], config: Config, voice: str | None, path: str
) -> None:
    assert run(Namespace(path=True, voice=voice), config) == 0
    assert capsys.readouterr().out == path + "\n"


def test_a_path_needs_a_voice_that_exists() -> None:
    with pytest.raises(UnknownVoice):
        run(Namespace(path=True, voice="nobody"), Config(tts=TtsConfig(engine="espeak")))
