"""pjsua2, espeak-ng, and what the neural engine needs. Each is tried in a process of its own: pjsua2 and torch do not
belong into this one, and a library that crashes must not take the report with it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cc_tts.config.schema import Config
from cc_tts.doctor.finding import CHILD_S, DEEP_S, TORCH_S, Finding, Subject
from cc_tts.doctor.probes import Probes, Ran
from cc_tts.engines.cosyvoice2.model.directory import PUBLISHED
from cc_tts.engines.espeak.engine import EspeakEngine
from cc_tts.engines.factory import COSYVOICE2, make_engine
from cc_tts.errors import CcTtsError, ConfigError
from cc_tts.ua.pjsua2_build import NO_TLS, VARIABLE, WHEEL_MAX_CALLS, check_address
from cc_tts.ua.pjsua2_build import advice as build_advice
from cc_tts.voices.library import VoiceLibrary

MIN_FREE_GPU_BYTES: Final = 6 * 1024**3
"""The networks in half precision, the CUDA context, graphs, and room for some dozens of utterances."""

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
name, is_built = build.name(max_calls), pjsua2_build.is_built()
print(json.dumps({"version": version, "max_calls": max_calls, "name": name, "is_built": is_built}), flush=True)
endpoint.libDestroy()
"""
ESPEAK: Final = """
import json, sys
from cc_tts.engines.espeak.library import EspeakLibrary, EspeakVoices
from cc_tts.errors import CcTtsError, ConfigError
library, problem = EspeakLibrary(), ""
try:
    EspeakVoices(library.voices(), library.variants(), sys.argv[1] or "en-us")
except CcTtsError as error:
    problem = error.detail
print(json.dumps({"num_voices": len(library.voices()), "rate_hz": library.sample_rate_hz, "problem": problem}))
"""
TORCH: Final = """
import json, torch
devices = []
for number in range(torch.cuda.device_count()):
    free, total = torch.cuda.mem_get_info(number)
    devices.append({"name": torch.cuda.get_device_name(number), "free": free, "total": total})
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or "", "devices": devices}))
"""
MODEL_CHECK: Final = """
import sys
from cc_tts import cli
sys.exit(cli.main(["model", "check", sys.argv[1]]))
"""


def ask_pjsua2(probes: Probes) -> tuple[Finding, int | None]:
    """Which build, and how many calls it allows (``None`` if it does not load)."""
    ran = probes.python(PJSUA2, timeout_s=CHILD_S)
    answer = _answer(ran)
    if answer is None:
        advice = "`make run` installs the wheel, `make pjsua2` the server build"
        return Finding("fail", "pjsua2", _why(ran), advice), None
    max_calls = int(answer["max_calls"])
    detail = f"PJSIP {answer['version']}, {answer['name']}: {max_calls} calls at once"
    if max_calls > WHEEL_MAX_CALLS:
        return Finding("ok", "pjsua2", detail), max_calls
    how = f"start with {VARIABLE}=server"
    advice = how if answer["is_built"] else f"`make pjsua2` builds one for 2,000, then {how}"
    return Finding("warn", "pjsua2", detail, advice), max_calls


def require_pjsua2(config: Config, probes: Probes) -> list[str]:
    """Find out whether the user agent can work with this pjsua2, for ``cc-tts check-config``.

    Returns:
        What it does not do, if it is the PyPI wheel.

    Raises:
        ConfigError: it does not load, or not do what is configured.
    """
    finding, max_calls = ask_pjsua2(probes)
    if max_calls is None:
        raise ConfigError(f"pjsua2 does not load: {finding.detail}; {finding.advice}")
    if max_calls > WHEEL_MAX_CALLS:
        return []
    if "tls" in config.sip.transports:
        raise ConfigError(NO_TLS)
    if not config.sip.allow_pypi_wheel:
        check_address(config.sip.host)
    return [build_advice(max_calls=max_calls)]


def check_max_calls(subject: Subject, _probes: Probes) -> Iterator[Finding]:
    """``sip.max_calls`` against what the build allows."""
    wanted, allowed = subject.config.sip.max_calls, subject.build_max_calls
    if allowed is not None and wanted > allowed:
        advice = f"build a larger one (`make pjsua2`) or set sip.max_calls = {allowed}"
        yield Finding("warn", "sip.max_calls", f"{wanted}, but this pjsua2 takes {allowed}", advice)
    else:
        yield Finding("ok", "sip.max_calls", str(wanted or allowed or "as many as pjsua2 allows"))


def check_engine(subject: Subject, _probes: Probes) -> Iterator[Finding]:
    """Whether ``tts.engine`` names an engine and its keys are filled in."""
    try:
        engine = make_engine(subject.config)
    except CcTtsError as error:
        yield Finding("fail", "tts.engine", error.detail, "correct [tts]; configs/cc_tts.toml has every key")
    else:
        yield Finding("ok", "tts.engine", engine.name)


def check_espeak(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """Whether espeak-ng loads and knows the voice. Not asked when another engine speaks."""
    if subject.config.tts.engine != EspeakEngine.name:
        return
    ran = probes.python(ESPEAK, subject.config.tts.voice, timeout_s=CHILD_S)
    answer = _answer(ran)
    if answer is None:
        advice = "reinstall espeakng_loader, which brings the library and its data"
        yield Finding("fail", "espeak-ng", _why(ran), advice)
    elif answer["problem"]:
        yield Finding("fail", "tts.voice", answer["problem"], "`cc-tts voices` lists them")
    else:
        yield Finding("ok", "espeak-ng", f"{answer['num_voices']} voices at {answer['rate_hz']} Hz")


def check_torch(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """Whether torch loads and sees the devices of ``tts.devices``, and their memory."""
    if subject.config.tts.engine != COSYVOICE2:
        return
    ran = probes.python(TORCH, timeout_s=TORCH_S)
    answer = _answer(ran)
    if answer is None:
        yield Finding("fail", "torch", _why(ran), "pip install 'cc-tts[gpu]', or `make neural` for a CPU")
        return
    devices = answer["devices"]
    yield Finding(
        "ok", "torch", f"{answer['version']}, CUDA {answer['cuda'] or 'not built in'}, {len(devices)} devices"
    )
    for name in subject.config.tts.devices:
        yield _device(name, devices)


def _device(name: str, devices: list[dict[str, Any]]) -> Finding:
    if name == "cpu" or (name == "auto" and not devices):
        advice = "" if name == "cpu" else 'install the driver, or say so by tts.devices = ["cpu"]'
        detail = "the neural engine runs on the CPU: one utterance or two at once"
        return Finding("warn" if advice else "ok", f"device {name}", detail, advice)
    number = int(name.partition(":")[2] or 0)
    if number >= len(devices):
        detail = f"torch sees {len(devices)} CUDA devices"
        return Finding("fail", f"device {name}", detail, "correct tts.devices, the driver, or CUDA_VISIBLE_DEVICES")
    device = devices[number]
    detail = f"{device['name']}, {device['free'] / 2**30:.1f} of {device['total'] / 2**30:.1f} GiB free"
    if device["free"] < MIN_FREE_GPU_BYTES:
        return Finding(
            "warn", f"device {name}", detail, "free its memory (a running worker counts), or lower tts.max_streams"
        )
    return Finding("ok", f"device {name}", detail)


def check_model(subject: Subject, probes: Probes) -> Iterator[Finding]:
    """Whether the model's files are there and of the published size; with ``deep``, whether they are what they say."""
    tts = subject.config.tts
    if tts.engine != COSYVOICE2:
        return
    if not tts.model_dir:
        yield Finding(
            "fail", "tts.model_dir", "empty", "`cc-tts model download` fetches the model and says where it is"
        )
        return
    folder = Path(tts.model_dir).expanduser()
    found = {file.name: probes.num_bytes(folder / file.name) for file in PUBLISHED}
    missing = [file.name for file in PUBLISHED if file.need == "engine" and not found[file.name]]
    for_enrolment = [file.name for file in PUBLISHED if file.need == "enrolment" and not found[file.name]]
    others = [
        file.name for file in PUBLISHED if found[file.name] not in {None, file.num_bytes} and file.need == "engine"
    ]
    if missing:
        detail = f"{folder}: {', '.join(missing)} missing or empty"
        yield Finding("fail", "model", detail, "`cc-tts model download` fetches the model")
        return
    if for_enrolment:
        detail = f"{folder}: {', '.join(for_enrolment)} missing; speaks, but enrols no voice"
        yield Finding("warn", "model", detail, "`cc-tts model download` fetches them")
    if not subject.deep:
        remark = f", not of the published size: {', '.join(others)}" if others else ""
        yield Finding("ok", "model", f"{folder}: every file is there{remark}", "--deep reads them" if others else "")
        return
    ran = probes.python(MODEL_CHECK, str(folder), timeout_s=DEEP_S)
    lines = [line for line in ran.output.splitlines() if line.startswith("wrong: ")] or [_why(ran)]
    if ran.status == 0:
        yield Finding("ok", "model", f"{folder}: read and checked")
    else:
        yield Finding("fail", "model", lines[0], f"`cc-tts model check {folder}` says more")


def check_voices(subject: Subject, _probes: Probes) -> Iterator[Finding]:
    """The enrolled voices, and whether ``tts.voice`` is one."""
    tts = subject.config.tts
    if tts.engine != COSYVOICE2:
        return
    advice = "`cc-tts voices enrol` makes one"
    if not tts.voices_dir:
        yield Finding("fail", "voices", "tts.voices_dir is empty", advice)
        return
    library = VoiceLibrary(Path(tts.voices_dir).expanduser())
    names = [record.id for record in library.records()]
    for fault in library.faults():
        yield Finding("warn", "voices", fault, "enrol it again or remove it")
    if not names:
        yield Finding("fail", "voices", f"none in {tts.voices_dir}", advice)
        return
    for name in [tts.voice] if tts.voice else names:
        try:
            library.load(name)
        except CcTtsError as error:
            yield Finding("fail", "voices", error.detail, advice)
    yield Finding("ok", "voices", f"{len(names)}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}")  # noqa: PLR2004


def _answer(ran: Ran) -> dict[str, Any] | None:
    """The JSON object of the child's last line."""
    if ran.status != 0 or not ran.output:
        return None
    try:
        answer = json.loads(ran.output.splitlines()[-1])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _why(ran: Ran) -> str:
    """The last line of what a child said, which is where Python puts the reason."""
    if ran.status is not None and ran.status < 0:
        return f"crashed with signal {-ran.status}"
    return re.sub(r"\s+", " ", ran.output.splitlines()[-1])[:200] if ran.output else "gave no answer"
