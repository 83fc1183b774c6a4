"""``cc-tts`` as a stranger types it: what it imports, and what it says of a configuration that cannot work."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TIMEOUT_S = 250.0
HEAVY = (
    "aiohttp",
    "asyncio",
    "msgspec",
    "num2words",
    "numpy",
    "prometheus_client",
    "pjsua2",
    "soxr",
    "torch",
)
END = "== end"
ESPEAK = ("--set", "tts.engine=espeak")
FREE_PORTS = ("--set", "sip.port=0", "--set", "http.port=0")


def cc_tts(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CC_TTS_")}
    return subprocess.run(
        [sys.executable, "-m", "cc_tts.cli", *arguments],
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["say", "--help"], ["serve", "--help"], ["say"]])
def test_asking_for_help_imports_nothing_that_is_slow(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom cc_tts import cli\n"
        f"try:\n    cli.main({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print('imported:', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert ran.stdout.splitlines()[-1] == "imported:"


def test_only_a_process_that_prepares_texts_compiles_their_rules_and_warm_up_compiles_all() -> None:
    code = """
from tests.support.counted_rules import compiled
import cc_tts.server
from cc_tts.text.normalizer import Normalizer
print(len(compiled))
normalizer = Normalizer()
normalizer.warm_up()
was = len(compiled)
for language, text in (("en-US", "See 18 U.S.C. 1 at 5 pm, $5."), ("en-GB", "On 3/4/2026, 5 km."), ("zh", "在 3/4 买 5kg")):
    normalizer.normalize(text, language)
print(was > 200, len(compiled) - was)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert ran.stdout.split() == ["0", "True", "0"]


def test_help_lists_every_command() -> None:
    ran = cc_tts("--help")
    assert ran.returncode == 0
    for command in ("serve", "drain", "call", "say", "voices", "model", "config", "check-config", "doctor"):
        assert command in [line.strip().split(" ")[0] for line in ran.stdout.splitlines()]


LONG_NAME = "a" * 300
"""A name that no file can have. Root, who runs some tests, may read and write everything else."""
FAULTS = {
    "engine": (["tts.engine=espeek"], "tts.engine: no engine is called 'espeek'; did you mean 'espeak'?"),
    "voice": (["tts.voice=en-uss"], "tts.voice: no voice is called 'en-uss'; did you mean en-us"),
    "language": (["tts.language=tlh"], "tts.language: en-us does not speak 'tlh': no voice speaks 'tlh'"),
    "voice of a route": (
        ["routes.sales.voice=en-gbb"],
        "routes.sales.voice: no voice is called 'en-gbb'; did you mean en-gb",
    ),
    "language of a route": (
        ["routes.sales.language=tlh"],
        "routes.sales.language: en-us does not speak 'tlh': no voice speaks 'tlh'",
    ),
    "greeting that its voice cannot speak": (
        ["tts.engine=onnx", "routes.a.greeting=您好，欢迎致电", "routes.a.voice=hibari-heart"],
        "routes.a.greeting: hibari-heart does not speak Chinese",
    ),
    "greeting with a part that its voice cannot speak": (
        ["tts.engine=onnx", "routes.a.greeting=Thank you for calling 王小明", "routes.a.voice=hibari-heart"],
        "routes.a.greeting: hibari-heart does not speak Chinese",
    ),
    "greeting of a route": (
        ['routes."7.1".greeting=...'],
        'routes."7.1".greeting: the text has no letter and no digit',
    ),
    "cache folder": (["cache.disk_dir=/dev/null/cache"], "cache.disk_dir: /dev/null/cache: Not a directory"),
    "accounting in a folder": (["accounting.file=/tmp"], "accounting.file: /tmp: it is a folder; name a file"),
    "accounting with a name that is too long": (
        [f"accounting.file=/tmp/{LONG_NAME}"],
        f"accounting.file: /tmp/{LONG_NAME}: File name too long",
    ),
    "lexicons in a folder with a name that is too long": (
        [f"tts.lexicons_dir=/tmp/{LONG_NAME}"],
        f"tts.lexicons_dir: /tmp/{LONG_NAME}: File name too long",
    ),
    "model of voice activity with a name that is too long": (
        [f"vad.model_file=/tmp/{LONG_NAME}"],
        f"vad.model_file: /tmp/{LONG_NAME}: File name too long",
    ),
    "accounting nowhere": (
        ["accounting.file=/nowhere/a.jsonl"],
        "accounting.file: /nowhere/a.jsonl: its folder does not",
    ),
    "events in a folder": (["webhooks.file=/tmp"], "webhooks.file: /tmp: it is a folder"),
    "events in a device": (["webhooks.file=/dev/null"], "webhooks.file: /dev/null is no file"),
    "prompts in a file": (["prompts.dir=/dev/null"], "prompts.dir: /dev/null is not a folder"),
    "model folder": (["tts.models.a.model_dir=/nowhere"], "tts.models.a.model_dir: /nowhere: no such directory"),
    "address": (["sip.host=192.0.2.7"], "sip.host: 192.0.2.7 is not an address of this machine"),
    "HTTP name": (
        ["http.host=nowhere.invalid", "http.tokens=a-long-token"],
        "http.host: 'nowhere.invalid' is neither an address nor a name that resolves",
    ),
    "one port twice": (["sip.port=18080", "http.port=18080"], "sip.port and http.port are both 18080"),
    "certificate": (
        ['sip.transports=["udp","tls"]', "tls.certificate_file=/nowhere.pem", "tls.private_key_file=/nowhere.key"],
        "tls.certificate_file: /nowhere.pem: no such file",
    ),
}

SERVED = (
    "voice",
    "language of a route",
    "one port twice",
    "certificate",
    "accounting with a name that is too long",
    "lexicons in a folder with a name that is too long",
)
"""A start looks with the same checks: of each kind one is enough."""
OWN_ENGINE = ("engine", "greeting that its voice cannot speak", "model folder")
"""The others are found with any engine: the one that loads in no time serves."""

RUN_SEVERAL = f"""
import json, sys
from cc_tts import cli
for arguments in json.load(sys.stdin):
    try:
        code = cli.main(arguments)
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        print({END!r}, code, file=stream, flush=True)
"""


def several(commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Run commands in one process: most of what one takes are its imports. The status, the output and the errors of each."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CC_TTS_")}
    ran = subprocess.run(
        [sys.executable, "-c", RUN_SEVERAL],
        env=inherited,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    *outputs, _ = re.split(rf"^{END} \d+\n", ran.stdout, flags=re.MULTILINE)
    *errors, _ = re.split(rf"^{END} \d+\n", ran.stderr, flags=re.MULTILINE)
    codes = [int(code) for code in re.findall(rf"^{END} (\d+)$", ran.stdout, re.MULTILINE)]
    return list(zip(codes, outputs, errors, strict=True))


def test_what_start_refuses_check_config_refuses_in_the_same_words() -> None:
    settings = {
        name: [*FREE_PORTS, *(() if name in OWN_ENGINE else ESPEAK), *(word for key in keys for word in ("--set", key))]
        for name, (keys, _) in FAULTS.items()
    }
    checked = several([["check-config", *each] for each in settings.values()])
    for (name, (_, message)), (code, output, errors) in zip(FAULTS.items(), checked, strict=True):
        assert (code, output) == (2, ""), name
        assert message in errors, name
        assert len(errors.splitlines()) == 1, name
        assert "Traceback" not in errors, name
    served = several([["serve", *settings[name], "--set", "log.json=true"] for name in SERVED])
    for name, (code, _, errors) in zip(SERVED, served, strict=True):
        assert code == 1, name
        assert FAULTS[name][1] in errors.replace('\\"', '"'), name
        assert "Traceback" not in errors, name


def test_a_build_of_pjsua2_that_is_not_there() -> None:
    for command in ("check-config", "serve"):
        ran = cc_tts(command, *FREE_PORTS, *ESPEAK, CC_TTS_PJSUA2="/nowhere")
        assert ran.returncode in (1, 2)
        assert "there is no server build of pjsua2 in /nowhere; `cc-tts pjsua2 build` makes it" in ran.stderr


def test_a_good_configuration_is_printed_with_remarks_and_nothing_is_left_behind(tmp_path: Path) -> None:
    cache = tmp_path / "a" / "cache"
    keys = [
        "rtp.port_min=30000", "rtp.port_max=30009", "sip.max_calls=6", "sip.port=30004",
        "routes.hello.greeting=Hello there.", "tts.max_text_chars=5", f"cache.disk_dir={cache}", "routes.hello.voice=de",
        'record.on_saved=["keep-it", "{path}"]',
    ]  # fmt: skip
    ran = cc_tts("check-config", *ESPEAK, *(word for key in keys for word in ("--set", key)))
    assert ran.returncode == 0, ran.stderr
    assert f"disk_dir = '{cache}'" in ran.stdout
    assert "voice = 'de'" in ran.stdout
    assert list(tmp_path.iterdir()) == []
    assert "sip.max_calls is 6, but rtp.port_min to rtp.port_max has ports for 5 calls only" in ran.stderr
    assert "sip.port 30004 lies between rtp.port_min and rtp.port_max" in ran.stderr
    assert "routes.hello.greeting: 12 characters; tts.max_text_chars is 5" in ran.stderr
    assert "record.on_saved: keep-it is no program of this machine" in ran.stderr


def test_make_help_is_in_columns() -> None:
    # What a make that runs the tests hands on, "Entering directory" among it.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    ran = subprocess.run(["make", "help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=env)
    lines = ran.stdout.splitlines()
    width = 2 + max(len(line.split()[1]) for line in lines)
    assert "run" in [line.split()[1] for line in lines]
    for line in lines:
        name = line.split()[1]
        assert line.startswith(f"  make {name:{width}}")
        assert line[7 + width] != " "
