"""pjsua2, espeak-ng, and what the neural engine needs. Each is tried in a process of its own: pjsua2 and torch do not
belong into this one, and a library that crashes must not take the report with it.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cc_tts.config.schema import Config
from cc_tts.doctor.finding import CHILD_S, DEEP_S, TORCH_S, Finding, Subject, fail, ok, warn
from cc_tts.doctor.probes import Ran
from cc_tts.engines.cosyvoice2.model.directory import PUBLISHED
from cc_tts.engines.espeak.engine import EspeakEngine
from cc_tts.engines.factory import COSYVOICE2, ONNX, engine_names, make_engine
from cc_tts.errors import CcTtsError, ConfigError
from cc_tts.ua.pjsua2_build import NO_TLS, VARIABLE, WHEEL_MAX_CALLS, check_address
from cc_tts.ua.pjsua2_build import advice as build_advice
from cc_tts.voices.library import VoiceLibrary

MIN_FREE_GPU_BYTES: Final = 6 * 1024**3
"""The networks in half precision, the CUDA context, graphs, and room for some dozens of utterances."""
MAX_VOICES_SHOWN: Final = 5
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
name, is_built = build.name(max_calls), pjsua2_build.is_built()
print(json.dumps({"version": version, "max_calls": max_calls, "name": name, "is_built": is_built}), flush=True)
endpoint.libDestroy()
"""
ESPEAK: Final = """
import json, sys
from cc_tts.engines.espeak.library import EspeakLibrary, EspeakVoices
from cc_tts.errors import CcTtsError
library, problem = EspeakLibrary(), ""
try:
    EspeakVoices(library.voices(), library.variants(), sys.argv[1] or "en-us")
except CcTtsError as error:
    problem = error.detail
print(json.dumps({"num_voices": len(library.voices()), "rate_hz": library.sample_rate_hz, "problem": problem}))
"""
ONNX_VOICES: Final = """
import json, sys
from pathlib import Path
from cc_tts.engines.onnx.voices import find_voices
from cc_tts.errors import CcTtsError
try:
    found = find_voices(Path(sys.argv[1]).expanduser() if sys.argv[1] else None)
except CcTtsError as error:
    sys.exit(error.detail)
print(json.dumps({"voices": [each.voice.id for each in found]}))
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
    """Which build, and how many calls it allows."""
    answer = _ask(subject, PJSUA2, timeout_s=CHILD_S)
    if isinstance(answer, str):
        yield fail("pjsua2", answer, "`make run` installs the wheel, `make pjsua2` the server build")
        return
    max_calls = subject.build_max_calls = int(answer["max_calls"])
    detail = f"PJSIP {answer['version']}, {answer['name']}: {max_calls} calls at once"
    how = f"start with {VARIABLE}=server"
    if max_calls > WHEEL_MAX_CALLS:
        yield ok("pjsua2", detail)
    else:
        yield warn("pjsua2", detail, how if answer["is_built"] else f"`make pjsua2` builds one for 2,000, then {how}")


def require_pjsua2(config: Config) -> list[str]:
    """Find out whether the user agent can work with this pjsua2, for ``cc-tts check-config``.

    Returns:
        What it does not do, if it is the PyPI wheel.

    Raises:
        ConfigError: it does not load, or not do what is configured.
    """
    subject = Subject(config)
    (finding,) = check_pjsua2(subject)
    if subject.build_max_calls is None:
        raise ConfigError(f"pjsua2 does not load: {finding.detail}; {finding.advice}")
    if subject.build_max_calls > WHEEL_MAX_CALLS:
        return []
    if "tls" in config.sip.transports:
        raise ConfigError(NO_TLS)
    if not config.sip.allow_pypi_wheel:
        check_address(config.sip.host)
    return [build_advice(max_calls=subject.build_max_calls)]


def check_max_calls(subject: Subject) -> Iterator[Finding]:
    """``sip.max_calls`` against what the build allows, in each of the user agents."""
    wanted, of_build = subject.config.sip.max_calls, subject.build_max_calls
    allowed = None if of_build is None else of_build * subject.config.ua.processes
    if allowed is not None and wanted > allowed:
        advice = f"build a larger one (`make pjsua2`) or set sip.max_calls = {allowed}"
        yield warn("sip.max_calls", f"{wanted}, but this pjsua2 takes {allowed}", advice)
    else:
        yield ok("sip.max_calls", str(wanted or allowed or "as many as pjsua2 allows"))


def check_engine(subject: Subject) -> Iterator[Finding]:
    """Whether ``tts.engine`` names an engine and its keys are filled in."""
    try:
        yield ok("tts.engine", make_engine(subject.config).name)
    except CcTtsError as error:
        yield fail("tts.engine", error.detail, "correct [tts]; configs/cc_tts.toml has every key")


def check_espeak(subject: Subject) -> Iterator[Finding]:
    """Whether espeak-ng loads and knows the voice. Not asked when another engine speaks."""
    tts = subject.config.tts
    if EspeakEngine.name not in engine_names(tts):
        return
    answer = _ask(subject, ESPEAK, tts.voice if tts.engine == EspeakEngine.name else "", timeout_s=CHILD_S)
    if isinstance(answer, str):
        yield fail("espeak-ng", answer, "reinstall espeakng_loader, which brings the library and its data")
    elif answer["problem"]:
        yield fail("tts.voice", answer["problem"], "`cc-tts voices` lists them")
    else:
        yield ok("espeak-ng", f"{answer['num_voices']} voices at {answer['rate_hz']} Hz")


def check_onnx(subject: Subject) -> Iterator[Finding]:
    """Whether the voices of the CPU are there and their files can be read."""
    tts = subject.config.tts
    if ONNX not in engine_names(tts):
        return
    answer = _ask(subject, ONNX_VOICES, tts.voices_dir, timeout_s=CHILD_S)
    if isinstance(answer, str):
        yield fail("onnx voices", answer, "correct tts.voices_dir, or reinstall hibari-tts and onnxruntime")
    else:
        yield ok("onnx voices", _some(answer["voices"]))


def check_torch(subject: Subject) -> Iterator[Finding]:
    """Whether torch loads and sees the devices of ``tts.devices``, and their memory."""
    if COSYVOICE2 not in engine_names(subject.config.tts):
        return
    answer = _ask(subject, TORCH, timeout_s=TORCH_S)
    if isinstance(answer, str):
        yield fail("torch", answer, "pip install 'cc-tts[gpu]', or `make neural` for a CPU")
        return
    devices = answer["devices"]
    yield ok("torch", f"{answer['version']}, CUDA {answer['cuda'] or 'not built in'}, {len(devices)} devices")
    for name in subject.config.tts.devices:
        if name == "cpu" or (name == "auto" and not devices):
            yield _cpu(name)
        else:
            yield _gpu(name, devices)


def _cpu(name: str) -> Finding:
    detail = "the neural engine runs on the CPU: one utterance or two at once"
    if name == "cpu":
        return ok("device cpu", detail)
    return warn(f"device {name}", detail, 'install the driver, or say so by tts.devices = ["cpu"]')


def _gpu(name: str, devices: list[dict[str, Any]]) -> Finding:
    number = int(name.partition(":")[2] or 0)
    if number >= len(devices):
        advice = "correct tts.devices, the driver, or CUDA_VISIBLE_DEVICES"
        return fail(f"device {name}", f"torch sees {len(devices)} CUDA devices", advice)
    device = devices[number]
    detail = f"{device['name']}, {device['free'] / 2**30:.1f} of {device['total'] / 2**30:.1f} GiB free"
    if device["free"] < MIN_FREE_GPU_BYTES:
        advice = "free its memory (a running worker counts), or lower tts.max_streams"
        return warn(f"device {name}", detail, advice)
    return ok(f"device {name}", detail)


def check_model(subject: Subject) -> Iterator[Finding]:
    """Whether the model's files are there and of the published size; with ``deep``, whether they hold what they should."""
    tts = subject.config.tts
    if COSYVOICE2 not in engine_names(tts):
        return
    if not tts.model_dir:
        yield fail("tts.model_dir", "empty", "`cc-tts model download` fetches the model and says where it is")
        return
    folder = Path(tts.model_dir).expanduser()
    if missing := _missing(folder, "engine"):
        detail = f"{folder}: {', '.join(missing)} missing or empty"
        yield fail("model", detail, "`cc-tts model download` fetches the model")
        return
    if missing := _missing(folder, "enrolment"):
        detail = f"{folder}: {', '.join(missing)} missing; speaks, but enrols no voice"
        yield warn("model", detail, "`cc-tts model download` fetches them")
    yield _read_model(subject, folder) if subject.deep else _compare_sizes(folder)


def _num_bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _missing(folder: Path, need: str) -> list[str]:
    return [file.name for file in PUBLISHED if file.need == need and not _num_bytes(folder / file.name)]


def _compare_sizes(folder: Path) -> Finding:
    needed = (file for file in PUBLISHED if file.need == "engine")
    others = [file.name for file in needed if _num_bytes(folder / file.name) != file.num_bytes]
    if others:
        detail = f"{folder}: every file is there, not of the published size: {', '.join(others)}"
        return ok("model", detail, "--deep reads them")
    return ok("model", f"{folder}: every file is there")


def _read_model(subject: Subject, folder: Path) -> Finding:
    ran = subject.probes.run((*MODEL_CHECK, str(folder)), timeout_s=DEEP_S)
    if ran.status == 0:
        return ok("model", f"{folder}: read and checked")
    faults = [line for line in ran.output.splitlines() if line.startswith("wrong: ")]
    return fail("model", faults[0] if faults else _why(ran), f"`cc-tts model check {folder}` says more")


def check_voices(subject: Subject) -> Iterator[Finding]:
    """The enrolled voices, and whether ``tts.voice`` is one."""
    tts = subject.config.tts
    if COSYVOICE2 not in engine_names(tts):
        return
    advice = "`cc-tts voices enrol` makes one"
    if not tts.voices_dir:
        yield fail("voices", "tts.voices_dir is empty", advice)
        return
    library = VoiceLibrary(Path(tts.voices_dir).expanduser())
    names = [record.id for record in library.records()]
    for fault in library.faults():
        yield warn("voices", fault, "enrol it again or remove it")
    if not names:
        yield fail("voices", f"none in {tts.voices_dir}", advice)
        return
    for name in [tts.voice] if tts.voice else names:
        try:
            library.load(name)
        except CcTtsError as error:
            yield fail("voices", error.detail, advice)
    yield ok("voices", _some(names))


def _some(names: list[str]) -> str:
    more = ", …" if len(names) > MAX_VOICES_SHOWN else ""
    return f"{len(names)}: {', '.join(names[:MAX_VOICES_SHOWN])}{more}"


def _ask(subject: Subject, code: str, *arguments: str, timeout_s: float) -> dict[str, Any] | str:
    """Run Python code in a process of its own.

    Returns:
        The JSON object of its last line, or why there is none.
    """
    ran = subject.probes.run((sys.executable, "-c", code, *arguments), timeout_s=timeout_s)
    if ran.status == 0 and ran.output:
        with contextlib.suppress(ValueError):
            answer = json.loads(ran.output.splitlines()[-1])
            if isinstance(answer, dict):
                return answer
    return _why(ran)


def _why(ran: Ran) -> str:
    """Why a child failed: the last line of its output, which is where Python puts the reason."""
    if ran.status is not None and ran.status < 0:
        return f"crashed with signal {-ran.status}"
    return re.sub(r"\s+", " ", ran.output.splitlines()[-1])[:200] if ran.output else "gave no answer"
